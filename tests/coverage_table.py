"""The table of methods 8, by simulation: ``python -m tests.coverage_table DIR`` (some minutes).

100 samples of the published design, every method at bound 1.8 (epsilon 10.8, m = 3), six datasets a
draw; with ``--paper`` the settings of the published simulation instead. The study goes to DIR, its
summary and its cells to ``tests/golden/coverage_<setting>_*.csv``, beside what it was made with.
"""

import argparse
import json
import os
import platform
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

from surveysynth.privacy.budget import MechanismSettings
from surveysynth.studies.coverage import CoverageStudy, paper_study
from surveysynth.studies.run import CELLS_NAME, StudyResult, write_study

GOLDEN = Path(__file__).parent / "golden"
SEED = 20260101
MODELS = ("fbs", "fbp")


def default_setting(replicates: int = 100) -> CoverageStudy:
    """Fixed-point weights, ratio linearisation, inference as in the paper and debiased."""
    models = [f"{model}{suffix}" for model in MODELS for suffix in ("_paper", "")]
    return paper_study(
        seed=SEED,
        replicates=replicates,
        methods=("sample", "laplace", "laplace_consistent", *models),
        replicates_per_draw=6,
    )


def paper_setting(replicates: int = 100) -> CoverageStudy:
    """As published: linear weights, FBP smoothed by the outcome, plain linearisation; with strata
    and t quantiles ("_paper"), and with the conventions of the published tables ("_published")."""
    models = [f"{model}{suffix}" for model in MODELS for suffix in ("_paper", "_published")]
    return paper_study(
        seed=SEED,
        replicates=replicates,
        methods=("sample", "laplace", *models),
        settings=MechanismSettings(weights="linear"),
        replicates_per_draw=1,
        linearisation="plain",
        options={"fbp": {"smoothing": "outcome"}},
    )


SETTINGS = {"default": default_setting, "paper": paper_setting}


def keep(result: StudyResult, name: str, seconds: float) -> None:
    """Summary, cells and circumstances, for the tests and the documents."""
    result.summary.round(4).to_csv(
        GOLDEN / f"coverage_{name}_summary.csv", index=False, lineterminator="\n"
    )
    cells = (result.out / CELLS_NAME).read_text(encoding="utf-8")
    (GOLDEN / f"coverage_{name}_cells.csv").write_text(cells, encoding="utf-8")
    facts = {
        "date": date.today().isoformat(),
        "seconds": round(seconds),
        "processors": os.cpu_count(),
        "seed": SEED,
        "refusals": result.refusals.groupby("method")["sample"].nunique().to_dict(),
        "versions": {
            "python": platform.python_version(),
            **{each: version(each) for each in ("surveysynth", "numpy", "pandas", "scipy")},
        },
    }
    (GOLDEN / f"coverage_{name}.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


def main() -> None:
    """Run one setting, print its table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--paper", action="store_true", help="the settings of the publication")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--workers", type=int, default=None)
    arguments = parser.parse_args()
    name = "paper" if arguments.paper else "default"
    start = time.monotonic()

    def say(line: str, done: int, total: int) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {done}/{total}  {line}", flush=True)

    result = write_study(
        SETTINGS[name](),
        arguments.directory,
        resume=arguments.resume,
        workers=arguments.workers,
        progress=say,
    )
    keep(result, name, time.monotonic() - start)
    print(result.summary.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
