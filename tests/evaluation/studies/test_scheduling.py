"""Truth: the same study in this process. Files must be equal to the bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from surveysynth.errors import IncompleteError, InputError, StoppedError
from surveysynth.estimation.statistics import REPORT_COLUMNS, STUDY_COLUMNS, TABLE_COLUMNS
from surveysynth.evaluation.studies import tasks
from surveysynth.evaluation.studies.report import run_frame_study
from tests.evaluation.studies.study_cases import quick

NAMES = ("rows.csv", "summary.csv", "refusals.csv", "replicates.parquet", "study.json")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The folder of a study that nothing disturbed."""
    return run_frame_study(quick(), tmp_path_factory.mktemp("study") / "plain", workers=1).out


def assert_same(one: Path, two: Path) -> None:
    for name in NAMES:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    tasks = sorted(path.name for path in (one / "tasks").iterdir())
    assert tasks == sorted(path.name for path in (two / "tasks").iterdir())


def test_files(plain):
    rows = pd.read_csv(plain / "rows.csv")
    replicates = pd.read_parquet(plain / "replicates.parquet")
    assert sorted(set(replicates["sample"])) == list(range(6))
    # A by column of one of these names could not be told from them, and is refused.
    own = {*TABLE_COLUMNS, *REPORT_COLUMNS, *STUDY_COLUMNS, "table", "level"}
    assert {*rows, *replicates} - {"region", "sex"} <= own
    assert not list(plain.rglob("*.partial"))


@pytest.mark.slow
def test_a_worker_that_dies_has_its_task_run_again(plain, tmp_path):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    lines = []
    out = run_frame_study(
        quick(folder=str(deaths), deaths=1), tmp_path / "out", workers=2,
        progress=lambda *each: lines.append(each),
    ).out  # fmt: skip
    assert len(list(deaths.iterdir())) == 1
    assert [done for _, done, _ in lines] == list(range(7))
    assert "left" in lines[3][0]
    assert_same(plain, out)


@pytest.mark.slow
def test_a_task_that_always_dies_leaves_the_others(plain, tmp_path):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    with pytest.raises(IncompleteError, match=r"1 of 6 tasks failed.*00001_own: the workers"):
        run_frame_study(quick(folder=str(deaths), deaths=99), tmp_path / "out", workers=2)
    assert IncompleteError.exit_code == 4
    left = pd.read_parquet(tmp_path / "out" / "replicates.parquet")
    assert sorted(set(left["sample"])) == [0, 2, 3, 4, 5]
    # The next time it goes well.
    out = run_frame_study(quick(), tmp_path / "out", workers=1, resume=True).out
    assert_same(plain, out)


def test_an_interrupted_study_goes_on(plain, tmp_path):
    def interrupt(line, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(StoppedError, match="--resume"):
        run_frame_study(quick(), tmp_path / "out", workers=1, progress=interrupt)
    assert not (tmp_path / "out" / "rows.csv").exists()
    out = run_frame_study(quick(), tmp_path / "out", workers=1, resume=True).out
    assert_same(plain, out)


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from surveysynth.evaluation.studies.report import run_frame_study
from tests.evaluation.studies.study_cases import quick
if __name__ == "__main__":
    run_frame_study(quick(60), Path(sys.argv[2]), workers=2)
"""


@pytest.mark.slow
def test_kill_9_then_resume_is_the_uninterrupted_study(tmp_path):
    out, program = tmp_path / "out", tmp_path / "program.py"
    program.write_text(PROGRAM)
    here = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": here}
    process = subprocess.Popen([sys.executable, str(program), here, str(out)], env=environment)
    try:
        wait_for(
            lambda: len(list(out.glob("tasks/*.replicates.parquet"))) >= 3
            or process.poll() is not None
        )
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    there = len(list(out.glob("tasks/*.replicates.parquet")))
    assert 3 <= there < 60
    run_frame_study(quick(60), out, workers=1, resume=True)
    assert_same(run_frame_study(quick(60), tmp_path / "whole", workers=1).out, out)


def wait_for(condition, seconds=150):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_folders_of_other_studies_are_left_alone(plain, tmp_path):
    with pytest.raises(InputError, match="exists"):
        run_frame_study(quick(), plain)
    with pytest.raises(InputError, match=r"other settings \(seed\)"):
        run_frame_study(quick(seed=1), plain, resume=True)
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match="holds no study"):
        run_frame_study(quick(), tmp_path, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
        stderr=subprocess.DEVNULL,
        **options,
    )


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers, processes of their own that talk over TCP."""
    file = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    processes = [start("dask_scheduler", *common, "--port", "0", "--host", "127.0.0.1")]
    try:
        wait_for(file.exists)
        processes += [
            start("dask_worker", *common, "--no-nanny", "--nthreads", "1", "--name", str(number),
                  "--local-directory", str(tmp_path))
            for number in range(2)
        ]  # fmt: skip
        yield json.loads(file.read_text())["address"], processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_with_a_worker_killed(tmp_path, cluster):
    address, workers = cluster
    assert address.startswith("tcp://")
    study = quick(24)
    whole = run_frame_study(study, tmp_path / "whole", workers=1)
    killed = []

    def kill_one(line, done, total):
        # Tasks for both are left, so the worker is in the middle of one.
        if done == 3 and not killed:
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    out = run_frame_study(
        study, tmp_path / "out", scheduler=address, progress=kill_one
    ).out
    assert killed
    assert workers[0].wait(timeout=10) == -signal.SIGKILL
    assert workers[1].poll() is None
    assert_same(whole.out, out)


def test_a_scheduler_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "PATIENCE", 1)
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        run_frame_study(quick(), tmp_path / "out", scheduler="tcp://127.0.0.1:9")
