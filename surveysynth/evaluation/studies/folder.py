"""The folder of a study: what it is of, results of finished tasks, and the names of its files."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth._support.fragment import fragment
from surveysynth.errors import InputError
from surveysynth.evaluation.studies.coverage import CoverageStudy, Task
from surveysynth.evaluation.studies.work import TaskResult

if TYPE_CHECKING:
    import pandas as pd

STUDY_NAME, BATCHES = "study.json", "batches"
CELLS_NAME, SUMMARY_NAME, REPLICATES_NAME = "cells.csv", "summary.csv", "replicates.parquet"
REFUSALS_NAME, REPORT_NAME, FIGURES = "refusals.csv", "report.html", "figures"


@dataclass(frozen=True, repr=False)
class StudyResult:
    """What a study found: replicates, cells (one row each), summary by method, refusals, and the
    tasks that failed, with the reason."""

    out: Path
    replicates: "pd.DataFrame"
    cells: "pd.DataFrame"
    summary: "pd.DataFrame"
    refusals: "pd.DataFrame"
    failed: dict[str, str]

    def _repr_html_(self) -> str:
        """Measures by method, for notebooks."""
        failed = f"Batches that failed: {len(self.failed):,}." if self.failed else ""
        return fragment(
            "Study",
            mark=failed,
            lines=[f"Report: {self.out / REPORT_NAME}."],
            frames=[("Medians over cells and margins", self.summary)],
        )


def fingerprint(study: CoverageStudy) -> dict[str, Any]:
    """What makes two studies the same: every setting that a method has a use for, and a hash of the
    population."""
    import pandas as pd

    population = study.population
    hashed = hashlib.sha256(pd.util.hash_pandas_object(population.frame).to_numpy().tobytes())
    hashed.update("\0".join(map(str, population.frame.columns)).encode())
    return {
        "population": {
            "sha256": hashed.hexdigest(),
            "units": population.n_units,
            "outcome": population.outcome,
            "by": population.by,
            "strata": population.strata,
            "size": population.size,
            "psu": population.psu,
            "transforms": [asdict(each) for each in population.transforms],
            "predictors": population.predictors,
        },
        "design": asdict(study.design),
        "methods": study.methods,
        "replicates": study.replicates,
        "seed": study.seed,
        "draws": study.draws,
        "bounds": study.bounds,
        "mechanism": _settings(study),
        "replicates_per_draw": study.replicates_per_draw,
        "statistics": study.statistics,
        "linearisation": study.linearisation,
        "level": study.level,
        "options": study.options,
        "batch": study.batch,
        "debias_plan": asdict(study.debias_plan),
        "design_effect": study.design_effect,
        # Part of what makes a study only where something runs with it.
        **({"strict": study.noise.as_dict()} if study.strict_methods else {}),
    }


def _settings(study: CoverageStudy) -> dict[str, Any]:
    settings = {**vars(study.settings), "plan": asdict(study.settings.plan)}
    settings["risk"] = study.settings.measure.name
    return settings


def open_folder(folder: Path, study: CoverageStudy, *, resume: bool) -> None:
    """Make the folder, or see that it is one of this study."""
    mine = json.loads(json.dumps(fingerprint(study)))
    path = folder / STUDY_NAME
    if folder.exists() and any(folder.iterdir()):
        if not resume:
            raise InputError(
                f"the folder {folder} exists; name another, or go on with --resume."
            )
        try:
            theirs = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"{folder} does not hold a study to go on with.") from None
        changed = sorted(key for key in mine if theirs.get(key) != mine[key])
        if changed:
            raise InputError(
                f"the study in {folder} was made with other settings ({', '.join(changed)}); give "
                "the same specification, seed and number of replicates, or name another folder."
            )
    (folder / BATCHES).mkdir(parents=True, exist_ok=True)
    _replace(path, json.dumps(mine, indent=1).encode())


class Store:
    """Results of finished tasks, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, task: Task, kind: str) -> Path:
        return self._folder / f"{task.name}.{kind}.parquet"

    def has(self, task: Task) -> bool:
        """Whether the task is finished; the replicates are written last."""
        return self._path(task, "replicates").is_file()

    def write(self, task: Task, result: TaskResult) -> None:
        """Keep a result, whole or not at all."""
        for kind in ("refusals", "replicates"):
            path = self._path(task, kind)
            partial = path.with_suffix(".partial")
            getattr(result, kind).to_parquet(partial, index=False)
            _flush(partial)
            os.replace(partial, path)

    def read(self, task: Task) -> TaskResult:
        """A result as it was written."""
        import pandas as pd

        replicates, refusals = (
            pd.read_parquet(self._path(task, kind)) for kind in ("replicates", "refusals")
        )
        return TaskResult(replicates, refusals)


def _replace(path: Path, content: bytes) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    _flush(partial)
    os.replace(partial, path)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
