"""Both mechanisms side by side, by simulation, in about an hour of one processor:
``python -m tests.long_runs.strict_study DIR``.

Samples of the published population, X main effects, epsilon 10.8, 3.6 and 1: the confidential
sample, noisy statistics (FBS, FBP), and FBS by the debiased pseudo-posterior; at 10,355 records
also with the default formula, which has interactions, and two-stage samples with clusters. Each
part is a study in a folder of DIR, which a second run goes on with; what is finished goes to
``tests/golden/strict_study*``. The first samples of a part with fewer are those of the others.
"""

import argparse
import json
import os
import platform
import time
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from surveysynth.evaluation.studies.coverage import CoverageStudy, paper_study, two_stage_study
from surveysynth.evaluation.studies.designs import SamplingDesign
from surveysynth.evaluation.studies.folder import CELLS_NAME, write_study
from surveysynth.evaluation.studies.work import StudyResult

GOLDEN = Path(__file__).parents[1] / "golden"
SEED = 20260101
EPSILONS = (10.8, 3.6, 1.0)
STRICT = ("sample", "fbs_noisy", "fbp_noisy")
CLUSTERED = ("sample", "fbs_noisy")
PSEUDO = ("sample", "fbs")


@dataclass(frozen=True)
class Part:
    """One study of the run."""

    n: int
    methods: tuple[str, ...]
    replicates: int
    epsilons: tuple[float, ...] = EPSILONS
    setting: str = "main effects"

    @property
    def name(self) -> str:
        """Of its folder."""
        kind = "strict" if "fbs_noisy" in self.methods else "pseudo"
        setting = "" if self.setting == "main effects" else f"_{self.setting.replace(' ', '_')}"
        epsilon = "" if len(self.epsilons) > 1 else f"_{self.epsilons[0]:g}"
        return f"{kind}_{self.n}{setting}{epsilon}"

    def study(self) -> CoverageStudy:
        """As it runs; all samples of a part side by side."""
        bounds = tuple(epsilon / 6.0 for epsilon in self.epsilons)  # m = 3
        batch = 6 if self.setting == "two stages" else 50  # many PSUs take much memory
        common = {"seed": SEED, "replicates": self.replicates, "methods": self.methods,
                  "bounds": bounds, "batch": min(self.replicates, batch)}  # fmt: skip
        if self.setting == "two stages":
            return two_stage_study(**common)
        made = paper_study(design=SamplingDesign(n=self.n), **common)
        if self.setting == "default formula":
            return made
        return replace(made, population=replace(made.population, predictors="field + gender"))


#: At epsilon 1 and 1,000 records the noise-aware chains mix slowly, and take most of the time.
PARTS = (
    Part(1000, STRICT, 300, (10.8, 3.6)),
    Part(10_355, STRICT, 40),
    Part(10_355, STRICT, 20, (10.8, 3.6), "default formula"),
    Part(1000, PSEUDO, 20, (10.8, 3.6)),
    Part(1000, STRICT, 20, (1.0,)),
    Part(10_355, PSEUDO, 4),
    Part(1000, CLUSTERED, 24, (10.8,), "two stages"),
)


def summary_of(part: Part, result: StudyResult) -> pd.DataFrame:
    """The summary with the number of records, refusals, and Monte Carlo errors of a cell."""
    keys = ["method", "epsilon", "statistic"]
    errors = result.cells.groupby(keys)[["coverage_mcse", "rmse_ratio_mcse"]].median()
    errors = errors.rename(columns={name: f"cell_{name}" for name in errors})
    made = result.summary.merge(errors.reset_index(), on=keys)
    made.insert(0, "n", part.n)
    made.insert(1, "part", part.name)
    made.insert(2, "setting", part.setting)
    made["refused"] = part.replicates - made["replicates"]
    return made.drop(columns="m")


def keep(done: dict[str, dict[str, object]], parts: dict[str, tuple[Part, StudyResult]]) -> None:
    """All parts that are finished, and how they were made."""
    summaries = [summary_of(*each) for each in parts.values()]
    pd.concat(summaries).round(4).to_csv(
        GOLDEN / "strict_study_summary.csv", index=False, lineterminator="\n"
    )
    texts = dict.fromkeys(("field", "stratum", "group"), str)
    cells = [
        pd.read_csv(result.out / CELLS_NAME, dtype=texts).assign(part=name)
        for name, (_, result) in parts.items()
    ]
    pd.concat(cells).to_csv(
        GOLDEN / "strict_study_cells.csv", index=False, lineterminator="\n", float_format="%.6g"
    )
    facts = {
        "date": date.today().isoformat(),
        "seed": SEED,
        "parts": done,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "surveysynth": version("surveysynth"),
    }
    (GOLDEN / "strict_study.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run all parts, or go on with them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", type=int, default=len(PARTS), help="the first of them alone")
    given = parser.parse_args()
    os.nice(10)
    facts = GOLDEN / "strict_study.json"
    known = json.loads(facts.read_text(encoding="utf-8"))["parts"] if facts.exists() else {}
    done: dict[str, dict[str, object]] = {}
    finished: dict[str, tuple[Part, StudyResult]] = {}
    for part in PARTS[: given.parts]:
        began = time.perf_counter(), time.process_time()
        result = write_study(
            part.study(), given.out / part.name, resume=True, workers=1,
            progress=lambda line, k, total: print(f"{k}/{total} {line}", flush=True),
        )  # fmt: skip
        done[part.name] = {
            "n": part.n,
            "samples": part.replicates,
            "epsilons": part.epsilons,
            "wall_seconds": round(time.perf_counter() - began[0]),
            "processor_seconds": round(time.process_time() - began[1]),
            "refusals": result.refusals.groupby(["method", "reason"]).size().reset_index(
                name="count").to_dict("records"),
        }  # fmt: skip
        before = known.get(part.name, {})
        if before.get("processor_seconds", 0) > done[part.name]["processor_seconds"]:
            # It was there: the time is that of the run that made it.
            done[part.name] |= {k: before[k] for k in ("wall_seconds", "processor_seconds")}
        finished[part.name] = part, result
        keep(done, finished)
        print(summary_of(part, result).round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
