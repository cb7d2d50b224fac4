"""The ball of learned amounts: simulated clipping, and the noise that a release draws.

The truth is a simulation of clipped normal records, the noise of a sum of squares by hand, and the
least of the errors of all shares.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import surveysynth as ss
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.settings import (
    SHARES_INSIDE,
    Declared,
    NoisySettings,
    clipped_variance,
    learned_radius,
)
from surveysynth.survey.transforms import LearnedTransform

BUDGET = Budget(1.75, 10.8, 1e-6)


@pytest.mark.parametrize(("columns", "radius"), [(1, 2.0), (2, 2.448), (4, 3.1)])
def test_the_variance_of_a_clipped_record(columns: int, radius: float) -> None:
    u = np.random.default_rng(1).standard_normal((400_000, columns))
    u *= np.minimum(1.0, radius / np.linalg.norm(u, axis=1, keepdims=True))
    error = 4.0 * np.sqrt(2.0 / u.size)
    assert clipped_variance(radius, columns) == pytest.approx((u**2).mean(), abs=error)
    assert abs(clipped_variance(1.1 * radius, columns) - (u**2).mean()) > error


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize(("rho", "unit"), [(1.58, 1), (0.23, 1), (1.58, 4)])
def test_it_is_the_best_of_its_shares(columns: int, rho: float, unit: int) -> None:
    """The noise of one sum of squares at t = 4: R^4 k^2 (2 + t + 1/t) / (2 rho) x 2/t."""
    radii = np.sqrt(stats.chi2.ppf(SHARES_INSIDE, columns))
    noise = np.sqrt(2.0 / 4.0 * 6.25 * unit**2 / (2.0 * rho)) * radii**2
    lost = np.array([1.0 - clipped_variance(float(each), columns) for each in radii])
    for records in (10.0, 75.0, 400.0, 3000.0):
        errors = (noise / records) ** 2 + lost**2
        found = learned_radius(columns, records, rho, unit)
        assert found == pytest.approx(radii[np.argmin(errors)])


def test_more_records_take_a_larger_ball() -> None:
    found = [learned_radius(2, records, 1.58) for records in (60, 200, 600, 1250)]
    assert found == sorted(set(found))
    assert found[-1] == pytest.approx(np.sqrt(stats.chi2.ppf(0.995, 2)))


def clipping(outcomes: list[ss.Outcome], **given: object) -> float:
    rng, n = np.random.default_rng(2), 600
    frame = pd.DataFrame({
        "g": rng.choice(["a", "b", "c"], n), "w": np.exp(rng.normal(3.0, 0.3, n)),
        "y": np.exp(rng.normal(10.0, 0.5, n)).round(), "x": np.exp(rng.normal(9.0, 0.5, n)).round(),
        "b": rng.integers(0, 2, n),
    })  # fmt: skip
    survey = ss.Survey.from_frame(
        frame, outcomes=outcomes, weight="w", by=["g"], population_size=12_000
    )
    settings = NoisySettings(BUDGET, {"x": Declared(8000.0, 0.5)}, **given)
    return settings.clipping(survey.design).radius


def test_declared_amounts_keep_the_larger_ball() -> None:
    """And so does a survey without amounts, whose weight alone is in the ball."""
    learned = ss.Outcome("y", transform=LearnedTransform(low=0.0, high=1e6))
    declared = ss.Outcome("x", transform=ss.Transform("log"))
    binary = ss.Outcome("b", "binary")
    left = 0.9 * BUDGET.rho
    assert clipping([learned]) == pytest.approx(learned_radius(2, 200.0, left), rel=1e-5)
    assert clipping([learned, binary]) == pytest.approx(learned_radius(2, 200.0, left), rel=1e-5)
    assert clipping([learned, declared]) == pytest.approx(
        np.sqrt(stats.chi2.ppf(0.995, 3)), rel=1e-5
    )
    assert clipping([binary]) == pytest.approx(np.sqrt(stats.chi2.ppf(0.995, 1)), rel=1e-5)
    assert clipping([learned], radius=4.0) == pytest.approx(4.0, rel=1e-5)
