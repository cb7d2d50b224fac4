"""Stan's log density, gradient and draws of the general location model against the embedded ones.

The truth is Stan, compiled from ``stan/general_location.stan`` by PyStan."""

import numpy as np
import pytest

from surveysynth.models.stan_engine import StanEngine
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import PyStanBackend
from tests import oracles
from tests.models.general_location.test_general_density import CASES, made, points
from tests.stan.test_programs import (
    PROGRAMS,
    build,
    largest_difference,
    moments,
    stan_density,
)

pytestmark = [
    pytest.mark.pystan,
    pytest.mark.xdist_group("stan general_location"),
    pytest.mark.filterwarnings("ignore:It is recommended to use web.AppKey"),
    pytest.mark.filterwarnings(r"ignore:\w+ is deprecated\. Use files\(\) instead"),
]


@pytest.mark.parametrize("name", CASES)
def test_density_and_gradient_equal_stans(name: str) -> None:
    model, _, _, _, statistics = made(name)
    assert model.stan is not None
    built = build(PROGRAMS / model.stan.program, model.stan.data(statistics, model.priors))
    u = points(model, statistics, 20)
    value, gradient = oracles.log_density(model, u, statistics)
    stan_value, stan_gradient = stan_density(built, u)
    np.testing.assert_allclose(value, stan_value, rtol=1e-8)
    scale = np.abs(stan_gradient).max(axis=1, keepdims=True)
    np.testing.assert_array_less(np.abs(gradient - stan_gradient) / scale, 1e-8)


def test_nuts_and_gibbs_draw_from_one_posterior() -> None:
    model, _, _, _, statistics = made("all kinds by group", n=1500)
    engine = model.with_engine(StanEngine(PyStanBackend(), adapt_delta=0.99))
    # With 300 draws a chain Monte Carlo errors of NUTS are themselves too unsure for 280 moments:
    # one of ten windows of a long run was 5.5 of them off; windows of 600 were 3.7 off at most.
    nuts = engine.posterior_draws(statistics, SamplingPlan(2, 200, 600), np.random.default_rng(1))
    gibbs = model.sample(statistics, SamplingPlan(4, 300, 3000), np.random.default_rng(2))
    watched = [
        np.concatenate(list(model.monitored({k: v[0] for k, v in theta.items()}).values()), -1)
        for theta in (nuts, gibbs)
    ]
    truth = moments(watched[0])
    assert largest_difference(truth, moments(watched[1])) < 5.0
    mean = watched[1].mean(axis=(0, 1))
    wrong = moments(mean + 1.3 * (watched[1] - mean))
    assert largest_difference(truth, wrong) > 10.0
