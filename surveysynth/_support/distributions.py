"""Quantiles and ranks, equal to those of ``scipy.stats`` to the bit, without its start-up time.

``scipy.stats`` takes half a second to import; ``scipy.special`` has the functions behind it.
"""

from typing import Any

import numpy as np
from scipy import special

from surveysynth._support.types import FloatArray


def t_quantile(p: Any, df: Any) -> FloatArray:
    """Return quantiles of Student's t distribution; NaN for df that are not above zero."""
    return np.asarray(special.stdtrit(df, p), dtype=np.float64)


def beta_quantile(p: Any, a: Any, b: Any) -> FloatArray:
    """Return quantiles of the beta distribution; NaN for parameters that are not above zero."""
    return np.asarray(special.betaincinv(a, b, p), dtype=np.float64)


def chi_square_quantile(p: Any, df: Any) -> FloatArray:
    """Return quantiles of the chi-square distribution."""
    return np.asarray(2.0 * special.gammaincinv(0.5 * np.asarray(df), p), dtype=np.float64)


def chi_square_tail(x: Any, df: Any) -> FloatArray:
    """Return the probabilities of a chi-square variable above x."""
    return np.asarray(special.chdtrc(df, x), dtype=np.float64)


def normal_density(z: FloatArray) -> FloatArray:
    """Return the density of the standard normal distribution."""
    return np.asarray(np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi))


def average_ranks(values: FloatArray) -> FloatArray:
    """Return the ranks within each column of (n, d) from 1; ties share the average of their ranks.

    A column with a NaN has NaN ranks.
    """
    n, d = values.shape
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    starts = np.ones((n, d), dtype=bool)
    starts[1:] = ordered[1:] != ordered[:-1]
    ranks = np.empty((n, d))
    for column in range(d):
        first = np.flatnonzero(starts[:, column])
        counts = np.diff(first, append=n)
        ranks[order[:, column], column] = np.repeat(first + 0.5 * (counts + 1), counts)
    ranks[:, np.isnan(values).any(axis=0)] = np.nan
    return ranks
