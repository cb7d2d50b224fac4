"""Large tables against R's svyby and svy: ``python -m tests.long_runs.large_tables --svy PYTHON``.

Means with standard errors by 26 x 26 x 10 levels, of 50,000 records and of a million in 20 strata:
seconds of one sitting, all one after another, and the largest relative differences of the cells
that hold two records or more. Ours has all margins besides. Of the million, R makes the first 40
cells (each a ``svymean`` of a subset, as ``svyby`` does it) and its seconds are told for all of
them in proportion; svy, which holds a number for each record and cell, does not have the memory.
Results go to ``golden/large_tables.json``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import numpy as np
import pandas as pd

from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains
from tests.long_runs.other_programs import from_svy

RESULTS = Path(__file__).parents[1] / "golden" / "large_tables.json"
BY = {"a": 26, "b": 26, "c": 10}
#: Records, and how many cells R makes; 0: all, and svy all of them too.
SIZES = {50_000: 0, 1_000_000: 40}
STRATA = 20


def records(n: int) -> pd.DataFrame:
    """By columns of uneven sizes, strata, skewed weights and amounts."""
    rng = np.random.default_rng([26, n])
    made = {
        name: np.array([f"{name}{k:02d}" for k in range(size)])[
            np.floor(size * rng.random(n) ** 1.2).astype(int)
        ]
        for name, size in BY.items()
    }
    return pd.DataFrame({
        **made,
        "stratum": rng.integers(0, STRATA, n),
        "weight": rng.lognormal(3.0, 0.5, n),
        "y": rng.lognormal(10.0, 0.5, n),
    })  # fmt: skip


def ours(frame: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """Cells of two records or more, by key; seconds."""
    start = time.perf_counter()
    levels = {name: sorted(frame[name].unique()) for name in BY}
    domains = build_domains(frame, list(BY), levels)
    made = estimate_domains(
        domains, SampleDesign(frame["stratum"].to_numpy()), weight=frame["weight"].to_numpy(),
        outcome=frame["y"].to_numpy(), statistic="mean", linearisation="plain",
    )  # fmt: skip
    seconds = time.perf_counter() - start
    keys = domains.table[list(BY)].agg("|".join, axis=1)
    table = pd.DataFrame({"estimate": made.estimate, "se": np.sqrt(made.variance)}, index=keys)
    return table[~domains.table["is_margin"].to_numpy() & (domains.n > 1)], seconds


def from_r(data: Path, cells: int) -> tuple[pd.DataFrame, float, list[str]]:
    """The same of R's survey, seconds, and its versions."""
    out = data.with_name("of_r.csv")
    run = subprocess.run(
        ["Rscript", str(Path(__file__).with_suffix(".R")), str(data), str(out), str(cells)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    seconds, *versions = run.stdout.split("\n")
    return pd.read_csv(out, index_col="key"), float(seconds), versions[:2]


def difference(mine: pd.DataFrame, theirs: pd.DataFrame) -> dict[str, Any]:
    """The largest relative ones, and of how many cells."""
    both = mine.index.intersection(theirs.index)
    gap = (theirs.loc[both] / mine.loc[both] - 1.0).abs().max()
    return {"cells": len(both), "estimate": float(gap["estimate"]), "se": float(gap["se"])}


def measured(n: int, cells: int, interpreter: str) -> dict[str, Any]:
    """One size."""
    frame = records(n)
    mine, unit = min((ours(frame) for _ in range(3)), key=lambda made: made[1])
    job = {
        "strata": "stratum", "psu": None, "fpc": None, "by": list(BY), "singleton": None,
        "margins": [list(BY)], "statistics": {"mean": ("mean", "y")},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "records.csv"
        frame.to_csv(data, index=False)
        table, r, versions = from_r(data, cells)
        svy = None if cells else from_svy(interpreter, data, [job])
    found: dict[str, Any] = {
        "records": n, "cells": len(mine), "ours_seconds": round(unit, 3),
        "R survey": {
            **difference(mine, table),
            "ratio": float(f"{r * (len(mine) / cells if cells else 1.0) / unit:.3g}"),
            "cells_made": cells or len(table), "versions": versions,
        },
    }  # fmt: skip
    if svy is not None:
        result = svy["results"][0]
        theirs = pd.DataFrame(result["found"]["mean"], index=["estimate", "se"], dtype=float).T
        found["svy"] = {
            **difference(mine, theirs), "ratio": float(f"{result['seconds'] / unit:.3g}"),
            "version": svy["version"],
            "peak_memory_gb": round(getrusage(RUSAGE_CHILDREN).ru_maxrss / 2**20, 1),
        }  # fmt: skip
    return found


def main() -> None:
    """Writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--svy", default=sys.executable, help="a Python interpreter that has svy")
    given = parser.parse_args()
    sizes = []
    for n, cells in SIZES.items():
        sizes.append(measured(n, cells, given.svy))
        print(json.dumps(sizes[-1]), flush=True)
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("surveysynth", "numpy", "pandas")},
        "sizes": sizes,
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
