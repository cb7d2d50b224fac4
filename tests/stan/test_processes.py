"""Processes of a fit end with it, however it ends. Truth: the system's own list of processes and
files, after real signals to real processes; commands that are deaf to Ctrl-C and termination."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from surveysynth import cli
from surveysynth._support import confidential as private
from surveysynth._support.confidential import PREFIX, private_folder, sweep
from surveysynth.errors import InputError
from surveysynth.sampling.stan import source
from surveysynth.sampling.stan.backends import Failure, run_commands
from surveysynth.sampling.stan.source import StanSource, compiled_program, program_version
from tests.stan.fake_cmdstan import MEANS, compilations, fake_program, install_fake_cmdstan

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/cmdline").exists(), reason="reads the processes from /proc"
)
CANARY = "7319.4285174"
#: Seconds in which everything must have ended.
SOON = 5.0

FIT = """
import sys
from pathlib import Path
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import CmdStanBackend
from surveysynth.sampling.stan.source import StanSource
data = {"n": 2, "y": [%s, 1.0], "log_w": [0.0, 0.0], "alpha": [1.0, 1.0], "prior_sd": 1.0,
        "act": "hang"}
print("begins", flush=True)
CmdStanBackend(Path(sys.argv[1])).run(
    StanSource("means", ""), data, SamplingPlan(64, 100, 100), seed=1, adapt_delta=0.9
)
""" % CANARY  # noqa: UP031  # braces of the program


def processes_of(text: str) -> dict[int, str]:
    """Process ids and command lines that hold ``text``, zombies left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in line:
                found[int(entry.name)] = line
    return found


def wait_until(condition, seconds: float = SOON) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The folder for temporary files of a fit; its name tells the fit's processes, of which none
    is left in the end even where a test fails."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    yield folder
    for pid in processes_of(str(folder)):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def fit(tmp_path: Path, place: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A fit of many chains that never end, in a process that can be interrupted."""
    started = start_fit(tmp_path, place)
    yield started
    with started:
        started.kill()


def start_fit(folder: Path, place: Path) -> "subprocess.Popen[bytes]":
    def heed_interrupts() -> None:
        # Where tests run in the background SIGINT is inherited as ignored, under nohup SIGHUP.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

    program = fake_program(folder / "program")
    return subprocess.Popen(
        [sys.executable, "-c", FIT, str(program)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        preexec_fn=heed_interrupts,  # noqa: PLW1509  # no other thread is at work
        env={**os.environ, "TMPDIR": str(place)},
    )  # fmt: skip


def chains_in(place: Path) -> set[int]:
    return {pid for pid, line in processes_of(str(place)).items() if "method=sample" in line}


def supervisors_in(place: Path) -> set[int]:
    return {pid for pid, line in processes_of(str(place)).items() if "supervisor.py" in line}


def confidential_files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file() and CANARY in path.read_text()]


def sleeper(seconds: float, file: Path) -> list[str]:
    """A command that leaves a file and is deaf for a while."""
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"open(sys.argv[1], 'w').close(); time.sleep({seconds})"
    )
    return [sys.executable, "-I", "-S", "-c", code, str(file)]


def test_all_commands_run_and_only_so_many_at_once(tmp_path: Path) -> None:
    files = [tmp_path / f"done-{i}" for i in range(5)]
    begun = time.monotonic()
    assert run_commands([sleeper(0.3, file) for file in files], tmp_path, at_once=2) is None
    assert all(file.exists() for file in files)
    assert time.monotonic() - begun >= 3 * 0.3
    at_times = sorted(file.stat().st_mtime for file in files)
    assert at_times[2] - at_times[0] > 0.25
    assert at_times[4] - at_times[2] > 0.25


def test_the_first_failure_ends_the_others_and_is_told(tmp_path: Path) -> None:
    late = tmp_path / "late"
    commands = [
        sleeper(40, tmp_path / "one"), ["/bin/sh", "-c", "sleep 0.3; exit 7"], sleeper(0, late)
    ]  # fmt: skip
    begun = time.monotonic()
    assert run_commands(commands, tmp_path, at_once=2) == Failure(1, 7)
    assert time.monotonic() - begun < 30
    assert processes_of(str(tmp_path / "one")) == {}
    assert not late.exists()
    killed = ["/bin/sh", "-c", "kill -9 $$"]
    assert run_commands([killed], tmp_path, at_once=1) == Failure(0, -9)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_every_chain_and_starts_none(
    fit: "subprocess.Popen[bytes]", place: Path, number: signal.Signals
) -> None:
    assert wait_until(lambda: chains_in(place), 30)
    first = chains_in(place)
    fit.send_signal(number)
    assert fit.wait(timeout=SOON) != 0
    assert wait_until(lambda: not processes_of(str(place)), 2.0)
    assert len(first) <= len(os.sched_getaffinity(0))
    assert wait_until(lambda: not list(place.iterdir()), 2.0)


@pytest.mark.parametrize("whom", ["parent", "supervisor", "both"])
def test_killed_at_random_moments_it_leaves_no_chain_and_no_record(
    tmp_path: Path, place: Path, whom: str
) -> None:
    for _ in range(2):
        fit = start_fit(tmp_path, place)
        assert fit.stdout is not None
        fit.stdout.readline()
        if whom != "parent":
            assert wait_until(lambda: supervisors_in(place), 30)
        time.sleep(random.uniform(0.0, 0.6))
        if whom == "both":
            fit.send_signal(signal.SIGSTOP)  # it must not see the other go first
        for pid in supervisors_in(place) if whom != "parent" else ():
            os.kill(pid, signal.SIGKILL)
        if whom != "supervisor":
            fit.kill()
        assert fit.wait(timeout=30) != 0
        fit.stdout.close()
        assert wait_until(lambda: not processes_of(str(place)))
        wait_until(lambda: not list(place.iterdir()), 0.5)
        left = [str(folder) for folder in place.iterdir()]
        told = sweep(place)
        assert len(told) == len(left)
        assert all(folder in sentence for folder, sentence in zip(left, told, strict=True))
        assert confidential_files(place) == []
        assert list(place.iterdir()) == []


def test_a_sweep_leaves_what_is_in_use_and_what_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "other").mkdir()
    kept = tmp_path / "kept"
    kept.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(kept)
    (tmp_path / f"{PREFIX}file").write_text("a file")
    stale = tmp_path / f"{PREFIX}stale"
    stale.mkdir()
    (stale / "data.json").write_text(CANARY)
    with (  # noqa: PT031  # the warning comes on the way in
        pytest.warns(UserWarning, match=f"{stale} of a killed fit held confidential data"),
        private_folder() as folder,
    ):
        assert folder.is_dir()
        assert sweep() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept", "other", f"{PREFIX}file", f"{PREFIX}link"
    ]  # fmt: skip


def test_a_folder_that_cannot_be_swept_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{PREFIX}stale").mkdir()
    monkeypatch.setattr(private, "DELETE_TRIES", 1)
    monkeypatch.setattr(shutil, "rmtree", lambda *a, **k: None)
    (told,) = sweep(tmp_path)
    assert f"{PREFIX}stale" in told
    assert "delete it by hand" in told


def test_every_command_begins_with_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale = tmp_path / f"{PREFIX}stale"
    stale.mkdir()
    assert cli.main(["--version"]) == 0
    assert f"{stale} of a killed fit held confidential data" in capsys.readouterr().err
    assert not stale.exists()


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no format of any machine", "Exec format error"),
        ("#!/nowhere/interpreter\n", "No such file or directory"),
        ("#!/bin/sh\necho 'libtbb.so.2: cannot open' >&2\nexit 127\n", "exit code 127: libtbb"),
        ("#!/bin/sh\nkill -ILL $$\n", "signal 4"),
        ("#!/bin/sh\necho hello\n", "does not answer 'info'"),
        ("#!/bin/sh\nsleep 60\n", "no answer in 1 s"),
    ],
)
def test_a_program_that_cannot_start_is_blamed_itself_and_not_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    from surveysynth.sampling.stan.backends import CmdStanBackend

    monkeypatch.setattr(source, "START_SECONDS", 1 if "sleep" in text else 60)
    program = executable(tmp_path / "program", text)
    with pytest.raises(InputError, match=why) as caught:
        CmdStanBackend(program).prepare(StanSource("means", ""))
    assert str(program) in str(caught.value)
    assert "on these data" not in str(caught.value)


def test_a_program_tells_the_version_that_compiled_it(tmp_path: Path) -> None:
    from surveysynth.sampling.stan.backends import CmdStanBackend

    program = fake_program(tmp_path / "program")
    assert program_version(program) == "2.38.0"
    assert CmdStanBackend(program).versions(StanSource("x", "")) == {"cmdstan": "2.38.0"}


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_a_cached_program_that_no_longer_starts_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cmdstan = install_fake_cmdstan(tmp_path / "cmdstan", monkeypatch)
    program = compiled_program(StanSource.read(MEANS), tmp_path / "cache")
    executable(program, "#!/bin/sh\nexit 127\n")
    assert compiled_program(StanSource.read(MEANS), tmp_path / "cache") == program
    assert compilations(cmdstan) == 2
    assert program_version(program) == "2.38.0"


def test_a_fit_of_commands_is_told_in_json_alone(tmp_path: Path) -> None:
    """What the supervisor is given is nobody else's to read."""
    run_commands([["/bin/true"]], tmp_path, at_once=1)
    task = tmp_path / "commands.json"
    assert json.loads(task.read_text()) == {"commands": [["/bin/true"]], "at_once": 1}
    assert {task.stat().st_mode & 0o777, (tmp_path / "console-0.txt").stat().st_mode & 0o777} == {
        0o600
    }


def test_the_long_run_left_nothing() -> None:
    """Twenty releases by CmdStan, killed while they fitted (``tests/long_runs/kill_fits.py``)."""
    kept = json.loads((Path(__file__).parents[1] / "golden" / "kill_fits.json").read_text())
    assert len(kept["each"]) == 20
    for run in kept["each"]:
        assert run["a_fit_was_running"]
        assert run["chains_then"] > 0
        assert not run["published"]
        assert run["chains_alive"] == run["confidential_files"] == 0
        assert run["left_until_the_next_start"] == run["named_by_it"]
