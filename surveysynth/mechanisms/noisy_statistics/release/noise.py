"""Discrete Gaussian noise, exact (Canonne, Kamath & Steinke 2020, algorithms 1 to 3).

P(x) is proportional to exp(-x^2 / (2 sigma^2)) on the whole numbers. Integers and fractions only:
there are no floating-point numbers, whose digits could reveal what the noise hides (Mironov 2012).
Added to whole numbers x_j, one of its own variance to each, it is rho-zCDP with
rho = sum_j change_j^2 / (2 sigma_j^2): the divergence of order alpha between two shifts by whole
numbers is at most that of normal distributions, and those of independent numbers add up.

``Published`` is what a release keeps of exact sums with such noise.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from types import UnionType
from typing import Any, Self

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.noise_design import ROW_BITS, Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import NoiseVariances

#: Random bytes are fetched by the block: a call of the operating system for each is slow.
BLOCK_BYTES = 4096


class NoiseSource(ABC):
    """A source of exact noise: samplers on uniform whole numbers.

    ``kind`` is "system" (randomness of the operating system: the only one that makes a release
    private) or "seeded" (a generator that can be run again).
    """

    kind: str

    @abstractmethod
    def _integers(self) -> "_Integers":
        """Return the source of whole numbers."""

    def draw(self, variance: int | Fraction, size: int) -> list[int]:
        """Draw ``size`` independent whole numbers with the parameter sigma^2 = ``variance`` > 0."""
        if variance <= 0:
            raise ValueError(f"the variance of noise is above 0, got {variance}")
        integers = self._integers()
        return [_discrete_gaussian(Fraction(variance), integers) for _ in range(size)]


class SystemNoise(NoiseSource):
    """Exact noise from the operating system's cryptographic generator."""

    kind = "system"

    def _integers(self) -> "_Integers":
        # Bytes of a call of its own: kept ones would be the same ones in a forked process.
        return _Integers(os.urandom)


class SeededNoise(NoiseSource):
    """Exact noise that a seed repeats: for tests and studies, not private."""

    kind = "seeded"

    def __init__(self, rng: np.random.Generator) -> None:
        self._own = _Integers(rng.bytes)

    def _integers(self) -> "_Integers":
        return self._own


def added(values: IntArray, variance: int | Fraction, source: NoiseSource) -> IntArray:
    """Return whole numbers (any shape, of objects), each with its own noise."""
    noise = source.draw(variance, values.size)
    result = np.empty(values.size, dtype=object)
    result[:] = [int(value) + each for value, each in zip(values.ravel(), noise, strict=True)]
    return result.reshape(values.shape)


def added_to_symmetric(
    values: IntArray,
    diagonal: int,
    off_diagonal: int,
    source: NoiseSource,
    upper: tuple[IntArray, IntArray] | None = None,
) -> FloatArray:
    """Return a symmetric matrix (q, q) of objects with noise on and above its diagonal.

    What is below the diagonal is a copy. diagonal, off_diagonal: variances; ``upper``: rows and
    columns (k,) of what is released, other entries become zero; all by default."""
    upper = np.triu_indices(len(values)) if upper is None else upper
    entries, on_diagonal = values[upper], upper[0] == upper[1]
    entries[on_diagonal] = added(entries[on_diagonal], diagonal, source)
    entries[~on_diagonal] = added(entries[~on_diagonal], off_diagonal, source)
    whole = np.zeros(values.shape)
    whole[upper] = whole.T[upper] = entries.astype(np.float64)
    return whole


class _Integers:
    """Uniform whole numbers below any bound, of random bytes."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._block, self._used = b"", 0

    def below(self, bound: int) -> int:
        """Draw one of 0, .., bound - 1, all equally likely; larger numbers are rejected."""
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            value = int.from_bytes(self._take(size), "little") >> (8 * size - bits)
            if value < bound:
                return value

    def _take(self, size: int) -> bytes:
        if self._used + size > len(self._block):
            self._block, self._used = self._random_bytes(max(BLOCK_BYTES, size)), 0
        self._used += size
        return self._block[self._used - size : self._used]


def _discrete_gaussian(variance: Fraction, integers: _Integers) -> int:
    """Draw a discrete Gaussian number by rejection (algorithm 3).

    Discrete Laplace numbers y of scale t = floor(sigma) + 1 are each kept with probability
    exp(-(|y| - sigma^2/t)^2 / (2 sigma^2))."""
    a, b = variance.numerator, variance.denominator
    scale = math.isqrt(a // b) + 1
    denominator = 2 * a * b * scale * scale
    while True:
        value = _discrete_laplace(scale, integers)
        distance = abs(value) * b * scale - a
        if _exponential_coin(distance * distance, denominator, integers):
            return value


def _discrete_laplace(scale: int, integers: _Integers) -> int:
    """Draw y with P(y) proportional to exp(-|y| / scale) (algorithm 2)."""
    while True:
        remainder = integers.below(scale)
        if not _exponential_coin(remainder, scale, integers):
            continue
        times = 0
        while _exponential_coin(1, 1, integers):
            times += 1
        value = remainder + scale * times
        negative = integers.below(2)
        if value or not negative:  # zero must not count twice
            return -value if negative else value


def _exponential_coin(numerator: int, denominator: int, integers: _Integers) -> bool:
    """Return True with probability exp(-numerator/denominator), numerator >= 0 (algorithm 1)."""
    while numerator > denominator:
        if not _exponential_coin(1, 1, integers):
            return False
        numerator -= denominator
    count = 1
    while integers.below(denominator * count) < numerator:
        count += 1
    return count % 2 == 1


BLOCK = 2**18
#: Records whose sums stay inside 64-bit whole numbers.
MOST_RECORDS = 2**26
#: Numbers of arrays in published statistics.
ARRAYS: dict[Any, type] = {FloatArray: np.float64, IntArray: np.int64, BoolArray: np.bool_}


@dataclass(frozen=True)
class Published:
    """Released statistics as JSON, read back exactly."""

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, words and nested lists."""
        values = {item.name: _plain(getattr(self, item.name)) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Return the inverse of ``to_dict``.

        Raise ``InputError`` where entries do not fit together."""
        names = [item.name for item in fields(cls)]
        given = {**{item.name: None for item in fields(cls) if item.default is None}, **given}
        wrong = sorted(set(names) ^ set(given))
        if wrong:
            raise InputError(
                f"Noisy statistics have the entries {', '.join(names)}; missing or unknown here: "
                f"{', '.join(wrong)}."
            )
        try:
            result = cls(**{item.name: _read(item.type, given[item.name]) for item in fields(cls)})
            result._check_shapes()
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(f"Noisy statistics do not fit together: {error}.") from None
        return result

    def _check_shapes(self) -> None:
        """Raise ``ValueError`` unless arrays fit together and are finite."""


def noisy_moments(
    cross: IntArray,
    squares: IntArray,
    variances: NoiseVariances,
    clipping: Clipping,
    source: NoiseSource,
) -> tuple[FloatArray, FloatArray]:
    """Return exact sums (r, q) and squares (q, q) of a block with noise, u in spreads.

    Every sum, and every entry on and above the diagonal of the squares, has noise of its own."""
    sums = noisy_sums(cross, variances, clipping, source)
    noisy = added_to_symmetric(squares, variances.diagonal, variances.off_diagonal, source)
    return sums, noisy * clipping.step**2


def noisy_sums(
    cross: IntArray, variances: NoiseVariances, clipping: Clipping, source: NoiseSource
) -> FloatArray:
    """Return exact sums (r, q) with noise, u in spreads."""
    noisy = added(cross, variances.cross, source)
    return np.asarray(noisy.astype(np.float64) * (2.0**-ROW_BITS * clipping.step))


def _read(kind: Any, value: Any) -> Any:
    """Return the value of a field of a kind from lists of lists."""
    if isinstance(kind, UnionType):  # a stage that there may be
        return None if value is None else kind.__args__[0].from_dict(value)
    if kind == tuple[FloatArray, ...]:
        # A matrix without columns has lists without numbers, and one without rows is empty.
        return tuple(
            np.array(each, np.float64).reshape(len(each), len(each[0]) if each else 0)
            for each in value
        )
    if kind in ARRAYS:
        return np.array(value, ARRAYS[kind])
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Published):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def add_by_code(sums: IntArray, codes: IntArray, u: IntArray) -> None:
    """Add u (n, q) to the sums (G, q) by code (n,)."""
    # Doubles hold these whole numbers exactly: a block has 2^18 records of at most 2^21 steps.
    for j, column in enumerate(u.T):
        sums[:, j] += np.bincount(codes, weights=column, minlength=len(sums)).astype(np.int64)
