"""Numbers: quantiles of distributions, places of values, and fractions on the safe side.

Quantiles equal those of ``scipy.stats`` to the bit, which takes half a second to import;
``scipy.special`` has the functions behind it.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

from surveysynth._support.types import FloatArray, IntArray


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


#: Records of a block, whose arrays stay in the processor's cache.
BLOCK = 2**15
#: Equal steps for each edge by which ``Places`` looks values up.
STEPS = 16


def blocks(n: int) -> Iterator[slice]:
    """Yield the blocks of n records."""
    for start in range(0, n, BLOCK):
        yield slice(start, start + BLOCK)


class Places:
    """Looks up many values among edges (J,), which rise.

    A binary search takes several times as long: here a table over equal steps says where most
    values are, and only the others are searched.
    """

    def __init__(self, edges: FloatArray) -> None:
        self._edges, self._after = edges, np.append(edges, np.inf)
        self._last = STEPS * edges.size - 1
        run = float(edges[-1] - edges[0])
        self._rate = self._last / run if run > 0 else 0.0
        # Steps never fall from one value to a higher one, however they are rounded.
        self._before = np.searchsorted(self._step(edges), np.arange(self._last + 1))

    def _step(self, values: FloatArray) -> IntArray:
        steps = (values - self._edges[0]) * self._rate
        return np.asarray(np.clip(steps, 0.0, self._last), dtype=np.int64)

    def of(self, values: FloatArray) -> IntArray:
        """Return how many edges there are up to each value (n,), as ``np.searchsorted`` "right"."""
        found: IntArray = self._before[self._step(values)]
        beyond = np.flatnonzero(values >= self._after[found])
        found[beyond] = np.searchsorted(self._edges, values[beyond], "right")
        return found
