"""Variances between PSUs after debiasing. Truth: results made by hand, and unweighted fits to the
same records. Variances that follow the residual scales alone, as before, are rejected."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.inference import bias_search
from surveysynth.inference.bias_search import LEAST_BETWEEN, BiasSearch
from surveysynth.inference.debias import debias_draws
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run
from surveysynth.models import get_model
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, psu_variances
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey

UNITS = 40
SETTINGS = MechanismSettings(epsilon=10.8, plan=SamplingPlan(4, 100, 100))


def survey_of(n: int, seed: int = 1) -> Survey:
    """A yes or no in units that differ."""
    rng = np.random.default_rng(seed)
    unit = np.arange(n) % UNITS
    effect = 0.5 * rng.standard_normal(UNITS)
    frame = pd.DataFrame({
        "sex": rng.choice(["f", "m"], n), "unit": unit,
        "works": (rng.random(n) < 1.0 / (1.0 + np.exp(-0.4 - effect[unit]))).astype(int),
        "weight": np.exp(rng.normal(4.0, 0.3, n)),
    })  # fmt: skip
    return Survey.from_frame(
        frame, outcomes=Outcome("works", "binary"), weight="weight",
        by=["sex"], psu="unit", population_size=50_000,
    )  # fmt: skip


def search_of(n: int, covariance: FloatArray, most: int = 20_000) -> BiasSearch:
    """The search of three draws with this covariance of effects."""
    design, model = survey_of(n).design, get_model("fbs")
    model = model.of(design)
    guess = model.prior_guess(design, 0.5)
    assert guess is not None
    theta = {name: np.stack([values] * 3) for name, values in guess.items()}
    theta[PSU_COVARIANCE] = np.stack([covariance * times for times in (0.5, 1.0, 2.0)])
    draws = PrivateDraws(model.name, theta, SETTINGS)
    return BiasSearch(model, design, draws, 4, np.random.default_rng(1))


COVARIANCE = np.array([[0.2, 0.03], [0.03, 0.05]])


def results(search: BiasSearch, change: Any) -> list[Any]:
    """Runs whose variances are found by (runs, 2) larger than by the unweighted fits."""
    still, between = np.zeros(len(search.kinds)), np.array([0.3, 0.1])
    return [
        (None, SimpleNamespace(
            means=np.concatenate([still, between + own]),
            unweighted_means=np.concatenate([still, between]), risk_weights=np.ones(3),
        ))
        for own in np.asarray(change)
    ]  # fmt: skip


def variances_after(search: BiasSearch, change: Any) -> tuple[FloatArray, FloatArray]:
    """Variances (3, 2) and correlations (3,) of the draws after one round."""
    search.receive(results(search, change))
    search.conclude(last=True)
    covariance = search.finish()[0].theta[PSU_COVARIANCE]
    variance = np.einsum("mdd->md", covariance)
    return variance, covariance[:, 0, 1] / np.sqrt(variance.prod(1))


RELEASED = np.diag(COVARIANCE) * np.array([[0.5], [1.0], [2.0]])


def test_what_the_runs_hid_is_added_and_correlations_stay() -> None:
    variance, correlation = variances_after(search_of(400, COVARIANCE), [[-0.06, -0.01]] * 12)
    np.testing.assert_allclose(variance, RELEASED + np.array([0.06, 0.01]), rtol=1e-9)
    np.testing.assert_allclose(correlation, 0.3, rtol=1e-9)


def test_noise_is_no_bias_and_half_of_it_counts_by_half() -> None:
    signs = np.array([1.0, -1.0] * 6)[:, None] * [1.0, 1.0]
    variance, _ = variances_after(search_of(400, COVARIANCE), 0.06 * signs)
    np.testing.assert_allclose(variance, RELEASED, rtol=1e-9)
    # Of twelve values m + s and m - s the mean has the error s / sqrt(11).
    change = -0.06 + signs * 0.06 * np.sqrt(11.0 / 2.0)
    variance, _ = variances_after(search_of(400, COVARIANCE), change)
    np.testing.assert_allclose(variance, RELEASED + 0.03, rtol=1e-9)


def test_a_variance_keeps_a_part_of_itself() -> None:
    variance, _ = variances_after(search_of(400, COVARIANCE), [[10.0, 0.0]] * 12)
    np.testing.assert_allclose(variance, RELEASED * [LEAST_BETWEEN, 1.0], rtol=1e-9)


def test_units_of_more_records_than_were_simulated_hide_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bias_search, "MAX_RECORDS", 200)
    variance, _ = variances_after(search_of(400, COVARIANCE), [[-0.06, 0.0]] * 12)
    np.testing.assert_allclose(variance[:, 0], RELEASED[:, 0] + 0.03, rtol=1e-9)


def test_models_without_units_have_no_such_variances() -> None:
    assert psu_variances({"beta": np.zeros((4, 2, 1))}).shape == (4, 0)


def test_variances_between_units_come_back_to_those_of_the_unweighted_fit() -> None:
    """By half of what is hidden at least, from draws alone."""
    model, survey = get_model("fbs"), survey_of(1600)
    design, rng = SETTINGS.prepared(survey.design), np.random.default_rng(1)
    private, fit = run(model, design, survey.confidential, SETTINGS, rng)
    made = debias_draws(model, design, private, rng, databases=9)
    assert made.record.debiased
    before, after = (psu_variances(each.theta)[:, 0] for each in (private, made.draws))
    hidden = fit.unweighted_means[-2] - fit.means[-2]
    assert hidden > 0.1 * fit.means[-2]
    assert 0.5 < (after - before).mean() / hidden < 2.0


def test_variances_follow_residual_scales_where_runs_show_nothing_else() -> None:
    """Of the log weight: its residual SD is found too small by a tenth, and T by noise alone."""
    search = search_of(400, COVARIANCE)
    signs = np.array([1.0, -1.0] * 6)[:, None] * [1.0, 1.0]
    runs = results(search, 0.2 * signs)
    scale = search.kinds.index("scale")
    for _, fit in runs:
        fit.means[scale] -= 0.1
    search.receive(runs)
    search.conclude(last=True)
    variance = psu_variances(search.finish()[0].theta)
    # Of the two, the effects on the log weight alone have a residual scale.
    np.testing.assert_allclose(variance, RELEASED * [1.0, np.exp(0.2)], rtol=1e-9)
