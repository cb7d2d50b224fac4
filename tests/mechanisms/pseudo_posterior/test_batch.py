"""Many databases in one batch against each of them alone, and a batch with one that breaks down."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth.errors import RefusedError
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run, run_batch
from surveysynth.models import get_model
from tests.mechanisms.pseudo_posterior.mechanism_cases import PLAN, sample_survey, with_outlier

pytestmark = pytest.mark.xdist_group("mechanism")  # what its tests share is made once

SETTINGS = MechanismSettings(epsilon=10.8, plan=PLAN)


def database(model, seed):
    survey = sample_survey(seed=seed)
    return Database(model.records(survey.design, survey.confidential), survey.design.n)


def batch(model, databases, settings=SETTINGS):
    return run_batch(model, databases, settings, np.random.default_rng(8))


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_a_batch_finds_what_each_database_finds_alone(name):
    model = get_model(name)
    databases = [database(model, seed) for seed in (3, 4)]
    together = batch(model, databases)
    for one, (private, fit) in zip(databases, together, strict=True):
        ((_, alone),) = batch(model, [one])
        assert 0.97 * 1.8 <= fit.realised_bound <= 1.8
        assert private.theta["beta"].shape[0] == 3
        # Other random numbers move extremes over draws by some percent; other data move them more.
        gap = np.log(fit.risk_weights / alone.risk_weights)
        assert np.sqrt(np.mean(gap**2)) < 0.1
        np.testing.assert_allclose(fit.means, alone.means, atol=0.02)
    first, second = (fit.risk_weights for _, fit in together)
    assert np.sqrt(np.mean(np.log(first / second) ** 2)) > 0.2


def test_a_batch_of_one_is_the_run_itself():
    survey, model = sample_survey(), get_model("fbs")
    alone, _ = run(
        model, survey.design, survey.confidential, SETTINGS, np.random.default_rng(8)
    )
    ((private, _),) = batch(model, [database(model, 3)])
    np.testing.assert_array_equal(private.theta["beta"], alone.theta["beta"])


def test_down_weighting_shrinks_the_residual_scales():
    model = get_model("fbs")
    ((_, fit),) = batch(model, [database(model, 3)], replace(SETTINGS, origin="density"))
    shrunk = fit.means - fit.unweighted_means
    assert np.all((shrunk > -0.3) & (shrunk < -0.08))
    ((_, none),) = batch(model, [database(model, 3)], replace(SETTINGS, risk="none"))
    np.testing.assert_array_equal(none.means, none.unweighted_means)


def test_one_database_that_breaks_down_leaves_the_others():
    model = get_model("fbs")
    good = database(model, 3)
    bad = Database(with_outlier(good.records, 500, 1e160), good.n)
    fine, refused, also_fine = batch(model, [good, bad, database(model, 4)])
    assert isinstance(refused, RefusedError)
    assert "broke down" in str(refused) or "not reached" in str(refused)
    for _, fit in (fine, also_fine):
        assert 0.97 * 1.8 <= fit.realised_bound <= 1.8
