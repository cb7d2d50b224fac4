"""Releases and the ledger of their survey, as their user makes them. Truth: epsilons added by hand,
ledgers read back, and listings of the file system."""

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

import surveysynth as ss
from surveysynth.cli import main
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.noisy_statistics.accounting import rho_of
from surveysynth.release import folder as bundle
from surveysynth.release.ledger import Ledger, ledgers_folder, read_ledger
from surveysynth.release.pipeline import release
from tests.surveys import MakeSpec, small_survey


@pytest.fixture(autouse=True)
def state(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch,
    stand_in_mechanism: None,
) -> Path:  # fmt: skip
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


def told(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())


def test_releases_to_any_folders_add_up(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, data = make_spec(), tmp_path / "in" / "survey.csv"
    for name, words in (("one", "10.8 in 1 run."), ("two", "21.6 in 2 runs."),
                        ("three", "32.4 in 3 runs.")):  # fmt: skip
        assert main(["release", str(spec), "--out", str(tmp_path / name)]) == 0
        printed = told(capsys)
        # The last line, and the command for the rest.
        command = f"surveysynth ledger {spec}"
        total = words.replace(" in", ",")
        assert f"Budget: epsilon {total} 1 note. Details: {command}" in printed
        assert main(command.split()[1:]) == 0
        rest = told(capsys)
        assert f"spent on survey 'file:{data}' so far: {words}" in rest
        assert "identified by the path of its file alone" in rest
        data.write_text(data.read_text() + "\n")  # another file, and the same survey
    (ledger,) = ledgers_folder().glob("*.jsonl")
    assert f"Ledger: {ledger}" in rest
    assert read_ledger(tmp_path / "three" / "confidential" / "ledger.jsonl") == read_ledger(ledger)
    assert len({entry.data_sha256 for entry in read_ledger(ledger)}) == 3


def test_an_id_makes_copies_one_survey_and_places_do_not(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    spec = make_spec(survey='id = "sdr-2026"')
    shutil.copytree(tmp_path / "in", tmp_path / "copy")
    release(spec, tmp_path / "one")
    made = release(tmp_path / "copy" / spec.name, tmp_path / "two")
    assert (made.ledger.survey, made.ledger.epsilon) == ("sdr-2026", 21.6)
    assert made.ledger_hints == ()
    spec = make_spec()
    release(spec, tmp_path / "three")
    shutil.copy(spec, tmp_path / "copy" / spec.name)
    made = release(tmp_path / "copy" / spec.name, tmp_path / "four")
    assert made.ledger.epsilon == 10.8
    assert any("same data are recorded under 2 other ids" in each for each in made.ledger_hints)
    # Nothing of it is published.
    for path in (tmp_path / "two" / "release").rglob("*.*"):
        assert b"sdr-2026" not in path.read_bytes()


def test_a_file_of_ones_own_keeps_the_ledger(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, ledger = make_spec(survey='id = "a"'), tmp_path / "kept" / "ledger.jsonl"
    arguments = ["release", str(spec), "--ledger", str(ledger), "--out"]
    assert main([*arguments, str(tmp_path / "one")]) == 0
    assert main(["release", str(make_spec(survey='id = "b"')), "--ledger", str(ledger), "--out",
                 str(tmp_path / "two")]) == 0  # fmt: skip
    assert f"ledger {spec} --ledger {ledger}" in told(capsys)
    assert main(["ledger", str(spec), "--ledger", str(ledger)]) == 0
    printed = told(capsys)
    assert "survey 'b' so far: 10.8 in 1 run." in printed
    assert "1 run on surveys of other ids recorded too" in printed
    assert not ledgers_folder().exists()
    for inside in ("one/ledger.jsonl", "one/confidential/mine.jsonl"):
        arguments[3] = str(tmp_path / inside)
        assert main([*arguments, str(tmp_path / "one"), "--overwrite"]) == 2
        assert "which the release replaces" in told(capsys)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What looked at the confidential values."""
    seen: list[str] = []

    def note(name: str) -> Callable[..., NoReturn]:
        def noted(*_: Any, **__: Any) -> NoReturn:
            seen.append(name)
            raise AssertionError(name)

        return noted

    for user in ("release.pipeline", "api.check"):
        module = import_module(f"surveysynth.{user}")
        monkeypatch.setattr(module, "read_survey", note("read_survey"))
    monkeypatch.setattr("surveysynth.mechanisms.pseudo_posterior.weighted_fits.run", note("run"))
    return seen


def test_a_budget_refuses_before_anything_is_looked_at(
    make_spec: MakeSpec, tmp_path: Path, request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    spec = make_spec(privacy="budget = 21.6")
    for name in ("one", "two"):
        assert main(["release", str(spec), "--out", str(tmp_path / name)]) == 0
    told(capsys)
    looked = request.getfixturevalue("looked")
    assert main(["release", str(spec), "--out", str(tmp_path / "three")]) == 3
    assert "total epsilon so far 21.6 in 2 runs, asked 10.8, together 32.4, budget 21.6" in told(
        capsys
    )
    assert looked == []
    assert not (tmp_path / "three").exists()
    assert main(["release", str(make_spec(privacy="budget = 5.0")), "--out",
                 str(tmp_path / "three")]) == 3  # fmt: skip


def test_check_tells_what_a_budget_leaves_and_writes_nothing(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec(privacy='budget = 21.6\nallow = ["small_strata"]')
    ledger = tmp_path / "ledger.jsonl"
    asked = ["check", "--quick", str(spec), "--ledger", str(ledger)]
    main(asked)
    assert "the budget has room for this release" in told(capsys)
    assert not ledger.exists()
    for name in ("one", "two"):
        assert main(["release", str(spec), "--out", str(tmp_path / name),
                     "--ledger", str(ledger)]) == 0  # fmt: skip
    before = ledger.read_bytes()
    told(capsys)
    assert main(asked) == 3
    said = told(capsys)
    assert "so far: 21.6 in 2 runs" in said
    assert "REFUSED" in said
    assert "together 32.4, budget 21.6" in said
    assert ledger.read_bytes() == before


def test_who_publishes_meanwhile_leaves_no_room(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    """Between the first look at the ledger and publication, another process spends the rest."""
    spec = make_spec(survey='id = "s"', privacy="budget = 11.0")
    record = Ledger.record

    def after_another(self: Ledger, runs: Any, copies: Any = ()) -> Any:
        monkeypatch.setattr(Ledger, "record", record)
        release(spec, tmp_path_factory.mktemp("another") / "quicker")
        return record(self, runs, copies)

    monkeypatch.setattr(Ledger, "record", after_another)
    with pytest.raises(RefusedError, match=r"so far 10\.8 in 1 run, asked 10\.8"):
        release(spec, tmp_path / "slower")
    assert not (tmp_path / "slower").exists()
    assert ss.ledger("s").epsilon == 10.8


def test_a_run_is_recorded_before_it_is_published_and_counts_if_it_is_not(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap(moves: Any) -> NoReturn:
        assert ss.ledger("s").epsilon == 10.8
        assert not any(target.exists() for _, target in moves)
        raise OSError(5, "Input/output error")

    spec = make_spec(survey='id = "s"')
    with monkeypatch.context() as planted:
        planted.setattr(bundle, "_swap", swap)
        with pytest.raises(InputError, match=r"is recorded in the ledger .* and counts as spent"):
            release(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert release(spec, tmp_path / "out").ledger.epsilon == 21.6


def test_a_damaged_ledger_stops_a_release_before_anything_is_looked_at(
    make_spec: MakeSpec, tmp_path: Path, looked: list[str]
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text("{}\n")
    with pytest.raises(InputError, match="line 1 of the ledger"):
        release(make_spec(), tmp_path / "out", ledger=ledger)
    assert looked == []


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({"survey": 'id = " "'}, "survey.id: expected a name"),
        ({"survey": 'id = "a\\nb"'}, "survey.id: expected a name"),
        ({"privacy": "budget = 0"}, "privacy.budget"),
        ({"privacy": 'budget = 3\nrisk = "none"'}, "budget: risk = 'none' protects nothing"),
    ],
)
def test_ids_and_budgets_that_cannot_be(
    make_spec: MakeSpec, lines: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        ss.load_spec(make_spec(**lines))
    assert words in str(caught.value)


def test_tables_in_python_are_in_the_ledger_of_the_id_or_say_that_they_are_not() -> None:
    survey = ss.Survey.from_frame(
        small_survey(), outcome="salary", weight="weight", by=["gender"], predictors="gender"
    )
    paper = {"mechanism": "pseudo_posterior", "inference": "paper", "epsilon": 4.0}
    made = ss.tables(survey, **paper)
    assert "in no ledger (survey_id was not given)" in repr(made)
    assert not ledgers_folder().exists()
    limited = {"survey_id": "s", "sections": {"privacy": {"budget": 8.0}}, **paper}
    for _ in range(2):
        made = ss.tables(survey, **limited)
    assert "in the ledger of the survey" in repr(made)
    with pytest.raises(RefusedError, match="so far 8 in 2 runs, asked 4"):
        ss.tables(survey, **limited)
    seeded = ss.tables(survey, **limited, seed=1)  # a test is not counted
    assert "ledger" not in repr(seeded)
    summary = ss.ledger("s")
    assert (summary.epsilon, summary.runs, summary.tests) == (8.0, 2, 1)
    for given in ({"ledger": "x.jsonl"}, {"sections": {"privacy": {"budget": 8.0}}}):
        with pytest.raises(InputError, match="need the name of the survey: set survey_id"):
            ss.tables(survey, **paper, **given)


def test_noise_of_tables_in_python_is_recorded_before_anything_follows_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any, **__: Any) -> NoReturn:
        assert ss.ledger("s").strict_runs == 1
        raise RefusedError("Planted.")

    monkeypatch.setattr(
        "surveysynth.mechanisms.noisy_statistics.posterior.draws.posterior_draws", refused
    )
    survey = ss.Survey.from_frame(
        small_survey(), outcome="salary", weight="weight", by=["gender"], predictors="gender",
        population_size=30_000,
    )  # fmt: skip
    sections = {"outcomes": {"salary": {"center": 22000, "spread": 0.45}}}
    with pytest.raises(RefusedError, match="Planted"):
        ss.tables(
            survey, mechanism="noisy_statistics", epsilon=2.0, sections=sections, survey_id="s"
        )
    assert ss.ledger("s").rho == rho_of(2.0, 1e-6)
