"""The ball by default: simulated clipping, and the noise that a release draws.

The truth is a simulation of clipped normal records, the noise of sums and of squares by hand, and
the least of the errors of all shares.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import surveysynth as ss
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.ball_radius import (
    GUESSED,
    INSIDE,
    LEARNED,
    Cases,
    ball_radius,
)
from surveysynth.mechanisms.noisy_statistics.settings import Declared, NoisySettings
from surveysynth.survey.learned import LearnedTransform

BUDGET = Budget(1.75, 10.8, 1e-6)


@lru_cache
def clipped(radius: float, columns: int, distance: float) -> tuple[float, float]:
    """Mean and variance of the first column: at the centre by the chi-square law, else simulated"""
    if distance == 0.0:
        square = radius**2
        cut = square / columns * stats.chi2.sf(square, columns)
        return 0.0, stats.chi2.cdf(square, columns + 2) + cut
    u = np.random.default_rng(1).standard_normal((400_000, columns))
    u[:, 0] += distance
    first = u[:, 0] * np.minimum(1.0, radius / np.linalg.norm(u, axis=1))
    return float(first.mean()), float(first.var())


def squared_error(
    radius: float, columns: int, noise: float, bias: float, distance: float, factor: float
) -> float:
    """Of mean and variance of a cell together; noise: SD at R = 1 of a sum over the records.

    That of squares at t = 4 is the root of 2/t times as large.
    """
    mean, variance = clipped(radius * factor, columns, distance)
    of_squares = noise * np.sqrt(2.0 / 4.0) * (radius / factor) ** 2
    wrong = (mean - distance) ** 2 + (variance - 1.0) ** 2
    return float((noise * radius / factor) ** 2 + of_squares**2 + bias * wrong)


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize(("rho", "unit"), [(1.58, 1), (0.23, 1), (1.58, 4)])
@pytest.mark.parametrize("cases", [LEARNED, GUESSED])
def test_it_is_the_best_of_its_shares(columns: int, rho: float, unit: int, cases: Cases) -> None:
    """The noise of one sum at t = 4 has the variance R^2 k^2 (2 + t + 1/t) / (2 rho)."""
    radii = np.sqrt(stats.chi2.ppf(INSIDE, columns))
    noise = np.sqrt(6.25 * unit**2 / (2.0 * rho))
    for records in (10.0, 75.0, 400.0, 3000.0):
        errors = np.array([
            sum(
                squared_error(radius, columns, noise / records, cases.bias, *case)
                for case in cases.distance_and_factor
            )
            for radius in radii
        ])  # fmt: skip
        found = ball_radius(columns, records, rho, unit, cases)
        chosen = int(np.argmin(abs(radii - found)))
        assert found == pytest.approx(radii[chosen])
        # The error of the simulation may turn what is next to equal.
        assert errors[chosen] <= 1.02 * errors.min()


def test_more_records_take_a_larger_ball_and_guesses_a_larger_one_still() -> None:
    sizes = (60, 200, 600, 1250)
    learned = [ball_radius(2, records, 1.58) for records in sizes]
    guessed = [ball_radius(2, records, 1.58, 1, GUESSED) for records in sizes]
    assert learned == sorted(set(learned))
    assert learned[-1] == pytest.approx(np.sqrt(stats.chi2.ppf(0.995, 2)))
    assert all(a >= b for a, b in zip(guessed, learned, strict=True))
    assert guessed[1] > learned[1]


def clipping(outcomes: list[ss.Outcome], *, budget: Budget = BUDGET, **given: Any) -> float:
    rng, n = np.random.default_rng(2), 600
    frame = pd.DataFrame({
        "g": rng.choice(["a", "b", "c"], n), "w": np.exp(rng.normal(3.0, 0.3, n)),
        "y": np.exp(rng.normal(10.0, 0.5, n)).round(), "x": np.exp(rng.normal(9.0, 0.5, n)).round(),
        "b": rng.integers(0, 2, n),
    })  # fmt: skip
    survey = ss.Survey.from_frame(
        frame, outcomes=outcomes, weight="w", by=["g"], population_size=12_000
    )
    settings = NoisySettings(budget, {"x": Declared(8000.0, 0.5)}, **given)
    return settings.clipping(survey.design).radius


def test_which_ball_it_is() -> None:
    """One covariance of declared amounts keeps the larger one, and so does a survey without
    amounts, whose weight alone is in the ball."""
    learned = ss.Outcome("y", transform=LearnedTransform(low=0.0, high=1e6))
    declared = ss.Outcome("x", transform=ss.Transform("log"))
    binary = ss.Outcome("b", "binary")
    left = 0.9 * BUDGET.rho
    of_learned = ball_radius(2, 200.0, left)
    for by_cell in (True, False):
        assert clipping([learned], by_cell=by_cell) == pytest.approx(of_learned, rel=1e-5)
        assert clipping([binary], by_cell=by_cell) == pytest.approx(largest(1), rel=1e-5)
    assert clipping([learned, binary]) == pytest.approx(of_learned, rel=1e-5)
    assert clipping([learned, declared]) == pytest.approx(largest(3), rel=1e-5)
    assert clipping([declared]) == pytest.approx(largest(2), rel=1e-5)
    less = Budget.of_epsilon(1.0, 1e-6)
    smaller = ball_radius(2, 200.0, less.rho, 1, GUESSED)
    assert smaller < largest(2)
    assert clipping([declared], by_cell=True, budget=less) == pytest.approx(smaller, rel=1e-5)
    assert clipping([declared], budget=less) == pytest.approx(largest(2), rel=1e-5)
    assert clipping([learned], radius=4.0) == pytest.approx(4.0, rel=1e-5)


def largest(columns: int) -> float:
    return float(np.sqrt(stats.chi2.ppf(0.995, columns)))
