"""Korn and Graubard's intervals of proportions: Clopper and Pearson's at an effective size."""

import numpy as np
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.combining import Combined

__all__ = ["korn_graubard", "korn_graubard_interval"]


def korn_graubard(
    p: FloatArray, effective: FloatArray, n: FloatArray, df: FloatArray, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Limits (D,) of the Clopper-Pearson interval at an effective sample size.

    Korn and Graubard (1998): the effective sample size p(1 - p)/se^2 times
    (t_(n-1) / t_df)^2, at most n, takes the place of n. NaN where p is outside 0..1. R's
    ``svyciprop(method = "beta")`` is the same but for the limit n.
    """
    tail = 0.5 + level / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (stats.t.ppf(tail, n - 1) / stats.t.ppf(tail, df)) ** 2
        size = np.minimum(effective * ratio, n)
        x = size * p
        lower = np.where(p == 0, 0.0, stats.beta.ppf(1 - tail, x, size - x + 1))
        upper = np.where(p == 1, 1.0, stats.beta.ppf(tail, x + 1, size - x))
    return lower, upper


def korn_graubard_interval(
    combined: Combined, n: IntArray, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Limits (D,) of combined proportions of n (D,) records, with their standard errors and degrees
    of freedom; at 0 and 1, where no variance tells it, the records count as independent."""
    p, records = combined.estimate, n.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = p * (1 - p) / combined.standard_error**2
    effective = np.where((p == 0) | (p == 1), records, effective)
    return korn_graubard(p, effective, records, combined.df, level)
