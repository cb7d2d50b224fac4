"""What each registered model declares, and what a specification makes of it."""

import pytest

from surveysynth.config.build import model_of
from surveysynth.config.spec import parse_spec
from surveysynth.config.synthesizer_section import SynthesizerSection
from surveysynth.errors import InputError
from surveysynth.models import get_model, model_names, registered
from surveysynth.models.base import Option

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


def test_options_have_names_of_their_own() -> None:
    """Two models with one key share its type and default; a key of all models would be hidden."""
    shared: dict[str, Option] = {}
    keys = [key for model in registered() for key in model.options]
    for model in registered():
        for key, option in model.options.items():
            assert shared.setdefault(key, option) == option
    assert not set(keys) & set(SynthesizerSection.__annotations__)


@pytest.mark.parametrize("name", model_names())
def test_a_specification_gives_each_prior_to_its_model(name: str) -> None:
    model = get_model(name)
    assert model.priors == model.default_priors
    assert model_of(parse_spec(spec_of(name))).priors == model.default_priors  # type: ignore[attr-defined]
    for prior, value in model.default_priors.items():
        given = model_of(parse_spec(spec_of(name, f"priors = {{ {prior} = {2 * value} }}")))
        expected = {**model.default_priors, prior: 2 * value}
        assert given.priors == expected  # type: ignore[attr-defined]


def another(option: Option) -> str | int | tuple[str, ...]:
    """A value that is not the default."""
    if option.choices:
        return option.choices[-1]
    return option.most or ("field",)


def shown(value: object) -> str:
    """As a specification writes it."""
    return repr(list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize("name", model_names())
def test_a_specification_gives_each_option_to_its_model_alone(name: str) -> None:
    for key, option in get_model(name).options.items():
        other = another(option)
        assert other != option.default
        text = spec_of(name, f"{key} = {shown(other)}")
        if not (option.choices or option.most):  # of noisy statistics alone
            constants = "[outcomes.salary]\ncenter = 3\nspread = 1\n"
            text = text.replace("pseudo_posterior", "noisy_statistics") + f"\n{constants}"
        assert getattr(model_of(parse_spec(text)), key) == other
        for model in model_names():
            if key not in get_model(model).options:
                if option.default is not None:  # what is not given has no words in a file
                    parse_spec(spec_of(model, f"{key} = {shown(option.default)}"))
                words = f"{key}: .* for model = .*{name!r}.*; leave it"
                with pytest.raises(InputError, match=words):
                    parse_spec(spec_of(model, f"{key} = {shown(other)}"))


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
    line = "smoothing = 'outcome'\npriors = { coefficient_sd = 3.0 }"
    section = parse_spec(spec_of("fbp", line)).synthesizer
    assert section.with_model("fbp") is section
    other = section.with_model("normal_mixture")
    assert (other.model, other.priors, other.options) == ("normal_mixture", {}, {"components": 5})
    assert section.with_model("fbs").with_model("fbp").options == {
        "smoothing": "default", "covariance_by": None,
    }  # fmt: skip


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
    Option(5, most=50).check("components", 50)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(InputError, match="Unknown model 'fbx'; the models are fbs, fbp"):
        get_model("fbx")
