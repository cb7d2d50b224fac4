"""What a long command shows while it works: stages by name, never anything computed from data."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# What works says these, and the lists below hold them, so that a bar moves at every one.
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
    """The stage of a comparison in which one synthesizer runs."""
    return f"synthesizer {model}"


#: In the order in which they are said; a run may leave some out.
RELEASE_STAGES = (
    READING,
    COMPILING,
    UNWEIGHTED_FIT,
    RISK_WEIGHTS,
    CONVERGENCE,
    NOISE,
    POSTERIOR,
    DEBIASING,
    SYNTHESIS,
    DOCUMENTS,
    WRITING,
)
REBUILD_STAGES = (READING, POSTERIOR, SYNTHESIS, DOCUMENTS)
COMPARISON_STAGES = (
    READING,
    NOISY_TABLES,
    synthesizer_stage("fbs"),
    synthesizer_stage("fbp"),
    synthesizer_stage("fbs_noisy"),
    synthesizer_stage("fbp_noisy"),
    REPORT,
    WRITING,
)


class StageReporter:
    """A bar over the known stages on a terminal, one plain line a stage elsewhere (stderr).

    The bar counts stages alone: how often the mechanism refits depends on confidential records.
    """

    def __init__(self, stages: tuple[str, ...] = RELEASE_STAGES) -> None:
        self._stages = stages
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> "StageReporter":
        if sys.stderr.isatty():
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
        if self._bar is None or self._task is None:
            print(f"surveysynth: {stage}", file=sys.stderr, flush=True)
            return
        self._bar.update(self._task, description=stage)
        if stage in self._stages:
            self._bar.update(self._task, completed=self._stages.index(stage))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def report_count(line: str, done: int, total: int) -> None:
    """One plain line a finished part of long work, on stderr."""
    print(f"surveysynth: {done}/{total} {line}", file=sys.stderr, flush=True)
