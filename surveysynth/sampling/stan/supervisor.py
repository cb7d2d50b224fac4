"""Run the commands of one fit and end them all when the parent ends: ``supervisor.py DIR``.

This script uses the standard library alone and starts in a few hundredths of a second. DIR, a
private folder, holds ``commands.json``: {"commands": [[..], ..], "at_once": n}. Standard input is a
pipe that the parent holds and never writes to. When the parent ends, even if it is killed, the pipe
closes; then everything is killed and DIR deleted. ``ended.json`` reports the result: {"failed":
null} or {"failed": {"command": i, "code": c}}, the code negative for a signal.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

POLL_SECONDS = 0.02
#: Option of Linux's ``prctl`` that signals a child when its parent dies.
PR_SET_PDEATHSIG = 1


def main(folder: Path) -> int:
    """Return 0 when done, whatever the commands returned; 1 when the parent is gone."""
    os.umask(0o077)
    task = json.loads((folder / "commands.json").read_text(encoding="utf-8"))
    abandoned = threading.Event()
    threading.Thread(target=_watch, args=(abandoned,), daemon=True).start()
    failed = _run(task["commands"], task["at_once"], folder, abandoned)
    if abandoned.is_set():
        shutil.rmtree(folder, ignore_errors=True)
        if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)  # children of the commands, and this process
        return 1
    (folder / "ended.json").write_text(json.dumps({"failed": failed}), encoding="utf-8")
    return 0


def _watch(abandoned: threading.Event) -> None:
    """Set ``abandoned`` when the other end of the pipe is closed everywhere."""
    while os.read(0, 1):
        pass
    abandoned.set()


def _run(
    commands: list[list[str]], at_once: int, folder: Path, abandoned: threading.Event
) -> dict[str, int] | None:
    """Run all commands; the first failure ends the others. None runs when this returns."""
    waiting = list(enumerate(commands))
    running: dict[int, subprocess.Popen[bytes]] = {}
    failed, parent = None, os.getppid()
    try:
        while (waiting or running) and failed is None and not abandoned.is_set():
            while waiting and len(running) < at_once:
                number, command = waiting.pop(0)
                running[number] = _start(command, folder / f"console-{number}.txt")
            abandoned.wait(POLL_SECONDS)
            if os.getppid() != parent:  # children that it forked may hold the pipe open
                abandoned.set()
            for number, process in list(running.items()):
                code = process.poll()
                if code is not None:
                    del running[number]
                    if code != 0:
                        failed = {"command": number, "code": code}
    finally:
        for process in running.values():
            process.kill()
        for process in running.values():
            process.wait()
    return failed


def _start(command: list[str], console: Path) -> "subprocess.Popen[bytes]":
    with console.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509  # the other thread reads, and no more
        )


def _end_with_parent() -> Callable[[], None] | None:
    """Return a hook that makes the child die with this process, where the system supports it."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
