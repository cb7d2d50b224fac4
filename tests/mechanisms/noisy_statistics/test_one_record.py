"""One record replaced by another, at the largest distance that there is: what the published numbers
tell of it. Truth: the likelihood ratio of normal distributions at the claimed distance, and the
definition of (epsilon, delta) over 2,000 runs. Half of the noise is caught by both."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.accounting import Budget, log_delta_of
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationDesign,
    LocationStatistics,
    LocationSums,
    released,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import SQUARES
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

RUNS = 2_000
CELLS = np.array([[1.0, 0.0], [1.0, 1.0]])
OUTCOMES = (Outcome("income", transform=Transform("identity")),)
DESIGN = LocationDesign.optimal(
    LocationShape(CELLS, np.zeros(2, dtype=np.int64), OUTCOMES, weighted=True),
    Clipping(np.zeros(2), np.ones(2)),
)
CODES = np.arange(40) % 2
#: A delta that so many runs can see.
BUDGET = Budget.of_epsilon(2.0, 0.02)


def neighbours() -> tuple[LocationSums, LocationSums]:
    """Two databases that differ in a record of the second cell: at the edge of the ball, with
    u'v = -R^2 / t, however far beyond it they were."""
    z = np.random.default_rng(1).normal(0.0, 0.8, (40, 2))
    other, c = z.copy(), 1.0 / SQUARES
    z[1], other[1] = (1e6, 0.0), (-1e6 * c, 1e6 * np.sqrt(1.0 - c * c))
    found = LocationSums(DESIGN), LocationSums(DESIGN)
    for sums, each in zip(found, (z, other), strict=True):
        sums.add(CODES, np.zeros_like(CODES), each)
    return found


def numbers(statistics: LocationStatistics) -> tuple[FloatArray, FloatArray]:
    """Published moments (d,), and the SDs of their noise."""
    upper = np.triu_indices(2)
    (cross,), (squares,) = statistics.cross, statistics.squares
    sd = np.where(upper[0] == upper[1], *statistics.squares_sd)
    return (
        np.concatenate([cross.ravel(), squares[upper]]),
        np.concatenate([np.full(cross.size, statistics.sigma), sd]),
    )


def exact(sums: LocationSums) -> FloatArray:
    """The same numbers without noise, about: from so large a budget that none is left."""
    least = Budget.of_rho(1e16, 1e-6)
    source = SeededNoise(np.random.default_rng(0))
    return numbers(released(DESIGN, sums, budget=least, source=source))[0]


@cache
def losses(budget: Budget, seed: int = 2) -> FloatArray:
    """Log likelihood ratios (RUNS,) of what was published of the first, against the other."""
    sums, other = neighbours()
    source = SeededNoise(np.random.default_rng(seed))
    made = [numbers(released(DESIGN, sums, budget=budget, source=source)) for _ in range(RUNS)]
    values, sd = np.array([each for each, _ in made]), made[0][1]
    here, there = ((values - exact(each)) / sd for each in (sums, other))
    return np.asarray(0.5 * ((there**2).sum(axis=1) - (here**2).sum(axis=1)))


def delta_at(epsilon: float, loss: FloatArray) -> tuple[float, float]:
    """The delta that these runs show at epsilon, E max(0, 1 - exp(epsilon - L)), and its error."""
    part = np.maximum(0.0, 1.0 - np.exp(np.minimum(epsilon - loss, 0.0)))
    return float(part.mean()), float(part.std() / np.sqrt(part.size))


def test_the_likelihood_ratio_is_that_of_the_claimed_distance() -> None:
    """At distance d the log ratio is normal with mean rho = d^2/2 and variance 2 rho."""
    loss = losses(BUDGET)
    sums, other = neighbours()
    source = SeededNoise(np.random.default_rng(0))
    _, sd = numbers(released(DESIGN, sums, budget=BUDGET, source=source))
    distance = (exact(sums) - exact(other)) / sd
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




