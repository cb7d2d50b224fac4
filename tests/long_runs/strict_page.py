"""The table of ``vignettes/technical/two_mechanisms.md``:
``python -m tests.long_runs.strict_page``.

Reads results of the engine of commit 2812de3d (``strict_study`` and, for FBS and FBP by the
pseudo-posterior at epsilon 10.8 and 1,000 records, ``coverage_table`` there).
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
PAGE = ROOT / "vignettes" / "technical" / "two_mechanisms.md"
BEGIN, END = "<!-- by tests/long_runs/strict_page.py -->", "<!-- end -->"
NAMES = {
    "sample": "confidential sample",
    "fbs_noisy": "FBS, noisy statistics",
    "fbp_noisy": "FBP, noisy statistics",
    "fbs": "FBS, pseudo-posterior, debiased",
    "fbp": "FBP, pseudo-posterior, debiased",
}


def summaries() -> pd.DataFrame:
    """A row a number of records, epsilon, method and statistic; the sample of the most samples."""
    ours = pd.read_csv(GOLDEN / "strict_study_summary.csv")
    ours = ours[ours["setting"] == "main effects"]
    usual = pd.read_csv(GOLDEN / "coverage_default_summary.csv")
    usual = usual[usual["method"].isin(["sample", "fbs", "fbp"])].assign(n=1000)
    cells = pd.read_csv(GOLDEN / "coverage_default_cells.csv")
    errors = cells.groupby(["method", "statistic"])["rmse_ratio_mcse"].median()
    usual["cell_rmse_ratio_mcse"] = [
        errors[key] for key in zip(usual["method"], usual["statistic"], strict=True)
    ]
    made = pd.concat([usual, ours], ignore_index=True)
    made = made.sort_values("replicates", ascending=False, kind="stable")
    return made.drop_duplicates(["n", "epsilon", "method", "statistic"])


def refused() -> set[tuple[int, float]]:
    """(n, epsilon) at which the pseudo-posterior was run and gave nothing."""
    facts = json.loads((GOLDEN / "strict_study.json").read_text(encoding="utf-8"))
    found = summaries()
    there = {(n, e) for n, e, m in zip(found["n"], found["epsilon"], found["method"], strict=True)
             if m == "fbs"}  # fmt: skip
    return {
        (part["n"], epsilon)
        for name, part in facts["parts"].items()
        if name.startswith("pseudo")
        for epsilon in part["epsilons"]
        if (part["n"], epsilon) not in there
    }


def table() -> list[str]:
    """Lines of Markdown."""
    head = "| records | epsilon | method | counts: coverage | RMSE | length | means: coverage"
    return [f"{head} | RMSE | length | samples |", "|---" * 10 + "|", *_rows()]


def _rows() -> Iterator[str]:
    found = summaries().set_index(["n", "epsilon", "method", "statistic"])
    nothing = refused()
    for n in sorted(found.index.unique("n")):
        for epsilon in sorted({*found.index.unique("epsilon"), *(e for _, e in nothing)})[::-1]:
            for method, name in NAMES.items():
                shown = "" if epsilon == float("inf") else f"{epsilon:g}"
                if (n, epsilon, method, "count") in found.index:
                    rows = [found.loc[(n, epsilon, method, each)] for each in ("count", "mean")]
                    numbers = " | ".join(_numbers(row) for row in rows)
                    yield f"| {n:,} | {shown} | {name} | {numbers} | {rows[0]['replicates']:.0f} |"
                elif method == "fbs" and (n, epsilon) in nothing:
                    yield f"| {n:,} | {shown} | {name} | refused | | | refused | | | 0 |"


def _numbers(row: "pd.Series[float]") -> str:
    """Coverage with its error and its range over cells, RMSE with its error, length."""
    coverage = f"{row['coverage']:.2f} ({row['coverage_mcse']:.2f})"
    between = f"[{row['coverage_min']:.2f}, {row['coverage_max']:.2f}]"
    if row["rmse_ratio"] == 1.0:
        return f"{coverage} {between} | 1 | 1"
    rmse = f"{row['rmse_ratio']:.2f} ({row['cell_rmse_ratio_mcse']:.2f})"
    return f"{coverage} {between} | {rmse} | {row['length_ratio']:.2f}"


def main() -> None:
    """Put the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join([BEGIN, "", *table(), "", END])
    PAGE.write_text(f"{before}{made}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
