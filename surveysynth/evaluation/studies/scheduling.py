"""Tasks of a study on this machine's processors or on a Dask cluster.

If a worker dies, its task runs again. A task that fails twice is given up, and the others continue.
Results do not depend on which worker runs what, or when.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from surveysynth._support.versions import THREAD_VARIABLES
from surveysynth.errors import InputError
from surveysynth.evaluation.studies.batches import run_task
from surveysynth.evaluation.studies.coverage import CoverageStudy, Task
from surveysynth.evaluation.studies.work import TaskResult

#: A task is given up after so many failures.
ATTEMPTS = 2

class Study(Protocol):
    """Tasks that may run in any order: a ``CoverageStudy``, or one that runs its own tasks."""

    @property
    def n_batches(self) -> int:
        """Number of batches of samples."""
        ...

    def tasks(self) -> list[Task]:
        """Return all tasks."""
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
    """Run all tasks, in processes of this machine or on the cluster at ``scheduler``.

    ``workers``: number of processes, None: one a processor; with one, the tasks run in this
    process, and a failure is raised. On Ctrl-C the workers are stopped.
    """
    if not tasks:
        return
    if scheduler is not None:
        _run_on_cluster(study, tasks, finished, scheduler)
    elif workers == 1:
        for task in tasks:
            finished(task, run_one(study, task))
    else:
        _run_in_processes(study, tasks, finished, workers or os.cpu_count() or 1)


def run_one(study: Any, task: Task) -> TaskResult:
    """Run one task of a study."""
    if isinstance(study, CoverageStudy):
        return run_task(study, task)
    made: TaskResult = study.run(task)
    return made


# --- Processes of this machine ------------------------------------------------------------------

_STUDY: list[Any] = []


def _start_worker(pickled: bytes) -> None:
    """Set up a worker: keep the study, and end with the parent process."""
    # Ctrl-C goes to the whole group; the parent stops its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _STUDY[:] = [pickle.loads(pickled)]


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _run_in_worker(task: Task) -> TaskResult:
    return run_one(_STUDY[0], task)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Give new processes one BLAS thread unless the caller's environment says otherwise."""
    added = [name for name in THREAD_VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@dataclass
class _Pool:
    """Processes that have the study; they are killed at the end."""

    pickled: bytes
    workers: int

    def __enter__(self) -> ProcessPoolExecutor:
        self.executor = ProcessPoolExecutor(
            self.workers,
            multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(self.pickled,),
        )
        return self.executor

    def __exit__(self, *exception: object) -> None:
        processes = list((getattr(self.executor, "_processes", None) or {}).values())
        self.executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def _run_in_processes(
    study: Study, tasks: Sequence[Task], finished: Finished, workers: int
) -> None:
    pickled = pickle.dumps(study)
    left = list(tasks)
    with _one_thread_each():
        while left:
            left, suspects = _run_side_by_side(pickled, left, finished, workers)
            # Each suspect runs alone, which shows the one that kills its worker.
            for task in suspects:
                _run_alone(pickled, task, finished)


def _run_side_by_side(
    pickled: bytes, tasks: Sequence[Task], finished: Finished, workers: int
) -> tuple[list[Task], list[Task]]:
    """Run tasks until all are done or a worker dies; return waiting and lost tasks."""
    waiting = list(tasks)
    running: dict[Future[TaskResult], Task] = {}
    with _Pool(pickled, min(workers, len(tasks))) as executor:
        while waiting or running:
            # No more tasks than workers, so that a death loses few of them.
            while waiting and len(running) < workers:
                try:
                    future = executor.submit(_run_in_worker, waiting[0])
                except BrokenExecutor:  # a worker died a moment ago
                    lost = _collect(running, finished)
                    return (waiting, lost) if lost else (waiting[1:], waiting[:1])
                running[future] = waiting.pop(0)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            lost = _collect({future: running.pop(future) for future in done}, finished)
            if lost:
                return waiting, [*lost, *_collect(running, finished)]
    return [], []


def _collect(running: dict[Future[TaskResult], Task], finished: Finished) -> list[Task]:
    """Wait for running tasks and hand over their results; return those that were lost."""
    lost = []
    for future, task in running.items():
        try:
            result = future.result()
        except Exception:
            lost.append(task)
        else:
            finished(task, result)
    return lost


def _run_alone(pickled: bytes, task: Task, finished: Finished) -> None:
    """Try a task a second time."""
    with _Pool(pickled, 1) as executor:
        try:
            result: TaskResult | str = executor.submit(_run_in_worker, task).result()
        except BrokenExecutor:
            result = f"the worker process died, {ATTEMPTS} times"
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    finished(task, result)


# --- A Dask cluster -----------------------------------------------------------------------------


def _unpickled(pickled: bytes) -> Any:
    return pickle.loads(pickled)


def _run_on_cluster(
    study: Study, tasks: Sequence[Task], finished: Finished, scheduler: str
) -> None:
    try:
        from dask.distributed import Client, as_completed
    except ImportError:
        raise InputError(
            "a scheduler needs dask.distributed: pip install 'surveysynth[cluster]'."
        ) from None
    try:
        client = Client(  # type: ignore[no-untyped-call]
            scheduler, timeout=20, set_as_default=False
        )
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None
    with client:
        # The study is the result of a task, not scattered data: if a worker dies with its copy,
        # another copy can be made.
        shared = client.submit(_unpickled, pickle.dumps(study), pure=False)
        running = {
            client.submit(run_one, shared, task, pure=False, retries=ATTEMPTS - 1): task
            for task in tasks
        }
        try:
            for future in as_completed(list(running), loop=client.loop):  # type: ignore[no-untyped-call]
                failure = future.exception()
                task = running[future]
                finished(task, future.result() if failure is None else _words(failure))
                future.release()
        except BaseException:
            client.cancel(list(running), force=True)  # type: ignore[no-untyped-call]
            raise


def _words(error: BaseException) -> str:
    if type(error).__name__ == "KilledWorker":
        return "the workers that ran it died"
    return f"{type(error).__name__}: {error}"
