"""How releases and checks grow: ``python -m tests.benchmarks.scale``.

Simulated records of 1,000 to 10 million, one outcome and four, 16 and 240 cells, without units and
with 1,000, by noisy statistics with default settings from public ranges alone: processor seconds
and peak memory of ``surveysynth release`` and ``surveysynth check``, each in a process of its own.
Sizes beyond 100,000 records are run for the plain case, and each change at one such size. Results
go to ``scale.json`` with the commit, ``--against DIR`` beside those of another checkout in the same
sitting: ratios compare, and seconds of a shared machine say little. From 1,000,000 records on
surveys are parquet files. Not a test.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import surveysynth as ss
from tests.benchmarks.kinds import written
from tests.benchmarks.releases import PARQUET_FROM, measured
from tests.long_runs.real_files import commit_of

RESULTS = Path(__file__).with_suffix(".json")
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
#: Records, outcomes, cells, units.
CASES = [
    *((n, 1, 16, 0) for n in SIZES),
    *((n, *each) for n in (10_000, 1_000_000) for each in ((4, 16, 0), (1, 240, 0), (1, 16, 1000))),
    (10_000, 4, 240, 1000),
]
COMMANDS = ("release", "check")
OUTCOMES = {
    "pay": "range = [0, 1000000]",
    "income": 'kind = "semicontinuous"\nspikes = [0]\nrange = [0, 1000000]',
    "wealth": "range = [0, 10000000]",
    "rent": "range = [0, 50000]",
}


def frame(n: int, cells: int, units: int, seed: int = 7) -> pd.DataFrame:
    """Records whose outcomes and weight hang together by a common cause, partly of units."""
    rng = np.random.default_rng(seed)
    classes = cells // 4
    region, age = rng.integers(4, size=n), rng.integers(classes, size=n)
    cause = rng.standard_normal(n) + 0.3 * (region == 0) + 0.5 * age / classes
    columns: dict[str, Any] = {
        "region": pd.Categorical.from_codes(region, list("abcd")).astype(str),
        "age": pd.Categorical.from_codes(age, [f"{k:02}" for k in range(classes)]).astype(str),
    }
    if units:
        own = region * (units // 4) + rng.integers(units // 4, size=n)
        cause += 0.3 * rng.standard_normal(units)[own]
        columns["unit"] = own
    for mean, name in zip((10.0, 10.0, 11.5, 6.5), OUTCOMES, strict=True):
        values = np.exp(mean + 0.5 * cause + 0.4 * rng.standard_normal(n)).round(2)
        columns[name] = np.where(rng.random(n) < 0.1, 0.0, values) if name == "income" else values
    columns["weight"] = np.exp(3.0 + 0.4 * rng.standard_normal(n) + 0.1 * cause)
    return pd.DataFrame(columns)


def specification(folder: Path, n: int, outcomes: int, cells: int, units: int) -> Path:
    """A survey with public ranges alone, as ``init`` leaves it."""
    records = frame(n, cells, units)
    chosen = dict(list(OUTCOMES.items())[:outcomes])
    clusters = ['psu = "unit"'] if units else []
    path = written(
        folder, records[[*(["unit"] if units else []), "region", "age", *chosen, "weight"]], chosen,
        survey=['strata = "region"', *clusters, f"population_size = {30 * n}"],
        privacy=['mechanism = "noisy_statistics"', "epsilon = 3.6"],
        by=["region", "age"], statistics=["count", "mean", "median"],
    )  # fmt: skip
    if n >= PARQUET_FROM:
        records.to_parquet(folder / "survey.parquet")
        text = path.read_text(encoding="utf-8").replace("survey.csv", "survey.parquet")
        path.write_text(text, encoding="utf-8")
    return path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, action="append", help="some sizes alone")
    parser.add_argument("--command", action="append", choices=COMMANDS)
    parser.add_argument("--plain", action="store_true", help="one outcome, 16 cells, no units")
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else []
    commit = commit_of(Path(ss.__file__).parent)
    for case in CASES:
        if case[0] not in (given.n or SIZES) or (given.plain and case[1:] != (1, 16, 0)):
            continue
        with tempfile.TemporaryDirectory() as name:
            spec = specification(Path(name), *case)
            for command in given.command or COMMANDS:
                out = ["--out", str(Path(name) / "out")] * (command == "release")
                facts = dict(zip(("n", "outcomes", "cells", "units"), case, strict=True))
                key = {"command": command, **facts}
                row = {**key, **measured([command, str(spec), *out]), "commit": commit}
                if given.against:
                    shutil.rmtree(Path(name) / "out", ignore_errors=True)
                    before = measured([command, str(spec), *out], given.against)
                    row["against"] = {"commit": commit_of(given.against), **before}
                print(row, flush=True)
                found = [each for each in found if any(each[part] != key[part] for part in key)]
                found.append(row)
                lines = ",\n ".join(json.dumps(each) for each in found)
                given.out.write_text(f"[\n {lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
