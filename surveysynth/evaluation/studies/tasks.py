"""Tasks of a study, in this process or on a Dask cluster, and the folder that keeps their results.

If a worker dies, its task runs again. A task that fails twice, or whose workers die again and
again, is given up, and the others continue. Results do not depend on which worker runs what, or
when. Every finished task is written at once, whole or not at all: a study that was stopped, by
Ctrl-C or a power cut, can be resumed with the missing tasks and ends with the same files.
"""

import json
import logging
import math
import os
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from surveysynth._support.messages import duration
from surveysynth.errors import InputError, StoppedError

#: A task is given up after so many failures.
ATTEMPTS = 2
#: Seconds that a scheduler has to answer.
PATIENCE = 20


@dataclass(frozen=True, order=True)
class Task:
    """One sample (from 0) by one group of methods."""

    sample: int
    group: str

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.sample:05d}_{self.group}"


@dataclass(frozen=True)
class TaskResult:
    """Replicates (see ``results``), and refusals with their reasons."""

    replicates: pd.DataFrame
    refusals: pd.DataFrame


class Study(Protocol):
    """Tasks that may run anywhere, in any order."""

    @property
    def replicates(self) -> int:
        """Number of samples."""
        ...

    def tasks(self) -> list[Task]:
        """Return all tasks."""
        ...

    def run(self, task: Task) -> TaskResult:
        """Run one task."""
        ...


Finished = Callable[[Task, TaskResult | str], None]
"""Called once for each task, when it ends: its result, or why it was given up, in words."""


def run_tasks(
    study: Study,
    tasks: Sequence[Task],
    finished: Finished,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
) -> None:
    """Run all tasks on workers of this machine, or on the cluster at ``scheduler``.

    ``workers``: number of processes, None: one a processor; with one, the tasks run in this
    process, and a failure is raised. Raises ``InputError`` without Dask and for a scheduler that
    does not answer.
    """
    if not tasks:
        return
    workers = min(workers or os.cpu_count() or 1, len(tasks))
    if scheduler is None and workers == 1:
        for task in tasks:
            finished(task, study.run(task))
        return
    with ExitStack() as stack:
        client = stack.enter_context(_client(scheduler, workers, stack))
        _run(client, study, tasks, finished)


def _client(scheduler: str | None, workers: int, stack: ExitStack) -> Any:
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        raise InputError(
            "several workers and schedulers need dask.distributed: pip install "
            "'surveysynth[cluster]', or give --workers 1."
        ) from None
    given: Any = scheduler
    if scheduler is None:
        # Each worker has one BLAS thread, and ends with this process.
        given = stack.enter_context(LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=workers, threads_per_worker=1, dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ))  # fmt: skip
    try:
        return Client(given, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None


def _run(client: Any, study: Study, tasks: Sequence[Task], finished: Finished) -> None:
    from dask.distributed import as_completed

    # The study is the result of a task, not scattered data: if a worker dies with its copy, another
    # copy can be made.
    shared = client.submit(pickle.loads, pickle.dumps(study), pure=False)
    waiting = iter(tasks)
    running: Any = as_completed(loop=client.loop)  # type: ignore[no-untyped-call]
    of: dict[Any, Task] = {}

    def fill() -> None:
        # No more tasks than threads, so that a death is blamed on few of them.
        free = max(1, sum(client.nthreads().values())) - len(of)
        for task in islice(waiting, max(free, 0)):
            future = client.submit(type(study).run, shared, task, pure=False, retries=ATTEMPTS - 1)
            of[future] = task
            running.add(future)

    try:
        fill()
        for future in running:
            failure = future.exception()
            if failure is None:
                made = future.result()
            elif type(failure).__name__ == "KilledWorker":
                made = "the workers that ran it died"
            else:
                made = f"{type(failure).__name__}: {failure}"
            finished(of.pop(future), made)
            future.release()
            fill()
    except BaseException:
        client.cancel(list(of), force=True)
        raise


STUDY_NAME, TASKS = "study.json", "tasks"
SUMMARY_NAME, REPLICATES_NAME = "summary.csv", "replicates.parquet"
REFUSALS_NAME, REPORT_NAME, FIGURES = "refusals.csv", "report.html", "figures"


def open_folder(folder: Path, identity: dict[str, Any], *, resume: bool) -> "Store":
    """Make the folder, or check that it belongs to the study with this identity.

    It may have more samples than it had, since tasks do not depend on their number."""
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
        if theirs.get("replicates", math.inf) < mine["replicates"]:
            changed.discard("replicates")
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
    """Results of finished tasks: two files each, or in memory for a study without a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.place, self._memory = "memory", dict[Task, TaskResult]()
        self.kept = (
            "nothing was kept, since the study has no folder; give out to be able to continue."
        )
        self._folder = None if folder is None else folder / TASKS
        if folder is not None:
            self.place = str(folder)
            self.kept = (
                f"the finished tasks are in {folder}, and --resume continues with the others."
            )

    def has(self, task: Task) -> bool:
        """Return whether the task is finished; the replicates are written last."""
        if self._folder is None:
            return task in self._memory
        return (self._folder / f"{task.name}.replicates.parquet").is_file()

    def write(self, task: Task, result: TaskResult) -> None:
        """Keep a result, whole or not at all."""
        if self._folder is None:
            self._memory[task] = result
            return
        for kind in ("refusals", "replicates"):
            content = getattr(result, kind).to_parquet(None, index=False)
            replace_file(self._folder / f"{task.name}.{kind}.parquet", content)

    def read(self, task: Task) -> TaskResult:
        """Read a result."""
        if self._folder is None:
            return self._memory[task]
        of_task = self._folder / task.name
        kinds = ("replicates", "refusals")
        return TaskResult(*(pd.read_parquet(f"{of_task}.{kind}.parquet") for kind in kinds))


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


Progress = Callable[[str, int, int], None]
"""Called with a line, and how many of how many tasks are done."""


def run_missing(
    study: Study,
    store: Store,
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
