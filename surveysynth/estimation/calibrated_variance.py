"""Taylor variances of calibrated estimates: of the residuals of the calibration regression.

With z = u / w the linearised variable of a row per unit of weight, the variance is that of
w (z - x'B), B = (sum d x x')^-1 sum d x z, whatever the method that made the weights w from d
(Deville and Sarndal 1992). Every record has such a residual in every row. No records-by-rows matrix
is made: with S the sum over strata of squared deviations of PSUs, and W the sums of w x,

    S(u - W B) = S(u, u) - 2 B'S(W, u) + B'S(W, W) B

where the first term has records inside a row alone. Where little is left of it, as in rows whose
count is a calibration total, the residuals are written out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.stratum_variance import Pairs, squares_by_row

#: A weight below this share of its base weight is zero.
_VANISHED = 1e-200
#: Rows that keep less than this share of the first term have their residuals written out.
_LITTLE = 1e-4


@dataclass(frozen=True, eq=False)
class Regression:
    """The part of a linearised variable that calibration explains.

    weighted: w x (n, p); coefficient: B of each row (D, p).
    """

    weighted: FloatArray
    coefficient: FloatArray

    @classmethod
    def of(
        cls,
        calibrated: CalibratedWeights,
        domains: Domains,
        inside: Callable[[int], FloatArray],
    ) -> "Regression":
        """Regress u (n,) of the records in each row, given by margin set, on x."""
        ratio = calibrated.ratio
        vanished = np.abs(ratio) < _VANISHED  # such a record has no u, whose z is unknown
        per_unit = np.where(vanished, 0.0, 1.0 / np.where(vanished, 1.0, ratio))
        explained = calibrated.x @ calibrated.projection * per_unit[:, None]
        sums = np.zeros((domains.n_rows, explained.shape[1]))
        for margin_set, rows in enumerate(domains.codes):
            _add_by_row(sums, rows, explained, inside(margin_set))
        weighted = calibrated.weight[:, None] * calibrated.x
        return cls(weighted, sums @ calibrated.projection.T)


def residual_squares(
    regression: Regression,
    domains: Domains,
    design: SampleDesign,
    inside: Callable[[int], FloatArray],
) -> FloatArray:
    """Return sums over strata of squared deviations of the residuals of PSUs, (D,).

    inside: from a margin set to u (n,) of records in the rows that they are in there.
    """
    centred = _centred(_by_psu(regression.weighted, design), design)
    factor = design.multiplier[design.psu_strata][:, None]
    of_x = centred.T @ (factor * centred)
    of_record = factor * centred
    if design.psu is not None:
        of_record = of_record[design.psu]
    squares, crossed = np.zeros(domains.n_rows), np.zeros(regression.coefficient.shape)
    for margin_set, rows in enumerate(domains.codes):
        pairs, values = Pairs.of(rows, domains.n_rows, design), inside(margin_set)
        squares += squares_by_row(pairs, design, values, None)
        _add_by_row(crossed, rows, of_record, values)
    b = regression.coefficient
    result = squares - 2.0 * (b * crossed).sum(axis=1) + np.einsum("dp,pq,dq->d", b, of_x, b)
    little = ~(result > _LITTLE * squares) & np.isfinite(squares)
    for margin_set, rows in enumerate(domains.codes):
        for row in np.unique(rows[little[rows]]):
            whole = (rows == row) * inside(margin_set) - regression.weighted @ b[row]
            of_psu = _centred(_by_psu(whole[:, None], design), design)
            result[row] = float((factor * of_psu**2).sum())
    return np.asarray(result)


def _add_by_row(
    sums: FloatArray, rows: IntArray, columns: FloatArray, values: FloatArray
) -> None:
    """Add to sums (D, p) the columns (n, p) times values (n,) of the records of each row."""
    for column in range(columns.shape[1]):
        sums[:, column] += np.bincount(rows, columns[:, column] * values, minlength=len(sums))


def _by_psu(values: FloatArray, design: SampleDesign) -> FloatArray:
    """Sum records (n, p) within PSUs (C, p)."""
    if design.psu is None:
        return values
    sums = [np.bincount(design.psu, column) for column in values.T]
    return np.stack(sums, axis=1)


def _centred(values: FloatArray, design: SampleDesign) -> FloatArray:
    """Take PSUs (C, p) around the mean of their stratum, a single one around zero."""
    size = design.psus_in_stratum
    means = [np.bincount(design.psu_strata, column) / size for column in values.T]
    mean = np.where((size > 1)[:, None], np.stack(means, axis=1), 0.0)
    return np.asarray(values - mean[design.psu_strata])
