"""What a guarantee lets an adversary believe: Bayes' rule on mechanisms small enough to work out.

Truth: randomized response, which reaches epsilon's limits; a normal variable shifted by one
sensitivity, whose privacy loss is normal with mean rho and variance 2 rho."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import (
    gaussian_power,
    log_delta_of,
    posterior,
    pure_power,
    zcdp_log_factor,
    zcdp_power,
)

RHOS = (0.0244, 0.257, 1.752)
RATES = (0.001, 0.01, 0.05, 0.1, 0.5)
PRIORS = (0.01, 0.1, 0.5)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.6, 10.8])
def test_randomized_response_reaches_the_limit(prior: float, epsilon: float) -> None:
    """A bit told truly with probability e^epsilon / (1 + e^epsilon): Bayes' rule, written out."""
    truth = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    told = prior * truth / (prior * truth + (1.0 - prior) * (1.0 - truth))
    assert posterior(prior, epsilon) == pytest.approx(told, rel=1e-12)
    closed = prior * math.exp(epsilon) / (1.0 - prior + prior * math.exp(epsilon))
    assert posterior(prior, epsilon) == pytest.approx(closed, rel=1e-12)
    # Adding epsilon to the belief's logarithm, not to that of its odds, is another thing.
    assert posterior(prior, epsilon) < prior * math.exp(epsilon) * (1.0 - 1e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.6])
@pytest.mark.parametrize("rate", RATES)
def test_power_against_randomized_response(epsilon: float, rate: float) -> None:
    """Its best test: the line from (0, 0) over one alarm for each "yes" to (1, 1)."""
    yes_wrong, yes_right = 1.0 / (1.0 + math.exp(epsilon)), 1.0 / (1.0 + math.exp(-epsilon))
    best = np.interp(rate, [0.0, yes_wrong, 1.0], [0.0, yes_right, 1.0])
    assert pure_power(epsilon, rate) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_the_odds_of_a_normal_shift_stay_below_the_limit(rho: float, delta: float) -> None:
    loss = stats.norm(rho, math.sqrt(2.0 * rho))  # log likelihood ratio where the suspicion is true
    limit = zcdp_log_factor(rho, delta)
    assert loss.sf(limit) <= delta
    # Without the mean of the loss more than delta would lie beyond.
    assert loss.sf(math.sqrt(2.0 * rho) * stats.norm.isf(delta)) > delta
    # Most of it is needed: a third less would not do.
    assert loss.sf(2.0 * limit / 3.0) > delta


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("rate", RATES)
def test_power_under_zcdp(rho: float, rate: float) -> None:
    """Above the best test of a normal shift, which is an example; below the limit by way of
    epsilon and delta, for every epsilon; and one over it is told from every order's limit."""
    shift = math.sqrt(2.0 * rho)
    best = stats.norm.sf(stats.norm.isf(rate), loc=shift)
    assert gaussian_power(rho, rate) == pytest.approx(best, rel=1e-9)
    limit = zcdp_power(rho, rate)
    assert best < limit < 1.0
    by_delta = [
        math.exp(epsilon) * rate + math.exp(log_delta_of(rho, epsilon))
        for epsilon in np.linspace(0.01, 12.0, 300)
    ]
    assert limit <= min(by_delta) * (1.0 + 1e-6)
    assert exceeds(limit + 1e-6, rate, rho)
    assert not exceeds(limit - 1e-3 * (limit - rate), rate, rho)


def exceeds(power: float, rate: float, rho: float) -> bool:
    """Whether two coins are further apart than rho times some order, by the sums themselves."""
    for order in np.linspace(1.001, 60.0, 6000):
        for p, q in ((power, rate), (rate, power)):
            moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
            if math.log(moment) / (order - 1.0) > rho * order:
                return True
    return False


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0, 50))
def test_beliefs_are_probabilities_that_only_rise(prior: float, log_factor: float) -> None:
    after = posterior(prior, log_factor)
    assert prior * (1.0 - 1e-9) <= after <= 1.0
    assert posterior(1.0 - prior, -log_factor) == pytest.approx(1.0 - after, abs=1e-9)


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.2, 1.5])
def test_what_is_no_probability_is_refused(wrong: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        posterior(wrong, 1.0)
    with pytest.raises(InputError, match="false alarms"):
        zcdp_power(1.0, wrong)
