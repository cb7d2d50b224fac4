"""Identification risk of synthetic data ([S] eq. 1): how well a record stands out in them.

All functions read confidential values: nothing here is part of a release.

Topcoding is the comparator of risk-weighted synthesis in [S], never part of a release. Its
threshold is a quantile of the confidential data, and it leaves everything below unchanged: it
assumes that only the upper tail is at risk.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.quantiles import weighted_quantiles
from surveysynth.mechanisms.pseudo_posterior.risk import (
    ball_edges,
    check_radius,
    count_inside,
    count_risk,
    pattern_codes,
)


@dataclass(frozen=True, eq=False, repr=False)
class IdentificationRisk:
    """Risks of all records (n,), in file order. Confidential.

    before: share of the confidential values of i's pattern outside its ball B(y_i, r), the risk in
    the confidential data; after: IR_i of the synthetic data, mean over datasets; isolated: mean
    share of synthetic values of i's pattern outside the ball; own_inside: mean of T_i, the share of
    datasets whose value of record i itself lies in the ball.
    """

    before: FloatArray
    after: FloatArray
    isolated: FloatArray
    own_inside: FloatArray
    datasets: int

    def to_frame(self) -> pd.DataFrame:
        """Return one row a record."""
        names = ("before", "after", "isolated", "own_inside")
        return pd.DataFrame({name: getattr(self, name) for name in names})

    def summary(self, shares: Sequence[float] = (0.5, 0.9, 0.99)) -> pd.DataFrame:
        """Return mean, quantiles and maximum over records of the risks before and after."""
        rows = {}
        for name in ("before", "after"):
            risk = getattr(self, name)
            rows[name] = {
                "mean": risk.mean(),
                **{f"q{share:g}": np.quantile(risk, share) for share in shares},
                "max": risk.max(),
                "sd": risk.std(),
            }
        return pd.DataFrame(rows).T.rename_axis("risk").reset_index()


def identification_risk(
    outcome: FloatArray,
    synthetic: Iterable[FloatArray],
    *,
    radius: float,
    absolute: bool = False,
    frame: pd.DataFrame | None = None,
    pattern: Sequence[str] = (),
) -> IdentificationRisk:
    """Compute IR_i = (share of synthetic y* of i's pattern outside B(y_i, r)) T_i.

    The result is the mean over datasets.

    Parameters
    ----------
    outcome
        Confidential values (n,), original units.
    synthetic
        Datasets (n,) each, whose row i is the synthetic version of record i.
    radius, absolute
        Radius of the closed ball about the confidential value: a share of it, or in its units.
    frame, pattern
        Public columns, and those that the intruder knows; none: marginal risk.

    Returns
    -------
    IdentificationRisk
        ``before`` and ``after`` (n,), ``summary()``. Confidential.

    Raises
    ------
    InputError
        For a radius out of range, missing columns, datasets of another size or none.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> found = ss.identification_risk(
    ...     np.array([10.0, 11.0, 90.0]), [np.array([10.5, 40.0, 91.0])], radius=0.1
    ... )
    >>> found.after.round(3)
    array([0.667, 0.   , 0.667])
    """
    check_radius(radius, absolute=absolute)
    codes = _codes(frame, pattern, outcome.size)
    lower, upper = ball_edges(outcome, radius, absolute=absolute)
    size = np.bincount(codes)[codes]
    after, isolated, own_inside = (np.zeros(outcome.size) for _ in range(3))
    datasets = 0
    for values in synthetic:
        if values.shape != outcome.shape:
            raise InputError(
                f"dataset {datasets + 1}: expected {outcome.size} synthetic values, record by "
                f"record, got an array of shape {values.shape}."
            )
        inside = count_inside(values, codes, lower, upper, codes)
        own = (values >= lower) & (values <= upper)
        outside = 1.0 - inside / size
        isolated += outside
        own_inside += own
        after += outside * own
        datasets += 1
    if datasets == 0:
        raise InputError("identification risk needs at least one synthetic dataset, got none.")
    before = count_risk(outcome, radius, codes, absolute=absolute)
    return IdentificationRisk(
        before, after / datasets, isolated / datasets, own_inside / datasets, datasets
    )


def _codes(frame: pd.DataFrame | None, pattern: Sequence[str], n: int) -> IntArray:
    if not pattern:
        return np.zeros(n, dtype=np.int64)
    missing = [name for name in pattern if frame is None or name not in frame.columns]
    if frame is None or missing:
        raise InputError(f"pattern: there is no public column {missing[0]!r} in frame.")
    if len(frame) != n:
        raise InputError(f"frame: expected {n} rows, one a record, got {len(frame)}.")
    return pattern_codes(frame, tuple(pattern), n)


@dataclass(frozen=True, eq=False, repr=False)
class Topcoded:
    """The result: confidential.

    outcome (n,): values above ``threshold`` set to it; coded (n,): which ones.
    """

    outcome: FloatArray
    coded: BoolArray
    threshold: float
    quantile: float

    def to_frame(self) -> pd.DataFrame:
        """Return one row a record."""
        return pd.DataFrame({"outcome": self.outcome, "coded": self.coded})


def topcode(
    outcome: FloatArray, quantile: float, sampling_weight: FloatArray | None = None
) -> Topcoded:
    """Set values above a quantile of the data to that quantile.

    With weights it is the quantile of the population.

    Parameters
    ----------
    outcome
        (n,).
    quantile
        In (0, 1): the threshold is the smallest value with at least that share of records (or
        weight) up to it.
    sampling_weight
        (n,), or None.

    Returns
    -------
    Topcoded
        ``outcome`` (n,), ``coded`` (n,), ``threshold``: confidential.

    Raises
    ------
    InputError
        For a quantile outside (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> ss.topcode(np.array([1.0, 2.0, 3.0, 40.0]), 0.75).outcome
    array([1., 2., 3., 3.])
    """
    if not 0 < quantile < 1:
        raise InputError(f"quantile must be between 0 and 1, got {quantile!r}.")
    weight = np.ones(outcome.shape) if sampling_weight is None else sampling_weight
    threshold = float(weighted_quantiles(outcome, weight, np.array([quantile]))[0])
    return Topcoded(np.minimum(outcome, threshold), outcome > threshold, threshold, quantile)
