"""Run the commands of one fit in processes that end with it, however it ends (``supervisor``)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from surveysynth.sampling.stan import supervisor

#: Code of a failure where the supervisor itself was killed before it reported a command.
UNKNOWN = -int(signal.SIGTERM)


@dataclass(frozen=True)
class Failure:
    """The position of the command that failed, and its code: negative for a signal."""

    command: int
    code: int


def run_commands(
    commands: Sequence[Sequence[str]],
    folder: Path,
    *,
    at_once: int,
    environment: Mapping[str, str] | None = None,
) -> Failure | None:
    """Run commands, ``at_once`` at a time; the first failure ends the others and is returned.

    ``folder`` is private and the caller deletes it; it gets what commands print, in
    ``console-N.txt``. No command runs or starts after this has returned or raised, Ctrl-C included.
    When this process is killed, the commands are killed and ``folder`` is deleted.
    """
    task = {"commands": [list(command) for command in commands], "at_once": at_once}
    file = folder / "commands.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(task), encoding="utf-8")
    # A separate session: Ctrl-C of a terminal reaches this process alone, which ends the others.
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(supervisor.__file__).resolve()), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )
    try:
        process.wait()
    finally:
        _end(process)
    ended = folder / "ended.json"
    if not ended.is_file():
        return Failure(0, process.returncode if process.returncode < 0 else UNKNOWN)
    failed = json.loads(ended.read_text(encoding="utf-8"))["failed"]
    return None if failed is None else Failure(**failed)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the supervisor and all that it started, unless it ended by itself."""
    if process.returncode is None or process.returncode < 0:
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                subprocess.run(
                    ["taskkill", "/F", "/T", "/PID", str(process.pid)],
                    capture_output=True, check=False,
                )  # fmt: skip
    assert process.stdin is not None  # it was asked for
    process.stdin.close()
    process.wait()
