"""SIGKILL of releases by CmdStan at random moments: ``python -m tests.long_runs.kill_fits``.

Twenty times a release is started, killed at a random moment of its fits (every third time with the
supervisor of its chains, every third with that one while it is stopped itself), and looked at: what
is published, which chains are alive five seconds later, and what is in the temporary folder after
the next start of a command. The survey holds a planted value. It needs CmdStan. The result is
``tests/golden/kill_fits.json``.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cmdstanpy

from surveysynth import cli
from surveysynth._support.confidential import PREFIX
from surveysynth.config.build import engine_of, model_of
from surveysynth.config.spec import load_spec
from tests.stan.test_processes import chains_in, supervisors_in, wait_until
from tests.surveys import pseudo_example

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "tests" / "golden" / "kill_fits.json"
RUNS = 20
CANARY = "7319428.5174"
ALIVE_AFTER = 5.0


def main() -> int:
    """0 where nothing was published, no chain alive and no byte left, in all runs."""
    with tempfile.TemporaryDirectory(prefix="kill-fits-") as name:
        folder = Path(name)
        place = folder / "temporary"
        place.mkdir()
        spec = write_spec(folder)
        loaded = load_spec(spec)
        engine_of(loaded, model_of(loaded)).prepare()  # so that a run begins with its fits
        runs = []
        for number in range(RUNS):
            runs.append(one(spec, folder, place, number))
            print(runs[-1], flush=True)
    sound = all(
        run["a_fit_was_running"] and not run["published"] and run["chains_alive"] == 0
        and run["left_until_the_next_start"] == run["named_by_it"]
        and run["confidential_files"] == 0
        for run in runs
    )  # fmt: skip
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "cmdstan": ".".join(map(str, cmdstanpy.cmdstan_version() or ())),
        "runs": RUNS, "sound": sound, "each": runs,
    }  # fmt: skip
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if sound else 1


def write_spec(folder: Path) -> Path:
    """The example's survey with a planted salary, its fits long enough to be met."""
    spec = pseudo_example(folder / "ex", n=300)
    survey = spec.parent / "survey.csv"
    lines = survey.read_text().splitlines()
    column = lines[0].split(",").index("salary")
    first = lines[1].split(",")
    first[column] = CANARY
    survey.write_text("\n".join([lines[0], ",".join(first), *lines[2:]]) + "\n")
    text = spec.read_text().replace(
        "[privacy]", 'engine = "cmdstan"\ndraws = 2000\nwarmup = 2000\n\n[privacy]'
    )
    spec.write_text(text)
    return spec


def started(arguments: Sequence[str], place: Path, log: Path) -> int:
    """The command in a process of its own, with ``place`` for temporary files; its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os.environ["TMPDIR"] = tempfile.tempdir = str(place)
            code = cli.main(list(arguments))
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def one(spec: Path, folder: Path, place: Path, number: int) -> dict[str, Any]:
    """One release, killed; what is found afterwards."""
    out, log = folder / f"out-{number}", folder / "log.txt"
    release = started(["release", str(spec), "--out", str(out)], place, log)
    with ExitStack() as ends:
        ends.callback(os.waitpid, release, 0)
        ends.callback(os.kill, release, signal.SIGKILL)
        met = wait_until(lambda: chains_in(place), 300)
        moment = random.uniform(0.0, 3.0)
        time.sleep(moment)
        whom = ("release", "release and supervisor", "supervisor of a stopped release")[number % 3]
        chains = len(chains_in(place))
        if number % 3 == 2:
            os.kill(release, signal.SIGSTOP)
        if number % 3:
            for pid in supervisors_in(place):
                os.kill(pid, signal.SIGKILL)
    time.sleep(ALIVE_AFTER)
    alive = len(chains_in(place)) + len(supervisors_in(place))
    left = [path.name for path in place.iterdir() if path.name.startswith(PREFIX)]
    os.waitpid(started(["--version"], place, log), 0)
    told = log.read_text(errors="replace")
    return {
        "killed": whom, "after_seconds": round(moment, 2), "a_fit_was_running": bool(met),
        "chains_then": chains, "chains_alive": alive, "published": out.exists(),
        "left_until_the_next_start": len(left),
        "named_by_it": sum(name in told for name in left),
        "confidential_files": sum(path.is_file() for path in place.rglob("*")),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
