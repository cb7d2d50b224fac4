"""Tasks of a study in this process, or on a Dask cluster: one of this machine, or a running one.

If a worker dies, its task runs again. A task that fails twice, or whose workers die again and
again, is given up, and the others continue. Results do not depend on which worker runs what, or
when.
"""

import logging
import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from surveysynth.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

#: A task is given up after so many failures.
ATTEMPTS = 2


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
    """Replicates (see ``measures``), and refusals with their reasons."""

    replicates: "pd.DataFrame"
    refusals: "pd.DataFrame"


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
    """Return a client of the scheduler, or of one that ``stack`` ends with its workers."""
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
        return Client(given, timeout=20, set_as_default=False)  # type: ignore[no-untyped-call]
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
            future = client.submit(_run_one, shared, task, pure=False, retries=ATTEMPTS - 1)
            of[future] = task
            running.add(future)

    try:
        fill()
        for future in running:
            failure = future.exception()
            finished(of.pop(future), future.result() if failure is None else _words(failure))
            future.release()
            fill()
    except BaseException:
        client.cancel(list(of), force=True)
        raise


def _run_one(study: Study, task: Task) -> TaskResult:
    return study.run(task)


def _words(error: BaseException) -> str:
    if type(error).__name__ == "KilledWorker":
        return "the workers that ran it died"
    return f"{type(error).__name__}: {error}"
