"""Numbers: quantiles of distributions, and fractions as doubles on the safe side.

Quantiles equal those of ``scipy.stats`` to the bit, which takes half a second to import;
``scipy.special`` has the functions behind it.
"""

import math
from fractions import Fraction
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


def rounded_down(value: Fraction) -> float:
    """Return the nearest double that is not above a fraction."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)
