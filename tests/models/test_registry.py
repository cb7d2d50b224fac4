"""What each registered model declares, and what a specification makes of it."""

import pytest

from surveysynth.config.build import model_of
from surveysynth.config.spec import parse_spec
from surveysynth.errors import InputError
from surveysynth.models import get_model, model_names, registered

SPEC = """
spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
population_size = 9000
[tables]
by = ["field"]
[privacy]
mechanism = "pseudo_posterior"
epsilon = 10.8
[synthesizer]
outcome = "salary"
"""


def spec_of(model: str, *lines: str) -> str:
    return "\n".join([SPEC, f"model = {model!r}", *lines])


def test_models_are_registered_under_their_names() -> None:
    assert tuple(model.name for model in registered()) == model_names()


@pytest.mark.parametrize("name", model_names())
def test_a_specification_gives_each_prior_to_its_model(name: str) -> None:
    model = get_model(name)
    assert model.priors == model.default_priors
    assert model_of(parse_spec(spec_of(name))).priors == model.default_priors  # type: ignore[attr-defined]
    for prior, value in model.default_priors.items():
        given = model_of(parse_spec(spec_of(name, f"priors = {{ {prior} = {2 * value} }}")))
        expected = {**model.default_priors, prior: 2 * value}
        assert given.priors == expected  # type: ignore[attr-defined]


def test_a_mixture_has_as_many_components_as_its_name_says() -> None:
    assert model_of(parse_spec(spec_of("normal_mixture(3)"))).components == 3  # type: ignore[attr-defined]
    assert get_model("normal_mixture").components == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", model_names())
def test_outcomes_and_transforms_are_those_that_the_model_takes(name: str) -> None:
    model, two = get_model(name), SPEC.replace('"salary"', '["salary", "bonus"]')
    if "one_outcome" in model.requires:
        with pytest.raises(InputError, match=r"takes one outcome, got 2; .* needs model = 'fbs'"):
            parse_spec(f"{two}\nmodel = {name!r}")
    else:
        assert len(parse_spec(f"{two}\nmodel = {name!r}").declared) == 2
    transform = parse_spec(spec_of(name)).declared[0].transform
    assert transform.kind == ("identity" if model.takes_count else "log")


def test_another_model_has_none_of_the_options() -> None:
    line = "covariance_by = []\npriors = { coefficient_sd = 3.0 }"
    section = parse_spec(spec_of("fbp", line)).synthesizer
    assert section.with_model("fbp") is section
    other = section.with_model("normal_mixture")
    assert (other.model, other.priors, other.covariance_by) == ("normal_mixture", {}, None)
    assert section.with_model("fbs").covariance_by == ()


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ({"residual": 1.0}, "unknown name 'residual' for model 'fbs'.*'residual_scale'"),
        ({"residual_scale": 0.0}, "priors.residual_scale: expected a positive number, got 0.0"),
        ({"lkj": 3.2}, "multiple of 0.5, at least 1, got 3.2"),
    ],
)
def test_priors_are_checked_where_a_model_is_made(priors: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        get_model("fbs", priors=priors)


def test_options_are_checked_where_a_model_is_made() -> None:
    for value in (0, 51, 3.0, True, "3"):
        with pytest.raises(InputError, match="components must be a whole number from 1 to 50"):
            get_model("normal_mixture", components=value)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(InputError, match="Unknown model 'fbx'; the models are fbs, fbp"):
        get_model("fbx")
