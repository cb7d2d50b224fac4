"""Runs that are killed: nothing is published in part, and nothing they left outlives the next run.

Truth: the folders themselves, before, after the kill and after the next start.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from surveysynth.errors import InputError
from surveysynth.release.atomic import REPLACED, prefix_of, remove_abandoned, temporary_folder
from surveysynth.release.folder import plan_bundle, plan_folder, staged
from tests.surveys import small_survey

MakeSpec = Callable[..., Path]
KILLS = 20
#: When a kill would do most harm: a moment after these words.
STAGES = (
    "reading the survey", "unweighted fit", "risk weights", "synthetic data",
    "tables and documents", "writing",
)  # fmt: skip


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


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no such signals here")
def test_kill_9_of_a_release_at_random_moments(make_spec: MakeSpec, tmp_path: Path) -> None:
    """At 20 moments; the next start clears, and after the last the release is whole."""
    spec = make_spec(small_survey(120), survey="population_size = 30000", privacy="m = 1")
    temporary, place = tmp_path / "tmp", tmp_path / "place"
    temporary.mkdir()
    place.mkdir()
    command = [
        sys.executable, "-m", "surveysynth", "release", str(spec), "--out", str(place / "out"),
        "--overwrite",
    ]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(temporary)}
    moments, landed = random.Random(3), 0
    for number in range(KILLS):
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment,
            start_new_session=True,
        )  # fmt: skip
        stage = STAGES[number % len(STAGES)]
        assert process.stderr is not None
        for line in process.stderr:
            if stage in line:
                break
        time.sleep(moments.uniform(0.0, 0.4))
        landed += process.poll() is None
        process.kill()
        process.stderr.close()
        assert process.wait() in (-signal.SIGKILL, 0)
        assert not whole_or_nothing(place / "out")
        with pytest.raises(ProcessLookupError):  # no process of its group is alive
            os.killpg(process.pid, 0)
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert names(place) == ["out"]
    assert names(temporary) == []
    assert not whole_or_nothing(place / "out")
    assert landed >= KILLS // 2


def whole_or_nothing(out: Path) -> str:
    """What is wrong with a folder of a release, which may be absent; empty where nothing is."""
    if not out.exists():
        return ""
    found = {str(path.relative_to(out)) for path in out.rglob("*")}
    needed = {"release/privacy.json", "release/README.md", "release/tables/counts.csv",
              "release/tables/means.csv", "confidential/realised.json"}  # fmt: skip
    return "" if needed <= found else f"missing: {sorted(needed - found)}"
