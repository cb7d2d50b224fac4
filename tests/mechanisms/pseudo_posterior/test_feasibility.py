"""Feasibility is decided right where the answer is clear, and without confidential data."""

import inspect

import numpy as np
import pytest

from surveysynth.mechanisms.pseudo_posterior import feasibility
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.studies.example import simulate_survey
from tests.surveys import make_survey

PLAN = SamplingPlan(4, 60, 100)


def report(n, epsilon, **settings):
    frame = simulate_survey(n, np.random.default_rng(2))
    design = make_survey(frame, by=["gender"], population_size=100_000).design
    options = MechanismSettings(**{"epsilon": epsilon, "plan": PLAN, **settings})
    return feasibility.check(design, get_model("fbp"), options, np.random.default_rng(3))


def test_a_comfortable_target_is_feasible():
    result = report(1000, 30.0)
    assert result.feasible
    assert all(trial.reached for trial in result.trials)
    assert "Feasible under every guess." in result.lines()


def test_a_tiny_target_is_not():
    result = report(60, 0.2)
    assert not result.feasible
    assert any("not reached" in line for line in result.lines())
    assert "Raise epsilon" in result.lines()[-1]


def test_more_draws_than_short_chains_keep_after_truncation():
    """The trial then runs the chains that were asked for."""
    long = SamplingPlan(4, 30, 126)
    result = report(200, 1e6, m=480, truncate=0.96, plan=long)
    assert result.settings.plan == long
    assert result.trials


def test_nothing_to_reach_without_a_risk_measure():
    assert report(200, 1.0, risk="none").feasible


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_simulated_databases_have_the_guessed_spread(name):
    frame = simulate_survey(1000, np.random.default_rng(2))
    design = make_survey(frame, by=(), population_size=1e5).design
    model, rng = get_model(name), np.random.default_rng(1)
    simulated = model.simulate(model.prior_guess(design, 0.7), design, rng, "sample")
    assert simulated.z[:, 0].std() == pytest.approx(0.7, rel=0.1)
    assert simulated.z[:, 1].std() == pytest.approx(0.5, rel=0.1)
    assert abs(np.corrcoef(simulated.z.T)[0, 1]) == pytest.approx(0.5, abs=0.1)


def test_confidential_data_cannot_be_passed():
    parameters = set(inspect.signature(feasibility.check).parameters)
    assert parameters == {"design", "model", "settings", "rng"}
