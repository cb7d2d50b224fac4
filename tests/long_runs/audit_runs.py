"""What replacing one record does, in every model and mechanism: ``python -m
tests.long_runs.audit_runs``.

Layer A, ``replacements``: databases that differ in one record, each through the whole mechanism;
the log ratio of the two posteriors, or the distance of the exact statistics, over what is stated.
All changes at 1,000 records of FBS and FBP, the worst few in all else and at 300 and 10,355
records (``--all``: all of them everywhere, some hours). Layer B, ``attacks``: thousands of
releases of either database of a pair, and how much of epsilon an attacker can prove who knows
everything but which of both it was; with controls that must be found out. About half an hour of
processor time; the results are ``golden/audit_replacements.csv`` and ``golden/audit.json``, which
``tests/audit/test_audit_golden.py`` holds to what is claimed and the vignette shows. ``--part``
runs single parts and ``--size`` single sizes, ``--missing`` what the table lacks; other results are kept.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Collection, Iterator, Sequence  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import pandas as pd  # noqa: E402

from surveysynth.audit.cases import examples, lines_of  # noqa: E402
from surveysynth.audit.examples import PLAN  # noqa: E402
from surveysynth.audit.lines import Line, frame_of  # noqa: E402
from surveysynth.errors import InputError  # noqa: E402
from surveysynth.release.documents.privacy_file import library_versions  # noqa: E402

FOLDER = Path(__file__).parents[1] / "golden"
REPLACEMENTS, ATTACKS = FOLDER / "audit_replacements.csv", FOLDER / "audit.json"
SEED = 31
SIZES = (1000, 10_355, 300)
#: At 1,000 records every change is tried, and fresh random numbers beside common ones.
THOROUGH = ("fbs", "fbp")


def replacements(
    n: int, names: Sequence[str], there: Collection[str], *, thorough: bool
) -> Iterator[list[Line]]:
    """The lines of each case but those that are ``there``."""
    for name, case in examples(n, SEED, names):
        if name in there:
            continue
        start = time.process_time()
        if isinstance(case, InputError):
            lines = [Line(name, "", "", n, 0.0, "", "", verdict="refused", reason=str(case))]
        else:
            full = thorough or (n == 1000 and name in THOROUGH)
            lines = list(lines_of(case, SEED, full=full))
        ratios = [each.ratio for each in lines if each.ratio is not None]
        largest = f"{max(ratios):.3f}" if ratios else "none"
        seconds = time.process_time() - start
        print(f"{n} {name}: {len(lines)} lines, largest {largest}, {seconds:.0f} s", flush=True)
        yield lines


def write_replacements(
    out: Path, sizes: Sequence[int], names: Sequence[str], *, thorough: bool, missing: bool
) -> None:
    """Adds to or replaces what is there of these sizes and cases, a case at a time."""
    for n in sizes:
        kept = pd.read_csv(out) if missing and out.exists() else pd.DataFrame({"n": [], "case": []})
        there = set(kept.loc[kept["n"] == n, "case"])
        for lines in replacements(n, names, there, thorough=thorough):
            new = frame_of(lines)
            if out.exists():
                old = pd.read_csv(out)
                old = old[~((old["n"] == n) & (old["case"] == lines[0].case))]
                new = pd.concat([old, new], ignore_index=True)
            new.to_csv(out, index=False, float_format="%.6g", lineterminator="\n")


def write_facts(path: Path, **parts: Any) -> None:
    """Adds parts to the facts of the runs, with when and by what they were made."""
    kept: dict[str, Any] = {}
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
    now = datetime.now(UTC).date().isoformat()
    kept = {**kept, "seed": SEED, "date": now, "versions": library_versions(), **parts}
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=["replacements", "attacks"])
    parser.add_argument("--size", action="append", type=int, choices=list(SIZES))
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--all", action="store_true", help="all changes, for every case and size")
    parser.add_argument("--missing", action="store_true", help="only cases that are not there")
    given = parser.parse_args(arguments)
    parts = given.part or ["replacements", "attacks"]
    if "replacements" in parts:
        out, sizes = given.folder / REPLACEMENTS.name, given.size or SIZES
        write_replacements(out, sizes, given.case, thorough=given.all, missing=given.missing)
        plan = [PLAN.chains, PLAN.warmup, PLAN.draws]
        write_facts(given.folder / ATTACKS.name, plan=plan)


if __name__ == "__main__":
    main()
