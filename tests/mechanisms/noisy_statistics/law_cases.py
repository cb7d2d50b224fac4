"""Noisy tables for tests of laws and of densities: released from some records, and many databases
of one law side by side, each a group of its own."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyPattern, NoisyTable
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    Centring,
    LocationDesign,
    location_statistics,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

PLAIN = Transform("identity")
AGE, PAY = Outcome("age", transform=PLAIN), Outcome("pay", transform=PLAIN)
WORKS = Outcome("works", "binary")
HEALTH = Outcome("health", "categorical", levels=("a", "b", "c", "d"))
BENEFIT = Outcome("benefit", "semicontinuous", PLAIN, spikes=(0.0,))
TAX = Outcome("tax", "semicontinuous", PLAIN, spikes=(0.0,), split=0.0)

#: Four cells of two factors; the first two share a group.
X = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
GROUP, LEVEL = np.array([0, 0, 1, 2]), np.array([[0, 1, 1]])


def released(
    outcomes: tuple[Outcome, ...],
    rng: np.random.Generator,
    grouped: bool = True,
    weighted: bool = True,
    two_stages: bool = False,
    n: int = 200,
) -> NoisyTable:
    """The table of a release of n records at a small epsilon."""
    group = GROUP if grouped else np.zeros(4, dtype=np.int64)
    shape = LocationShape(X, group, outcomes, weighted, level=LEVEL if grouped else None)
    cell = rng.integers(0, 4, n)
    clipping = Clipping(np.zeros(shape.q), np.ones(shape.q), 3.5)
    centring = Centring(2.5, np.bincount(cell, minlength=4), np.ones(3)) if two_stages else None
    design = LocationDesign.optimal(shape, clipping, centring)
    category = np.stack([rng.integers(0, each.categories, n) for each in outcomes], axis=1)
    z = 0.3 + 0.7 * rng.standard_normal((n, shape.q))
    noisy = location_statistics(
        design, cell, category, z, budget=Budget.of_epsilon(5.0, 1e-6), source=SeededNoise(rng)
    )
    return NoisyTable.of(shape, cell, noisy, np.eye(3))


def covariances(rng: np.random.Generator, *shape: int) -> FloatArray:
    """Some of order q, (..., q, q)."""
    root = 0.3 * rng.standard_normal(shape) + 0.8 * np.eye(shape[-1])
    return np.asarray(root @ root.swapaxes(-1, -2))


@dataclass(frozen=True)
class Known:
    """One group of cells with sizes (C,), and what its records follow.

    p (C, D); mean (C, D, q) and covariance (q, q) in spreads; present (P, q) and of (D,): columns
    of each pattern, and the pattern of each combination; a (P): rows (C, D_p, r) of A each.
    """

    sizes: IntArray
    p: FloatArray
    mean: FloatArray
    covariance: FloatArray
    present: IntArray
    of: IntArray
    a: tuple[FloatArray, ...]
    count_sd: float = 2.0
    sum_sd: float = 1.5
    square_sd: float = 3.0

    def columns(self, pattern: int) -> IntArray:
        """Those of z that a pattern has."""
        return np.flatnonzero(self.present[pattern])

    def table(self, databases: int) -> NoisyTable:
        """Of so many databases, moments zero."""
        cells = self.sizes.size
        patterns = []
        for number, a in enumerate(self.a):
            q, r = self.columns(number).size, a.shape[-1]
            patterns.append(
                NoisyPattern(
                    self.columns(number), np.flatnonzero(self.of == number),
                    np.broadcast_to(a, (databases, *a.shape)), np.zeros((databases, r, q)),
                    np.zeros((databases, q, q)), np.zeros((databases, q)),
                )
            )  # fmt: skip
        return NoisyTable(
            shape=cast("Any", None), x=np.zeros((databases * cells, 1)),
            sizes=np.tile(self.sizes, databases),
            cells=np.arange(databases * cells).reshape(databases, cells),
            counts=np.zeros((databases * cells, self.p.shape[1])), count_variance=self.count_sd**2,
            patterns=tuple(patterns), sum_variance=self.sum_sd**2,
            square_variance=self.square_sd**2, center=np.zeros(1), spread=np.ones(1),
        )  # fmt: skip

    def simulated(self, databases: int, rng: np.random.Generator) -> NoisyTable:
        """Databases, from records one by one."""
        table, root = self.table(databases), np.linalg.cholesky(self.covariance)
        q = self.covariance.shape[0]
        counts = np.zeros((databases, *self.p.shape))
        sums = [np.zeros_like(each.sums) for each in table.patterns]
        squares = [np.zeros_like(each.squares) for each in table.patterns]
        for c, size in enumerate(self.sizes):
            reached = self.p[c].cumsum()[:-1]
            for _ in range(size):
                d = (rng.random(databases)[:, None] > reached).sum(1)
                z = self.mean[c, d] + rng.standard_normal((databases, q)) @ root.T
                counts[np.arange(databases), c, d] += 1.0
                for p, each in enumerate(table.patterns):
                    own = self.of[d] == p
                    place = np.where(own, np.searchsorted(each.combinations, d), 0)
                    u = np.where(own[:, None], z[:, each.present], 0.0)
                    sums[p] += self.a[p][c, place][:, :, None] * u[:, None]
                    squares[p] += u[:, :, None] * u[:, None]
        counts += self.count_sd * rng.standard_normal(counts.shape)
        patterns = []
        for each, cross, square in zip(table.patterns, sums, squares, strict=True):
            noise = self.square_sd * rng.standard_normal(square.shape)
            upper = np.triu(noise, 1)
            noise = upper + upper.swapaxes(-1, -2) + np.sqrt(2.0) * np.eye(len(noise[0])) * noise
            of_sums = self.sum_sd * rng.standard_normal(cross.shape)
            patterns.append(replace(each, sums=cross + of_sums, squares=square + noise))
        flat = counts.reshape(table.counts.shape)
        return replace(table, counts=flat, patterns=tuple(patterns))


def flat_data(table: NoisyTable, counts: bool = True) -> FloatArray:
    """All noisy numbers (groups, m): counts, then sums and squares of each pattern."""
    groups = len(table.cells)
    parts = [table.counts.reshape(groups, -1)] if counts else []
    for each in table.patterns:
        parts += [each.sums.reshape(groups, -1), each.upper]
    return np.concatenate(parts, axis=1)


def with_counts(table: NoisyTable, counts: FloatArray) -> NoisyTable:
    """The table with other noisy counts."""
    return replace(table, counts=counts.reshape(table.counts.shape))


def with_data(table: NoisyTable, data: FloatArray, counts: bool = True) -> NoisyTable:
    """The table with other noisy numbers."""
    groups, begin = len(table.cells), table.counts.size // len(table.cells) if counts else 0
    patterns = []
    for each in table.patterns:
        q, size = each.present.size, each.sums[0].size
        sums = data[:, begin : begin + size].reshape(each.sums.shape)
        begin += size
        squares = np.zeros((groups, q, q))
        first, second = each.pairs
        squares[:, first, second] = squares[:, second, first] = (
            data[:, begin : begin + first.size]
        )
        begin += first.size
        patterns.append(replace(each, sums=sums, squares=squares))
    flat = data[:, : table.counts.size // groups].reshape(table.counts.shape)
    return replace(table, counts=flat if counts else table.counts, patterns=tuple(patterns))
