"""The folder of a study: batches as they finish, then measures, tables and figures.

Every finished batch is written at once, whole or not at all. A study that was stopped, by Ctrl-C or
a power cut, can be resumed with the missing batches and ends with the same files.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from surveysynth.errors import IncompleteError, InputError, StoppedError
from surveysynth.evaluation.studies.coverage import CoverageStudy, Task
from surveysynth.evaluation.studies.measures import KEYS, measure_cells, summarise_methods
from surveysynth.evaluation.studies.report import write_report
from surveysynth.evaluation.studies.scheduling import Study, run_tasks
from surveysynth.evaluation.studies.work import StudyResult, TaskResult

if TYPE_CHECKING:
    import pandas as pd

STUDY_NAME, BATCHES = "study.json", "batches"
CELLS_NAME, SUMMARY_NAME, REPLICATES_NAME = "cells.csv", "summary.csv", "replicates.parquet"
REFUSALS_NAME = "refusals.csv"


def fingerprint(study: CoverageStudy) -> dict[str, Any]:
    """Return what identifies a study: all settings that its methods use, and a population hash."""
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
        # Settings of noise identify a study only if a method uses them.
        **({"strict": study.noise.as_dict()} if study.strict_methods else {}),
    }


def _settings(study: CoverageStudy) -> dict[str, Any]:
    settings = {**vars(study.settings), "plan": asdict(study.settings.plan)}
    settings["risk"] = study.settings.measure.name
    return settings


def open_folder(
    folder: Path, identity: dict[str, Any], *, resume: bool, may_grow: str | None = None
) -> "Store":
    """Make the folder, or check that it belongs to the study with this identity.

    may_grow: a number of the identity that may be larger than it was, where batches do not depend
    on it."""
    mine = json.loads(json.dumps(identity))
    path = folder / STUDY_NAME
    if folder.exists() and any(folder.iterdir()):
        if not resume:
            raise InputError(
                f"the folder {folder} exists; name another, or continue with --resume."
            )
        try:
            theirs = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise InputError(f"{folder} holds no study to resume.") from None
        changed = {key for key in mine if theirs.get(key) != mine[key]}
        if may_grow in changed and theirs.get(may_grow, math.inf) < mine[may_grow]:
            changed.discard(may_grow)
        if changed:
            names = ", ".join(sorted(changed))
            raise InputError(
                f"the study in {folder} was made with other settings ({names}); give the same "
                "specification, seed and number of replicates, or name another folder."
            )
    (folder / BATCHES).mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(mine, indent=1).encode())
    return Store(folder)


class Store:
    """Results of finished tasks, one file each."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self.kept = (
            f"the finished batches are in {folder}, and --resume continues with the others."
        )
        self._folder = folder / BATCHES

    def _path(self, task: Task, kind: str) -> Path:
        return self._folder / f"{task.name}.{kind}.parquet"

    def has(self, task: Task) -> bool:
        """Return whether the task is finished; the replicates are written last."""
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
        """Read a result."""
        replicates, refusals = (
            pd.read_parquet(self._path(task, kind)) for kind in ("replicates", "refusals")
        )
        return TaskResult(replicates, refusals)


class MemoryStore:
    """Results of finished tasks, for a study without a folder."""

    place = "memory"
    kept = "nothing was kept, since the study has no folder; give out to be able to continue."

    def __init__(self) -> None:
        self._results: dict[Task, TaskResult] = {}

    def has(self, task: Task) -> bool:
        """Return whether the task is finished."""
        return task in self._results

    def write(self, task: Task, result: TaskResult) -> None:
        """Keep a result."""
        self._results[task] = result

    def read(self, task: Task) -> TaskResult:
        """Return a result."""
        return self._results[task]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    _flush(partial)
    os.replace(partial, path)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


Progress = Callable[[str, int, int], None]
"""Called with a line, and how many of how many tasks are done."""


def write_study(
    study: CoverageStudy,
    out: str | Path,
    *,
    resume: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    report: bool = False,
) -> StudyResult:
    """Run a study and write it to ``out``, a new folder or, with ``resume``, one of this study.

    scheduler: address of a Dask scheduler; without it, ``workers`` processes run on this machine
    (None: one a processor). report: also figures and a page that shows them.
    Raises ``InputError`` for a folder that exists or holds another study,
    ``StoppedError`` when interrupted, and ``IncompleteError``, after everything was written, when
    batches failed.
    """
    folder = Path(out).expanduser().resolve()
    store = open_folder(folder, fingerprint(study), resume=resume)
    failed = run_batches(study, store, scheduler=scheduler, workers=workers, progress=progress)
    result = _collect(study, store, folder, failed)
    if report:
        write_report(study, result)
    require_complete(failed, len(study.tasks()), folder)
    return result


def require_complete(failed: dict[str, str], tasks: int, folder: Path | str) -> None:
    """Raise ``IncompleteError`` if any of so many tasks failed, once all is written."""
    if not failed:
        return
    reasons = "; ".join(f"{name}: {why}" for name, why in sorted(failed.items()))
    raise IncompleteError(
        f"{len(failed)} of {tasks} batches failed twice; the measures in {folder} cover "
        f"the others, and --resume tries again. {reasons}"
    )


def run_batches(
    study: Study,
    store: Store | MemoryStore,
    *,
    scheduler: str | None,
    workers: int | None,
    progress: Progress | None,
) -> dict[str, str]:
    """Run the tasks that a store lacks; return why tasks failed, by name.

    Arguments and errors are those of ``write_study``.
    """
    tasks = study.tasks()
    left = [task for task in tasks if not store.has(task)]
    say = progress or (lambda line, done, total: None)
    failed: dict[str, str] = {}
    done = len(tasks) - len(left)
    say("starting" if not done else f"{done} of {len(tasks)} batches are there", done, len(tasks))

    def finished(task: Task, result: TaskResult | str) -> None:
        nonlocal done
        done += 1
        if isinstance(result, str):
            failed[task.name] = result
        else:
            store.write(task, result)
        say(f"{task.group}, batch {task.batch + 1} of {study.n_batches}", done, len(tasks))

    try:
        run_tasks(study, left, finished, scheduler=scheduler, workers=workers)
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; {store.kept}") from None
    return failed


def _collect(
    study: CoverageStudy, store: Store, folder: Path, failed: dict[str, str]
) -> StudyResult:
    """Measure the finished tasks, in the order of the tasks."""
    tasks = [task for task in study.tasks() if store.has(task)]
    if not any(task.group == "noise" for task in tasks):
        raise IncompleteError(f"no batch of the sample succeeded: {'; '.join(failed.values())}")
    read = [store.read(task) for task in tasks]
    replicates = pd.concat([each.replicates for each in read], ignore_index=True)
    refusals = pd.concat([each.refusals for each in read], ignore_index=True)
    cells = measure_cells(replicates, study.truth())
    summary = summarise_methods(replicates, cells)
    write_csv(_labelled(study, cells), folder / CELLS_NAME)
    write_csv(summary, folder / SUMMARY_NAME)
    write_csv(refusals, folder / REFUSALS_NAME)
    _labelled(study, replicates).to_parquet(folder / REPLICATES_NAME, index=False)
    return StudyResult(folder, replicates, cells, summary, refusals, failed)


def _labelled(study: CoverageStudy, frame: "pd.DataFrame") -> "pd.DataFrame":
    """Replace the row by the by-columns; drop m, epsilon and outcome if all rows share them."""
    table = study.domains(study.population.frame).table
    labels = table.drop(columns="is_margin").iloc[frame["row"]].reset_index(drop=True)
    several = {"m": len(study.draws) > 1, "epsilon": len(study.epsilons) > 1,
               "outcome": len(study.population.outcome) > 1}  # fmt: skip
    keys = [name for name in KEYS if name != "row" and several.get(name, True)]
    rest = [name for name in frame.columns if name not in KEYS]
    return frame[keys].join(labels).join(frame[rest])


def write_csv(frame: "pd.DataFrame", path: Path) -> None:
    """Write a frame without its index."""
    frame.to_csv(path, index=False, lineterminator="\n")
