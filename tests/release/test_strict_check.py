"""``surveysynth check`` for noisy statistics, and units of protection end to end.

Truth: files whose outcomes and weights are unreadable or planted; the design that a whole survey
has; expected errors asked for one by one; pandas; whole numbers of two neighboring databases."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.cli import main
from surveysynth.config.build import (
    mechanism_of,
    model_of,
    noisy_settings_of,
    read_design,
    read_survey,
)
from surveysynth.config.spec import Spec, load_spec
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    release_statistics,
)
from surveysynth.release.check import check_strict
from surveysynth.release.pipeline import release
from surveysynth.survey import files
from tests.release.test_strict_release import SALARY, STRICT, MakeSpec, strict_spec
from tests.surveys import SPREAD_BY_CELL, clustered_survey, small_survey

CANARY = 77177717.25
HOUSEHOLDS = np.repeat(np.arange(80), np.tile([1, 2, 3, 6], 20))


def household_survey() -> pd.DataFrame:
    return small_survey().assign(household=HOUSEHOLDS)


def household_spec(make_spec: MakeSpec, frame: pd.DataFrame | None = None, **lines: str) -> Path:
    frame = household_survey() if frame is None else frame
    lines = {
        "survey": 'population_size = 30000\npublic_columns = ["household"]',
        "privacy": f'{STRICT}\nprotect = "household"',
        **lines,
    }
    return strict_spec(make_spec, frame, **lines)


def synthesizer(lines: str) -> str:
    return f"inference = 'debiased'\n{lines}"  # the default, which the fixture would change


def text_of(spec: Path) -> str:
    return "\n".join(map(str, check_strict(load_spec(spec))))


def same_design(spec: Spec) -> bool:
    one, other = read_design(spec), read_survey(spec).design
    assert one.frame.equals(other.frame)
    for name in ("x_cells", "cell"):
        assert np.array_equal(getattr(one.matrix, name), getattr(other.matrix, name))
    for name in ("strata", "psu", "fpc"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None)
        assert first is None or np.array_equal(first, second)
    same = ("by", "levels", "population_size", "transforms", "outcome_names", "weight_name",
            "predictors", "dropped", "lonely_psu", "design_effect", "fpc_name")  # fmt: skip
    return all(getattr(one, name) == getattr(other, name) for name in same)


@pytest.mark.parametrize("data", ["survey.csv", "survey.parquet"])
def test_the_public_half_is_that_of_the_whole_survey(make_spec: MakeSpec, data: str) -> None:
    lines = 'population_size = 30000\nfpc = "fraction"\npublic_columns = ["employed"]'
    assert same_design(load_spec(strict_spec(make_spec, data=data, survey=lines)))
    clusters = 'population_size = 30000\npsu = "school"'
    assert same_design(
        load_spec(strict_spec(make_spec, clustered_survey(), data=data, survey=clusters))
    )


@pytest.mark.parametrize("data", ["survey.csv", "survey.parquet"])
def test_no_outcome_and_no_weight_is_read(
    make_spec: MakeSpec,
    data: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sound = text_of(strict_spec(make_spec, data=data))
    asked: list[str] = []

    def watch(kind: type[files._Csv] | type[files._Parquet]) -> None:
        read = kind.read

        def watched(self: files.Table, columns: Sequence[str]) -> pd.DataFrame:
            asked.extend(columns)
            return read(self, columns)  # type: ignore[arg-type]

        monkeypatch.setattr(kind, "read", watched)

    watch(files._Csv)
    watch(files._Parquet)
    for salary, weight in (
        ("not a number", "nor this"), ("", ""), (str(CANARY), str(-CANARY)), ("nan", "inf")
    ):  # fmt: skip
        spec = strict_spec(
            make_spec, small_survey().assign(salary=salary, weight=weight), data=data
        )
        assert text_of(spec) == sound
        assert set(asked) == {"field", "gender"}
        asked.clear()
        assert main(["release", str(spec), "--out", str(spec.parent / "out")]) == 2
        asked.clear()
    assert "7177717" not in sound + capsys.readouterr().err


def test_what_is_said_before_anything_is_read(make_spec: MakeSpec) -> None:
    privacy = STRICT.replace("10.8", "3.6")
    text = text_of(
        strict_spec(make_spec, synthesizer=synthesizer(SPREAD_BY_CELL), privacy=privacy)
    )
    budget = Budget.of_epsilon(3.6, 1e-6)
    assert f"rho = {budget.rho:.4g} (epsilon = 3.6 at delta = 1e-06)" in text
    assert "No outcome and no weight was read" in text
    assert f"log(salary): center {np.log(22000):.5g}, spread 0.45" in text
    assert "on sums and products in each of 6 groups of rows" in text
    assert "Protected: single records." in text
    assert "statistics.json" in text


def test_which_weights_are_taken_as_they_are(make_spec: MakeSpec) -> None:
    """All that lie within the ball if the outcome is at its center; none where a range is given."""
    declared = f"{SALARY}\n[outcomes.weight]\nspread = 0.6\n"
    spec = load_spec(strict_spec(make_spec, labels=declared))
    design, settings = read_design(spec), noisy_settings_of(spec)
    (line,) = [str(each) for each in check_strict(spec) if "are clipped. Where" in str(each)]
    found = re.match(r"WARNING: weights outside ([\d.,e+]+) to ([\d.,e+]+) are", line)
    assert found is not None
    low, high = (float(each.replace(",", "")) for each in found.groups())
    clipping = settings.clipping(design)
    z = np.array([np.log(design.population_size or 0.0) - np.log(design.n), 0.6])
    for weight, inside in ((low * 1.01, True), (high * 0.99, True), (high * 1.01, False)):
        distance = abs(np.log(weight) - z[0]) / z[1]
        assert bool(distance <= clipping.radius) is inside
    learned = strict_spec(make_spec, labels=f"{SALARY}\n[outcomes.weight]\nrange = [1, 5000]\n")
    assert "weights outside" not in text_of(learned)


def test_blank_outcomes_are_counted_by_a_release_alone(make_spec: MakeSpec) -> None:
    """They are not looked at before; who drops them is told so."""
    frame = small_survey()
    frame["salary"] = frame["salary"].where(frame.index >= 5)
    population = "population_size = 30000"
    dropping = text_of(strict_spec(make_spec, frame, survey=f'{population}\nmissing = "drop"'))
    assert "240 records, 0 dropped" in dropping
    assert "A release also drops records where one of" in dropping
    assert "drops records" not in text_of(strict_spec(make_spec, survey=population))


@pytest.mark.parametrize(
    ("model", "words"), [("poisson", "'fbs', 'fbp' or 'normal'"), ("normal_mixture", "'fbp'")]
)
def test_models_without_such_statistics(make_spec: MakeSpec, model: str, words: str) -> None:
    with pytest.raises(InputError, match="no sufficient statistics") as caught:
        text_of(strict_spec(make_spec, synthesizer=synthesizer(f'model = "{model}"')))
    assert words in str(caught.value)


def test_units_are_told_with_what_they_cost(make_spec: MakeSpec) -> None:
    text = text_of(household_spec(make_spec))
    assert "80 units, of 2 records in the median and 6 in the largest; the noise is 6 times" in text


# Units of protection, end to end.


def test_the_largest_unit_multiplies_the_noise(make_spec: MakeSpec) -> None:
    spec = load_spec(household_spec(make_spec))
    single = load_spec(household_spec(make_spec, privacy=STRICT))
    assert spec.privacy.protect == "household"
    survey = read_survey(spec)
    made = [
        release_statistics(
            model_of(each).of(survey.design), survey.design, survey.confidential,
            noisy_settings_of(each), SeededNoise(np.random.default_rng(3)),
        )
        for each in (spec, single)
    ]  # fmt: skip
    assert [each.records for each in made] == [6, 1]
    assert made[0].rho == made[1].rho
    assert made[0].sigma == pytest.approx(6 * made[1].sigma, rel=1e-12)
    assert made[0].squares_sd == pytest.approx([6 * each for each in made[1].squares_sd], rel=1e-9)


@pytest.mark.usefixtures("stand_in_posterior")
def test_a_release_says_whom_it_protects(make_spec: MakeSpec, tmp_path: Path) -> None:
    out = release(household_spec(make_spec), tmp_path / "out").out / "release"
    content = json.loads((out / "privacy.json").read_text())
    assert content["settings"]["protect"] == "household"
    assert content["settings"]["unit_size"] == 6
    page = (out / "tables" / "means.html").read_text()
    assert "combined by the law of total variance" in page
    assert "partial synthesis" not in page
    statement = " ".join(content["statement"])
    assert "all records of one unit of 'household'" in statement
    assert "up to 6 records, a public number" in statement
    assert not any("protection is of single records" in item for item in content["not_covered"])
    assert json.loads((out / "statistics.json").read_text())["statistics"]["records"] == 6
    single = load_spec(strict_spec(make_spec, privacy=STRICT))
    mechanism, design = mechanism_of(single), read_design(single)
    described = mechanism.described(design)
    assert (described["protect"], described["unit_size"]) == ("record", 1)
    limits = mechanism.statement(model_of(single).of(design), design).not_covered
    assert any("protection is of single records" in item for item in limits)


def test_blank_and_repeated_labels_only_make_units_larger(make_spec: MakeSpec) -> None:
    frame = household_survey()
    labels = frame["household"].astype(str).where(frame["household"] >= 20, "")
    repeated = HOUSEHOLDS % 40
    for household, size in ((labels, int((frame["household"] < 20).sum())), (repeated, 12)):
        spec = load_spec(household_spec(make_spec, frame.assign(household=household)))
        assert noisy_settings_of(spec).unit_size(read_design(spec)) == size


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        (f'{STRICT}\nprotect = "household"', "Name it in survey.public_columns too"),
        (f'{STRICT}\nprotect = "salary"', "a public column, got 'salary'"),
        (f'{STRICT}\nprotect = "weight"', "a public column, got 'weight'"),
        (
            'epsilon = 10.8\nprotect = "household"',
            "protects single records and cannot promise more",
        ),
    ],
)
def test_units_must_be_public_and_the_other_mechanism_has_none(
    make_spec: MakeSpec, privacy: str, words: str
) -> None:
    spec = strict_spec(make_spec, household_survey(), privacy=privacy)
    with pytest.raises(InputError, match=words):
        load_spec(spec)
    direct = noisy_settings_of(load_spec(household_spec(make_spec)))
    survey = read_survey(load_spec(strict_spec(make_spec, household_survey())))
    with pytest.raises(InputError, match="protect must be 'record' or a public column"):
        direct.unit_size(survey.design)


@pytest.mark.parametrize("kind", ["identity", "asinh"])
def test_values_that_overflow_are_bad_input(make_spec: MakeSpec, kind: str) -> None:
    """Valid are outcomes whose transform is finite: a public rule, without a warning before it."""
    frame = small_survey()
    frame.loc[0, "salary"] = 1e308
    for scale, valid in (("1e-6", False), ("1.0", True)):
        labels = "[outcomes.salary]\ncenter = 1.0\nspread = 1.0\n"
        labels += f"transform = {{ kind = '{kind}', scale = {scale} }}"
        spec = load_spec(strict_spec(make_spec, frame, labels=labels))
        if not valid:
            with pytest.raises(InputError, match="become infinite under"):
                read_survey(spec)
            continue
        survey = read_survey(spec)
        made = release_statistics(
            model_of(spec).of(survey.design), survey.design, survey.confidential,
            noisy_settings_of(spec), SeededNoise(np.random.default_rng(1)),
        )  # fmt: skip
        assert all(np.isfinite(each).all() for each in (*made.cross, *made.squares))


def test_all_blank_cells_are_one_unit() -> None:
    from surveysynth.mechanisms.noisy_statistics.accounting import Budget
    from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings

    frame = pd.DataFrame({"household": [None, None, None, None, "a", "a", "b"]})
    design: Any = SimpleNamespace(n=7, frame=frame)
    settings = NoisySettings(Budget.of_epsilon(1.0, 1e-6), protect="household")
    assert settings.unit_size(design) == 4
    assert sorted(settings.unit_sizes(design)) == [1, 2, 4]


@pytest.mark.parametrize(
    ("delta", "told"), [(0.01, "is 2; it should be"), (6e-4, "is 0.12; it should"), (4e-4, "")]
)
def test_a_delta_that_is_large_for_these_records_is_told_beforehand(
    make_spec: MakeSpec, capsys: pytest.CaptureFixture[str], delta: float, told: str
) -> None:
    """Of 200 records: below a hundredth of 1 / n is 1e-05."""
    frame = small_survey().iloc[:200]
    spec = strict_spec(make_spec, frame, privacy=f"{STRICT}\ndelta = {delta}")
    assert main(["check", str(spec), "--quick", "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert ("WARNING: delta" in printed) is bool(told)
    assert told in printed
    assert ("Set delta = 1e-05 or less in [privacy]" in printed) is bool(told)


@pytest.mark.usefixtures("stand_in_posterior")
def test_a_release_tells_of_a_large_delta_too(make_spec: MakeSpec, tmp_path: Path) -> None:
    made = release(strict_spec(make_spec, privacy=f"{STRICT}\ndelta = 0.01"), tmp_path / "out")
    assert any("it should be far below 1" in str(each) for each in made.warnings)
