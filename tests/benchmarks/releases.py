"""Whole releases by both mechanisms: ``python -m tests.benchmarks.releases``.

``surveysynth release`` of the example's specification at several n, each in a process of its own,
imports and all files included: wall and processor seconds, and peak memory. Noisy statistics with
their defaults of m and datasets, the pseudo-posterior with its own. Results go to
``releases.json``; ``--n`` and ``--mechanism`` run some of them and keep the others. Ratios of
processor seconds of one sitting compare the mechanisms; on a shared machine wall seconds say
little. Not a test.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIZES = (1_000, 10_355, 1_000_000, 10_000_000)
MECHANISMS = ("pseudo_posterior", "noisy_statistics")
RESULTS = Path(__file__).with_suffix(".json")
#: From here on the survey is a parquet file, as one of this size would be.
PARQUET_FROM = 1_000_000
DECLARED = "\n[outcomes.salary]\ncenter = 80000\nspread = 0.5\n"
RUN = (sys.executable, "-m", "surveysynth")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def specification(folder: Path, n: int, mechanism: str) -> Path:
    """The example's, of n records, under a mechanism."""
    subprocess.run(
        [*RUN, "example", str(folder), "--n", str(n)], check=True, stdout=subprocess.DEVNULL
    )
    text = (folder / "spec_pseudo_posterior.toml").read_text(encoding="utf-8")
    text = text.replace("population_size = 100000", f"population_size = {max(100_000, 10 * n)}")
    if n >= PARQUET_FROM:
        convert = (
            "import pandas, sys; pandas.read_csv(sys.argv[1], dtype={'field': str})"
            ".to_parquet(sys.argv[1].replace('.csv', '.parquet'))"
        )
        subprocess.run([sys.executable, "-c", convert, str(folder / "survey.csv")], check=True)
        text = text.replace("survey.csv", "survey.parquet")
    if mechanism == "noisy_statistics":
        text = text.replace("pseudo_posterior", mechanism).replace("m = 3\n", "", 1) + DECLARED
    path = folder / f"{mechanism}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def measured(command: Sequence[str], package: Path | None = None) -> dict[str, float]:
    """Wall and processor seconds and peak GiB of one command in a process of its own.

    package: another checkout that runs it.
    """
    begin, own = time.perf_counter(), ENVIRONMENT
    if package is not None:
        own = {**own, "PYTHONPATH": str(package)}
    child = subprocess.Popen(
        [*RUN, *command], env=own, cwd=package, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    return {
        "wall_seconds": round(time.perf_counter() - begin, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gib": round(usage.ru_maxrss / 2**20, 2),
    }


def run(n: int, mechanism: str) -> dict[str, Any]:
    """One release, as written to the results."""
    with tempfile.TemporaryDirectory() as folder:
        spec = specification(Path(folder) / "example", n, mechanism)
        out = Path(folder) / "out"
        spent = measured(["release", str(spec), "--out", str(out)])
        privacy = json.loads((out / "release" / "privacy.json").read_text(encoding="utf-8"))
    datasets = privacy["m"] * privacy["settings"]["replicates_per_draw"]
    return {"n": n, "mechanism": mechanism, "datasets": datasets, **spent}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, action="append", help="some sizes alone")
    parser.add_argument("--mechanism", action="append", choices=MECHANISMS)
    arguments = parser.parse_args()
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    found = {(row["n"], row["mechanism"]): row for row in kept}
    for n in arguments.n or SIZES:
        for mechanism in arguments.mechanism or MECHANISMS:
            row = found[n, mechanism] = run(n, mechanism)
            print(row, flush=True)
            ordered = [found[key] for key in sorted(found)]
            RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
