"""A coverage study on disk: batches as they finish, then measures, tables and figures.

Every finished batch is written at once, whole or not at all. What was stopped, by Ctrl-C or by
a power cut, goes on with the batches that are missing and ends with the same files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from surveysynth.errors import IncompleteError, StoppedError
from surveysynth.evaluation.studies.coverage import CoverageStudy, Task
from surveysynth.evaluation.studies.folder import (
    BATCHES,
    CELLS_NAME,
    REFUSALS_NAME,
    REPLICATES_NAME,
    SUMMARY_NAME,
    Store,
    StudyResult,
    open_folder,
)
from surveysynth.evaluation.studies.measures import KEYS, measure_cells, summarise_methods
from surveysynth.evaluation.studies.scheduling import run_tasks
from surveysynth.evaluation.studies.work import TaskResult

if TYPE_CHECKING:
    import pandas as pd

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
    open_folder(folder, study, resume=resume)
    store = Store(folder / BATCHES)
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
        raise StoppedError(
            f"interrupted; the batches that were finished are in {folder}, and --resume goes on "
            "with the others."
        ) from None
    result = _collect(study, store, folder, failed)
    if report:
        from surveysynth.evaluation.studies.report import write_report

        write_report(study, result)
    if failed:
        reasons = "; ".join(f"{name}: {why}" for name, why in sorted(failed.items()))
        raise IncompleteError(
            f"{len(failed)} of {len(tasks)} batches failed twice; the measures in {folder} are of "
            f"the others, and --resume tries again. {reasons}"
        )
    return result


def _collect(
    study: CoverageStudy, store: Store, folder: Path, failed: dict[str, str]
) -> StudyResult:
    """Measures of what is there, in the order of the tasks, whoever finished first."""
    import pandas as pd

    tasks = [task for task in study.tasks() if store.has(task)]
    if not any(task.group == "noise" for task in tasks):
        raise IncompleteError(f"no batch of the sample succeeded: {'; '.join(failed.values())}")
    read = [store.read(task) for task in tasks]
    replicates = pd.concat([each.replicates for each in read], ignore_index=True)
    refusals = pd.concat([each.refusals for each in read], ignore_index=True)
    cells = measure_cells(replicates, study.truth())
    summary = summarise_methods(replicates, cells)
    _write_csv(_labelled(study, cells), folder / CELLS_NAME)
    _write_csv(summary, folder / SUMMARY_NAME)
    _write_csv(refusals, folder / REFUSALS_NAME)
    _labelled(study, replicates).to_parquet(folder / REPLICATES_NAME, index=False)
    return StudyResult(folder, replicates, cells, summary, refusals, failed)


def _labelled(study: CoverageStudy, frame: "pd.DataFrame") -> "pd.DataFrame":
    """With the by-columns in place of the row; m, epsilon and outcome where there are several."""
    table = study.domains(study.population.frame).table
    labels = table.drop(columns="is_margin").iloc[frame["row"]].reset_index(drop=True)
    several = {"m": len(study.draws) > 1, "epsilon": len(study.epsilons) > 1,
               "outcome": len(study.population.outcome) > 1}  # fmt: skip
    keys = [name for name in KEYS if name != "row" and several.get(name, True)]
    rest = [name for name in frame.columns if name not in KEYS]
    return frame[keys].join(labels).join(frame[rest])


def _write_csv(frame: "pd.DataFrame", path: Path) -> None:
    frame.to_csv(path, index=False, lineterminator="\n")
