"""Seconds for many cells: ``python -m tests.benchmarks.many_cells [--rows N] [--levels-of-r K]``.

26 x 26 x 10 = 6,760 cells with all margins (``--sizes``), of N records in 40 strata and 2,000
clusters: every statistic of this package, and R's ``svyby(svymean)`` of the cells of the first K
levels, in processor seconds, on the same machine; what both estimate must agree to 1e-8.
``--out`` keeps seconds of means beside those of R, for several numbers of records.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains

STATISTICS = (
    "mean", "count", "median", "ratio(y, x)", "difference(mean, c: c0 - c1)",
    "difference(mean, c: margin)", "ratio(count, c: margin)",
)  # fmt: skip
SIZES = (26, 26, 10)


def survey_of(rows: int, sizes: Mapping[str, int]) -> pd.DataFrame:
    """Clusters lie in strata; weights vary."""
    rng = np.random.default_rng(1)
    psu = rng.integers(0, 2_000, rows)
    frame = pd.DataFrame({"psu": psu, "stratum": psu % 40, "weight": rng.uniform(1, 9, rows)})
    for name, size in sizes.items():
        width = len(str(size - 1))
        frame[name] = [f"{name}{code:0{width}d}" for code in rng.integers(0, size, rows)]
    return frame.assign(y=rng.lognormal(0, 1, rows), x=rng.lognormal(0, 1, rows))


def main() -> None:
    """Print a table of seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000])
    parser.add_argument("--sizes", type=int, nargs=3, default=SIZES)
    parser.add_argument("--levels-of-r", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a JSON file to add to")
    given = parser.parse_args()
    sizes = dict(zip("abc", given.sizes, strict=True))
    for rows in given.rows:
        row = {"rows": rows, "cells": given.sizes, **measured(rows, sizes, given.levels_of_r)}
        if given.out:
            found = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else []
            lines = ",\n ".join(json.dumps(each) for each in [*found, row])
            given.out.write_text(f"[\n {lines}\n]\n", encoding="utf-8")


def measured(rows: int, sizes: Mapping[str, int], levels: int) -> dict[str, float]:
    """Return seconds of means of all cells and margins, and of R's cells."""
    frame, seconds = survey_of(rows, sizes), {}
    began = time.process_time()
    labels = {name: sorted(frame[name].unique()) for name in sizes}
    domains = build_domains(frame, list(sizes), labels)
    design = SampleDesign(frame["stratum"].to_numpy(), frame["psu"].factorize()[0])
    seconds["layout"] = time.process_time() - began
    print(f"{rows:,} records, {domains.n_rows:,} rows: {seconds['layout']:.2f} s")
    made = {}
    for statistic in STATISTICS:
        outcome = frame[["y", "x"]].to_numpy() if "(y, x)" in statistic else frame["y"].to_numpy()
        began = time.process_time()
        made[statistic] = estimate_domains(
            domains, design, weight=frame["weight"].to_numpy(), outcome=outcome,
            statistic=statistic, linearisation="plain",
        )  # fmt: skip
        seconds[statistic] = time.process_time() - began
        print(f"{statistic}: {seconds[statistic]:.2f} s")
    result = {"layout": round(seconds["layout"], 3), "mean": round(seconds["mean"], 3)}
    if not levels:
        return result
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "survey.csv", Path(folder) / "r.csv"
        frame.to_csv(data, index=False)
        script = Path(__file__).with_suffix(".R")
        subprocess.run(["Rscript", str(script), str(data), str(levels), str(out)], check=True)
        theirs = pd.read_csv(out, dtype=dict.fromkeys(sizes, str))
    ours = domains.table.assign(
        mean=made["mean"].estimate, error=np.sqrt(made["mean"].variance), n=domains.n
    )
    both = theirs.merge(ours, on=list(sizes))
    both = both[both["n"] > 1]
    assert len(both) > 0.9 * len(theirs)
    np.testing.assert_allclose(both["mean"], both["y"], rtol=1e-8)
    np.testing.assert_allclose(both["error"], both["se"], rtol=1e-8, atol=1e-12)
    spent = float(theirs["seconds"].iloc[0])
    print(f"R svyby, {len(theirs):,} cells: {spent:.1f} s; the same numbers")
    return {**result, "svyby": spent, "svyby_cells": len(theirs)}


if __name__ == "__main__":
    main()
