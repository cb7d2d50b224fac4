"""Quantiles of weighted values: inverses of the weighted distribution function, pure arrays.

Woodruff (1952): the interval of a quantile is that of the distribution function at it, inverted.
R's ``svyquantile(interval.type = "mean", qrule = "math")`` does so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.numeric import t_quantile
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.domains import Domains, sums_by_row
from surveysynth.estimation.linearised import Linearise, Linearised

#: Sums of weights are rounded: a share that is reached but for this is reached.
ROUNDING = 1e-12
#: Level of the interval from whose width a standard error is taken.
LEVEL_OF_SE = 0.95
#: How far the distribution function is followed to either side for the density at a quantile, in
#: standard errors of as many independent records as the weights are worth.
REACH = 1.96
_FEW_ROWS = 2**16


def weighted_quantiles(values: FloatArray, weights: FloatArray, shares: FloatArray) -> FloatArray:
    """Return, by share in (0, 1], the smallest value with that share of weight up to it.

    values, weights (n,), weights not all zero; shares (k,) -> (k,).
    """
    order = np.argsort(values, kind="stable")
    return _of_sorted(values[order], weights[order], np.asarray(shares, dtype=np.float64))


def _of_sorted(values: FloatArray, weights: FloatArray, shares: FloatArray) -> FloatArray:
    """Do the same for rising values."""
    reached = np.cumsum(weights)
    return np.asarray(values[np.searchsorted(reached, shares * reached[-1] * (1.0 - ROUNDING))])


@dataclass(frozen=True, eq=False)
class Weighted:
    """Values and weights (n,) of one dataset, with the rows that its records are in.

    calibration: of the weights, where they are calibrated.
    """

    domains: Domains
    values: FloatArray
    weight: FloatArray
    calibration: CalibratedWeights | None = None


class RowDistributions:
    """Distribution functions of D rows of a table, of one dataset or several that are stacked.

    Values are sorted once for all margin sets; a margin set is put in order when it is asked for,
    so that memory is that of the datasets.
    """

    def __init__(self, datasets: Sequence[Weighted]) -> None:
        self._n_rows = datasets[0].domains.n_rows
        self._codes = [each.domains.codes for each in datasets]
        values = np.concatenate([each.values for each in datasets])
        self._order = np.argsort(values, kind="stable")
        self._values = values[self._order]
        self._weights = np.concatenate([each.weight for each in datasets])[self._order]

    def inverse(self, shares: FloatArray) -> FloatArray:
        """Return the smallest values that reach shares (K, D), shape (K, D).

        NaN for a share below 0 or above 1, and for rows without records.
        """
        result = np.full(shares.shape, np.nan)
        for row, values, weights in self._rows():
            wanted = shares[:, row]
            known = (wanted >= 0.0) & (wanted <= 1.0)
            if values.size and known.any():
                result[known, row] = _of_sorted(values, weights, wanted[known])
        return result

    def _rows(self) -> Iterator[tuple[int, FloatArray, FloatArray]]:
        """Every row with records: its values, rising, and their weights, none of which is zero."""
        for margin_set in range(len(self._codes[0])):
            rows = np.concatenate([each[margin_set] for each in self._codes])[self._order]
            # Few distinct codes are sorted by radix, in linear time.
            small = rows.astype(np.uint16) if self._n_rows <= _FEW_ROWS else rows
            by_row = np.argsort(small, kind="stable")
            by_row = by_row[self._weights[by_row] > 0.0]
            rows, values, weights = rows[by_row], self._values[by_row], self._weights[by_row]
            starts = np.flatnonzero(np.diff(rows, prepend=-1))
            for start, stop in zip(starts, [*starts[1:], rows.size], strict=True):
                yield int(rows[start]), values[start:stop], weights[start:stop]


def distribution(
    domains: Domains, weight: FloatArray, outcome: FloatArray, at: FloatArray
) -> Linearised:
    """Estimate the distribution functions of the rows at values ``at`` (D,).

    They are means of the indicator y <= at, with u = w d (1(y <= at) - F) / N_d, calibrated or not.
    """
    size, under = sums_by_row(domains, weight), np.zeros(domains.n_rows)
    for rows in domains.codes:
        under += np.bincount(rows, weight * (outcome <= at[rows]), minlength=domains.n_rows)
    share = under / size

    def inside(rows: IntArray) -> FloatArray:
        return np.asarray(weight * ((outcome <= at[rows]) - share[rows]) / size[rows])

    return Linearised(share, inside, parts=(under, size))


def quantile(p: float) -> Linearise:
    """Return the array function of a quantile: q = the inverse of F at p, u = -u of F(q) / f(q)."""

    def linearise(
        domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
    ) -> Linearised:
        data = [Weighted(domains, outcome, weight)]
        rows = RowDistributions(data)
        at = rows.inverse(np.full((1, domains.n_rows), p))[0]
        function, slope = distribution(domains, weight, outcome, at), slopes(rows, data, p)
        return Linearised(at, lambda codes: function.inside(codes) * slope[codes])

    return linearise


def slopes(rows: RowDistributions, data: Sequence[Weighted], p: float) -> FloatArray:
    """Return minus one over the density (D,) of stacked datasets at their quantile of share p.

    The density is the rise of F over its run between two quantiles: those ``REACH`` standard
    errors of F to either side, computed for Kish's effective number of records of one dataset.
    """
    size = sum(sums_by_row(each.domains, each.weight) for each in data)
    squares = sum(sums_by_row(each.domains, each.weight**2) for each in data)
    reach = REACH * np.sqrt(p * (1.0 - p) * squares * len(data)) / size
    low, high = np.clip([p - reach, p + reach], 0.0, 1.0)
    run = np.diff(rows.inverse(np.stack([low, high])), axis=0)[0]
    return np.asarray(-run / (high - low))


def woodruff(
    rows: RowDistributions, share: FloatArray, se: FloatArray, df: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (D,) of the interval of a quantile.

    They come from the distribution function at the quantile: its value ``share``, standard error
    and degrees of freedom (D,). NaN where an end of the interval share ± t SE is outside 0 to 1,
    because there are too few records.
    """
    half = t_quantile(0.5 * (1.0 + level), df) * se
    lower, upper = rows.inverse(np.stack([share - half, share + half]))
    return lower, upper


def woodruff_se(
    rows: RowDistributions,
    at: FloatArray,
    share: FloatArray,
    se: FloatArray,
    df: FloatArray,
) -> FloatArray:
    """Return standard errors (D,) of quantiles ``at``.

    They are the width of the 95% interval over 2 t, or one side over t where the other has no end.
    """
    lower, upper = woodruff(rows, share, se, df, LEVEL_OF_SE)
    t = t_quantile(0.5 * (1.0 + LEVEL_OF_SE), df)
    with np.errstate(invalid="ignore"):
        sides = np.stack([at - lower, upper - at])
        known = np.isfinite(sides)
        width = np.where(known, sides, 0.0).sum(axis=0)
        return np.asarray(np.where(known.any(axis=0), width / (known.sum(axis=0) * t), np.nan))
