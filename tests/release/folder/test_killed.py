"""Runs that are killed, interrupted, or find a full or read-only disk: nothing is published in
part, the ledger has what was spent, and nothing they left outlives the next run, which goes on.

Truth: the folders and ledgers themselves, before, after the stop and after the next start.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from surveysynth.api.start import write_example
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.release.atomic import REPLACED, prefix_of, remove_abandoned, temporary_folder
from surveysynth.release.folder import DRAWN, plan_bundle, plan_folder, staged
from surveysynth.release.ledger import LedgerEntry, read_ledger
from tests.surveys import small_survey, spec_text, write_survey

#: When a stop would do most harm: a moment after these words, by mechanism.
STAGES = {
    "noisy_statistics": (
        "reading the survey", "noisy statistics", "posterior under the noise", "synthetic data",
        "tables and documents", "writing",
    ),
    "pseudo_posterior": (
        "reading the survey", "unweighted fit", "risk weights", "synthetic data",
        "tables and documents", "writing",
    ),
}  # fmt: skip
WAYS = ("kill", "interrupt", "full disk", "read-only folder")
MOMENTS = 10
DISK = "size=24m"


def left_by_a_killed_run(target: Path, *, replacing: bool = False) -> Path:
    """What a run leaves that is killed while it writes, or while it replaces a folder."""
    folder = target.with_name(f"{prefix_of(target)}abc")
    (folder / "out" / "confidential").mkdir(parents=True)
    (folder / "out" / "confidential" / "records.csv").write_text("73194")
    if replacing:
        target.rename(folder.with_name(folder.name + REPLACED))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_run_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    left_by_a_killed_run(tmp_path / "out")
    left_by_a_killed_run(tmp_path / "apart")
    left_by_a_killed_run(tmp_path / "other")
    plan_bundle(tmp_path / "out", tmp_path / "apart", overwrite=False)
    assert names(tmp_path) == [".other.partial-abc"]  # whose it is, its next run tells
    plan_folder(tmp_path / "other", overwrite=False, own=(), marker="marked", what="a comparison")
    assert names(tmp_path) == []


@pytest.mark.parametrize("new_in_place", [False, True])
def test_a_release_that_was_being_replaced_is_there_again(
    tmp_path: Path, new_in_place: bool
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "which").write_text("old")
    folder = left_by_a_killed_run(out, replacing=True)
    if new_in_place:
        out.mkdir()
        (out / "which").write_text("new")
    remove_abandoned(out)
    assert (out / "which").read_text() == ("new" if new_in_place else "old")
    assert names(tmp_path) == ["out"]
    assert not folder.exists()


def test_what_another_run_is_writing_stays(tmp_path: Path) -> None:
    plan = plan_bundle(tmp_path / "out", overwrite=False)
    with staged(plan) as staging:
        (staging.confidential / "records.csv").write_text("73194")
        remove_abandoned(tmp_path / "out")
        plan_bundle(tmp_path / "out", overwrite=False)
        assert (staging.confidential / "records.csv").exists()
    assert names(tmp_path) == []
    with temporary_folder(tmp_path / "out") as folder:
        remove_abandoned(tmp_path / "out")
        assert folder.is_dir()
    remove_abandoned(tmp_path / "out")
    assert not folder.exists()


def test_a_folder_that_is_no_leftover_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / ".out.partial-link").symlink_to(tmp_path / "kept")
    (tmp_path / ".output.partial-x").mkdir()
    remove_abandoned(tmp_path / "out")
    assert names(tmp_path) == [".out.partial-link", ".output.partial-x", "kept"]
    with pytest.raises(InputError):
        plan_bundle(tmp_path / "kept", overwrite=False)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small disk of its own, where one can be mounted."""
    folder = tmp_path / "place"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(folder)]
    own = (
        shutil.which("mount")
        and not subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode
    )
    yield folder
    subprocess.run(["chattr", "-R", "-i", str(folder)], capture_output=True, check=False)
    if own:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def stop(process: "subprocess.Popen[str]", way: str, place: Path) -> None:
    """Stop a run, or take away the disk that it writes to."""
    if way == "kill":
        process.kill()
    elif way == "interrupt":
        process.send_signal(signal.SIGINT)
    elif way == "full disk":
        with (place / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(1 << 16)) > 0:
                    pass
            except OSError:
                return
    else:
        subprocess.run(["chattr", "-R", "+i", str(place)], capture_output=True, check=False)


def possible(way: str, place: Path) -> str:
    """Why a way to stop cannot be tried here; empty where it can."""
    if way == "full disk" and not place.is_mount():
        return "no small disk can be mounted here"
    if way == "read-only folder":
        changed = subprocess.run(["chattr", "+i", str(place)], capture_output=True, check=False)
        if changed.returncode:
            return "no folder can be made read-only here"
        subprocess.run(["chattr", "-i", str(place)], check=True)
    return "" if hasattr(os, "killpg") else "there are no such signals here"


def stopped(way: str, number: int, place: Path, spec: Path) -> bool:
    """One release, stopped a moment after a stage, and another; whether the stop met the first."""
    stages = STAGES[load_spec(spec).privacy.mechanism]
    temporary = spec.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    out, ledger = place / f"out-{number}", place / f"ledger-{number}.jsonl"
    command = [
        sys.executable, "-m", "surveysynth", "release", str(spec), "--out", str(out), "--ledger",
        str(ledger), "--overwrite",
    ]  # fmt: skip
    moment = random.Random(number).uniform(0.0, 0.4)
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        start_new_session=True, env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if stages[number % len(stages)] in line:
            break
    time.sleep(moment)
    met = process.poll() is None
    stop(process, way, place)
    said += process.stderr.read()
    process.stderr.close()
    code = process.wait(60)
    codes = {"kill": (-signal.SIGKILL, 0), "interrupt": (130, -signal.SIGINT, 0)}
    assert code in codes.get(way, (2, 0)), said
    assert not any(word in said for word in ("Traceback", "defect")), said
    with pytest.raises(ProcessLookupError):  # no process of its group is alive
        os.killpg(process.pid, 0)
    assert not whole_or_nothing(out)
    published, kept = (out / "release").exists(), entries_of(ledger)
    # A shell says 130 of -SIGINT, too: Python ends so if the signal comes while it shuts down.
    assert published == (code == 0) or code in (-signal.SIGKILL, -signal.SIGINT), said
    assert not (published and "othing was" in said), said
    assert len(kept) == 1 or not published
    assert len(kept) == 1 or not any(place.rglob(f"{DRAWN}/*.json"))
    # The disk is there again, and the same command goes on.
    subprocess.run(["chattr", "-R", "-i", str(place)], capture_output=True, check=False)
    (place / "filler").unlink(missing_ok=True)
    waiting = any((out / "confidential" / DRAWN).glob("*.json"))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not whole_or_nothing(out)
    runs = entries_of(ledger)
    assert set(kept) <= set(runs)
    assert len(runs) == (1 if waiting else len(kept) + 1)
    assert not any(place.rglob(f"{DRAWN}/*.json"))
    left = {out.name, ledger.name}
    assert {name for name in names(place) if not name.endswith(".lock")} == left
    assert names(temporary) == []
    shutil.rmtree(out)
    ledger.unlink()
    return met


def entries_of(ledger: Path) -> dict[str, LedgerEntry]:
    """The runs of a ledger, which must be whole, by their ids."""
    return {entry.run: entry for entry in read_ledger(ledger)} if ledger.exists() else {}


def written_spec(folder: Path, mechanism: str = "noisy_statistics") -> Path:
    """A release of a few seconds."""
    if mechanism == "pseudo_posterior":
        text = spec_text(
            survey="population_size = 30000", synthesizer='inference = "paper"', privacy="m = 1"
        )
        return write_survey(folder / "in", small_survey(120), text)
    spec = write_example(folder / "in", 400)[1]
    text = spec.read_text(encoding="utf-8").replace(
        'outcome = "salary" ',
        # Without shrunken interactions chains always converge: the noise is of the system.
        'covariance_by = []\npredictors = "field + gender"\nchains = 8\ndraws = 60\nwarmup = 60\n'
        'outcome = "salary" ',
    )
    lines = [line for line in text.splitlines() if not line.startswith("epsilon")]
    # Figures take long.
    lines = [line.replace(', "svg", "png"]', "]") for line in lines]
    quick = "epsilon = 20\nm = 10\nreplicates_per_draw = 1\n[tables]\n"
    spec.write_text("\n".join(lines).replace("[tables]\n", quick), encoding="utf-8")
    return spec


@pytest.mark.parametrize(("way", "number"), list(zip(WAYS, (2, 4, 5, 3), strict=True)))
def test_a_release_that_is_stopped(way: str, number: int, tmp_path: Path, place: Path) -> None:
    if reason := possible(way, place):
        pytest.skip(reason)
    stopped(way, number, place, written_spec(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", STAGES)
@pytest.mark.parametrize("way", WAYS)
def test_a_release_that_is_stopped_at_ten_moments(
    way: str, mechanism: str, tmp_path: Path, place: Path
) -> None:
    if reason := possible(way, place):
        pytest.skip(reason)
    spec = written_spec(tmp_path, mechanism)
    met = [stopped(way, number, place, spec) for number in range(MOMENTS)]
    assert sum(met) >= MOMENTS // 2


def whole_or_nothing(out: Path) -> str:
    """What is wrong with a folder of a release, which may be absent, or have noise that waits for
    the next run and nothing else; empty where nothing is."""
    if not out.exists():
        return ""
    found = {str(path.relative_to(out)) for path in out.rglob("*")}
    folder = f"confidential/{DRAWN}"
    waiting = {name for name in found if name.startswith(folder) and name.endswith(".json")}
    if waiting and found == {"confidential", "confidential/ledger.jsonl", folder, *waiting}:
        return ""
    needed = {"release/privacy.json", "release/README.md", "release/tables/counts.csv",
              "release/tables/means.csv", "confidential/realised.json"}  # fmt: skip
    return "" if needed <= found else f"missing: {sorted(needed - found)}"
