"""Coverage of medians, quantiles, contrasts and shares of rows in the published setting, by both
mechanisms: ``python -m tests.long_runs.statistics_study DIR``; ``--parts`` keeps the others.

Samples of 1,000 from the published population at epsilon 10.8, X main effects (and with
interactions by noisy statistics): the confidential sample, FBS by noisy statistics, and FBS by the
debiased pseudo-posterior. A run that was broken off goes on; every part that is finished goes to
``tests/golden/statistics_study.csv`` and ``.json``.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pandas as pd

from surveysynth.evaluation.studies.coverage import CoverageStudy, paper_study
from surveysynth.evaluation.studies.designs import SamplingDesign
from surveysynth.evaluation.studies.folder import write_study

GOLDEN = Path(__file__).parents[1] / "golden"
SEED, EPSILON = 20261122, 10.8
STATISTICS = (
    "median", "quantile(0.9)", "difference(mean, gender: margin)",
    "ratio(mean, gender: Female / Male)", "ratio(count, field: margin)",
    "difference(median, gender: margin)",
)  # fmt: skip
#: Methods, samples, and X: what main effects leave out is in none of their intervals, and shows in
#: differences between cells, whose errors are small.
PARTS = {
    "strict": (("sample", "fbs_noisy"), 100, "field + gender"),
    "strict_interactions": (("sample", "fbs_noisy"), 100, "field * gender"),
    "pseudo": (("sample", "fbs"), 40, "field + gender"),
}


def study_of(part: str, samples: int | None = None) -> CoverageStudy:
    """One part, with its own number of samples or another."""
    methods, replicates, predictors = PARTS[part]
    made = paper_study(
        seed=SEED, replicates=samples or replicates, methods=methods, bounds=(EPSILON / 6.0,),
        batch=min(samples or replicates, 12), design=SamplingDesign(n=1000), statistics=STATISTICS,
    )  # fmt: skip
    return replace(made, population=replace(made.population, predictors=predictors))


def main() -> None:
    """Run the parts, or go on with them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--samples", type=int)
    given = parser.parse_args()
    os.nice(10)
    summary, text = GOLDEN / "statistics_study.csv", GOLDEN / "statistics_study.json"
    facts = json.loads(text.read_text(encoding="utf-8"))["parts"]
    kept = dict(tuple(pd.read_csv(summary).groupby("part", sort=False)))
    for part in given.parts:
        began = time.process_time()
        study = study_of(part, given.samples)
        result = write_study(
            study, given.out / part, resume=True, workers=1,
            progress=lambda line, k, total: print(f"{k}/{total} {line}", flush=True),
        )  # fmt: skip
        kept[part] = result.summary.assign(part=part).round(4)
        facts[part] = {
            "samples": study.replicates,
            "processor_seconds": round(time.process_time() - began),
        }
        pd.concat([kept[name] for name in PARTS if name in kept]).to_csv(
            summary, index=False, lineterminator="\n"
        )
        found = {"date": date.today().isoformat(), "seed": SEED, "epsilon": EPSILON, "parts": facts}
        text.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(kept[part].round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
