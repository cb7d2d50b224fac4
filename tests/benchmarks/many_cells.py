"""Seconds for many cells: ``python -m tests.benchmarks.many_cells [--rows N] [--levels-of-r K]``.

26 x 26 x 10 = 6,760 cells with all margins, of N records in 40 strata and 2,000 clusters: every
statistic of this package, and R's ``svyby(svymean)`` of the cells of the first K levels, in
processor seconds, on the same machine; what both estimate must agree to 1e-8.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains

STATISTICS = (
    "count", "mean", "median", "ratio(y, x)", "difference(mean, c: c0 - c1)",
    "difference(mean, c: margin)", "ratio(count, c: margin)",
)  # fmt: skip
SIZES = {"a": 26, "b": 26, "c": 10}


def survey_of(rows: int) -> pd.DataFrame:
    """Clusters lie in strata; weights vary."""
    rng = np.random.default_rng(1)
    psu = rng.integers(0, 2_000, rows)
    frame = pd.DataFrame({"psu": psu, "stratum": psu % 40, "weight": rng.uniform(1, 9, rows)})
    for name, size in SIZES.items():
        width = len(str(size - 1))
        frame[name] = [f"{name}{code:0{width}d}" for code in rng.integers(0, size, rows)]
    return frame.assign(y=rng.lognormal(0, 1, rows), x=rng.lognormal(0, 1, rows))


def main() -> None:
    """Print a table of seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--levels-of-r", type=int, default=1)
    given = parser.parse_args()
    frame = survey_of(given.rows)
    began = time.process_time()
    domains = build_domains(frame, list(SIZES), {n: sorted(frame[n].unique()) for n in SIZES})
    design = SampleDesign(frame["stratum"].to_numpy(), frame["psu"].to_numpy())
    print(f"{given.rows:,} records, {domains.n_rows:,} rows: {time.process_time() - began:.2f} s")
    made = {}
    for statistic in STATISTICS:
        outcome = frame[["y", "x"]].to_numpy() if "(y, x)" in statistic else frame["y"].to_numpy()
        began = time.process_time()
        made[statistic] = estimate_domains(
            domains, design, weight=frame["weight"].to_numpy(), outcome=outcome,
            statistic=statistic, linearisation="plain",
        )  # fmt: skip
        print(f"{statistic}: {time.process_time() - began:.2f} s")
    if not given.levels_of_r:
        return
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "survey.csv", Path(folder) / "r.csv"
        frame.to_csv(data, index=False)
        script = Path(__file__).with_suffix(".R")
        subprocess.run(
            ["Rscript", str(script), str(data), str(given.levels_of_r), str(out)], check=True
        )
        theirs = pd.read_csv(out)
    ours = domains.table.assign(
        mean=made["mean"].estimate, error=np.sqrt(made["mean"].variance), n=domains.n
    )
    both = theirs.merge(ours, on=list(SIZES))
    both = both[both["n"] > 1]
    assert len(both) > 0.9 * len(theirs)
    np.testing.assert_allclose(both["mean"], both["y"], rtol=1e-8)
    np.testing.assert_allclose(both["error"], both["se"], rtol=1e-8, atol=1e-12)
    print(f"R svyby, {len(theirs):,} cells: {theirs['seconds'].iloc[0]:.1f} s; the same numbers")


if __name__ == "__main__":
    main()
