"""Every kind of outcome in a real clustered survey: ``python -m tests.long_runs.real_units``.

6,206 households of the US Consumer Expenditure Survey in 72 units, one of which lies in two
regions: income and health spending with their zeros, education in eight levels, earners and
vehicles, each in a release of its own, by region and sex. How far
estimates lie from the sample's own in its standard errors by unit, the ratio of standard errors,
processor seconds and memory go to ``golden/real_units.json``. Ranges, centres and spreads are
declared, and are round numbers. ``--only`` and ``--method`` run parts and keep the results of the
others.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

import surveysynth as ss
from surveysynth.release.files import library_versions
from tests.benchmarks.kinds import written
from tests.benchmarks.releases import measured

REAL = Path(__file__).parents[3] / "shared" / "data" / "ce2015q3.csv"
GOLDEN = Path(__file__).parents[1] / "golden" / "real_units.json"
AMOUNT = 'kind = "semicontinuous"\nspikes = [0]\nbounds = [0, inf]'
OUTCOMES = {
    "income": f"{AMOUNT}\ntransform = {{ scale = 10000, power = 0.4 }}\n"
    "center = 45000\nspread = 2.0",
    "health_spending": f"{AMOUNT}\ntransform = {{ scale = 100, power = 0.4 }}\n"
    "center = 300\nspread = 1.7",
    "education": f'kind = "categorical"\nlevels = {json.dumps(list("12345678"))}',
    "earners": 'kind = "count"\nrange = [0, 8]',
    "vehicles": 'kind = "count"\nrange = [0, 20]',
}
#: Mechanism and epsilon by name.
METHODS = {
    "noisy 10.8": ("noisy_statistics", 10.8),
    "noisy 3.6": ("noisy_statistics", 3.6),
}


def households() -> pd.DataFrame:
    """Those whose region is known; losses and refunds, of 16 of them, count as zero."""
    frame = pd.read_csv(REAL).dropna(subset=["region"])
    amounts = ["income", "health_spending"]
    return frame.assign(**{name: frame[name].clip(lower=0) for name in amounts})


def specification(folder: Path, outcome: str, mechanism: str, epsilon: float) -> Path:
    """A survey in units with this outcome, and what a statistician would declare."""
    return written(
        folder, households(), {outcome: OUTCOMES[outcome]},
        survey=['psu = "psu"', "population_size = 129000000"],
        privacy=[f'mechanism = "{mechanism}"', f"epsilon = {epsilon}"],
        by=["region", "sex"],
        statistics=["count", "share" if outcome == "education" else "mean"],
    )  # fmt: skip


def run(outcome: str, mechanism: str, epsilon: float) -> dict[str, Any]:
    """One release: by statistic and outcome, distances in the sample's standard errors."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec, out = specification(folder, outcome, mechanism, epsilon), folder / "out"
        spent = measured(["release", str(spec), "--out", str(out)])
        ss.adequacy(out)
        rows = pd.read_csv(folder / "out" / "confidential" / "adequacy.csv").fillna({"outcome": ""})
    rows = rows[rows["sample_se"] > 0]
    distance = ((rows["published"] - rows["sample"]) / rows["sample_se"]).abs()
    ratio = rows["published_se"] / rows["sample_se"]
    rows = rows.assign(distance=distance, ratio=ratio)
    tables = {
        f"{statistic} {outcome}".strip(): {
            "rows": len(found), "median": _rounded(found["distance"].median()),
            "worst": _rounded(found["distance"].max()), "se": _rounded(found["ratio"].median()),
        }
        for (statistic, outcome), found in rows.groupby(["statistic", "outcome"])
    }  # fmt: skip
    return {"tables": tables, **spent}


def _rounded(value: float) -> float:
    return round(float(value), 2)


def page(results: dict[str, Any]) -> list[str]:
    """Lines of Markdown."""
    made = [_row("release", "statistic", *METHODS), "|---" * (2 + len(METHODS)) + "|"]
    for release, by_method in results.items():
        statistics = dict.fromkeys(key for each in by_method.values() for key in each["tables"])
        for statistic in statistics:
            cells = [_words(by_method.get(method), statistic) for method in METHODS]
            made.append(_row(release, statistic, *cells))
    return made


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _words(found: dict[str, Any] | None, statistic: str) -> str:
    if found is None:
        return "-"
    table = found["tables"][statistic]
    return f"{table['median']:.1f} ({table['worst']:.1f}), {table['se']:.2f}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(OUTCOMES))
    parser.add_argument("--method", action="append", choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args()
    found = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    results = found.get("releases", {})
    for release in given.only or OUTCOMES:
        for method in given.method or METHODS:
            results.setdefault(release, {})[method] = made = run(release, *METHODS[method])
            print(release, method, made, flush=True)
            text = json.dumps({"releases": results, "versions": library_versions()}, indent=1)
            given.out.write_text(text + "\n", encoding="utf-8")
    print("\n".join(page(results)))


if __name__ == "__main__":
    main()
