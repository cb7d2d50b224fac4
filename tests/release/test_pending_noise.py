"""Runs that end after the noise and before the release. Truth: rho added by hand, listings of the
file system, and the noisy numbers of the run that was refused."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pytest

from surveysynth.cli import main
from surveysynth.errors import InputError, RefusedError, StoppedError
from surveysynth.mechanisms.noisy_statistics.accounting import rho_of
from surveysynth.mechanisms.noisy_statistics.posterior import draws as mechanism
from surveysynth.release.ledger import ledgers_folder, read_ledger
from surveysynth.release.pipeline import rebuild, release
from tests.release import test_strict_release
from tests.release.test_strict_release import SALARY, SHORT, SMALL_MODEL, STRICT
from tests.surveys import MakeSpec, small_survey

# Draws that follow from the noise are a stand-in's: what is kept and counted is tested.
pytestmark = pytest.mark.usefixtures("stand_in_posterior", "stand_in_mechanism")

Refuse = Callable[[BaseException | None], None]
RHO = rho_of(10.8, 1e-6)
LONGER = SHORT.replace("draws = 60", "draws = 80")


#: The logarithm of the weight, so that a run has one stage.
LOG_WEIGHT = f"{SALARY}\n[outcomes.weight]\nspread = 0.6\n"


def strict_spec(make_spec: MakeSpec, frame: pd.DataFrame | None = None, **lines: str) -> Path:
    return test_strict_release.strict_spec(make_spec, frame, **{"labels": LOG_WEIGHT, **lines})


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def kept(folder: Path) -> list[Any]:
    """Noisy numbers that were drawn and not released, the histogram of the weight apart."""
    found = [
        json.loads(path.read_text())["statistics"]
        for path in sorted((folder / "drawn_noise").glob("*.json"))
    ]
    return [{name: each[name] for name in each if name != "learned"} for each in found]


def published(out: Path) -> Any:
    return json.loads((out / "release" / "statistics.json").read_text())["statistics"]


@pytest.fixture
def refuse(stand_in_posterior: None) -> Iterator[Refuse]:
    """From now on chains end with this error; with None as before."""
    patch = pytest.MonkeyPatch()

    def plant(error: BaseException | None) -> None:
        if error is None:
            patch.undo()
            return

        def posterior_draws(*_: Any, **__: Any) -> NoReturn:
            raise error

        patch.setattr(mechanism, "posterior_draws", posterior_draws)

    yield plant
    patch.undo()


@pytest.mark.parametrize("apart", [False, True])
def test_a_refused_run_has_spent_its_rho_once(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    spec, out = strict_spec(make_spec), tmp_path / "a" / "out"
    folder = tmp_path / "b" / "secret" if apart else None
    confidential = folder or out / "confidential"
    seen = []

    def posterior_draws(*_: Any, **__: Any) -> NoReturn:
        seen.append(len(read_ledger(confidential / "ledger.jsonl")))
        raise RefusedError("The chains are as they were planted.")

    with monkeypatch.context() as planted:
        planted.setattr(mechanism, "posterior_draws", posterior_draws)
        for _ in range(2):
            with pytest.raises(RefusedError, match=r"planted\. Its noise is drawn and its b"):
                release(spec, out, confidential=folder)
    assert seen == [1, 1]  # before anything follows from the noise, and once
    (entry,), (numbers,) = read_ledger(confidential / "ledger.jsonl"), kept(confidential)
    assert (entry.rho, entry.released, entry.test) == (RHO, True, False)
    assert tree(confidential) == [f"drawn_noise/{entry.run}.json", "ledger.jsonl"]
    assert not (out / "release").exists()
    for path in (confidential, confidential / "drawn_noise"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    # The same command, with longer chains, goes on from the same numbers.
    spec = strict_spec(make_spec, synthesizer=LONGER)
    made = release(spec, out, confidential=folder)
    assert published(out) == numbers
    assert (made.ledger.rho, made.ledger.strict_runs) == (RHO, 1)
    (last,) = read_ledger(confidential / "ledger.jsonl")
    assert last.run == entry.run
    assert kept(confidential) == []
    assert rebuild(out, tmp_path / "again").different == ()
    # From then on noise is drawn anew, and counted.
    made = release(spec, tmp_path / "second", confidential=confidential)
    assert published(tmp_path / "second") != numbers
    assert made.ledger.rho == pytest.approx(2 * RHO)


@pytest.mark.parametrize(
    ("lines", "frame"),
    [
        ({"privacy": STRICT.replace("10.8", "3.6")}, None),
        ({"synthesizer": SHORT.replace("field + gender", "field * gender")}, None),
        ({}, small_survey(seed=4)),
    ],
    ids=["epsilon", "predictors", "data"],
)
def test_other_noise_is_another_run(
    make_spec: MakeSpec, tmp_path: Path, refuse: Refuse, lines: dict[str, str],
    frame: pd.DataFrame | None,
) -> None:  # fmt: skip
    secret = tmp_path / "secret"
    refuse(RefusedError("Planted."))
    with pytest.raises(RefusedError):
        release(strict_spec(make_spec), tmp_path / "one", confidential=secret)
    (numbers,) = kept(secret)
    refuse(None)
    release(strict_spec(make_spec, frame, **lines), tmp_path / "two", confidential=secret)
    assert published(tmp_path / "two")["cross"] != numbers["cross"]
    entries = read_ledger(secret / "ledger.jsonl")
    privacy = json.loads((tmp_path / "two" / "release" / "privacy.json").read_text())
    spent = [RHO, privacy["rho"]]
    assert sorted(each.rho or 0.0 for each in entries) == sorted(spent)
    # The first run's numbers wait on.
    assert kept(secret) == [numbers]
    made = release(strict_spec(make_spec), tmp_path / "one", confidential=secret)
    assert published(tmp_path / "one") == numbers
    assert kept(secret) == []
    assert made.ledger.strict_runs == 2  # other data in the same file are no other survey


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyboardInterrupt(), StoppedError),
        (MemoryError(), MemoryError),
        (InputError("The disk."), InputError),
    ],
)
def test_any_end_after_the_noise_is_recorded(
    make_spec: MakeSpec, tmp_path: Path, refuse: Refuse,
    error: BaseException, told: type[BaseException],
) -> None:  # fmt: skip
    refuse(error)
    with pytest.raises(told):
        release(strict_spec(make_spec), tmp_path / "out")
    (entry,) = read_ledger(tmp_path / "out" / "confidential" / "ledger.jsonl")
    assert entry.rho == RHO


@pytest.mark.parametrize(
    ("broken", "told"),
    [("replace", "could not be kept in .*: No space left on device.* nevertheless"),
     ("write", "could not be recorded in the ledger .*: No space left on device")],
)  # fmt: skip
def test_noise_that_cannot_be_recorded_is_not_used(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    refuse: Refuse, broken: str, told: str,
) -> None:  # fmt: skip
    refuse(AssertionError("the posterior was begun"))

    def full(*_: Any) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(InputError, match=told):
        release(strict_spec(make_spec), tmp_path / "out")
    assert not (tmp_path / "out" / "release").exists()


def test_a_budget_that_is_spent_stops_noise_but_not_what_goes_on_from_it(
    make_spec: MakeSpec, tmp_path: Path, refuse: Refuse
) -> None:
    limited = {"privacy": f"{STRICT}\nbudget = 11.0"}
    refuse(RefusedError("Planted."))
    with pytest.raises(RefusedError, match=r"^Planted\."):
        release(strict_spec(make_spec, **limited), tmp_path / "out")
    with pytest.raises(RefusedError, match=r"total rho so far .* in 1 run .*budget epsilon 11"):
        release(strict_spec(make_spec, **limited), tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    refuse(None)
    made = release(strict_spec(make_spec, privacy=f"{STRICT}\nbudget = 10.8"), tmp_path / "out")
    assert (made.ledger.strict_runs, made.ledger.rho) == (1, RHO)


def test_what_ends_before_the_noise_or_without_any_leaves_nothing(
    make_spec: MakeSpec, tmp_path: Path, refuse: Refuse
) -> None:
    refuse(RefusedError("Planted."))
    wrong = SHORT.replace("field + gender", "field + nothing")
    with pytest.raises(InputError):
        release(strict_spec(make_spec, synthesizer=wrong), tmp_path / "out")
    with pytest.raises(RefusedError, match=r"^Planted\.$"):  # a test is not counted anyway
        release(strict_spec(make_spec), tmp_path / "out", seed=1)
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_to_do(
    make_spec: MakeSpec, tmp_path: Path, refuse: Refuse,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    refuse(RefusedError("Planted."))
    out = tmp_path / "out"
    assert main(["release", str(strict_spec(make_spec)), "--out", str(out)]) == 3
    told = capsys.readouterr().err
    for words in ("budget spent", str(ledgers_folder()), str(out), "at no further cost"):
        assert words in " ".join(told.split())
    # Another mechanism may follow into the same folders.
    assert main(["release", str(make_spec(synthesizer=SMALL_MODEL)), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert f"rho {RHO:.3g}, 1 run (epsilon" in printed
    assert len(kept(out / "confidential")) == 1


@pytest.mark.parametrize("test", [False, True])
def test_ctrl_c_says_what_was_drawn(
    make_spec: MakeSpec, tmp_path: Path, refuse: Refuse,
    capsys: pytest.CaptureFixture[str], test: bool,
) -> None:  # fmt: skip
    """The same command then goes on from it; of a test run nothing is kept."""
    out = tmp_path / "out"
    command = ["release", str(strict_spec(make_spec)), "--out", str(out)]
    command += ["--seed", "1"] if test else []
    refuse(KeyboardInterrupt())
    assert main(command) == 130
    told = " ".join(capsys.readouterr().err.split())
    assert ("interrupted. " in f"{told} ") is test
    assert ("interrupted; nothing was released. Its noise is drawn" in told) is not test
    assert out.exists() is not test
    if not test:
        for words in ("budget spent", str(ledgers_folder()), str(out), "at no further cost"):
            assert words in told
        refuse(None)
        assert main(command) == 0
        assert f"rho {RHO:.3g}, 1 run" in capsys.readouterr().out


def test_damaged_numbers_are_told(
    make_spec: MakeSpec, tmp_path: Path, refuse: Refuse
) -> None:
    refuse(RefusedError("Planted."))
    spec, out = strict_spec(make_spec), tmp_path / "out"
    with pytest.raises(RefusedError):
        release(spec, out)
    (path,) = (out / "confidential" / "drawn_noise").iterdir()
    path.write_text("{}")
    with pytest.raises(InputError, match="its noisy numbers are lost, and their rho stays spent"):
        release(spec, out)
