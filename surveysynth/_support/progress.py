"""Progress of a long command: stages by name, never anything computed from data."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

P = ParamSpec("P")
R = TypeVar("R")

# Long steps report these names, and the lists below contain them, so that a bar moves at each.
COMPILING = "compiling the Stan program"
READING = "reading the survey"
UNWEIGHTED_FIT = "unweighted fit"
RISK_WEIGHTS = "risk weights for the target epsilon"
CONVERGENCE = "convergence"
NOISE = "noisy statistics"
POSTERIOR = "posterior under the noise"
DEBIASING = "debiasing by simulation"
SYNTHESIS = "synthetic data"
DOCUMENTS = "tables and documents"
NOISY_TABLES = "sample and noisy tables"
REPORT = "figures and report"
WRITING = "writing"


def synthesizer_stage(model: str) -> str:
    """Return the stage of a comparison in which one synthesizer runs."""
    return f"synthesizer {model}"


def more_rounds(rounds: int, r_hat: float) -> str:
    """Return the message for chains given noise that continue: a function of noisy numbers."""
    return f"{POSTERIOR}: {rounds} more rounds, since R-hat is {r_hat:.2f}"


#: Stages in the order of a run, which may skip some.
RELEASE_STAGES = (
    READING, COMPILING, UNWEIGHTED_FIT, RISK_WEIGHTS, CONVERGENCE, NOISE, POSTERIOR, DEBIASING,
    SYNTHESIS, DOCUMENTS, WRITING,
)  # fmt: skip
REBUILD_STAGES = (READING, SYNTHESIS, DOCUMENTS)
ADEQUACY_STAGES = (READING, SYNTHESIS)
COMPARISON_STAGES = (
    READING, NOISY_TABLES, *map(synthesizer_stage, ("fbs", "fbp", "fbs_noisy", "fbp_noisy")),
    REPORT, WRITING,
)  # fmt: skip


def in_notebook() -> bool:
    """Return True in the kernel of a notebook, where IPython runs without a terminal."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if callable(get_ipython) else None
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """The output of the running cell: each call replaces it, and the last one clears it."""

    def __enter__(self) -> "NotebookBar":
        self._display: Any = import_module("IPython.display")
        self._handle = self._display.display(self._display.HTML(""), display_id=True)
        return self

    def __call__(self, words: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` parts are finished and that ``words`` begins.

        No part is counted if ``total`` is zero.
        """
        self._handle.update(self._display.HTML(bar_html(words, done, total)))

    def __exit__(self, *error: object) -> None:
        self._handle.update(self._display.HTML(""))


def bar_html(words: str, done: int, total: int) -> str:
    """Return the bar with its label, which screen readers announce."""
    shown = escape(words)
    if not total:
        return f'<div role="status">surveysynth: {shown}</div>'
    return (
        f'<div><progress max="{total}" value="{done}" aria-label="{shown}"></progress> '
        f"surveysynth: {shown} ({done} of {total})</div>"
    )


class StageReporter:
    """A progress bar on a terminal or in a notebook; elsewhere one line per stage on stderr.

    The bar counts stages alone: how often the mechanism refits depends on confidential records.
    """

    def __init__(self, stages: tuple[str, ...] = RELEASE_STAGES) -> None:
        self._stages = stages
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._notebook: NotebookBar | None = None

    def __enter__(self) -> "StageReporter":
        if in_notebook():
            self._notebook = NotebookBar().__enter__()
        elif sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
            from rich.progress import TimeElapsedColumn as Elapsed

            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Elapsed())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("starting", total=len(self._stages))
        return self

    def __call__(self, stage: str) -> None:
        """Report that ``stage`` begins."""
        if self._notebook is not None:
            known = stage in self._stages
            self._notebook(
                stage, self._stages.index(stage) if known else 0, len(self._stages) * known
            )
            return
        if self._bar is None or self._task is None:
            print(f"surveysynth: {stage}", file=sys.stderr, flush=True)
            return
        self._bar.update(self._task, description=stage)
        if stage in self._stages:
            self._bar.update(self._task, completed=self._stages.index(stage))

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._notebook is not None:
            self._notebook.__exit__()


def _shows(
    bar: Callable[[], AbstractContextManager[Any]],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to show a bar in a notebook, unless its ``progress`` is given."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def showing(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs.get("progress") is not None or not in_notebook():
                return function(*args, **kwargs)
            with bar() as kwargs["progress"]:
                return function(*args, **kwargs)

        return showing

    return decorate


def shows_stages(
    stages: tuple[str, ...] = RELEASE_STAGES,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function whose ``progress`` is called with each stage: a bar in a notebook."""
    return _shows(lambda: StageReporter(stages))


def shows_parts(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose ``progress`` is called with a line, parts done and total parts."""
    return _shows(NotebookBar)(function)


def report_count(line: str, done: int, total: int) -> None:
    """Print one line on stderr for each finished part of long work."""
    print(f"surveysynth: {done}/{total} {line}", file=sys.stderr, flush=True)
