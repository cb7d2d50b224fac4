"""Two thousand surveys in every format, and 150 damaged files:
``python -m tests.long_runs.readers [--inputs N] [--damaged N] [--seed N]``.

The result is ``tests/golden/readers.json``: how many surveys of each format were compared, how many
of the damaged files were refused, and what failed.
"""

import argparse
import contextlib
import io
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.survey.reader_inputs import damages, differences, inputs, wrong_after

RESULT = Path(__file__).resolve().parents[1] / "golden" / "readers.json"


class Captured:
    """What is said since the last look, as pytest's capture has it."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()

    def readouterr(self) -> SimpleNamespace:
        """Return what was said, and forget it."""
        said = SimpleNamespace(out=self.out.getvalue(), err=self.err.getvalue())
        for each in (self.out, self.err):
            each.seek(0)
            each.truncate()
        return said


def failures(strategy: Any, wrong: Callable[[Any], list[str]], n: int, start: int) -> list[str]:
    """What is wrong with n inputs."""
    found: list[str] = []

    @seed(start)
    @settings(
        max_examples=n, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def every(made: Any) -> None:
        found.extend(f"{made}: {each}" for each in wrong(made))

    every()
    return found


def main() -> int:
    """Return 0 where every input is one survey, and every damaged file is refused."""
    parser = argparse.ArgumentParser(prog="python -m tests.long_runs.readers", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--damaged", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="readers-") as name:
        folder, captured = Path(name), Captured()
        found = failures(
            inputs(), lambda made: differences(made, folder, seen), chosen.inputs, chosen.seed
        )
        print(dict(seen), *found[:9], sep="\n", flush=True)
        with contextlib.redirect_stdout(captured.out), contextlib.redirect_stderr(captured.err):
            found += failures(
                damages, lambda made: wrong_after(made, folder, captured, seen), chosen.damaged,
                chosen.seed,
            )  # fmt: skip
    result = {"seed": chosen.seed, "seen": dict(sorted(seen.items())), "failures": found}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
