"""The folder of a study: each task as it finishes, then measures, tables and figures.

Every finished task is written at once, whole or not at all. A study that was stopped, by Ctrl-C or
a power cut, can be resumed with the missing tasks and ends with the same files.
"""

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from surveysynth._support.messages import duration
from surveysynth.errors import IncompleteError, InputError, StoppedError
from surveysynth.evaluation.studies.scheduling import Study, Task, TaskResult, run_tasks

if TYPE_CHECKING:
    import pandas as pd

STUDY_NAME, TASKS = "study.json", "tasks"
SUMMARY_NAME, REPLICATES_NAME = "summary.csv", "replicates.parquet"
REFUSALS_NAME, REPORT_NAME, FIGURES = "refusals.csv", "report.html", "figures"


def open_folder(
    folder: Path, identity: dict[str, Any], *, resume: bool, may_grow: str | None = None
) -> "Store":
    """Make the folder, or check that it belongs to the study with this identity.

    may_grow: a number of the identity that may be larger than it was, where tasks do not depend
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
    (folder / TASKS).mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(mine, indent=1).encode())
    return Store(folder)


class Store:
    """Results of finished tasks, one file each."""

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self.kept = (
            f"the finished tasks are in {folder}, and --resume continues with the others."
        )
        self._folder = folder / TASKS

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


def require_complete(failed: dict[str, str], tasks: int, folder: Path | str) -> None:
    """Raise ``IncompleteError`` if any of so many tasks failed, once all is written."""
    if not failed:
        return
    reasons = "; ".join(f"{name}: {why}" for name, why in sorted(failed.items()))
    raise IncompleteError(
        f"{len(failed)} of {tasks} tasks failed again; the measures in {folder} cover "
        f"the others, and --resume tries again. {reasons}"
    )


def run_missing(
    study: Study,
    store: Store | MemoryStore,
    *,
    scheduler: str | None,
    workers: int | None,
    progress: Progress | None,
) -> dict[str, str]:
    """Run the tasks that a store lacks; return why tasks failed, by name.

    Raises ``StoppedError`` when interrupted; other arguments and errors are those of ``run_tasks``.
    """
    tasks = study.tasks()
    left = [task for task in tasks if not store.has(task)]
    say = progress or (lambda line, done, total: None)
    failed: dict[str, str] = {}
    done = before = len(tasks) - len(left)
    started = time.monotonic()
    say("starting" if not done else f"{done} of {len(tasks)} tasks are there", done, len(tasks))

    def finished(task: Task, result: TaskResult | str) -> None:
        nonlocal done
        done += 1
        if isinstance(result, str):
            failed[task.name] = result
        else:
            store.write(task, result)
        each = (time.monotonic() - started) / (done - before)
        rest = f"; {duration(each * (len(tasks) - done))} left" if done < len(tasks) else ""
        say(f"{task.group}, sample {task.sample + 1} of {study.replicates}{rest}", done, len(tasks))

    try:
        run_tasks(study, left, finished, scheduler=scheduler, workers=workers)
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; {store.kept}") from None
    return failed


def write_csv(frame: "pd.DataFrame", path: Path) -> None:
    """Write a frame without its index."""
    frame.to_csv(path, index=False, lineterminator="\n")
