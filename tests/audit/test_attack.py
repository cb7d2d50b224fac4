"""Lower bounds on epsilon where the truth is known."""

import numpy as np
import pytest
from scipy import stats

from surveysynth.mechanisms.noisy_statistics.accounting import epsilon_of, zcdp_power
from tests.long_runs.attack import (
    Proven,
    holm,
    lower_bound,
    lower_rho,
    most_provable,
    proven,
)


def laplace(epsilon, runs, rng, noise=1.0):
    """Answers of a counting query to two neighbours, and their log-likelihood ratio."""
    one, other = (each + rng.laplace(0.0, noise / epsilon, runs) for each in (1.0, 0.0))
    return tuple(epsilon * (np.abs(t) - np.abs(t - 1.0)) for t in (one, other))


def test_the_bounds_are_clopper_and_pearson_s():
    # By hand: 50 of 50 and 0 of 50 have the bounds 0.025^(1/50) and 1 - 0.025^(1/50).
    p = 0.025 ** (1 / 50)
    assert lower_bound(50, 0, 50) == pytest.approx(np.log(p / (1 - p)))
    assert most_provable(100) == lower_bound(50, 0, 50)
    assert lower_bound(20, 30, 50) == 0.0
    exact = stats.binomtest(31, 50).proportion_ci(0.95, "exact").low
    other = stats.binomtest(4, 50).proportion_ci(0.95, "exact").high
    assert lower_bound(31, 4, 50, delta=0.1) == pytest.approx(np.log((exact - 0.1) / other))


def test_a_true_epsilon_is_passed_in_one_of_twenty_attacks():
    rng = np.random.default_rng(5)
    bounds = np.array([proven(*laplace(1.0, 400, rng)).epsilon for _ in range(120)])
    # The bound holds with more than 95%: the two sides' errors add up, and events do not attain it.
    assert np.mean(bounds > 1.0) <= 0.05
    assert np.median(bounds) > 0.3
    # Thresholds chosen on the runs that are counted promise more than they keep.
    assert bounds.max() < 1.2


def test_less_noise_than_stated_is_proven():
    rng = np.random.default_rng(6)
    found = proven(*laplace(1.0, 4000, rng, noise=1 / 3))
    assert 1.5 < found.epsilon < 3.0
    assert found.p_value(1.0) < 1e-6
    assert found.p_value(3.0) > 0.05


def test_no_protection_proves_nearly_all_that_can_be_proven():
    rng = np.random.default_rng(7)
    first, second = rng.normal(10.0, 1.0, 1000), rng.normal(0.0, 1.0, 1000)
    assert proven(first, second).epsilon == most_provable(1000) > 4.0
    # The side that tells is found.
    assert proven(-first, second).epsilon == most_provable(1000)


def test_a_fixed_output_proves_nothing():
    found = proven(np.zeros(1000), np.zeros(1000))
    assert found.epsilon == 0.0
    assert found.p_value(0.1) > 0.5


def test_delta_is_granted():
    # A mechanism that fails openly once in ten runs is (0, 0.1)-private and nothing better.
    rng = np.random.default_rng(8)
    first = np.where(rng.random(4000) < 0.1, 1.0, 0.0)
    assert proven(first, np.zeros(4000)).epsilon > 3.0
    assert proven(first, np.zeros(4000), delta=0.12).epsilon == 0.0


def test_p_values_turn_bounds_around():
    found = Proven(1.0, 80, 20, 100, 0.0)
    p = found.p_value(0.9)
    assert lower_bound(80, 20, 100, level=p) == pytest.approx(0.9, abs=1e-6)


def test_holm():
    # By hand: 0.01 x 4, 0.02 x 3, then 0.04 x 2, never below the one before.
    assert holm([0.02, 0.01, 0.5, 0.04]) == pytest.approx([0.06, 0.04, 0.5, 0.08])
    assert holm({"a": 0.6, "b": 0.9}) == pytest.approx([1.0, 1.0])


def normal(rho, runs, rng):
    """Two normal laws at the distance of rho-zCDP, and their log-likelihood ratio."""
    far = np.sqrt(2.0 * rho)
    return tuple(each + rng.normal(size=runs) for each in (far, 0.0))


@pytest.mark.slow
def test_rho_is_bounded_by_the_power_that_it_allows():
    rng = np.random.default_rng(9)
    bounds = np.array([
        proven(*normal(1.0, 400, rng), delta=1e-6, zcdp=True).epsilon for _ in range(20)
    ])
    true = epsilon_of(1.0, 1e-6)
    assert np.mean(bounds > true) <= 0.1
    assert np.median(bounds) > 0.4 * true
    # With half of the noise rho is four times as large.
    found = proven(*normal(4.0, 600, rng), delta=1e-6, zcdp=True)
    assert found.epsilon > true
    assert found.p_value(true) < 0.01
    assert found.p_value(2.5 * true) > 0.05
    # No test can do better than this power, at the bound's own rho.
    rho = lower_rho(200, 60, 300)
    exact = stats.binomtest(200, 300).proportion_ci(0.95, "exact").low
    other = stats.binomtest(60, 300).proportion_ci(0.95, "exact").high
    assert zcdp_power(1.001 * rho, other) > exact > zcdp_power(0.999 * rho, other)
    assert lower_rho(60, 60, 300) == 0.0
