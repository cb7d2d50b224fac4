"""The table of methods 8, by simulation, in some minutes:
``python -m tests.long_runs.coverage_table DIR``.

100 samples of the published design, every method at bound 1.8 (epsilon 10.8, m = 3), six datasets a
draw; with ``--paper`` the settings of the published simulation instead, with ``--grid`` m = 1, 3, 5
and 10 at two bounds. The study goes to DIR with its report; its summary and its cells to
``tests/golden/coverage_<setting>_*.csv``, beside what it was made with.
"""

import argparse
import json
import os
import platform
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

from surveysynth.evaluation.studies.coverage import CoverageStudy, paper_study
from surveysynth.evaluation.studies.folder import CELLS_NAME, write_study
from surveysynth.evaluation.studies.work import StudyResult
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings

GOLDEN = Path(__file__).parents[1] / "golden"
SEED = 20260101
MODELS = ("fbs", "fbp")


def default_setting(replicates: int = 100) -> CoverageStudy:
    """Fixed-point weights, ratio linearisation, inference as in the paper and debiased."""
    models = [f"{model}{suffix}" for model in MODELS for suffix in ("_paper", "")]
    return paper_study(
        seed=SEED,
        replicates=replicates,
        methods=("sample", "laplace", *models),
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
        settings=MechanismSettings(
            epsilon=10.8, weights="linear", small_strata="allow", shared_weights="allow"
        ),
        replicates_per_draw=1,
        linearisation="plain",
        options={"fbp": {"smoothing": "outcome"}},
    )


def grid_setting(replicates: int = 100) -> CoverageStudy:
    """Numbers of draws and bounds of Figures 6, 7, 11 and 12, and one more number of draws: what
    privacy buys, with inference as in the paper and one dataset a draw as there."""
    return paper_study(
        seed=SEED,
        replicates=replicates,
        methods=("sample", "laplace", *(f"{model}_paper" for model in MODELS)),
        draws=(1, 3, 5, 10),
        bounds=(1.8, 3.4),
        replicates_per_draw=1,
    )


SETTINGS = {"default": default_setting, "paper": paper_setting, "grid": grid_setting}


def keep(result: StudyResult, name: str, seconds: float) -> None:
    """Summary, cells and circumstances, for the tests and the documents."""
    result.summary.round(4).to_csv(
        GOLDEN / f"coverage_{name}_summary.csv", index=False, lineterminator="\n"
    )
    if name != "grid":  # four times as many
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
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--paper", action="store_true", help="the settings of the publication")
    which.add_argument("--grid", action="store_true", help="m = 1, 3, 5, 10 and two bounds")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--workers", type=int, default=None)
    arguments = parser.parse_args()
    name = "paper" if arguments.paper else "grid" if arguments.grid else "default"
    start = time.monotonic()

    def say(line: str, done: int, total: int) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {done}/{total}  {line}", flush=True)

    result = write_study(
        SETTINGS[name](),
        arguments.directory,
        resume=arguments.resume,
        workers=arguments.workers,
        progress=say,
        report=True,
    )
    keep(result, name, time.monotonic() - start)
    print(result.summary.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
