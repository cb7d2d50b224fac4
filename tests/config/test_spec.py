"""The specification file: defaults of the contract, and every mistake in the reader's words."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from surveysynth.config.build import noisy_settings_of
from surveysynth.config.spec import RETIRED, Spec, load_spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.transforms import Transform

MINIMAL = """
spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
[synthesizer]
outcome = "salary"
[privacy]
mechanism = "pseudo_posterior"
epsilon = 10.8
"""

STRICT_MINIMAL = """
spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
population_size = 1000000000
[synthesizer]
outcome = "salary"
[privacy]
mechanism = "noisy_statistics"
epsilon = 10.8
[outcomes.salary]
center = 20000
spread = 0.5
"""

# Every key of the contract, at its default where it has one that is built.
COMPLETE = """
spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
strata = "field"
psu = "school"
fpc = "fraction"
lonely_psu = "fail"
design_effect = 2.0
population_size = 100000
weights_from = []
missing = "fail"
public_columns = []
[synthesizer]
model = "fbs"
outcome = "salary"
predictors = "field * gender"
engine = "auto"
inference = "debiased"
chains = 4
draws = 250
warmup = 250
priors = {}
[privacy]
mechanism = "pseudo_posterior"
epsilon = 10.8
m = 3
risk = "lipschitz"
weights = "fixed_point"
radius = 0.2
pattern = []
truncate = 1.0
allow = []
replicates_per_draw = 4
[tables]
by = ["field", "gender"]
statistics = ["count", "mean"]
level = 0.95
flags = "none"
layout = "columns"
title = ""
source = ""
formats = ["csv", "html"]
[labels.field]
title = "Field"
margin = "All fields"
levels = { 2 = "Physics", 1 = "Biology" }
"""


def with_key(section: str, line: str, base: str = MINIMAL) -> str:
    """The minimal specification with one more line in a section."""
    if section == "privacy" and ("epsilon =" in line or "rho =" in line):
        base = base.replace("epsilon = 10.8\n", "")
    header = f"[{section}]\n"
    if header in base:
        return base.replace(header, header + line + "\n")
    return f"{base}{header}{line}\n"


def message(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_spec(text)
    return str(caught.value)


def test_minimal_spec_has_the_defaults_of_the_contract() -> None:
    spec = parse_spec(MINIMAL, "folder/spec.toml")
    complete = parse_spec(COMPLETE, "folder/spec.toml")
    for section in ("synthesizer", "privacy", "table"):
        written = getattr(complete, section).model_dump()
        for key, value in getattr(spec, section).model_dump().items():
            if key not in ("by", "predictors"):
                assert value == written[key], key
    assert spec.data_path == Path("folder/survey.csv")
    assert spec.synthesizer.outcome == ("salary",)
    assert spec.declared[0].transform == Transform("log")
    assert spec.margin_label("field") == "All"


def test_inference_as_in_the_papers_has_their_origin() -> None:
    from surveysynth.config.build import settings_of

    for inference, origin in (("paper", "density"), ("debiased", "peak")):
        text = with_key("synthesizer", f'inference = "{inference}"')
        assert settings_of(parse_spec(text)).origin == origin


def test_complete_spec() -> None:
    spec = parse_spec(COMPLETE)
    assert spec.survey.population_size == 100_000
    assert spec.table.by == ("field", "gender")
    assert tuple(spec.labels["field"].levels) == ("2", "1")
    assert spec.margin_label("field") == "All fields"


def test_defaults_themselves_pass_their_own_validation() -> None:
    default = parse_spec(MINIMAL)
    again = Spec.model_validate({
        "survey": default.survey.model_dump(),
        "synthesizer": default.synthesizer.model_dump(),
        # The keys of the linear map may not be written out beside fixed-point weights.
        "privacy": default.privacy.model_dump(exclude={"scale"}),
        "tables": default.table.model_dump(),
        "path": default.path,
    })  # fmt: skip
    assert again.synthesizer == default.synthesizer
    assert again.tables == default.tables


def test_epsilon_is_no_default(tmp_path: Path) -> None:
    """Omitted, it became 10.8 in silence."""
    without = MINIMAL.replace("epsilon = 10.8\n", "")
    for text in (without, without + 'risk = "none"\n'):
        assert "privacy.epsilon: missing" in message(text)
    strict = STRICT_MINIMAL.replace("epsilon = 10.8\n", "")
    assert "privacy.epsilon: missing" in message(strict)
    (tmp_path / "spec.toml").write_text(with_key("privacy", "rho = 0.5", strict), encoding="utf-8")
    assert load_spec(tmp_path / "spec.toml").privacy.cost.rho == 0.5
    with pytest.raises(TypeError, match="epsilon"):
        MechanismSettings()  # type: ignore[call-arg]


#: The lines of both mechanisms in an error, each with what it promises and what it requires.
BOTH = (
    r'\n +mechanism = "noisy_statistics"  # .*\(epsilon, delta\), proved for every.*; declare a '
    r"public range of each amount, or its center and spread\n +"
    r'mechanism = "pseudo_posterior"  # .*asymptotic '
    r"epsilon.*; nothing to declare$"
)


def test_no_mechanism_is_the_default() -> None:
    """The pseudo-posterior was, in silence, whose promise is the weaker one."""
    without = MINIMAL.replace('mechanism = "pseudo_posterior"\n', "")
    assert without != MINIMAL
    strict = STRICT_MINIMAL.replace('mechanism = "noisy_statistics"\n', "")
    for text in (without, strict, without.split("[privacy]")[0]):
        assert re.fullmatch(f"spec.toml: privacy.mechanism: missing; .*{BOTH}", message(text), re.S)
    # Keys of one mechanism do not choose it, and other mistakes are told as well.
    text = message(without + 'delta = 1e-6\nrisk = "none"\nm = 0\nrsik = 1\n')
    assert re.search(BOTH, text, re.MULTILINE)
    assert "spec.toml: 3 problems" in text
    for part in ("privacy.m: ", "privacy.rsik: unknown key. Did you mean 'risk'"):
        assert part in text
    text = message(with_key("privacy", "delta = 1e-6").replace("pseudo_post", "pseudo-post"))
    assert "privacy.mechanism: expected one of 'noisy_statistics' or 'pseudo_posterior'" in text
    assert "Did you mean 'pseudo_posterior'" in text


@given(st.sets(st.sampled_from([
    "epsilon = 10.8", "m = 20", 'protect = "field"', "budget = 3.0", "delta = 1e-6", "rho = 0.5",
    'risk = "count"', 'weights = "linear"', "truncate = 0.9", "radius = 3.0",
    'allow = ["small_strata"]', "replicates_per_draw = 2", "scale = 0.5",
])))  # fmt: skip
def test_no_settings_choose_a_mechanism(lines: set[str]) -> None:
    head, strict = (text.split("[privacy]")[0] for text in (MINIMAL, STRICT_MINIMAL))
    for start in (head, strict):
        text = "\n".join([f"{start}[privacy]", *sorted(lines), ""])
        assert re.search(BOTH, message(text))


def test_frozen() -> None:
    spec = parse_spec(MINIMAL)
    with pytest.raises(ValidationError):
        spec.privacy.epsilon = 3.0  # type: ignore[misc]


def test_linearisation_follows_the_population_size() -> None:
    assert parse_spec(MINIMAL).linearisation == "plain"
    assert parse_spec(COMPLETE).linearisation == "ratio"


def test_lists_of_outcomes_and_transforms() -> None:
    text = MINIMAL.replace('"salary"', '["salary", "tax"]')
    text += "\n[outcomes.tax]\ntransform = { kind = 'asinh', scale = 500 }\n"
    assert tuple(each.transform for each in parse_spec(text).declared) == (
        Transform("log"),
        Transform("asinh", scale=500),
    )


@pytest.mark.parametrize("extra", ["", "\n[outcomes.salary]\ntransform = 'identity'"])
@pytest.mark.parametrize("model", ["poisson", "negative_binomial"])
def test_a_count_enters_as_it_is(model: str, extra: str) -> None:
    spec = parse_spec(with_key("synthesizer", f"model = {model!r}") + extra)
    assert spec.declared[0].transform == Transform("identity")


@pytest.mark.parametrize(("key", "given"), [
    ("transform", "transform = 'log'"), ("transform.scale", "transform = { scale = 2 }"),
    ("transform.shift", "transform = { shift = 1 }"),
])  # fmt: skip
def test_a_count_has_no_transform(key: str, given: str) -> None:
    counts = with_key("synthesizer", "model = 'poisson'")
    text = message(f"{counts}\n[outcomes.salary]\n{given}\n")
    assert f"outcomes.salary.{key}: model 'poisson' does not transform counts" in text


@pytest.mark.parametrize("place", sorted(RETIRED))
def test_a_retired_key_names_what_to_use(place: str) -> None:
    section, _, key = place.partition(".")
    section = f"{section}.salary" if section in ("labels", "outcomes") else section
    base = STRICT_MINIMAL if section == "privacy" else MINIMAL
    text = message(with_key(section, f"{key or 'samples'} = 1", base))
    assert f"unknown {'key' if key else 'section'}. {RETIRED[place]}" in text


def test_risk_measures_take_their_keys() -> None:
    text = MINIMAL.replace("[survey]", '[survey]\npublic_columns = ["region"]')
    text += (
        '\nrisk = "pairwise"\nradius = 0.1\npattern = ["region", "sex", "field"]\n'
        'weights = "reweighted"\n[tables]\nby = ["sex"]\n'
    )
    spec = parse_spec(text.replace('"salary"', '"salary"\npredictors = "field"'))
    assert spec.privacy.weighting["reweight"]
    assert (spec.privacy.radius, spec.privacy.pattern) == (0.1, ("region", "sex", "field"))
    for risk, weights in (("lipschitz", "fixed_point"), ("scalar", "linear"), ("count", "linear")):
        privacy = parse_spec(with_key("privacy", f"risk = '{risk}'")).privacy
        assert privacy.weight_map == weights


@given(st.floats())
def test_a_design_effect_is_a_factor_that_raises_variances(value: float) -> None:
    text = with_key("survey", f"psu = 'school'\ndesign_effect = {value!r}")
    if 1 <= value <= 1000:
        assert parse_spec(text).survey.design_effect == value
    else:
        assert "design_effect" in message(text)
    assert parse_spec(MINIMAL).survey.design_effect is None


def test_linear_weights_take_their_keys() -> None:
    privacy = parse_spec(
        with_key("privacy", 'weights = "reweighted"\nscale = [0.8, 0.1]')
    ).privacy
    assert privacy.weighting == {
        "weights": "linear", "reweight": True, "scale": 0.8, "shift": 0.1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("tables", 'title = "a\\u0007"', ["tables.title", "control characters", "'a\\x07'"]),
        ("tables", 'source = "a\\uffff"', ["tables.source", "control characters, which xlsx, svg"]),
        ("labels.field", 'levels = {1 = "yes\\u0007"}', ["labels.field.levels.1", "'yes\\x07'"]),
        ("labels.field", 'unit = "\\u0000"', ["labels.field.unit", "without control characters"]),
        ("labels.field", 'margin = "\\u001b"', ["labels.field.margin", "control characters"]),
        ("survey", "strata = 3", ["survey.strata", "a text in quotes", "got 3"]),
        ("survey", "strata = ''", ["survey.strata", "not empty"]),
        ("survey", "lonely_psu = 'adust'", ["survey.lonely_psu", "Did you mean 'adjust'"]),
        ("survey", "psu = 's'\ndesign_effect = '2'", ["survey.design_effect", "a number", "'2'"]),
        ("survey", "population_size = 0", ["survey.population_size", "greater than 0"]),
        ("survey", "population_size = inf", ["survey.population_size", "finite number"]),
        ("survey", "weights_from = 3", ["survey.weights_from", "[] for design weights", "got 3"]),
        ("survey", "weights_from = 'field'", ["survey.weights_from", "or 'unknown', got 'field'"]),
        ("survey", "weights_from = ['a', 'a']", ["survey.weights_from", "'a' is repeated"]),
        ("survey", "missing = 'impute'", ["survey.missing", "'fail', 'drop' or 'model'"]),
        ("survey", "public_columns = 'a'", ["survey.public_columns", "a list"]),
        ("survey", "public_columns = ['a', 3]", ["survey.public_columns[2]", "text"]),
        ("synthesizer", "model = 'normal_mixture(0)'", ["synthesizer.model", "from 1 to 50"]),
        ("synthesizer", "model = 'normal_mixture(x)'", ["synthesizer.model", "Unknown model"]),
        ("synthesizer", "model = 'poisson'\npriors = {residual_scale = 1}", ["residual_scale"]),
        ("synthesizer", "model = 'a.toml'\nengine = 'embedded'", ["engine", "no embedded"]),
        ("synthesizer", "inference = 'unbiased'", ["inference", "'debiased'", "'paper'"]),
        ("synthesizer", "engine = 'stan'", ["engine", "'embedded'", "'cmdstan'"]),
        ("privacy", "allow = ['strata']", ["privacy.allow", "'small_strata'"]),
        ("synthesizer", "chains = 1", ["synthesizer.chains", "not less than 2", "got 1"]),
        ("synthesizer", "chains = 2.5", ["synthesizer.chains", "whole number"]),
        ("synthesizer", "chains = true", ["synthesizer.chains", "whole number", "true"]),
        ("synthesizer", "draws = 19", ["synthesizer.draws", "not less than 20"]),
        ("synthesizer", "warmup = 0", ["synthesizer.warmup", "not less than 20"]),
        ("synthesizer", "priors = {lkj = 3.2}", ["priors.lkj", "multiple of 0.5"]),
        ("synthesizer", "priors = {lkj = 0.5}", ["priors.lkj", "at least 1"]),
        ("synthesizer", "priors = {lkj = 'a'}", ["synthesizer.priors.lkj", "a number"]),
        ("synthesizer", "priors = {residual = 1}", ["Did you mean 'residual_scale'"]),
        ("synthesizer", "priors = {residual_scale = -1}", ["residual_scale", "positive"]),
        ("synthesizer", "priors = {coefficient_sd = 1}", ["coefficient_sd", "model 'fbs'"]),
        ("privacy", "m = 0", ["privacy.m", "not less than 1", "got 0"]),
        ("privacy", "m = 1001", ["privacy.m", "1000"]),
        ("privacy", "m = 3.0", ["privacy.m", "whole number"]),
        ("privacy", "epsilon = 0", ["privacy.epsilon", "greater than 0", "got 0"]),
        ("privacy", "epsilon = nan", ["privacy.epsilon", "finite number"]),
        ("privacy", "epsilon = true", ["privacy.epsilon", "a number", "true"]),
        ("privacy", "risk = 'pairwis'", ["privacy.risk", "'scalar'", "Did you mean 'pairwise'"]),
        ("privacy", "risk = 'count'\nweights = 'fixed_point'", ["'lipschitz'", "'linear'"]),
        ("privacy", "risk = 'count'\nradius = 1.5", ["radius", "at most 1"]),
        ("privacy", "risk = 'count'\nradius = 0", ["privacy.radius", "greater than 0"]),
        ("privacy", "risk = 'count'\nradius = '0.2'", ["privacy.radius", "a number"]),
        ("privacy", "risk = 'count'\npattern = 'a'", ["privacy.pattern", "a list"]),
        ("privacy", "risk = 'count'\npattern = ['a', 'a']", ["'a' is repeated"]),
        ("privacy", "risk = 'count'\npattern = ['salary']", ["'salary' is confidential"]),
        ("privacy", "risk = 'pairwise'\npattern = ['weight']", ["'weight' is confidential"]),
        ("privacy", "risk = 'pairwise'\npattern = ['a']", ["'a' is not", "public_columns"]),
        ("privacy", "radius = 0.3", ["radius", "'count' and 'pairwise'", "'lipschitz'"]),
        ("privacy", "risk = 'scalar'\npattern = ['a']", ["pattern", "'pairwise'", "'scalar'"]),
        ("privacy", "scale = 0.5", ["scale", "weights = 'linear'"]),
        ("privacy", "weights = 'linear'\nscale = [1, 2]", ["privacy.scale", "from -1 to 1"]),
        ("privacy", "weights = 'linear'\nscale = 0", ["privacy.scale", "above 0"]),
        ("privacy", "truncate = 0", ["privacy.truncate", "greater than 0"]),
        ("privacy", "truncate = 1.1", ["privacy.truncate", "not greater than 1"]),
        ("privacy", "replicates_per_draw = 0", ["privacy.replicates_per_draw"]),
        ("tables", "by = ['a', 'a']", ["tables.by", "'a' is repeated"]),
        ("tables", "by = 'a'", ["tables.by", "a list", "'a'"]),
        ("tables", "statistics = []", ["tables.statistics", "at least one"]),
        ("tables", "statistics = ['proportion']", ["proportion", "identity"]),
        ("tables", "level = 1", ["tables.level", "less than 1"]),
        ("tables", "level = 0", ["tables.level", "greater than 0"]),
        ("tables", "flags = 'nhcs'", ["tables.flags", "'nhcs'", "Did you mean 'nchs'"]),
        ("tables", "flags = 3", ["tables.flags", "got 3", "table of thresholds"]),
        ("tables", "flags = {}", ["tables.flags", "empty", "mark = { rse = 0.2 }"]),
        ("tables", "flags = {cv = 0.3}", ["tables.flags", "'cv'", "mark", "suppress"]),
        ("tables", "flags = {mark = 0.3}", ["tables.flags: mark", "table of limits"]),
        ("tables", "flags = {mark = {rce = 1}}", ["mark.rce", "Did you mean 'rse'"]),
        ("tables", "flags = {mark = {rse = -1}}", ["mark.rse", "positive number"]),
        ("tables", "flags = {mark = {n = 2.5}}", ["mark.n", "whole number", "2.5"]),
        ("tables", "layout = 'colums'", ["tables.layout", "Did you mean 'columns'"]),
        ("tables", "formats = ['tex']", ["tables.formats[1]", "'latex'"]),
        ("tables", "round_counts = 0", ["tables.round_counts"]),
        ("labels", "field = 3", ["labels.field", "section of keys"]),
        ("labels.field", "levles = {}", ["labels.field.levles", "Did you mean 'levels'"]),
        ("labels.field", "levels = {1 = 2}", ["labels.field.levels.1", "a text"]),
        ("labels.field", "levels = {1 = 'All'}", ["labels.field", "margin", "'All'"]),
        ("labels.field", "levels = {1 = 'a', 2 = 'a'}", ["labels.field", "more than one level"]),
    ],
)  # fmt: skip
def test_each_mistake_is_named(section: str, line: str, expected: list[str]) -> None:
    text = message(with_key(section, line))
    for part in expected:
        assert part in text
    assert_plain(text)


def test_a_section_of_studies_names_the_command() -> None:
    text = message(MINIMAL + "[study]\nn = 100\n")
    assert "study: unknown section. Studies have no section: run 'surveysynth study SPEC" in text
    assert "--population FRAME'" in text
    assert_plain(text)


def assert_plain(text: str) -> None:
    """No words of the libraries underneath."""
    for jargon in ("pydantic", "validation error", "input_type", "Traceback", "Spec("):
        assert jargon not in text


def test_flags_by_name_or_by_thresholds() -> None:
    spec = parse_spec(with_key("tables", "flags = 'statcan_marked'"))
    assert spec.table.flags == "statcan_marked"
    limits = "{ mark = { rse = 0.2 }, suppress = { relative_width = 1.5, n = 10, df = 4 } }"
    spec = parse_spec(with_key("tables", f"flags = {limits}"))
    assert spec.table.flags == {
        "mark": {"rse": 0.2},
        "suppress": {"relative_width": 1.5, "n": 10, "df": 4},
    }


def test_fbp_needs_one_outcome() -> None:
    text = message(
        with_key("synthesizer", 'model = "fbp"', MINIMAL.replace('"salary"', '["a", "b"]'))
    )
    assert "one outcome" in text


def test_weight_is_required() -> None:
    assert "survey.weight" in message(MINIMAL.replace('weight = "weight"', ""))


def test_more_releases_than_draws() -> None:
    text = message(with_key("synthesizer", "chains = 2\ndraws = 20", with_key("privacy", "m = 41")))
    assert "privacy.m" in text
    assert "40" in text


def test_missing_sections_and_keys() -> None:
    text = message("")
    assert "survey: missing" in text
    assert "synthesizer: missing" in text
    assert "survey.data: missing" in message(MINIMAL.replace('data = "survey.csv"', ""))


def test_all_mistakes_are_listed_together() -> None:
    text = message(with_key("privacy", "m = 0\nepsilon = -1\nrsik = 'none'"))
    assert "3 problems" in text
    for part in ("privacy.m", "privacy.epsilon", "privacy.rsik"):
        assert part in text


def test_a_later_version_is_refused() -> None:
    assert "spec_version: expected 1, got 2" in message(MINIMAL.replace("= 1", "= 2", 1))


@pytest.mark.parametrize("text", ["a =", "[survey", "x = 1\nx = 2", "a = " + "[" * 5000])
def test_broken_toml(text: str) -> None:
    assert "not valid TOML" in message(text)


def test_numbers_without_end() -> None:
    assert "privacy.m" in message(with_key("privacy", "m = " + "9" * 400))
    assert "privacy.epsilon" in message(with_key("privacy", "epsilon = " + "9" * 400))
    assert "not valid TOML" in message(with_key("privacy", "m = " + "9" * 5000))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no specification file"):
        load_spec(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="is a folder"):
        load_spec(tmp_path)
    latin = tmp_path / "latin.toml"
    latin.write_bytes('title = "Universität"'.encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        load_spec(latin)
    with pytest.raises(InputError, match="cannot be read"):
        load_spec("nul\0character.toml")


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    marked = tmp_path / "spec.toml"
    marked.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert load_spec(marked).data_path == tmp_path / "survey.csv"


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_give_a_spec_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("spec") / "spec.toml"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_spec(path)  # nothing this short names the data and the outcome


KEYS = sorted(
    {"spec_version", "survey", "synthesizer", "privacy", "tables", "labels", "study", "path"}
    | set(tomllib.loads(COMPLETE)["survey"])
    | set(tomllib.loads(COMPLETE)["synthesizer"])
    | set(tomllib.loads(COMPLETE)["privacy"])
    | set(tomllib.loads(COMPLETE)["tables"])

)
SECTIONS = ["survey", "synthesizer", "privacy", "tables", "labels", "labels.x", "study"]
WORDS = ["fbs", "fbp", "log", "asinh", "count", "proportion", "none", "linear", "ratio", "a.csv"]
VALUES = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.sampled_from(WORDS).map(repr),
    st.lists(st.sampled_from(WORDS), max_size=3),
    st.just("{}"),
    st.just("{a = 1}"),
    st.just("2024-01-01"),
)


def as_toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(
    st.lists(
        st.tuples(st.sampled_from(SECTIONS),
                  st.sampled_from(KEYS), VALUES),
        max_size=4,
        unique_by=lambda entry: entry[:2],
    )
)  # fmt: skip
@settings(deadline=None, max_examples=300)
def test_any_values_give_a_spec_or_a_plain_input_error(entries: list[tuple[str, str, Any]]) -> None:
    text = MINIMAL
    for section, key, value in entries:
        text = with_key(section, f"{key} = {as_toml(value)}", text)
    try:
        spec = parse_spec(text)
    except InputError as error:
        assert_plain(str(error))
    else:
        assert len(spec.declared) == len(spec.synthesizer.outcome)
        assert spec.privacy.epsilon > 0
        assert spec.privacy.m >= 1


@pytest.mark.parametrize(
    ("n", "given", "expected"),
    [(1000, "", 10), (500_000, "", 10), (1_000_000, "", 5), (10_000_000, "", 1),
     (10_000_000, "replicates_per_draw = 10\n", 10), (1_000_000, "m = 50\n", 2)],
)  # fmt: skip
def test_datasets_of_a_draw_are_fewer_for_very_many_records(
    tmp_path: Path, n: int, given: str, expected: int
) -> None:
    text = STRICT_MINIMAL.replace("[privacy]\n", f"[privacy]\n{given}")
    (tmp_path / "spec.toml").write_text(text, encoding="utf-8")
    privacy = load_spec(tmp_path / "spec.toml").for_records(n).privacy
    assert privacy.replicates_per_draw == expected


@pytest.mark.parametrize(
    ("lines", "plan"),
    [("", NOISY_PLAN), ("chains = 4\n", replace(NOISY_PLAN, chains=4)),
     ("draws = 250\nwarmup = 250\n", SamplingPlan(NOISY_PLAN.chains, 250, 250))],
)  # fmt: skip
def test_sizes_of_a_fit_are_the_mechanisms_unless_given(
    tmp_path: Path, lines: str, plan: SamplingPlan
) -> None:
    text = STRICT_MINIMAL.replace("[synthesizer]\n", f"[synthesizer]\n{lines}")
    (tmp_path / "spec.toml").write_text(text, encoding="utf-8")
    spec = load_spec(tmp_path / "spec.toml")
    assert spec.plan == noisy_settings_of(spec).plan == plan
