"""Sums by primary sampling unit (PSU) of outcomes of every kind, with noise: release and proof.

**What is released.** Record i has u_i, its amounts and log weight on the grid of the ball, zero in
columns that it lacks, and one category of each of p discrete outcomes. For every PSU j

    S_j = sum over its records of (u_i, k 1[d_i1 = 0], k 1[d_i1 = 1], .., k 1[d_ip = last]),

with k^2 = share R^2. Sums of u are whole numbers of steps, the others k times whole counts. Who is
in which PSU is public.

**One record.** Neighbours differ in (u, d) of one record, which becomes (v, d'). Its PSU stays, so
one S_j changes. With |u|, |v| <= R the first part moves by |u - v|^2 <= 4 R^2, whichever columns
are zero. Each discrete outcome takes one away from a count and adds one to another, or does
nothing: 2 k^2 at most. So

    |change|^2 <= D^2 = 4 R^2 + 2 p k^2 = R^2 (4 + 2 p share),

attained by v = -u on the sphere with all categories changed.

**Units of protection of up to K records.** Their records may lie in several PSUs. Change one after
the other: by the triangle inequality the vector of all S_j moves by at most K D.

**Noise.** A discrete Gaussian number of variance s^2 = K^2 D^2 / (2 rho_0) on every sum of u, and
of variance s^2 / k^2 on every count, all independent: rho = K^2 D^2 / (2 s^2) = rho_0. Variances
are fractions of the doubles that are declared, and rounded up.

**Composition.** These sums spend rho_0, a share of what learned transforms leave, and counts and
moments by block spend the rest, rounded down. Costs add up (Bun and Steinke 2016).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np

from surveysynth._support.exact import rounded_down
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource, SystemNoise, added
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import COUNT_BITS
from surveysynth.mechanisms.noisy_statistics.release.statistics import (
    BLOCK,
    Published,
    add_by_code,
)


@dataclass(frozen=True)
class UnitVariances:
    """Parameters of the discrete Gaussians: of sums of u in steps^2, and of counts."""

    amounts: int
    counts: Fraction


@dataclass(frozen=True)
class UnitSums(Published):
    """Noisy sums by PSU: nothing confidential.

    amounts (C, q): sums of u in spreads; counts (C, E): records of each category of each discrete
    outcome in turn; sigma, count_sd: SDs of their noise; rho: what they cost, for units of
    protection of up to ``records`` records.
    """

    amounts: FloatArray
    counts: FloatArray
    sigma: float
    count_sd: float
    rho: float
    records: int
    noise: str

    @classmethod
    def _read(cls, given: Mapping[str, Any]) -> Self:
        units = len(given["amounts"])
        arrays = {
            name: np.array(given[name], np.float64).reshape(units, -1)
            for name in ("amounts", "counts")
        }
        return cls(**{**given, **arrays})

    def _check_shapes(self) -> None:
        if len(self.amounts) != len(self.counts):
            raise ValueError("every unit has amounts and counts")
        if not (np.isfinite(self.amounts).all() and np.isfinite(self.counts).all()):
            raise ValueError("sums of units are finite numbers")

    @property
    def noise_sd(self) -> FloatArray:
        """SDs (q + E,) of the noise of a unit's numbers."""
        sizes = self.amounts.shape[1], self.counts.shape[1]
        return np.repeat([self.sigma, self.count_sd], sizes)


def divided(budget: Budget, share: float) -> tuple[Fraction, Budget]:
    """Return what sums by PSU cost of a budget, and what they leave, rounded down."""
    cost = Fraction(budget.rho) * Fraction(share)
    left = Fraction(budget.rho) - cost
    return cost, Budget.of_rho(rounded_down(left), budget.delta)


def squared_distance(discrete: int, share: float) -> Fraction:
    """Return (D/R)^2 of one record, with p = ``discrete`` outcomes that have categories."""
    return 4 + 2 * discrete * Fraction(share)


def unit_variances(
    clipping: Clipping, rho: Fraction, discrete: int, share: float, records: int = 1
) -> UnitVariances:
    """Return the noise that makes sums by PSU cost rho; share: (k/R)^2."""
    squared = Fraction(clipping.steps) ** 2
    variance = squared_distance(discrete, share) * squared * records**2 / (2 * rho)
    counts = variance / (Fraction(share) * squared)
    return UnitVariances(
        math.ceil(variance), Fraction(math.ceil(counts * 2**COUNT_BITS), 2**COUNT_BITS)
    )


def exact_sums(
    shape: LocationShape, clipping: Clipping, psu: IntArray, category: IntArray, z: FloatArray
) -> tuple[IntArray, IntArray]:
    """Return sums of u in steps (C, q) and counts (C, E), whole numbers. Confidential.

    psu (n,), category (n, outcomes), z (n, q).
    """
    units = int(psu.max()) + 1
    amounts = np.zeros((units, clipping.q), dtype=np.int64)
    combination = shape.combination_of(category)
    for start in range(0, len(psu), BLOCK):
        part = slice(start, start + BLOCK)
        there = shape.present_in[combination[part]]
        u = clipping.on_grid(np.where(there, z[part], clipping.centre))
        u[~there] = 0
        add_by_code(amounts, psu[part], u)
    counts = [np.zeros((units, 0), dtype=np.int64)]
    for j, outcome in enumerate(shape.outcomes):
        if outcome.is_discrete:
            code = psu * outcome.categories + category[:, j]
            own = np.bincount(code, minlength=units * outcome.categories)
            counts.append(own.reshape(units, -1))
    return amounts, np.concatenate(counts, axis=1)


def unit_sums(
    shape: LocationShape,
    clipping: Clipping,
    psu: IntArray,
    category: IntArray,
    z: FloatArray,
    *,
    rho: Fraction,
    share: float = 1.0,
    records: int = 1,
    source: NoiseSource | None = None,
) -> UnitSums:
    """Release the sums by PSU within ``rho``; see ``exact_sums`` for the arrays."""
    source = SystemNoise() if source is None else source
    variances = unit_variances(clipping, rho, len(shape.discrete), share, records)
    amounts, counts = exact_sums(shape, clipping, psu, category, z)
    noisy = added(amounts.astype(object), variances.amounts, source)
    return UnitSums(
        amounts=noisy.astype(np.float64) * clipping.step,
        counts=added(counts.astype(object), variances.counts, source).astype(np.float64),
        sigma=math.sqrt(variances.amounts) * clipping.step,
        count_sd=math.sqrt(variances.counts),
        rho=float(rho),
        records=records,
        noise=source.kind,
    )
