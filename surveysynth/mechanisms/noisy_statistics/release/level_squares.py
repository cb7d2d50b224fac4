"""Squares of the weight by level: release and proof.

E(w | level) depends on how the transformed weight is spread among the records of a level. With one
spread for all levels of a cell, a survey of 8,250 visits had a weighted share of .324 for a level
whose share is .368, without any noise. Means by level come from the sums of blocks; this stage adds
what they lack.

**What is released.** Record i has u_i, its transformed weight about the common center, in spreads,
cut at +-R on a grid of whole steps. For every outcome j with categories and each of its levels l,

    V_jl = sum of u_i^2 over the records with d_ij = l,    R = ``RADIUS``.

**One record.** For each of the p outcomes, neighbors differ in one entry by |u^2 - v^2| <= R^2, or
in two by u^2 and v^2, where the level differs: |dV|^2 <= 2 p R^4. It is attained: u = v = R, and
another level of every outcome. Units of up to K records: K times the distance, by the triangle
inequality.

**Noise.** Discrete Gaussian of variance 2 p K^2 R^4 / (2 rho_0) on each entry, in whole numbers of
steps^4: rho_0 is the public ``SHARE`` of what learned transforms and products between PSUs leave.
Costs add up (Bun and Steinke 2016, Lemma 2.3).
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import (
    BLOCK,
    NoiseSource,
    Published,
    SystemNoise,
    added,
)
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping

#: R, in spreads: it cuts one normal record of a hundred, and the law of V knows that it does.
RADIUS = 2.5
#: Share of the budget.
SHARE = 1.0 / 32.0


@dataclass(frozen=True)
class LevelSquares(Published):
    """Noisy squares (E,) of the weight by level, outcome after outcome: nothing confidential.

    sd: of the noise of each; radius: R, both in spreads; rho: their cost, for units of protection
    of up to ``records`` records.
    """

    squares: FloatArray
    sd: float
    radius: float
    rho: float
    records: int
    noise: str

    def _check_shapes(self) -> None:
        if self.squares.ndim != 1 or not np.isfinite(self.squares).all():
            raise ValueError("squares by level are a list of finite numbers")


def has_levels(shape: LocationShape) -> bool:
    """Return True if there are squares by level: with a weight and categories."""
    return shape.weighted and bool(shape.discrete)


def ball(clipping: Clipping) -> Clipping:
    """Return the interval of the weight, the last column of z."""
    return Clipping(clipping.centre[-1:], clipping.spread[-1:], RADIUS)


def noise_variance(shape: LocationShape, clipping: Clipping, rho: Fraction, records: int) -> int:
    """Return the variance of the noise in steps^4 of the interval that costs rho."""
    squared = 2 * len(shape.discrete) * records**2 * Fraction(ball(clipping).steps) ** 4
    return math.ceil(squared / (2 * rho))


def exact_squares(
    shape: LocationShape, clipping: Clipping, category: IntArray, z: FloatArray
) -> IntArray:
    """Return V (E,), objects, in steps^2. Confidential; category (n, outcomes), z (n, q)."""
    flags, own = shape.flags.T.astype(object), ball(clipping)
    total = np.zeros(len(flags), dtype=object)
    combination = shape.combination_of(category)
    for start in range(0, len(z), BLOCK):
        part = slice(start, start + BLOCK)
        u = own.on_grid(z[part, -1:])[:, 0]
        # By combination first, in 64 bits: 2^18 squares of at most 2^42.
        by_combination = np.zeros(len(shape.combinations), dtype=np.int64)
        np.add.at(by_combination, combination[part], u * u)
        total = total + flags @ by_combination.astype(object)
    return np.asarray(total)


def level_squares(
    shape: LocationShape,
    clipping: Clipping,
    category: IntArray,
    z: FloatArray,
    *,
    rho: Fraction,
    records: int = 1,
    source: NoiseSource | None = None,
) -> LevelSquares:
    """Release the squares by level within ``rho``; see ``exact_squares`` for the arrays."""
    source = SystemNoise() if source is None else source
    variance = noise_variance(shape, clipping, rho, records)
    noisy = added(exact_squares(shape, clipping, category, z), variance, source)
    step = ball(clipping).step
    return LevelSquares(
        noisy.astype(np.float64) * step**2, math.sqrt(variance) * step**2, ball(clipping).radius,
        float(rho), records, source.kind,
    )  # fmt: skip
