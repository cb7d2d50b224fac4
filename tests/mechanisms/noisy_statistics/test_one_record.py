"""One record replaced by another, at the largest distance that there is: what the published numbers
tell of it. Truth: the likelihood ratio of normal distributions at the claimed distance, and the
definition of (epsilon, delta) over 10,000 runs. Half of the noise is caught by both."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.accounting import Budget, log_delta_of
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping, NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.statistics import (
    NoisyStatistics,
    noisy_statistics,
)

RUNS = 10_000
CELLS = np.array([[1.0, 0.0], [1.0, 1.0]])
DESIGN = NoiseDesign.optimal(CELLS, Clipping(np.zeros(2), np.ones(2)))
CODES = np.arange(40) % 2
#: A delta that 10,000 runs can see.
BUDGET = Budget.of_epsilon(2.0, 0.02)


def neighbours() -> tuple[FloatArray, FloatArray]:
    """Two databases z (n, 2) that differ in a record of the second cell: at opposite ends of the
    ball, however far beyond it."""
    z = np.random.default_rng(1).normal(0.0, 0.8, (40, 2))
    other = z.copy()
    z[1], other[1] = (1e6, 1e6), (-1e6, -1e6)
    return z, other


def numbers(statistics: NoisyStatistics) -> tuple[FloatArray, FloatArray]:
    """The published numbers of B databases, (B, d), and the SDs (d,) of their noise."""
    upper = np.triu_indices(2)
    b = statistics.cross.shape[0]
    values = np.hstack([statistics.cross.reshape(b, -1), statistics.squares[:, *upper]])
    sd = np.concatenate([np.full(4, statistics.sigma), statistics.squares_sd[upper]])
    return values, sd


def exact(z: FloatArray) -> FloatArray:
    """The same numbers without noise, about: from so large a budget that none is left."""
    least = Budget.of_rho(1e16, 1e-6)
    source = SeededNoise(np.random.default_rng(0))
    return numbers(noisy_statistics(DESIGN, CODES, z, budget=least, source=source))[0][0]


def losses(budget: Budget, seed: int = 2) -> FloatArray:
    """Log likelihood ratios (RUNS,) of what was published of the first, against the other."""
    z, other = neighbours()
    source = SeededNoise(np.random.default_rng(seed))
    many = np.broadcast_to(z, (RUNS, *z.shape))
    values, sd = numbers(noisy_statistics(DESIGN, CODES, many, budget=budget, source=source))
    here, there = ((values - exact(each)) / sd for each in (z, other))
    return np.asarray(0.5 * ((there**2).sum(axis=1) - (here**2).sum(axis=1)))


def delta_at(epsilon: float, loss: FloatArray) -> tuple[float, float]:
    """The delta that these runs show at epsilon, E max(0, 1 - exp(epsilon - L)), and its error."""
    part = np.maximum(0.0, 1.0 - np.exp(np.minimum(epsilon - loss, 0.0)))
    return float(part.mean()), float(part.std() / np.sqrt(part.size))


def test_the_likelihood_ratio_is_that_of_the_claimed_distance() -> None:
    """At distance d the log ratio is normal with mean rho = d^2/2 and variance 2 rho."""
    loss = losses(BUDGET)
    z, other = neighbours()
    _, sd = numbers(
        noisy_statistics(
            DESIGN, CODES, z, budget=BUDGET, source=SeededNoise(np.random.default_rng(0))
        )
    )
    distance = (exact(z) - exact(other)) / sd
    rho = 0.5 * float(distance @ distance)
    assert 0.98 * BUDGET.rho < rho <= BUDGET.rho  # the largest distance, and within the claim
    assert loss.mean() == pytest.approx(rho, abs=4 * np.sqrt(2 * rho / RUNS))
    assert loss.var() == pytest.approx(2 * rho, rel=4 * np.sqrt(2 / RUNS))


def test_epsilon_and_delta_hold_over_many_runs_and_half_the_noise_is_caught() -> None:
    for epsilon in (0.5, 1.0, 2.0):
        claimed = np.exp(log_delta_of(BUDGET.rho, epsilon))
        found, error = delta_at(epsilon, losses(BUDGET))
        assert found < claimed + 2 * error
    wrong = replace(BUDGET, rho=4 * BUDGET.rho)  # half the SD of the noise, told as before
    found, error = delta_at(2.0, losses(wrong))
    assert found - 6 * error > BUDGET.delta




