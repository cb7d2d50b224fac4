"""Sections of outcomes: what they mean, each mistake in the reader's words, and every combination.

Truth: ``Outcome`` and ``Transform`` built by hand from the same keys."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from surveysynth.config.build import model_options, noisy_settings_of
from surveysynth.config.spec import Spec, parse_spec, spec_of_survey
from surveysynth.errors import InputError
from surveysynth.mechanisms.base import Declared
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform
from tests.surveys import small_survey

HEAD = """
[survey]
data = "survey.csv"
weight = "w"
{survey}
[synthesizer]
{synthesizer}
[tables]
by = ["region"]
statistics = {statistics}
[privacy]
{privacy}
"""


#: Kinds of outcomes are for noisy statistics.
NOISY = {"privacy": "mechanism = 'noisy_statistics'", "survey": "population_size = 1000"}
#: ``[privacy]`` of a survey in memory.
PSEUDO = {"mechanism": "pseudo_posterior", "epsilon": 10.8}


def text_of(
    sections: str, *, survey: str = "", synthesizer: str = "", statistics: str = '["count"]',
    privacy: str = "",
) -> str:  # fmt: skip
    if "mechanism" not in privacy:
        privacy += '\nmechanism = "pseudo_posterior"'
    if "rho" not in privacy:
        privacy += "\nepsilon = 10.8"
    head = HEAD.format(
        survey=survey, synthesizer=synthesizer, statistics=statistics, privacy=privacy
    )
    return head + sections


def refusal(sections: str, **more: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_spec(text_of(sections, **more))
    return str(caught.value)


EVERY_KIND = """
[outcomes.income]
kind = "semicontinuous"
spikes = [0, 150000]
transform = { kind = "yeo_johnson", scale = 10000, power = 0.4 }
bounds = [-inf, 149999.5]
center = 30000
spread = 1.0
[outcomes.weight]
center = 4.0
spread = 0.5
[outcomes.works]
kind = "binary"
levels = ["no", "yes"]
[outcomes.degree]
kind = "categorical"
levels = [1, 2, "none"]
[outcomes.smokes]
kind = "binary"
[outcomes.hours]
center = 20
spread = 1.0
transform = { kind = "identity", scale = 10 }
bounds = [0, inf]
"""


def test_sections_name_the_outcomes_in_their_order() -> None:
    declared = parse_spec(text_of(EVERY_KIND, **NOISY)).declared
    yeo_johnson = Transform("yeo_johnson", scale=10_000.0, power=0.4)
    assert declared == (
        Outcome("income", "semicontinuous", yeo_johnson, (0.0, 150_000.0), upper=149_999.5),
        Outcome("works", "binary", levels=("no", "yes")),
        Outcome("degree", "categorical", levels=("1", "2", "none")),
        Outcome("smokes", "binary"),
        Outcome("hours", "continuous", Transform("identity", scale=10.0), lower=0.0),
    )
    assert declared[3].levels == ("0", "1")


def test_a_list_settles_the_order_and_may_name_more() -> None:
    amount = "transform = { kind = 'asinh', scale = 5 }\ncenter = 3.0\nspread = 1"
    sections = f"[outcomes.works]\nkind = 'binary'\n[outcomes.pay]\n{amount}\n"
    sections += f"[outcomes.rent]\n{amount}"
    listed = "outcome = ['pay', 'works', 'rent']"
    asinh = Transform("asinh", scale=5.0)
    assert parse_spec(text_of(sections, synthesizer=listed, **NOISY)).declared == (
        Outcome("pay", transform=asinh),
        Outcome("works", "binary"),
        Outcome("rent", transform=asinh),
    )
    assert "outcomes.works" in refusal(sections, synthesizer="outcome = 'pay'")


def test_the_synthesizer_may_be_left_out_altogether() -> None:
    text = text_of("[outcomes.pay]\n").replace("[synthesizer]\n", "")
    assert parse_spec(text).declared == (Outcome("pay"),)
    assert "synthesizer: missing" in refusal("").replace("synthesizer.outcome: ", "synthesizer: ")


@pytest.mark.parametrize(
    ("keys", "transform"),
    [
        ("", Transform("log")),
        ("transform = { shift = 2 }", Transform("log", shift=2.0)),
        ("transform = { scale = 10 }", Transform("yeo_johnson", scale=10.0)),
        ("transform = { power = 1.5 }", Transform("yeo_johnson", power=1.5)),
        ("transform = { kind = 'asinh', scale = 10 }", Transform("asinh", scale=10.0)),
    ],
)
def test_transforms_of_a_section(keys: str, transform: Transform) -> None:
    assert parse_spec(text_of(f"[outcomes.pay]\n{keys}")).declared[0].transform == transform


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        ("spikes = [0]", ["outcomes.y.spikes", "semicontinuous"]),
        ("kind = 'categorical'\nlevels = ['a', '']", ["outcomes.y.levels[2]", "not empty"]),
        ("kind = 'categorical'\nlevels = ['a', ' ']", ["outcomes.y.levels", "not empty"]),
        ("kind = 'categorical'\nlevels = ['a', 2.5]", ["outcomes.y.levels[2]", "a text"]),
        ("kind = 'categorical'\nlevels = ['1', 1]", ["outcomes.y.levels", "once"]),
        ("kind = 'binary'\nlevels = ['a']", ["outcomes.y.levels", "'binary' has two levels"]),
        ("kind = 'binary'\ntransform = 'log'", ["outcomes.y.transform", "amounts"]),
        ("kind = 'binary'\nbounds = [-inf, 1]", ["outcomes.y.bounds", "amounts"]),
        ("kind = 'binary'\ncenter = 0.5", ["outcomes.y.center", "amounts"]),
        ("center = 1\ncentre = 2\nspread = 1", ["outcomes.y.centre", "unknown key"]),
        ("kind = 'count'", ["outcomes.y.range", "missing", "[0, 20]"]),
        ("bounds = [0, inf]", ["outcomes.y.bounds", "log(y)", "not defined"]),
        ("bounds = [-3, inf]\ntransform = { shift = 3 }", ["y.bounds", "not defined"]),
        ("bounds = [3, 2]", ["outcomes.y.bounds", "the lower first"]),
        ("bounds = [-inf, inf]", ["outcomes.y.bounds", "may be infinite"]),
        ("bounds = [1]", ["outcomes.y.bounds", "expected two numbers"]),
        ("kind = 'semicontinuous'\nspikes = [nan]", ["outcomes.y.spikes[1]", "finite"]),
        ("kind = 'semicontinuous'\nspikes = 0", ["outcomes.y.spikes", "a list"]),
        ("transform = { kind = 'log', scale = 2 }", ["transform.scale", "'log' has no scale"]),
        ("transform = { kind = 'log', power = 1 }", ["outcomes.y.transform.power", "yeo_johnson"]),
        ("transform = { power = 3 }", ["outcomes.y.transform.power", "between 0 and 2"]),
        ("transform = { scale = 0 }", ["outcomes.y.transform.scale", "positive"]),
        ("transform = { kind = 'asinh', shift = 1 }", ["outcomes.y.transform.shift", "'log'"]),
        ("center = -1", ["outcomes.y.center", "log(y)"]),
        ("transform = 'sqrt'", ["outcomes.y.transform", "'log'", "'sqrt'"]),
        ("transform = { shift = nan }", ["outcomes.y.transform.shift", "finite"]),
    ],
)
def test_each_mistake_names_its_section_and_key(keys: str, parts: list[str]) -> None:
    text = refusal(f"[outcomes.y]\n{keys}")
    for part in parts:
        assert part in text


def test_labels_are_of_levels_that_there_are() -> None:
    sections = "[outcomes.y]\nkind = 'binary'\nlevels = ['no', 'yes']\n[labels.y]\n"
    text = refusal(sections + "levels = { yse = 'At work' }")
    assert "labels.y.levels: 'yse'" in text
    assert "Did you mean 'yes'" in text
    text = text_of(sections + "levels = { yes = 'At work' }", **NOISY)
    assert parse_spec(text).labels["y"].levels


def test_the_section_of_the_weight_is_of_the_weight() -> None:
    for keys in ("kind = 'binary'", "transform = 'log'", "levels = ['a', 'b']"):
        text = refusal(f"[outcomes.y]\n[outcomes.weight]\n{keys}")
        assert "outcomes.weight." in text
        assert "rename an outcome" in text
    same_name = refusal("[outcomes.weight]\ncenter = 1", synthesizer="outcome = 'weight'")
    assert "rename an outcome" in same_name


MOMENTS = "center = 3\nspread = 1"
ZEROS = f"kind = 'semicontinuous'\nspikes = [0]\n{MOMENTS}"


@pytest.mark.parametrize(
    ("model", "keys", "remedy"),
    [
        ("fbp", "kind = 'categorical'\nlevels = ['a', 'b']", "use model = 'fbs'."),
        ("normal", "kind = 'binary'", "use model = 'fbs' or 'fbp'."),
        ("normal_mixture", ZEROS, "'fbs' or 'fbp'"),
        ("poisson", ZEROS, "'fbs' or 'fbp'"),
        ("normal", "bounds = [-inf, 9]", "outcomes.y.bounds: model 'normal' supports no bounds"),
        ("own.toml", "kind = 'binary'", "use model = 'fbs' or 'fbp'."),
    ],
)
def test_models_take_the_kinds_that_they_declare(model: str, keys: str, remedy: str) -> None:
    size = "population_size = 1000"
    text = refusal(f"[outcomes.y]\n{keys}", synthesizer=f"model = '{model}'", survey=size)
    assert "outcomes.y." in text
    assert remedy in text
    constants = "" if "center" in keys or "levels" in keys or "binary" in keys else MOMENTS
    able = text_of(f"[outcomes.y]\n{keys}\n{constants}", **NOISY)
    assert parse_spec(able).synthesizer.model == "fbs"


def test_a_count_is_declared_as_one() -> None:
    text = text_of("[outcomes.visits]\nkind = 'count'", synthesizer="model = 'poisson'")
    assert parse_spec(text).declared == (Outcome("visits", transform=Transform("identity")),)


def test_a_typical_weight_alone_is_the_middle_of_the_range_that_is_learned() -> None:
    noisy = {"privacy": "mechanism = 'noisy_statistics'"}
    amount = "[outcomes.y]\nrange = [0, 9]\n[outcomes.weight]\ncentre = 3"
    found = parse_spec(text_of(amount, **noisy)).outcomes["weight"]
    assert found.range is not None
    assert found.range == pytest.approx((np.exp(3) / 100, np.exp(3) * 100))
    of_size = parse_spec(text_of(amount, **NOISY)).outcomes["weight"]
    assert of_size.range == found.range
    # A spread that is declared keeps the logarithm, and so does a model that needs it.
    declared = parse_spec(text_of(f"{amount}\nspread = 0.9", **noisy)).outcomes["weight"]
    assert (declared.range, declared.center, declared.spread) == (None, 3.0, 0.9)
    selection = parse_spec(text_of(amount, **{**NOISY, "synthesizer": "model = 'fbp'"}))
    assert selection.outcomes["weight"].range is None


def test_units_have_effects_on_every_kind_and_with_missing_answers() -> None:
    psu = "psu = 'school'"
    noisy = {"privacy": "mechanism = 'noisy_statistics'"}
    size = f"{psu}\npopulation_size = 1000"
    for keys in ("kind = 'binary'", "bounds = [-inf, 9]\ncenter = 3\nspread = 1"):
        kind = f"[outcomes.y]\n{keys}"
        text = refusal(kind, survey=psu)
        assert "survey.psu" in text
        assert "prior publication" in text
        assert parse_spec(text_of(kind, survey=size, **noisy)).privacy.mechanism
        missing = f"{size}\nmissing = 'model'"
        assert parse_spec(text_of(kind, survey=missing, **noisy)).survey.missing == "model"
        assert "noisy_statistics" in refusal(kind, survey=f"{psu}\nmissing = 'model'")
    assert parse_spec(text_of("[outcomes.y]", survey=f"{psu}\ndesign_effect = 2"))
    groups, constants = "covariance_by = ['region']", "[outcomes.y]\ncenter = 3\nspread = 1"
    assert parse_spec(text_of(constants, survey=size, synthesizer=groups, **noisy)).survey.psu
    assert "covariance_by" in refusal(constants, survey=size, synthesizer=groups)


def test_noisy_statistics_need_constants_of_amounts_alone() -> None:
    given = {"privacy": "mechanism = 'noisy_statistics'", "survey": "population_size = 1000"}
    parse_spec(text_of("[outcomes.y]\nkind = 'binary'", **given))
    amount = "[outcomes.y]\nkind = 'semicontinuous'\nspikes = [0]"
    assert "outcomes.y: center and spread missing" in refusal(amount, **given)
    parse_spec(text_of(f"{amount}\ncenter = 3\nspread = 1.0", **given))


SCALE = "transform = { scale = 1000 }\n"
SPLIT = f"[outcomes.tax]\nkind = 'semicontinuous'\nsplit = 0\n{SCALE}"


def test_a_split_has_a_centre_on_each_side() -> None:
    strict = {"privacy": "mechanism = 'noisy_statistics'", "survey": "population_size = 1000"}
    transform = Transform("yeo_johnson", scale=1000.0)
    expected = Outcome("tax", "semicontinuous", transform, split=0.0)
    spec = parse_spec(text_of(f"{SPLIT}center = [5000, -1000.0]\nspread = 1.5", **strict))
    assert spec.declared == (expected,)
    settings = noisy_settings_of(spec)
    assert settings.declared["tax"] == Declared(5000.0, 1.5)
    assert settings.declared_below["tax"] == Declared(-1000.0, 1.5)
    two = parse_spec(text_of(f"{SPLIT}center = [5000, -1000]\nspread = [1.5, 1]", **strict))
    assert noisy_settings_of(two).declared_below["tax"].spread == 1.0
    assert "center and spread missing" in refusal(SPLIT, **strict)
    for keys, parts in (
        ("center = 5000", ["outcomes.tax.center", "one above the split at 0 and one below"]),
        ("center = [-1000, 5000]", ["outcomes.tax.center", "in this order"]),
        ("center = [1, 2, 3]", ["outcomes.tax.center", "or two (above and below a split), got 3"]),
        ("center = ['a', 2]", ["outcomes.tax.center", "a number, got 'a'"]),
        ("spread = [1, 0]", ["outcomes.tax.spread", "greater than 0, got 0"]),
        ("spread = [1, inf]", ["outcomes.tax.spread", "a finite number"]),
        ("bounds = [-inf, -2]", ["outcomes.tax.split", "between the bounds"]),
        ("center = [5, -5]\ntransform = { kind = 'log', shift = -9 }", ["center", "log(tax + -9)"]),
    ):
        text = refusal(SPLIT.replace(SCALE, "") + keys)
        for part in parts:
            assert part in text
    pairs = "[outcomes.y]\ncenter = [3, 2]"
    assert "outcomes.y.center: expected one number" in refusal(pairs)
    assert "outcomes.y.split" in refusal("[outcomes.y]\nsplit = 0")
    of_weight = "[outcomes.y]\n[outcomes.weight]\ncenter = [3, 2]"
    assert "one center and one spread" in refusal(of_weight)


def test_a_split_of_a_survey_in_memory_is_that_of_a_file() -> None:
    outcome = Outcome("salary", "semicontinuous", Transform("asinh", 10.0), split=20_000.0)
    survey = Survey.from_frame(small_survey(), outcomes=[outcome], weight="weight", by=["field"],
                               population_size=10_000)  # fmt: skip
    moments = {"center": [30_000, 15_000], "spread": (1.0, 2.0)}
    privacy = {"mechanism": "noisy_statistics", "epsilon": 10.8}
    given = {"outcomes": {"salary": moments}, "privacy": privacy}
    spec = spec_of_survey(survey.design, given)
    assert spec.declared == (outcome,)
    assert spec.outcomes["salary"].of_side(1) == (15_000.0, 2.0)
    clipping = noisy_settings_of(spec).clipping(survey.design)
    # As distances from the split; the ball is that of one of the two, which no record has both.
    centre = np.append(np.arcsinh([1_000.0, 500.0]), clipping.centre[-1])
    np.testing.assert_allclose(clipping.centre, centre)
    np.testing.assert_array_equal(clipping.spread[:2], [1.0, 2.0])
    np.testing.assert_allclose(clipping.radius**2, stats.chi2.ppf(0.995, 2), rtol=1e-5)


ONE_OF_EACH = (
    "[outcomes.pay]\nrange = [0, 9]\n[outcomes.works]\nkind = 'binary'\n"
    "[outcomes.degree]\nkind = 'categorical'\nlevels = ['a', 'b']\n"
)


def test_each_statistic_is_of_the_outcomes_that_it_suits() -> None:
    from surveysynth.release.tables.table_builder import keys_of

    every = '["count", "total", "mean", "proportion"]'
    assert keys_of(parse_spec(text_of(ONE_OF_EACH, statistics=every, **NOISY))) == (
        ("count", None), ("total", 0), ("mean", 0), ("proportion", 1),
    )  # fmt: skip
    old = "[outcomes.works]\ntransform = 'identity'\n[outcomes.pay]"
    spec = parse_spec(text_of(old, statistics='["mean", "proportion"]'))
    assert keys_of(spec) == (("mean", 0), ("mean", 1), ("proportion", 0))


@pytest.mark.parametrize(
    ("sections", "statistic", "parts"),
    [
        ("[outcomes.d]\nkind='categorical'\nlevels=['a','b']", "mean", ["'mean'", "'share'"]),
        ("[outcomes.d]\nkind='categorical'\nlevels=['a','b']", "total", ["'share'", "'count'"]),
        ("[outcomes.d]\nkind='binary'", "mean", ["'proportion'", "d is binary"]),
        ("[outcomes.d]\nkind='categorical'\nlevels=['a','b']", "proportion", ["'binary'"]),
        ("[outcomes.d]\nkind='semicontinuous'\nspikes=[0]\ntransform='identity'", "proportion",
         ["'binary'", "semicontinuous"]),
    ],
)  # fmt: skip
def test_a_statistic_that_suits_no_outcome(
    sections: str, statistic: str, parts: list[str]
) -> None:
    text = refusal(sections, statistics=f'["{statistic}"]')
    assert "tables.statistics" in text
    for part in parts:
        assert part in text


def test_a_spread_by_groups_is_of_models_that_have_one() -> None:
    groups = "covariance_by = ['region', 'age']\npredictors = 'region + age'"
    assert "covariance_by" in refusal("[outcomes.y]", synthesizer=f"model = 'normal'\n{groups}")
    spec = parse_spec(text_of("[outcomes.y]\nrange = [0, 9]", synthesizer=groups, **NOISY))
    assert model_options(spec)["covariance_by"] == ("region", "age")
    other = parse_spec(text_of("[outcomes.y]", synthesizer="model = 'normal'"))
    assert "covariance_by" not in model_options(other)
    paper = parse_spec(text_of("[outcomes.y]", synthesizer="covariance_by = []"))
    assert "covariance_by" not in model_options(paper)
    text = refusal("[outcomes.y]", synthesizer="covariance_by = ['regoin']")
    assert "synthesizer.covariance_by: 'regoin'" in text
    assert "Did you mean 'region'" in text
    assert "'w'" in refusal("[outcomes.y]", synthesizer="covariance_by = ['w']")
    assert "'a' is repeated" in refusal("[outcomes.y]", synthesizer="covariance_by = ['a', 'a']")
    assert "survey.psu" in refusal("[outcomes.y]", synthesizer=groups, survey="psu = 'school'")


def test_a_survey_in_memory_says_the_same() -> None:
    frame = small_survey().assign(benefit=lambda f: f["salary"].where(f["gender"] == "m", 0.0))
    asinh = Transform("asinh", scale=1e4)
    outcomes = (
        Outcome("benefit", "semicontinuous", asinh, (0.0,), lower=-1.0, upper=1e9),
        Outcome("employed", "binary"),
        Outcome("salary"),
    )
    survey = Survey.from_frame(
        frame, outcomes=outcomes, weight="weight", by="field", population_size=1000
    )
    assert survey.design.outcomes == outcomes
    sections = {"tables": {"by": ["field"]}, "privacy": PSEUDO}
    noisy = {**sections, "privacy": {**PSEUDO, "mechanism": "noisy_statistics"}}
    scales = {
        "benefit": {"center": 60_000, "spread": 1.0}, "salary": {"center": 60_000, "spread": 0.5},
    }  # fmt: skip
    assert spec_of_survey(survey.design, {**noisy, "outcomes": scales}).declared == outcomes
    with pytest.raises(InputError, match="'noisy_statistics'"):
        spec_of_survey(survey.design, sections)
    plain = Survey.from_frame(
        frame, outcome="salary", weight="weight", by="field",
        transforms=Transform("yeo_johnson", scale=1e4, power=0.3),
    )  # fmt: skip
    assert spec_of_survey(plain.design, sections).declared == plain.design.outcomes
    with pytest.raises(InputError, match=r"outcomes.salary.kind: the survey sets this"):
        spec_of_survey(survey.design, {**sections, "outcomes": {"salary": {"kind": "binary"}}})


WORDS = st.sampled_from(["a", "b", "yes", "0", "1", ""])
NUMBERS = st.one_of(st.integers(-5, 5), st.floats(-1e3, 1e3), st.sampled_from([0, 1e300]))
KEYS = {
    "kind": st.sampled_from(
        ["continuous", "semicontinuous", "binary", "categorical", "count", "kind"]
    ).map(repr),
    "transform": st.one_of(
        st.sampled_from(["log", "identity", "asinh", "yeo_johnson", "sqrt"]).map(repr),
        st.dictionaries(st.sampled_from(["scale", "power", "shift"]), NUMBERS).map(
            lambda given: f"{{ {', '.join(f'{key} = {value}' for key, value in given.items())} }}"
        ),
    ),
    "bounds": st.lists(NUMBERS, min_size=2, max_size=2),
    "center": NUMBERS, "spread": NUMBERS,
    "spikes": st.lists(NUMBERS, max_size=3),
    "levels": st.lists(st.one_of(WORDS, st.integers(0, 2)), max_size=4),
}  # fmt: skip


@st.composite
def sections_of(draw: Any) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(KEYS)), unique=True, max_size=5))
    return {name: draw(KEYS[name]) for name in names}


@given(st.lists(sections_of(), min_size=1, max_size=3), st.sampled_from(["fbs", "fbp", "normal"]))
@settings(deadline=None, max_examples=300)
def test_any_sections_give_a_spec_or_an_error_that_names_section_and_key(
    given_sections: list[dict[str, Any]], model: str
) -> None:
    text = ""
    for number, keys in enumerate(given_sections):
        text += f"[outcomes.y{number}]\n"
        text += "".join(f"{key} = {value}\n" for key, value in keys.items())
    text = text_of(text, synthesizer=f"model = '{model}'", survey="population_size = 1000")
    try:
        spec = parse_spec(text)
    except InputError as error:
        lines = str(error).splitlines()
        for line in lines[1:] if len(lines) > 1 else lines:
            named = "outcomes.y" in line or "takes one outcome" in line
            assert named, line
    else:
        assert isinstance(spec, Spec)
        for outcome, keys in zip(spec.declared, given_sections, strict=True):
            assert outcome.kind == str(keys.get("kind", "'continuous'")).strip("'")
            assert len(outcome.spikes) == len(keys.get("spikes", []))
            assert [outcome.lower, outcome.upper] == keys.get("bounds", [None, None])


#: Further keys of a count, most of which are for other kinds.
BESIDE_A_RANGE: dict[str, Any] = {
    "spikes": [0], "bounds": [0, 9], "split": 1, "transform": "{ by = 'cells', share = 0.2 }",
    "center": 2, "levels": "['a', 'b']",
}  # fmt: skip
#: Ends of a range: whole numbers, others, and far too large ones.
ENDS = st.one_of(
    st.integers(-3, 70), st.integers(-(2**45), 2**45), st.sampled_from([0.5, -1.25, 1e300])
)


@given(
    ends=st.tuples(ENDS, ENDS),
    others=st.sets(st.sampled_from(sorted(BESIDE_A_RANGE)), max_size=2),
    model=st.sampled_from(["fbs", "fbp", "normal", "poisson"]),
    mechanism=st.sampled_from(["pseudo_posterior", "noisy_statistics"]),
)  # fmt: skip
@settings(deadline=None, max_examples=200)
def test_any_count_is_a_transform_of_whole_numbers_or_an_error_that_names_a_key(
    ends: tuple[float, float], others: set[str], model: str, mechanism: str
) -> None:
    """A count has a learned transform of whole numbers alone, and its keys again in memory."""
    keys = {key: BESIDE_A_RANGE[key] for key in others}
    text = f"[outcomes.y]\nkind = 'count'\nrange = [{ends[0]}, {ends[1]}]\n"
    text += "".join(f"{key} = {value}\n" for key, value in keys.items())
    text = text_of(
        text, synthesizer=f"model = '{model}'\noutcome = 'y'", survey="population_size = 1000",
        privacy=f"mechanism = '{mechanism}'",
    )  # fmt: skip
    try:
        spec = parse_spec(text)
    except InputError as error:
        lines = str(error).splitlines()
        for line in lines[1:] if len(lines) > 1 else lines:
            assert "outcomes.y." in line or "synthesizer.model" in line, line
        wrong = not ends[0] < ends[1] or any(end % 1.0 or abs(end) > 2**40 for end in ends)
        allowed = {"transform"}
        able = model in ("fbs", "fbp") and mechanism == "noisy_statistics"
        assert wrong or set(keys) - allowed or not able
        return
    (outcome,) = spec.declared
    assert (model in ("fbs", "fbp"), mechanism) == (True, "noisy_statistics")
    assert (outcome.kind, outcome.limits) == ("count", ends)
    assert outcome.learned is not None
    assert outcome.learned.whole
    assert outcome.learned.edges[[0, -1]].tolist() == [ends[0], ends[1] + 1]
    # The weight shares the tenth where it is learned as well.
    several = 2 if (mechanism, model) == ("noisy_statistics", "fbs") else 1
    assert outcome.learned.share == (0.2 if "transform" in keys else 0.1 / several)
    assert outcome.learned.curve_by == ("cells" if "transform" in keys else "large_cells")
