"""Where groups of records lie: the first stage of statistics by group, and its proof (strict 2).

Groups lie apart, so a ball about the declared centres that holds all of them is wide, and the noise
of squares grows with the square of its radius. Squares about a distant centre also say where a
group lies: a spread that is guessed too large or too small moves its mean. So a small share of
the budget is spent on sums alone, about the declared centres; each group gets a centre from them,
and its records are clipped about that, to a smaller ball.

**Cost.** Neighbours change T_1 = A'U by a (v - u)', whose squared length |a|^2 |u - v|^2 is at most
4 R^2, R the radius of the first ball: the line ``ONE_BLOCK`` of ``sensitivity``, which holds
without squares as well. Centres are functions of noisy numbers. Whatever they are, the proof of the
second stage holds, with centres as its public constants. Costs add up under adaptive composition
(Bun and Steinke 2016, Lemma 2.3): rho_1 is a share of the budget and rho_2 the rest, rounded down.

**Centres.** Means of groups in spreads, m_b with known variances (noise, and 1/n of sampling), are
smoothed by the posterior mean of a regression on X whose effects have SD one, or that of shrunken
interactions: near the common centre where noise is large, and those of the groups where it is not.

**Nothing is lost.** Both stages are noisy sums of the same records but for what balls cut, T_1 =
T_2 + G 1 c' with public G: their mean by precision is one noisy sum.

Only where numbers of records by row of X are public: with categories they are not.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from surveysynth._support.numeric import rounded_down
from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import (
    group_variances,
    noise_variances,
)
from surveysynth.mechanisms.noisy_statistics.release.statistics import Published

#: Share of the budget of a group's statistics that goes to the first sums.
FIRST_SHARE = 0.15


@dataclass(frozen=True)
class GroupSums(Published):
    """Noisy first sums A'U of blocks about the common centre, and centres: nothing confidential.

    cross: of each block (r, q), in spreads; centres (blocks, q): what became the centre of each, in
    spreads from the common one; sigma: SD of the noise; radius: of the first ball; rho: their cost.
    """

    cross: tuple[FloatArray, ...]
    centres: FloatArray
    sigma: float
    radius: float
    rho: float

    def _check_shapes(self) -> None:
        if self.centres.ndim != 2 or len(self.cross) != len(self.centres):
            raise ValueError("every block has first sums and a centre")
        for each in self.cross:
            if each.shape[1:] != self.centres.shape[1:] or not np.isfinite(each).all():
                raise ValueError(f"a block has first sums {each.shape}")
        if not np.isfinite(self.centres).all():
            raise ValueError("centres are finite numbers")


def two_stages(rho: float) -> tuple[float, float]:
    """Return rho of the first sums and of what follows, rounded down."""
    cost = Fraction(rho) * Fraction(FIRST_SHARE)
    return rounded_down(cost), rounded_down(Fraction(rho) - cost)


def smoothed_means(
    means: FloatArray, variance: FloatArray, rows: FloatArray, precision: FloatArray
) -> FloatArray:
    """Return centres (b, q): posterior means of rows (b, K) times coefficients.

    means (b, q) with variances (b,), infinite where there are no records; precision (K,) of the
    prior of coefficients, all about zero.
    """
    weighted = rows / variance[:, None]
    solution = np.linalg.solve(weighted.T @ rows + np.diag(precision), weighted.T @ means)
    return np.asarray(rows @ solution, dtype=np.float64)


def within(centres: FloatArray, radius: float) -> FloatArray:
    """Return centres (b, q) moved into the first ball."""
    length = np.sqrt((centres * centres).sum(1, keepdims=True))
    return np.asarray(centres * np.minimum(1.0, radius / np.maximum(length, radius)))


def pooled_sd(first: float, second: float) -> float:
    """Return the SD of the mean by precision of numbers with these SDs."""
    return float((first**-2.0 + second**-2.0) ** -0.5)


def group_noise(
    clipping: Clipping, rho: float, second: float, records: int = 1
) -> tuple[float, FloatArray]:
    """Return SDs of the noise of a group's sums and squares (q, q), u in spreads, by two stages.

    second: radius of the ball about centres.
    """
    cost, left = two_stages(rho)
    ball = Clipping(clipping.centre, clipping.spread, second)
    noise = group_variances(ball, left, records)
    first = noise_variances(clipping, cost, records).cross_sd(clipping)
    return pooled_sd(first, noise.cross_sd(ball)), noise.squares_sd(ball)
