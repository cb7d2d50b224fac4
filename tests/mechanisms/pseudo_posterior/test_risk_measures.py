"""The mechanism under every risk measure: weights against the published maps of risks found apart,
bounds recomputed from the definition, and what must hold whatever the measure."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.pseudo_posterior import weighted_fits as mechanism
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.mechanism import privacy_statement
from surveysynth.mechanisms.pseudo_posterior.risk import (
    CountBased,
    Lipschitz,
    NoRisk,
    Pairwise,
    Scalar,
)
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run
from surveysynth.models import get_model
from surveysynth.models.weighted import WeightedModel
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import Survey
from tests.mechanisms.pseudo_posterior.mechanism_cases import run_on_records, sample_frame
from tests.surveys import make_survey

pytestmark = pytest.mark.xdist_group("mechanism")  # what its tests share is made once

PLAN = SamplingPlan(4, 50, 100)
TARGET = 10.8 / 6
N = 400


MEASURES = (
    Lipschitz(), CountBased(0.2), CountBased(20_000.0, ("gender",), absolute=True),
    Pairwise(0.2, ("field", "gender")), Scalar(),
)  # fmt: skip


@lru_cache
def survey_of(order=None):
    """A survey of salaries without weights, its records in another order on request."""
    rows = np.arange(N) if order is None else np.random.default_rng(order).permutation(N)
    return Survey.from_frame(
        sample_frame(N).iloc[rows][["field", "gender", "salary"]].reset_index(drop=True),
        outcome="salary",
        by=["gender"],
        predictors="gender",
        public_columns=["field"],
    )


def run_with(survey, model=None, **settings):
    given = {
        "epsilon": 10.8, "plan": PLAN, "allow": ("small_strata", "shared_weights"),
        **settings,
    }  # fmt: skip
    options = MechanismSettings(**given)
    model = model or get_model("normal")
    return run(model, survey.design, survey.confidential, options, np.random.default_rng(5))


@lru_cache
def fitted(**settings):
    return run_with(survey_of(), **settings)


def risks_of(measure, fit):
    survey = survey_of()
    database = Database(None, N, survey.confidential.outcome, survey.design.frame)
    settings = MechanismSettings(epsilon=10.8, risk=measure, weights="linear", plan=PLAN)
    return database.risks(settings, fit.unweighted_lipschitz_by_record)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_the_target_is_reached_by_weights_of_the_published_map(measure):
    _, fit = fitted(risk=measure, weights="linear")
    assert 0.9 * TARGET <= fit.realised_bound <= TARGET
    alpha, kept = fit.risk_weights, 1.0 - risks_of(measure, fit)
    assert ((alpha >= 0) & (alpha <= 1)).all()
    below = (alpha > 0) & (alpha < 1)
    scale = np.median(alpha[below] / kept[below])
    np.testing.assert_allclose(alpha, np.clip(scale * kept, 0, 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("measure", MEASURES[:5], ids=lambda measure: measure.name)
def test_reweighting_lifts_weights_to_the_same_bound(measure):
    settings = {"risk": measure, "weights": "linear"}
    before, after = (fitted(**settings, reweight=each)[1] for each in (False, True))
    assert 0.9 * TARGET <= after.realised_bound <= TARGET
    assert after.risk_weights.mean() > before.risk_weights.mean()
    # Bounds of records that are still down-weighted lie near the largest, whatever their weight.
    held = (after.risk_weights > 0) & (after.risk_weights < 1)
    spread = [np.std(np.log(fit.lipschitz_by_record[held])) for fit in (before, after)]
    assert spread[1] < 0.2
    assert spread[1] < 0.5 * spread[0]
    assert (after.risk_weights[before.risk_weights == 0] == 0).all()


def test_scalar_weights_are_the_target_over_the_bound():
    _, fit = fitted(risk="scalar")
    weight = fit.risk_weights[0]
    np.testing.assert_array_equal(fit.risk_weights, np.full(N, weight))
    # Delta*/Delta of the unweighted fit, less what the wider posterior adds to the bound.
    assert 0.7 * TARGET / fit.unweighted_bound < weight < TARGET / fit.unweighted_bound


def test_without_risk_nothing_is_weighted_by_name_or_by_object():
    for risk in ("none", NoRisk()):
        private, fit = fitted(risk=risk)
        assert (fit.risk_weights == 1.0).all()
        assert not private.settings.private


@pytest.mark.parametrize(
    "settings",
    [
        {"risk": "count", "pattern": ("gender",)},
        {"risk": "pairwise"},
        {"risk": "scalar"},
        {"risk": "lipschitz", "weights": "linear", "reweight": True},
    ],
    ids=lambda settings: settings["risk"],
)
def test_a_larger_epsilon_never_keeps_less_of_the_likelihood(settings):
    means = [
        fitted(epsilon=epsilon, **settings)[1].risk_weights.mean()
        for epsilon in (7.0, 10.8, 100.0)
    ]
    assert means == sorted(means)
    assert means[0] < 0.9 * means[-1]


@pytest.mark.parametrize("risk", ["lipschitz", "count", "pairwise", "scalar"])
def test_linear_weights_are_refused_unless_allowed(risk):
    design = make_survey(by=["gender"]).design
    settings = {"epsilon": 10.8, "risk": risk, "weights": "linear"}
    small = ("small_strata",)
    with pytest.raises(RefusedError, match="one record can set the weights of all others"):
        MechanismSettings(**settings, allow=small).prepared(design)
    survey = make_survey(by=["gender"])
    with pytest.raises(RefusedError, match="one record can set the weights of all others"):
        run_with(survey, allow=small, risk=risk, weights="linear")
    both = MechanismSettings(**settings, allow=(*small, "shared_weights"))
    assert both.prepared(design) is design


def test_a_model_of_many_modes_is_refused_unless_allowed():
    survey, mixture = make_survey(by=["gender"]), get_model("normal_mixture")
    settings = MechanismSettings(epsilon=10.8, allow=("small_strata",))
    with pytest.raises(RefusedError, match=r"'normal_mixture' to another mode.*'fbs'"):
        mechanism.run(mixture, survey.design, survey.confidential, settings)
    settings.require_identified(get_model("normal"))
    allowed = replace(settings, allow=("small_strata", "shared_weights"))
    allowed.require_identified(mixture)
    replace(settings, risk="none").require_identified(mixture)  # nothing is claimed
    statement = privacy_statement(survey.design, allowed, mixture)
    assert any("DOES NOT KEEP WHAT IS STATED" in each for each in statement.guarantee)
    assert "many modes" in " ".join(statement.not_covered)
    assert "allow = [shared_weights]" in statement.outside
    assert not privacy_statement(survey.design, replace(allowed, allow=("shared_weights",)),
                                 get_model("normal")).outside  # fmt: skip


def test_the_order_of_records_does_not_matter():
    settings = {"risk": "count", "pattern": ("field",)}
    order = np.random.default_rng(8).permutation(N)
    _, again = run_with(survey_of(8), **settings)
    _, first = fitted(**settings)
    np.testing.assert_allclose(again.risk_weights, first.risk_weights[order], rtol=1e-6)
    assert again.realised_bound == pytest.approx(first.realised_bound, rel=1e-6)


@WeightedModel.register
class Infinite:
    """The normal model where the log-likelihood of a record is infinite: of one record always, of
    another once the first has left."""

    def __init__(self):
        self.model = get_model("normal")
        self.weights = []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def of(self, design):
        return self

    def compress(self, records, risk_weights):
        self.weights.append(risk_weights)
        return self.model.compress(records, risk_weights)

    def log_lik_blocks(self, theta, records):
        for rows, log_lik in self.model.log_lik_blocks(theta, records):
            changed = np.where(rows == 10, -np.inf, log_lik)
            if len(self.weights) > 1:
                changed = np.where(rows == 20, np.nan, changed)
            yield rows, changed


@pytest.mark.parametrize(
    "settings",
    [{"risk": "count"}, {"risk": "scalar"}, {"weights": "linear", "reweight": True}, {}],
)
def test_a_record_with_an_infinite_log_likelihood_gets_no_weight(settings):
    _, fit = run_with(survey_of(), Infinite(), **settings)
    assert (fit.risk_weights[[10, 20]] == 0).all()
    assert (np.delete(fit.risk_weights, [10, 20]) > 0).mean() > 0.99
    assert fit.realised_bound <= TARGET


def test_a_shift_that_passes_the_target_alone_is_told():
    with pytest.raises(RefusedError, match="Lower the shift"):
        fitted(risk="count", shift=0.9)


def test_a_measure_that_does_not_fit_the_survey():
    with pytest.raises(InputError, match=r"'sex' is not a public column"):
        fitted(risk="count", pattern=("sex",))
    survey, model = survey_of(), get_model("normal")
    records = model.records(survey.design, survey.confidential)
    settings = MechanismSettings(epsilon=10.8, risk="count", plan=PLAN)
    with pytest.raises(InputError, match="without them"):
        run_on_records(model, records, settings, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"risk": "likelihood"}, "Did you mean 'lipschitz'|must be one of"),
        ({"risk": "count", "weights": "fixed_point"}, "is for risk = 'lipschitz'"),
        ({"risk": Scalar(), "weights": "fixed_point"}, "is for risk = 'lipschitz'"),
        ({"risk": "count", "radius": 1.5}, "at most 1"),
        ({"radius": 0.3}, "belong to risk"),
        ({"risk": CountBased(), "radius": 0.3}, "has its own"),
        ({"risk": "scalar", "pattern": ("field",)}, "belong to risk"),
        ({"risk": "count", "weights": "lineer"}, "weights must be one of"),
        ({"risk": "count", "shift": -1.5}, r"in \[-1, 1\]"),
        ({"risk": 3}, "must be one of"),
    ],
)
def test_settings_that_contradict(settings, match):
    with pytest.raises(InputError, match=match):
        MechanismSettings(**{"epsilon": 10.8, **settings})


def test_settings_by_name_are_those_of_the_objects():
    named = MechanismSettings(epsilon=10.8, risk="pairwise", radius=0.1, pattern=["field"])
    assert named.measure == Pairwise(0.1, ("field",))
    assert named.weights == "linear"
    assert MechanismSettings(epsilon=10.8).weights == "fixed_point"
    assert hash(named) == hash(
        MechanismSettings(
            epsilon=10.8, risk="pairwise", radius=0.1, pattern=("field",), weights="linear"
        )
    )
