"""``surveysynth init``: what it writes is a specification, and it looks at nothing confidential."""

import io
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyreadstat
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth import cli
from surveysynth._support.messages import has_control
from surveysynth.config import draft
from surveysynth.config.draft import (
    Choices,
    OutcomeChoice,
    PublicLevels,
    draft_text,
    read_outcomes,
    read_sources,
    settled_amount,
    split_columns,
)
from surveysynth.config.spec import load_spec, parse_spec
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import LEVEL, TABLE_COLUMNS
from surveysynth.survey.files import Table, open_table
from tests.surveys import CANARIES, good

PSEUDO = ["--mechanism", "pseudo_posterior", "--epsilon", "10.8", "--weight", "weight"]
STRICT = ["--mechanism", "noisy_statistics", "--epsilon", "3.6", "--weight", "weight"]
BY = ["--by", "field,gender", "--strata", "field"]


def household_frame() -> pd.DataFrame:
    """Outcomes of every kind, and units of eight."""
    rng, n = np.random.default_rng(4), 240
    frame = good(n).drop(columns=["note"])
    return frame.assign(
        unit=np.arange(n) // 8,
        benefit=np.where(rng.random(n) < 0.6, 0.0, rng.gamma(2.0, 900.0, n)),
        insured=rng.choice(["no", "yes"], n),
        heating=rng.choice(["gas", "oil"], n),
        visits=rng.poisson(3, n),
    )


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A survey file, and no terminal to ask on."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    path = tmp_path / "survey.csv"
    household_frame().to_csv(path, index=False)
    return path


COMPLETE = {
    "amount": [*PSEUDO, *BY, "--outcome", "salary:continuous", "--constant", "salary.center=25000"],
    "logarithm": [*PSEUDO, "--outcome", "salary:continuous", "--constant", "salary.transform=log"],
    "noisy": [*STRICT, *BY, "--outcome", "salary:continuous", "--constant",
              "salary.range=0,500000", "--population-size", "9000", "--weights-from", "gender"],
    "declared": [*STRICT, *BY, "--outcome", "salary:continuous", "--constant",
                 "salary.center=25000", "--constant", "salary.spread=2",
                 "--population-size", "9000"],
    "kinds": [*STRICT, *BY, "--population-size", "9000", "--outcome",
              "benefit:semicontinuous", "--constant", "benefit.range=0,20000", "--outcome",
              "insured:binary", "--constant", "insured.levels=no,yes", "--outcome",
              "heating:categorical", "--constant",
              "heating.levels=gas,oil,electric"],
    "noisy count": [*STRICT, *BY, "--outcome", "visits:count", "--constant", "visits.range=0,30",
                    "--outcome", "insured:binary", "--constant", "insured.levels=no,yes",
                    "--population-size", "9000"],
    "units": [*PSEUDO, "--outcome", "salary:continuous", "--constant", "salary.transform=log",
              "--psu", "unit", "--design-effect", "1.4"],
    "noisy units": [*STRICT, "--by", "gender", "--strata", "field", "--psu", "unit",
                    "--population-size", "9000", "--outcome", "insured:binary", "--constant",
                    "insured.levels=no,yes"],
    "public weights": [*PSEUDO, *BY, "--public-weights", "--outcome", "salary:continuous",
                       "--constant", "salary.transform=log"],
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLETE)
def test_with_all_choices_the_file_is_valid_and_fits_the_data(
    data: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", str(data), *COMPLETE[name]]) == 0
    assert "Still" not in capsys.readouterr().out
    spec = load_spec(data.with_name("spec.toml"))
    survey = ss.read_survey(spec)
    assert survey.design.n == 240
    assert spec.privacy.epsilon == (3.6 if "3.6" in COMPLETE[name] else 10.8)
    assert spec.survey.weight == "weight"
    assert os.listdir(data.parent) in (["survey.csv", "spec.toml"], ["spec.toml", "survey.csv"])


def test_effects_of_units_stand_for_strata(data: Path) -> None:
    for name, own in (("noisy units", "gender"), ("noisy", None), ("units", None)):
        assert cli.main(["init", str(data), *COMPLETE[name], "--overwrite"]) == 0
        assert load_spec(data.with_name("spec.toml")).synthesizer.predictors == own


@pytest.mark.slow
def test_the_command_check_is_content(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", str(data), *COMPLETE["noisy"]]) == 0
    assert cli.main(["check", str(data.with_name("spec.toml"))]) == 0
    assert "OK to release." in capsys.readouterr().out


def test_what_follows_from_typical_values() -> None:
    said = OutcomeChoice("income", "continuous", {"center": 25_000.0})
    settled = settled_amount(said, strict=True)
    assert settled["transform"] == {"kind": "yeo_johnson", "scale": 2000, "power": 0.5}
    assert settled["spread"] == "?"


@pytest.mark.parametrize("strict", [True, False])
def test_a_range_is_all_that_an_amount_needs(strict: bool) -> None:
    nothing = settled_amount(OutcomeChoice("income", "semicontinuous"), strict=strict)
    assert nothing == {"spikes": [0.0], "range": "?"}
    said = OutcomeChoice("income", "continuous", {"range": [0, 9e5]})
    assert settled_amount(said, strict=strict) == {"range": [0, 9e5]}
    # A few losses as a group of their own ruin means (vignettes/technical/studies.md).
    for kind in ("semicontinuous", "continuous"):
        signed = OutcomeChoice("income", kind, {"range": [-9e4, 9e5]})
        assert "split" not in settled_amount(signed, strict=strict)
    for constants, told in (
        ({"range": [0, 9e5], "center": 5.0}, "center is for a transform that is declared"),
        ({"range": [5, 5]}, "range of 'income': expected two numbers, the lower first; got 5, 5"),
        ({"range": [0, 1, 2]}, "expected two numbers"),
    ):
        with pytest.raises(InputError, match=told):
            settled_amount(OutcomeChoice("income", "continuous", constants), strict=strict)


def test_keys_without_an_answer_are_left_open_and_named_by_check(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--outcome", "salary", "--outcome", "benefit:semicontinuous", "--outcome",
             "heating:categorical"]  # fmt: skip
    assert cli.main(["init", str(data), *STRICT, *flags]) == 0
    told = capsys.readouterr().out
    left = [
        "outcomes.salary.kind", "outcomes.benefit.range", "outcomes.heating.levels",
        "outcomes.weight.center",
    ]  # fmt: skip
    assert [line.strip() for line in told.splitlines() if line.startswith("  ")] == left
    assert cli.main(["check", str(data.with_name("spec.toml"))]) == 2
    message = capsys.readouterr().err
    for key in left:
        assert f"{key}: " in message
    assert f"{len(left)} keys are still open" in message


def test_no_value_of_outcome_or_weight_is_read(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    class Spy:
        def __init__(self, table: Table) -> None:
            self.table, self.columns = table, table.columns

        def read(self, columns: list[str]) -> pd.DataFrame:
            asked.extend(columns)
            return self.table.read(columns)

    monkeypatch.setattr(draft, "open_table", lambda path: Spy(open_table(path)))
    frame = household_frame()
    written = []
    for change in (1.0, 2.0):
        changed = frame.assign(
            salary=frame["salary"] * change, benefit=frame["benefit"] * change,
            insured=np.roll(frame["insured"], int(change)), weight=frame["weight"] * change,
        )  # fmt: skip
        changed.to_csv(data, index=False)
        assert cli.main(["init", str(data), *COMPLETE["kinds"], "--overwrite"]) == 0
        written.append(data.with_name("spec.toml").read_bytes())
    assert written[0] == written[1]
    assert set(asked) == {"field", "gender"}
    told = capsys.readouterr()
    for canary in CANARIES:
        assert canary not in f"{told}{written[0].decode()}"


def test_unreadable_confidential_cells_are_not_noticed(data: Path) -> None:
    household_frame().assign(salary="canary", weight="canary").to_csv(data, index=False)
    assert cli.main(["init", str(data), *COMPLETE["amount"]]) == 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], ["--outcome", "--weight", "--epsilon",
              "--mechanism noisy_statistics (or pseudo_posterior)"]),
        (PSEUDO, ["--outcome"]),
        ([*PSEUDO, "--outcome", "salry:continuous"], ["'salry'", "Did you mean 'salary'"]),
        ([*PSEUDO, "--outcome", "salary:amount"], ["'semicontinuous'", "got 'amount'"]),
        ([*PSEUDO, "--outcome", "salary", "--by", "salary"], ["'salary' is confidential"]),
        ([*PSEUDO, "--outcome", "weight"], ["'weight'", "rename"]),
        ([*PSEUDO, "--outcome", "salary", "--constant", "salary.centr=3"],
         ["unknown key 'centr'", "Did you mean 'center'"]),
        ([*PSEUDO, "--outcome", "salary", "--constant", "salary.center=1,000"], ["'1,000'"]),
        ([*PSEUDO, "--outcome", "salary", "--constant", "center=3"], ["NAME.KEY=VALUE"]),
        ([*PSEUDO[2:], "--outcome", "salary", "--mechanism", "laplace"], ["'laplace'"]),
        ([*PSEUDO, "--outcome", "salary", "--epsilon", "0"], ["epsilon", "above zero"]),
        ([*PSEUDO, "--outcome", "visits:count", "--constant", "visits.transform=log"],
         ["outcome 'visits'", "learned from its range", "leave transform out"]),
        ([*PSEUDO, "--outcome", "salary:continuous", "--constant", "salary.range=2,1"],
         ["range of 'salary'", "the lower first"]),
        ([*PSEUDO, "--outcome", "salary", "--out", "survey.csv"], [".toml"]),
    ],
)  # fmt: skip
def test_wrong_flags_are_told_and_nothing_is_written(
    data: Path, flags: list[str], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", str(data), *flags]) == 2
    message = capsys.readouterr().err
    for part in told:
        assert part in message
    assert os.listdir(data.parent) == ["survey.csv"]


def test_labels_of_a_file_give_levels_and_codes_for_no_answer(data: Path) -> None:
    frame = household_frame()[["field", "gender", "salary", "visits", "weight"]].assign(
        health=1.0, smokes=2.0, **{f"item_{number}": 0.0 for number in range(30)}
    )
    labels = {
        "health": {1.0: "Good", 2.0: "Fair", 3.0: "Poor"},
        "smokes": {-8.0: "Refused", 1.0: "Yes", 2.0: "No"},
        "visits": {-9.0: "Don't know", 0.0: "None", 99.0: "No answer"},
    }
    path = data.with_name("labelled.sav")
    pyreadstat.write_sav(frame, str(path), variable_value_labels=labels)
    made = ss.init(
        path, weight="weight", by="gender", mechanism="noisy_statistics", epsilon=3.6,
        population_size=1_000_000,
        outcomes={"health": {"kind": "categorical"},
                  "smokes": {"kind": "binary", "levels": ["2", "1"]},
                  "visits": {"kind": "count", "range": [0, 60]}},
    )  # fmt: skip
    spec = ss.load_spec(made.path)
    assert made.open == ()
    assert spec.outcomes["health"].levels == ("1", "2", "3")
    assert spec.outcomes["health"].missing_codes == ()
    assert spec.outcomes["smokes"].missing_codes == (-8.0,)
    assert spec.outcomes["visits"].missing_codes == (-9.0, 99.0)
    assert spec.survey.missing == "model"
    text = made.path.read_text(encoding="utf-8")
    assert all(words in text for words in ('"Poor"', '"Refused"', '99 "No answer"'))
    assert ("item_5" in text, "item_29" in text) == (True, False)  # of hundreds, some are named


def test_a_file_that_is_there_stays_unless_told_otherwise(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = data.with_name("spec.toml")
    target.write_text("mine")
    assert cli.main(["init", str(data), *COMPLETE["amount"]]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert target.read_text() == "mine"
    assert cli.main(["init", str(data), *COMPLETE["amount"], "--overwrite"]) == 0
    assert load_spec(target).synthesizer.outcome == ("salary",)
    assert sorted(os.listdir(data.parent)) == ["spec.toml", "survey.csv"]


def test_the_path_of_the_data_is_relative_to_the_file(data: Path) -> None:
    folder = data.parent / "specs"
    folder.mkdir()
    out = folder / "mine.toml"
    assert cli.main(["init", str(data), *COMPLETE["amount"], "--out", str(out)]) == 0
    assert load_spec(out).survey.data == "../survey.csv"
    assert ss.read_survey(load_spec(out)).design.n == 240


def test_a_file_without_a_header_is_refused_without_its_values(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good().drop(columns="note").iloc[7:].to_csv(data, index=False, header=False)
    assert cli.main(["init", str(data), *PSEUDO, "--outcome", "salary"]) == 2
    message = capsys.readouterr().err
    assert "look like values" in message
    assert not any(canary in message for canary in CANARIES)


def test_a_level_named_like_the_margin_gets_another_margin(data: Path) -> None:
    frame = household_frame()
    frame.assign(gender=frame["gender"].replace("M", "All")).to_csv(data, index=False)
    assert cli.main(["init", str(data), *COMPLETE["amount"]]) == 0
    spec = load_spec(data.with_name("spec.toml"))
    assert spec.labels["gender"].margin == "Total"
    assert list(spec.labels["gender"].levels) == ["All", "F"]
    ss.read_survey(spec)


def test_a_value_that_slipped_into_a_public_column_is_not_written(data: Path) -> None:
    frame = household_frame()
    frame.loc[[3], "gender"] = "canary"
    frame.to_csv(data, index=False)
    assert cli.main(["init", str(data), *COMPLETE["amount"]]) == 0
    text = data.with_name("spec.toml").read_text()
    assert "canary" not in text
    assert "1 of its levels has fewer than 3 records" in text
    spec = load_spec(data.with_name("spec.toml"))
    assert list(spec.labels["field"].levels) == ["01", "02", "03", "04"]
    assert spec.labels["gender"].levels == {}


#: Any text that a file can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
HOSTILE = st.sampled_from(
    ['a"b', "a'b", "a.b", "a b", "a=b", "a#b", "\\", '"""', "\n", "\r\n", "\x7f", "\x00", "?",
     "ü", "日本", "[x]", "{", "%(x)s", "\u2028", "kind", "levels", "weight"]
)  # fmt: skip
NAMES = st.lists(TEXT | HOSTILE, min_size=6, max_size=6, unique=True)


@given(NAMES, st.lists(TEXT | HOSTILE, min_size=2, max_size=5, unique=True))
def test_any_names_and_levels_arrive_as_they_are(names: list[str], levels: list[str]) -> None:
    first, second, weight, strata, by, rest = names
    if "weight" in (first, second) or by in (LEVEL, *TABLE_COLUMNS):
        return
    margin = next(word for word in ("All", "Total", "Overall", "x", "y", "z") if word not in levels)
    choices = Choices(
        (
            OutcomeChoice(first, "continuous", {"range": (0.0, 9.0)}),
            OutcomeChoice(second, "categorical", {"levels": levels}),
        ),
        weight, False, strata, None, None, (by,), 9000.0, "noisy_statistics", 10.8,
    )  # fmt: skip
    if not all(level.strip() for level in levels):
        return
    shown = PublicLevels(tuple(levels), margin)
    text, left = draft_text(choices, "survey.csv", names, {by: shown}, f"{rest}.toml")
    assert left == ()
    spec = parse_spec(text)
    assert spec.synthesizer.outcome == (first, second)
    assert spec.outcomes[second].levels == tuple(levels)
    assert (spec.survey.weight, spec.survey.strata, spec.table.by) == (weight, strata, (by,))
    labels = spec.labels[by].levels
    assert list(labels) == levels
    for level in levels:  # formats of XML cannot hold every sign
        written = "".join(
            f"\\x{ord(char):02x}" if has_control(char) else char for char in level
        )
        assert labels[level] == written
    assert spec.labels[by].margin == margin
    assert set(tomllib.loads(text)["survey"]) == {
        "data", "weight", "strata", "population_size"
    }  # fmt: skip


@pytest.mark.parametrize("name", ['my "pay"', "pay.gross", "pay: gross", "a=b.c", "Lohn (€) #"])
def test_names_of_any_kind_from_file_to_survey(data: Path, name: str) -> None:
    frame = household_frame().rename(columns={"salary": name, "field": f"{name} by"})
    frame.to_csv(data, index=False)
    flags = [*PSEUDO, "--by", f"{name} by", "--outcome", f"{name}:continuous"]
    assert cli.main(["init", str(data), *flags, "--constant", f"{name}.transform=log"]) == 0
    survey = ss.read_survey(load_spec(data.with_name("spec.toml")))
    assert survey.design.outcome_names == (name,)
    assert survey.design.by == (f"{name} by",)


def test_flags_take_names_with_their_own_signs_whole() -> None:
    columns = ("a", "a:binary", "a.b", "x,y", "x", "y")
    (one,) = read_outcomes(["a:binary"], [], columns)
    assert (one.name, one.kind) == ("a:binary", None)
    (one,) = read_outcomes(["a:binary:count"], [], columns)
    assert (one.name, one.kind) == ("a:binary", "count")
    two = read_outcomes(["a:continuous", "a.b:continuous"], ["a.b.center=3", "a.scale=2"], columns)
    assert [each.constants for each in two] == [{"transform": {"scale": 2.0}}, {"center": 3.0}]
    assert split_columns("--by", ["x,y"], columns) == ("x,y",)
    assert split_columns("--by", ["x, y", "x"], ("x", "y")) == ("x", "y")


class Terminal(io.StringIO):
    """Answers, one a line."""

    def isatty(self) -> bool:
        return True


def prompted(
    path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str], *flags: str
) -> dict[str, Any]:
    """The specification that follows from flags and answers, all of which are used."""
    terminal = Terminal("".join(f"{each}\n" for each in answers))
    monkeypatch.setattr(sys, "stdin", terminal)
    out = path.with_name("asked.toml")
    assert cli.main(["init", str(path), "--out", str(out), *flags]) == 0
    assert terminal.read() == ""
    return tomllib.loads(out.read_text())


def test_prompts_end_where_flags_do(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is asked again until its answer is valid."""
    answers = ["wage:continuous", "salary:amount", "salary:continuous", "strict",
               "noisy_statistics", "a lot", "-1", "3.6", "pay", "weight", "wages", "salary", "",
               "field", "", "-3", "", "field, salary", "field,gender"]  # fmt: skip
    asked = prompted(data, monkeypatch, answers)
    told = capsys.readouterr()
    for wrong in ("'wage'", "'amount'", "'strict'", "'a lot'", "got -1", "'pay'", "'wages'",
                  "got -3", "'salary' is confidential"):  # fmt: skip
        assert wrong in told.out + told.err
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    flags = [*STRICT, "--outcome", "salary:continuous", "--by", "field,gender", "--strata", "field"]
    assert cli.main(["init", str(data), "--out", f"{data}.toml", *flags]) == 0
    assert asked == tomllib.loads(Path(f"{data}.toml").read_text())
    assert asked["outcomes"]["salary"] == {"kind": "continuous", "range": "?"}
    assert not any(canary in told.out + told.err for canary in CANARIES)


def test_nothing_is_asked_that_was_said(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = [*PSEUDO, *BY, "--outcome", "salary:continuous", "--constant", "salary.transform=log"]
    asked = prompted(data, monkeypatch, ["", ""], *flags, "--weights-from", "design")
    assert asked["tables"]["by"] == ["field", "gender"]


@pytest.mark.parametrize(
    ("outcomes", "statistics"),
    [
        (("salary:continuous",), ["count", "mean", "median"]),
        (("visits:count",), ["count", "mean"]),
        (("salary:semicontinuous", "gender:categorical"), ["count", "mean", "median", "share"]),
        (("salary:continuous", "visits"), ["count", "mean", "median"]),
        (("visits",), ["count"]),
    ],
)
def test_statistics_suit_the_kinds_and_open_kinds_have_a_hint(
    data: Path, outcomes: tuple[str, ...], statistics: list[str]
) -> None:
    flags = [part for each in outcomes for part in ("--outcome", each)]
    out = data.with_name("made.toml")
    given = [str(data), *flags, "--weight", "weight", "--mechanism", "noisy_statistics",
             "--epsilon", "3.6", "--by", "field", "--out", str(out)]  # fmt: skip
    assert cli.main(["init", *given]) == 0
    text = out.read_text()
    assert tomllib.loads(text)["tables"]["statistics"] == statistics
    still_open = any(":" not in each for each in outcomes)
    assert ('"mean" and "median" for amounts' in text) == still_open


def main_error(spec: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What check says of a specification that it refuses."""
    assert cli.main(["check", str(spec)]) == 2
    return capsys.readouterr().err


def test_one_message_has_all_open_keys_and_one_edit_answers_it(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every key marked "?" in the file, other mistakes too; then all answers in one edit."""
    spec = tmp_path / "spec.toml"
    outcomes = ["--outcome", "salary", "--outcome", "benefit", "--outcome", "heating"]
    assert cli.main(["init", str(data), "--out", str(spec), *STRICT, *BY, *outcomes]) == 0
    text = spec.read_text()
    spec.write_text(text.replace("m = 20", 'm = "many"'))
    capsys.readouterr()
    assert cli.main(["check", str(spec)]) == 2
    told = capsys.readouterr().err
    assert "4 keys are still open" in told
    open_keys = [f"outcomes.{name}.kind" for name in ("salary", "benefit", "heating")]
    assert all(key in told for key in [*open_keys, "outcomes.weight.center", "privacy.m:"])
    assert told.count("for an amount") == 1  # one line for the three
    assert "survey.design_effect" not in told
    spec.write_text(text.replace("[survey]", '[survey]\npsu = "unit"'))
    assert "survey.design_effect" not in main_error(spec, capsys)
    answers = [
        ('kind = "?"', 'kind = "continuous"\nrange = [0, 200000]'),
        ('kind = "?"', 'kind = "semicontinuous"\nspikes = [0]\nrange = [0, 20000]'),
        ('kind = "?"', 'kind = "categorical"\nlevels = ["gas", "oil"]'),
        ('center = "?"', "center = 3.7"),
    ]
    for question, answer in answers:
        assert question in text
        text = text.replace(question, answer, 1)
    spec.write_text(text)
    assert load_spec(spec).declared[2].levels == ("gas", "oil")


@pytest.mark.parametrize(
    ("answer", "columns", "read"),
    [
        ("", ("a", "b"), None),
        ("design", ("a", "b"), ()),
        ("unknown", ("a", "b"), "unknown"),
        ("a, b", ("a", "b"), ("a", "b")),
        ("unknown", ("unknown", "design"), ("unknown",)),
        ("design", ("unknown", "design"), ("design",)),
    ],
)
def test_what_weights_were_computed_from(answer: str, columns: tuple[str, ...], read: Any) -> None:
    """Columns come before words."""
    assert read_sources(answer, columns) == read


@pytest.mark.parametrize("given", [(), "unknown", ("gender",), ("school", "gender")])
def test_the_answer_about_weights_reaches_the_file(data: Path, given: Any) -> None:
    made = ss.init(
        data, weight="weight", by=["gender"], mechanism="pseudo_posterior", epsilon=1,
        outcomes={"salary": {"kind": "continuous", "center": 25_000}}, weights_from=given,
    )  # fmt: skip
    assert load_spec(made.path).survey.weights_from == given
    hint = '"school": public for every record? Then name it in public_columns.'
    assert (hint in made.path.read_text()) == ("school" in given)


def test_the_function_says_what_the_command_says(data: Path) -> None:
    made = ss.init(
        data, weight="weight", by=["field", "gender"], strata="field", mechanism="pseudo_posterior",
        epsilon=10.8, outcomes={"salary": {"kind": "continuous", "center": 25_000}},
    )  # fmt: skip
    by_function = made.path.read_text()
    assert cli.main(["init", str(data), *COMPLETE["amount"], "--overwrite"]) == 0
    assert made.path.read_text() == by_function
    with pytest.raises(InputError, match="at least one"):
        ss.init(data, weight="weight", mechanism="pseudo_posterior", epsilon=1, outcomes={})
    with pytest.raises(InputError, match="unknown constant 'centr'"):
        ss.init(
            data, weight="weight", mechanism="pseudo_posterior", epsilon=1,
            outcomes={"salary": {"centr": 3}},
        )  # fmt: skip
