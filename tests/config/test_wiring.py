"""Every setting of a specification arrives where it is used. Truth: the values in the file, none of
them a default, compared field by field."""

from pathlib import Path

import pytest

from surveysynth.config.build import noisy_settings_of, read_survey, settings_of
from surveysynth.config.spec import Spec, load_spec
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from tests.surveys import small_survey, spec_text, write_survey

FIT = "chains = 5\nwarmup = 77\ndraws = 99"


def spec_of(folder: Path, **sections: str) -> Spec:
    return load_spec(write_survey(folder, small_survey(), spec_text(**sections)))


def test_settings_of_the_pseudo_posterior(tmp_path: Path) -> None:
    given = {
        "epsilon": 7.5, "m": 2, "weights": "reweighted", "scale": [0.6, 0.1], "truncate": 0.9,
    }  # fmt: skip
    lines = "\n".join(f"{key} = {value!r}" for key, value in given.items())
    made = settings_of(spec_of(tmp_path, privacy=lines, synthesizer=FIT))
    default = MechanismSettings(epsilon=10.8)
    for key, value in given.items():
        if key not in ("weights", "scale"):
            assert getattr(made, key) == value != getattr(default, key), key
    assert (made.weights, default.weights) == ("linear", "fixed_point")
    assert (made.reweight, default.reweight) == (True, False)
    assert (made.scale, made.shift, default.scale, default.shift) == (0.6, 0.1, None, 0.0)
    assert (made.plan.chains, made.plan.warmup, made.plan.draws) == (5, 77, 99)
    paper = settings_of(spec_of(tmp_path, synthesizer='inference = "paper"'))
    assert (paper.origin, default.origin) == ("density", "peak")


@pytest.mark.parametrize(("risk", "radius"), [("count", 0.3), ("pairwise", 0.15)])
def test_risk_measures_of_the_pseudo_posterior(tmp_path: Path, risk: str, radius: float) -> None:
    privacy = f'risk = "{risk}"\nweights = "linear"\nradius = {radius}\npattern = ["field"]'
    made = settings_of(spec_of(tmp_path, privacy=privacy))
    assert (made.radius, tuple(made.pattern)) == (radius, ("field",))
    assert made.measure != settings_of(spec_of(tmp_path)).measure


def test_settings_of_noisy_statistics(tmp_path: Path) -> None:
    privacy = (
        'mechanism = "noisy_statistics"\nepsilon = 2.5\ndelta = 1e-5\nm = 12\nradius = 4.5\n'
        'protect = "field"'
    )
    outcome = (
        "[outcomes.weight]\ncentre = 4.5\nspread = 0.7\n"
        "[outcomes.salary]\ncenter = 40000.0\nspread = 0.6\n"
    )
    spec = spec_of(tmp_path, privacy=f"{privacy}\n{outcome}", synthesizer=FIT)
    made, default = noisy_settings_of(spec), NoisySettings(noisy_settings_of(spec).budget)
    assert (made.budget.epsilon, made.budget.delta) == (2.5, 1e-5)
    given = {"m": 12, "radius": 4.5, "protect": "field"}
    for key, value in given.items():
        assert getattr(made, key) == value != getattr(default, key), key
    # Either spelling.
    assert (made.weight.center, made.weight.spread) == (4.5, 0.7)
    assert made.declared["salary"].center == 40000.0
    assert made.declared["salary"].spread == 0.6
    assert (made.plan.chains, made.plan.warmup, made.plan.draws) == (5, 77, 99)


@pytest.mark.parametrize("rule", ["remove", "certainty", "adjust", "average"])
def test_the_rule_of_lonely_units_reaches_the_design(tmp_path: Path, rule: str) -> None:
    spec = spec_of(tmp_path, survey=f'strata = "field"\nlonely_psu = "{rule}"')
    assert read_survey(spec).design.lonely_psu == rule
    assert read_survey(spec_of(tmp_path)).design.lonely_psu == "fail"
