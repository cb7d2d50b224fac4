"""The reference of a specification has every key of the typed settings, and says what they say."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from surveysynth.config.privacy import PRIVACY_KEYS, Privacy, PseudoPosteriorSection
from surveysynth.config.sections import Section
from surveysynth.config.spec import Spec, parse_spec
from surveysynth.models import get_model, model_names
from surveysynth.survey.files import SUFFIXES
from vignettes.keys import FILE, SETTINGS, Key, markdown, sections, texts_of

PAGE = Path(__file__).parents[2] / "vignettes" / "reference" / "specification.md"
SECTIONS = {name: models[0] for name, models in SETTINGS.items() if name != FILE}
KEYS = [key for section in sections() for key in section.keys if section.name in SECTIONS]
#: What a section, or a key, asks for beside the key under test.
BESIDE: dict[str, dict[str, Any]] = {
    "privacy.scale": {"weights": "linear"},
    "survey": {"data": "survey.csv"},
    "synthesizer": {"outcome": "y"},
    "calibration": {"by": ["a"], "totals": {"x": 1}},
    "privacy": {"mechanism": "pseudo_posterior", "epsilon": 1.0},
}


def test_every_key_of_every_section_is_on_the_page() -> None:
    headings = re.findall(r"^### `([a-z_.]+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    keys = {name: tuple(model.model_fields) for name, model in SECTIONS.items()}
    keys["privacy"] = PRIVACY_KEYS
    fields = [f"{name}.{key}" for name in keys for key in keys[name]]
    assert len(fields) > 70
    assert sorted(headings) == sorted(["spec_version", *fields])
    # And there is no section that this test does not know.
    assert set(Spec.model_fields) - set(SECTIONS) == {"spec_version", "path", "shared"}


def test_the_page_is_the_one_that_the_settings_give() -> None:
    remedy = "python -m vignettes.keys > vignettes/reference/specification.md"
    assert PAGE.read_text(encoding="utf-8") == markdown(), remedy


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.path)
def test_a_key_is_described(key: Key) -> None:
    for words in (key.does, key.public):
        assert re.fullmatch(r"[A-Z\"`].*\.", words, re.DOTALL), words
    assert len(key.does) > 15
    assert key.kind
    assert key.default


def _given(key: Key, **given: Any) -> BaseModel:
    beside = {**BESIDE.get(key.section, {}), **BESIDE.get(key.path, {})}
    if key.section == "privacy":
        noisy = key.name not in PseudoPosteriorSection.model_fields
        mechanism = {"mechanism": "noisy_statistics"} if noisy else {}
        section: BaseModel = TypeAdapter(Privacy).validate_python({**beside, **mechanism, **given})
        return section
    return SECTIONS[key.section].model_validate({**beside, **given})


def _settled(key: Key) -> Any:
    """The default as it is written, or None where it is words."""
    try:
        return tomllib.loads(f"v = {key.default.partition('; ')[0]}")["v"]
    except tomllib.TOMLDecodeError:
        return None


@pytest.mark.parametrize(
    "key", [key for key in KEYS if _settled(key) is not None], ids=lambda key: key.path
)
def test_a_default_that_is_a_value_is_that_of_the_settings(key: Key) -> None:
    """Written out, it gives the same section as when it is left out."""
    written = _given(key, **{key.name: _settled(key)})
    assert getattr(written, key.name) == getattr(_given(key), key.name)


def test_defaults_of_noisy_statistics_are_those_of_a_specification() -> None:
    spec = parse_spec(
        "spec_version = 1\n[survey]\ndata = 'a.csv'\nweight = 'w'\npopulation_size = 10\n"
        "[synthesizer]\noutcome = 'y'\n[outcomes.y]\ncenter = 1\nspread = 1\n"
        "[privacy]\nepsilon = 1\nmechanism = 'noisy_statistics'\n"
    )
    told = {
        key.name: key.default.partition("noisy statistics: ")[2]
        for key in KEYS
        if "noisy statistics: " in key.default
    }
    assert set(told) == {"m", "radius", "replicates_per_draw", "chains", "draws", "warmup"}
    assert int(told["m"]) == spec.privacy.m
    for name in ("chains", "draws", "warmup"):
        assert int(told[name]) == getattr(spec.plan, name)
    of_few = spec.for_records(100).privacy.replicates_per_draw
    assert told["replicates_per_draw"].startswith(f"{of_few}, ")


def _is_unknown(key: Key, word: str) -> bool:
    """Whether a word is refused for being none of those that are known; that it does not go with
    other keys is another matter."""
    try:
        _given(key, **{key.name: [word] if key.kind.startswith("list") else word})
    except ValidationError as error:
        return any(
            each["type"] == "literal_error" or "expected one of" in each["msg"]
            for each in error.errors()
        )
    return False


@pytest.mark.parametrize(
    "key",
    [key for key in KEYS if key.values],
    ids=lambda key: key.path,
)
def test_values_are_taken_and_others_are_not(key: Key) -> None:
    assert [value for value in key.values if _is_unknown(key, value.strip('"'))] == []
    assert _is_unknown(key, "certainly none")


def test_endings_of_data_files_are_those_that_are_read() -> None:
    (data,) = [key for key in KEYS if key.path == "survey.data"]
    assert sorted(re.findall(r"\.[a-z0-9]+", data.kind)) == sorted(SUFFIXES)


def test_priors_are_those_of_the_models() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in model_names():
        (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", page, re.MULTILINE)
        told = {prior: float(value) for prior, value in re.findall(r"`(\w+)` ([\d.e+-]+)", row)}
        assert told == dict(get_model(name).priors)


class Incomplete(Section):
    """A section with a key that has no text."""

    first: int = 1
    """A number. Public: The number."""
    second: int = 2


def test_a_key_without_a_text_is_found() -> None:
    with pytest.raises(LookupError, match=r"Incomplete: keys without a text: \['second'\]"):
        texts_of(Incomplete)
