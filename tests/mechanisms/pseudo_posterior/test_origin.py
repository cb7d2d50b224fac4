"""Where log-likelihoods are measured from: bounds from the definition on all draws and records; a
constant added to every log-likelihood, which no posterior knows of."""

from dataclasses import replace

import numpy as np
import pytest

from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior.fit import LikelihoodExtremes
from surveysynth.mechanisms.pseudo_posterior.mechanism import privacy_statement
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.models.gaussian.fbs import FBS
from tests.mechanisms.pseudo_posterior.mechanism_cases import (
    PLAN,
    fitted,
    run_on_records,
    sample_survey,
)
from tests.mechanisms.pseudo_posterior.test_target import log_lik_matrix

pytestmark = pytest.mark.xdist_group("mechanism")  # what its tests share is made once

TARGET = 1.8


class OtherUnit(FBS):
    """FBS whose densities are in another unit: a constant more in every log-likelihood."""

    def log_lik_blocks(self, theta, records):
        for rows, log_lik in super().log_lik_blocks(theta, records):
            yield rows, log_lik + 1.25


def fit_of(model, origin):
    survey = sample_survey()
    records = model.records(survey.design, survey.confidential)
    settings = MechanismSettings(epsilon=10.8, plan=PLAN, origin=origin)
    return run_on_records(model, records, settings, np.random.default_rng(11))[1]


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_bounds_from_the_peak_follow_from_their_definition(name):
    private, fit = fitted(name, origin="peak")
    matrix = log_lik_matrix(name, fit.theta, 1000)
    middle = (matrix.max(axis=0) + matrix.min(axis=0)) / 2
    origin = TARGET - np.quantile(middle, 0.98)
    assert fit.search[-1]["origin"] == pytest.approx(origin, rel=1e-10)
    measured = np.abs(matrix + origin).max(axis=0)
    np.testing.assert_allclose(fit.lipschitz_by_record, fit.risk_weights * measured, rtol=1e-10)
    ranges = np.ptp(matrix, axis=0)
    np.testing.assert_allclose(fit.oscillation_by_record, fit.risk_weights * ranges, rtol=1e-9)
    realised = (fit.risk_weights * np.maximum(measured, ranges)).max()
    assert 0.97 * TARGET <= realised <= TARGET
    assert fit.realised_bound == pytest.approx(realised, rel=1e-10)
    risk = np.maximum(measured, ranges)
    gap = np.abs(np.log(fit.risk_weights / np.minimum(1.0, 0.985 * TARGET / risk)))
    assert gap.max() < 0.3
    # The window of half-width Delta* holds the records below the peak, whatever the unit.
    assert fit.risk_weights.mean() > fitted(name, origin="density")[1].risk_weights.mean() + 0.05
    assert private.settings.origin == "peak"


def test_another_unit_of_the_density_changes_nothing_from_the_peak():
    plain, other = get_model("fbs"), OtherUnit()
    of_density = [fit_of(model, "density").risk_weights for model in (plain, other)]
    assert abs(of_density[0].mean() - of_density[1].mean()) > 0.02
    one, same = (fit_of(model, "peak") for model in (plain, other))
    np.testing.assert_allclose(one.risk_weights, same.risk_weights, rtol=1e-9)
    for name, values in one.theta.items():
        np.testing.assert_allclose(same.theta[name], values, rtol=1e-7, atol=1e-10)
    assert one.search[-1]["origin"] == pytest.approx(same.search[-1]["origin"] + 1.25)


def test_records_without_a_finite_log_likelihood_have_no_say():
    infinite = np.array([-np.inf, np.nan, np.inf])
    lowest = np.concatenate([np.arange(51.0), infinite])
    extremes = LikelihoodExtremes(lowest, lowest + 2.0)
    assert extremes.peak() == pytest.approx(50.0)
    assert LikelihoodExtremes(infinite, infinite).peak() == 0.0
    moved = extremes.measured_from(-3.0)
    np.testing.assert_allclose(moved.lipschitz[:51], np.maximum(3.0 - lowest[:51], lowest[:51] - 1))
    np.testing.assert_allclose(moved.oscillation, extremes.oscillation)
    assert np.isinf(moved.risk[51:]).all()


def test_the_origin_stays_confidential_and_the_papers_bound_goes_with_theirs():
    private, fit = fitted("fbs", origin="peak")
    record = fit.to_json_dict()
    assert "papers_epsilon_2_m_delta" not in record
    assert "papers_epsilon_2_m_delta" in fitted("fbs", origin="density")[1].to_json_dict()
    assert all("origin" in step for step in record["search"])
    assert not any("origin" in step for step in fitted("fbs", origin="density")[1].search)
    model, design = get_model("fbs"), sample_survey().design
    words = "\n".join(privacy_statement(design, private.settings, model).paragraphs)
    assert "(origin = peak)" in words
    assert "rests on the range alone" in words
    assert "one record can move it a little" in words
    settings = replace(private.settings, origin="density")
    of_papers = "\n".join(privacy_statement(design, settings, model).paragraphs)
    assert "(origin = density)" in of_papers
    assert "rests on the range alone" not in of_papers


@pytest.mark.parametrize("settings", [{"weights": "linear"}, {"risk": "count"}, {"truncate": 0.9}])
def test_the_papers_settings_have_the_papers_origin(settings):
    assert MechanismSettings(**{"epsilon": 10.8, **settings}).origin == "density"
    with pytest.raises(InputError, match="origin = 'peak' is for fixed-point weights"):
        MechanismSettings(**{"epsilon": 10.8, **settings, "origin": "peak"})
    with pytest.raises(InputError, match="one of density, peak"):
        MechanismSettings(epsilon=10.8, origin="mode")
