"""What a privacy statement must say (methods 2), and that it says nothing of the data."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from surveysynth.mechanisms.pseudo_posterior.mechanism import privacy_statement
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from tests.surveys import good, make_survey


def design_of(frame):
    return make_survey(frame, by=["gender"]).design


def text(test=False, **settings):
    options = MechanismSettings(epsilon=10.8, plan=SamplingPlan(4, 100, 200), **settings)
    statement = privacy_statement(design_of(good()), options, get_model("fbs"), test=test)
    assert set(statement.as_dict()) == {"statement", "assumptions", "not_covered"}
    return "\n".join(statement.paragraphs)


@pytest.mark.parametrize(
    "words",
    [
        "asymptotic differential privacy with epsilon at most 10.8",
        "differ in the outcome and sampling weight of one record",
        "800 posterior draws",
        "found on this database",
        "one over the square root of the number of records per coefficient",
        "unweighted cell size",
        "the design variables of each record: gender, field",
        "as fixed, though they were computed from the confidential data",
        "That a release was made at all",
        "not protected as a whole",
        "their epsilons add up",
        "log(salary)",
        "chosen without a look at the outcomes and weights",
        "what floating-point numbers (53 binary digits) reveal beyond these is not examined",
        "the key stream of ChaCha20 under a key of 256 bits",
        "4 chains of finite length (100 iterations of warm-up and 200 kept)",
        "the 3 released draws are independent of each other",
    ],
)
def test_every_statement_says(words):
    assert words in text()


def test_statements_of_special_settings():
    assert "can move the smallest or largest risk" in text(weights="linear")
    assert "can move the smallest or largest risk" not in text()
    assert "Which draws are left out depends on the confidential data" in text(truncate=0.9)
    assert "on any of 720 posterior draws" in text(truncate=0.9)
    assert text(test=True).startswith("THIS IS A TEST AND NOT PRIVATE")
    assert text(risk="none").startswith("NOT PRIVATE")
    assert "ChaCha20" not in text(test=True)  # its numbers come from the seed
    assert "chains of finite length" not in text(risk="none")
    assert "Stan" not in text()
    stan = replace(get_model("fbs"))
    object.__setattr__(stan, "compiled", True)
    statement = privacy_statement(design_of(good()), MechanismSettings(epsilon=10.8), stan)
    assert "whose seed has 31 bits of these" in statement.assumptions[-2]
    assert "10.8" not in text(risk="none")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"weights": "linear"}, "(measure: lipschitz)"),
        ({"risk": "count"}, "farther than 0.2 times its own outcome from it"),
        ({"risk": "count"}, "Epsilon does not cover this dependence of the weights on a record"),
        ({"risk": "count", "pattern": ("gender",)}, "the records with the same gender"),
        ({"risk": "count", "radius": 500.0, "absolute_radius": True}, "than 500 from it"),
        ({"risk": "pairwise"}, "Pairwise risks in particular"),
        ({"risk": "pairwise"}, "as far from another such record"),
        ({"risk": "scalar"}, "sets the weight of every record"),
        ({"risk": "count", "reweight": True}, "divides by record bounds"),
    ],
)
def test_statements_of_risk_measures(settings, words):
    assert words in text(**settings)
    assert words not in text()
    assert "as fixed, though they were computed from the confidential data" in text(**settings)


def test_weights_that_one_record_sets_are_the_headline():
    """Not among what is left out alone; and in figures that are true of every measure."""
    design, model = design_of(good()), get_model("fbs")

    def said(**settings):
        return privacy_statement(design, MechanismSettings(epsilon=10.8, **settings), model)

    for settings in ({"weights": "linear"}, {"risk": "scalar"}):
        statement = said(**settings, allow=("shared_weights",))
        assert any("DOES NOT KEEP WHAT IS STATED" in each for each in statement.guarantee)
        assert "by more than ten times the stated bound" in "".join(statement.not_covered)
        assert statement.outside.startswith("outside the statement (allow = [shared_weights]):")
        assert not any(f"{each} times" in "".join(statement.paragraphs) for each in (14, 28, 41))
    assert said().outside == said(risk="none").outside == ""
    assert not any("DOES NOT KEEP" in each for each in said().paragraphs)


def test_the_statement_is_the_same_for_other_confidential_data():
    other = good()
    other["salary"] = other["salary"].sample(frac=1.0, random_state=1).to_numpy() * 1.5
    other["weight"] = other["weight"].to_numpy()[::-1] * 2.0
    settings = MechanismSettings(epsilon=10.8)
    first, second = (
        privacy_statement(design_of(frame), settings, get_model("fbs")) for frame in (good(), other)
    )
    assert first == second


@pytest.mark.parametrize(
    ("common", "words"), [(True, None), (False, "For a normal model with such a sampler")]
)
def test_noise_that_weights_carry_is_said(common, words):
    model = SimpleNamespace(
        title="a model", compiled=False, common_random_numbers=common, identified=True,
        takes_count=False,
    )  # fmt: skip
    settings = MechanismSettings(epsilon=10.8)
    told = "\n".join(privacy_statement(design_of(good()), settings, model).not_covered)
    assert ("carry the noise of the sampler" in " ".join(told.split())) is (words is not None)
    assert words is None or words in " ".join(told.split())


def test_units_of_the_design_are_not_protected():
    settings = MechanismSettings(epsilon=10.8)

    def told(model, **changes):
        survey = make_survey(by=["gender"], psu="school", **changes)
        return "\n".join(privacy_statement(survey.design, settings, model).paragraphs)

    declared = told(get_model("fbs"), design_effect=1.5)
    assert "not of primary sampling units (school)" in declared
    assert "the design effect of clustering, 1.5, declared" in declared
    assert "not of primary sampling units" not in text()
