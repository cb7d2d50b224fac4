"""SIGKILL of releases by CmdStan at random moments: ``python -m tests.long_runs.kill_fits``.

Twenty times a release is started, killed at a random moment of its fits (every third time with the
supervisor of its chains, every third alone but stopped first), and looked at: what is published,
which chains are alive five seconds later, and what is in the temporary folder after the next start
of a command. The survey holds a planted value. With CmdStan installed the real one runs, else
a stand-in of it. The result is ``tests/golden/kill_fits.json``.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.stan.test_processes import chains_in, processes_of, supervisors_in, wait_until

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "tests" / "golden" / "kill_fits.json"
RUNS = 20
CANARY = "7319428.5174"
ALIVE_AFTER = 5.0


def main() -> int:
    """0 where nothing was published, no chain alive and no byte left, in all runs."""
    import cmdstanpy

    with tempfile.TemporaryDirectory(prefix="kill-fits-") as name:
        folder = Path(name)
        place = folder / "temporary"
        place.mkdir()
        spec = write_spec(folder)
        environment = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
        compile_first(spec, environment)
        runs = [one(spec, folder, place, environment, number) for number in range(RUNS)]
    sound = all(
        not run["published"] and run["chains_alive"] == 0 and run["confidential_files"] == 0
        for run in runs
    )
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "cmdstan": ".".join(map(str, cmdstanpy.cmdstan_version() or ())),
        "runs": RUNS, "sound": sound, "each": runs,
    }  # fmt: skip
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if sound else 1


def write_spec(folder: Path) -> Path:
    """The example's survey with a planted salary, its fits long enough to be met."""
    from surveysynth.api.example import example

    spec = example(folder / "ex", n=300)[1]
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


def compile_first(spec: Path, environment: dict[str, str]) -> None:
    """The program into the cache, so that a run begins with its fits."""
    code = (
        "import sys; from surveysynth.spec.build import engine_of, model_of;"
        "from surveysynth.spec.spec import load_spec; s = load_spec(sys.argv[1]);"
        "engine_of(s, model_of(s)).prepare()"
    )
    subprocess.run([sys.executable, "-c", code, str(spec)], env=environment, check=True)


def one(
    spec: Path, folder: Path, place: Path, environment: dict[str, str], number: int
) -> dict[str, Any]:
    """One release, killed; what is found afterwards."""
    command = [sys.executable, "-m", "surveysynth", "release", str(spec)]
    out = folder / f"out-{number}"
    release = subprocess.Popen(
        [*command, "--out", str(out)], env=environment, stderr=subprocess.DEVNULL
    )
    met = wait_until(lambda: chains_in(place), 300)
    moment = random.uniform(0.0, 3.0)
    time.sleep(moment)
    whom = ("release", "release and supervisor", "stopped release, then supervisor")[number % 3]
    chains = len(chains_in(place))
    if number % 3 == 2:
        release.send_signal(signal.SIGSTOP)
    if number % 3:
        for pid in supervisors_in(place):
            os.kill(pid, signal.SIGKILL)
    release.kill()
    release.wait()
    time.sleep(ALIVE_AFTER)
    alive = len(chains_in(place)) + len(supervisors_in(place))
    left = [str(path.name) for path in place.iterdir()]
    start = [sys.executable, "-m", "surveysynth", "--version"]
    told = subprocess.run(start, env=environment, capture_output=True, text=True, check=True)
    return {
        "killed": whom, "after_seconds": round(moment, 2), "a_fit_was_running": met,
        "chains_then": chains, "chains_alive": alive, "published": out.exists(),
        "left_until_the_next_start": len(left),
        "named_by_it": sum(name in told.stderr for name in left),
        "confidential_files": sum(path.is_file() for path in place.rglob("*")),
        "processes": len(processes_of(str(place))),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
