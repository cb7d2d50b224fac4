"""Coverage with calibration after the noise, on real populations.

    python -m tests.long_runs.calibration_study FRAMES [--samples 40]

draws samples of each frame (``real_populations fetch`` writes them), and releases every one by
noisy statistics with weights calibrated to two margins, and without. Keeps coverage and lengths of
both, beside those of the sample, in ``tests/golden/calibration_study.json``.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from tests.long_runs.real_populations.__main__ import SEED, SETTINGS  # noqa: E402
from tests.long_runs.real_populations.frames import FRAMES  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "calibration_study.json"
#: Two margins of each frame, whose totals are those of the frame.
MARGINS: dict[str, list[list[str]]] = {
    "communes": [["region"], ["people"]],
    "budgets": [["head", "persons"], ["mostly_food"]],
}


#: Those of the study: medians gain little from calibration and take long.
STATISTICS = {"communes": ["count", "total", "mean"], "budgets": ["count", "mean", "proportion"]}


def summary(result: Any, known: set[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Coverage, and length over the truth, by method and statistic, but in ``known`` rows."""
    rows = result.rows
    rows = rows[rows["has_error"] & ~_keys(rows).isin(known)]
    made = []
    for (method, statistic), of in rows.groupby(["method", "statistic"], sort=False):
        made.append({
            "method": method, "statistic": statistic, "rows": len(of),
            "coverage": float(of["coverage"].mean()),
            "length": float((of["ci_length"] / of["truth"].abs()).mean()),
        })  # fmt: skip
    return made


def _keys(rows: pd.DataFrame) -> pd.Series:
    return rows[["statistic", "row"]].apply(tuple, axis=1)


def study(folder: Path, name: str, samples: int) -> dict[str, Any]:
    """One frame, calibrated and not."""
    frame, setting = FRAMES[name], SETTINGS["noisy_10.8"]
    plain = setting.specification(frame)
    plain["tables"] = {**plain["tables"], "statistics": STATISTICS[name]}
    totals = {"by": [], "totals": {}}  # the study takes the totals of the frame
    found = pd.read_csv(folder / f"{name}.csv", dtype=str)
    margins = [{**totals, "by": by, "totals": _nested(found, by)} for by in MARGINS[name]]
    made: dict[str, Any] = {"margins": MARGINS[name], "samples": samples}
    results = {}
    for kind, spec in (("plain", plain), ("calibrated", {**plain, "calibration": margins})):
        results[kind] = ss.coverage(
            folder / f"{name}.csv", spec, samples=samples, seed=SEED, size="size",
            progress=lambda line, k, total: print(f"{name} {k}/{total} {line}", flush=True),
            **frame.design,
        )  # fmt: skip
    # Rows that are totals have no error after calibration, and are compared nowhere.
    rows = results["calibrated"].rows
    known = set(_keys(rows[~rows["has_error"]]))
    return {**made, **{kind: summary(result, known) for kind, result in results.items()}}


def _nested(frame: pd.DataFrame, by: list[str]) -> dict[str, Any]:
    """Numbers of units by level."""
    if len(by) == 1:
        return {str(level): int(n) for level, n in frame[by[0]].value_counts().items()}
    return {str(level): _nested(part, by[1:]) for level, part in frame.groupby(by[0])}


def main() -> None:
    """Run the frames that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frames", type=Path)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=list(MARGINS))
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args()
    every = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    for name in given.only:
        every[name] = study(given.frames, name, given.samples)
        given.out.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")
    for name, found in every.items():
        for kind in ("plain", "calibrated"):
            print(name, kind, pd.DataFrame(found[kind]).round(3).to_string(), sep="\n")
        print(name, np.array(found["samples"]))


if __name__ == "__main__":
    main()
