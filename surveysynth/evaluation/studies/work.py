"""One task of a study: its results, and the samples that it can fit side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth._support.fragment import fragment
from surveysynth.estimation.combining import Combined, interval_of
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.methods import SAMPLE
from surveysynth.evaluation.studies.coverage import CoverageStudy

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.survey.survey import Survey


REPORT_NAME, FIGURES = "report.html", "figures"


@dataclass(frozen=True)
class TaskResult:
    """Replicates (see ``measures``), and refusals with their reasons."""

    replicates: "pd.DataFrame"
    refusals: "pd.DataFrame"


@dataclass(frozen=True, repr=False)
class StudyResult:
    """Results of a study: replicates, cells (one row each), summary by method, refusals, failures.

    ``failed``: the tasks that failed, with the reason.
    """

    out: Path
    replicates: "pd.DataFrame"
    cells: "pd.DataFrame"
    summary: "pd.DataFrame"
    refusals: "pd.DataFrame"
    failed: dict[str, str]

    def _repr_html_(self) -> str:
        """Show measures by method in notebooks."""
        failed = f"Batches that failed: {len(self.failed):,}." if self.failed else ""
        return fragment(
            "Study",
            mark=failed,
            lines=[f"Report: {self.out / REPORT_NAME}."],
            frames=[("Medians over cells and margins", self.summary)],
        )


class Work:
    """Collects the replicates of one task."""

    def __init__(self, study: CoverageStudy) -> None:
        self.study = study
        self.frames: list[pd.DataFrame] = []
        self.refused: list[dict[str, Any]] = []

    def add(
        self,
        sample: int,
        method: str,
        m: int,
        statistic: str,
        column: int | None,
        combined: Combined,
        bound: float = np.inf,
    ) -> None:
        """Add one table of one sample."""
        lower, upper = interval_of(statistic_of(statistic), combined, self.study.level)
        epsilon = np.inf if method == SAMPLE else 2.0 * m * bound
        values = {
            "method": method,
            "m": 0 if method == SAMPLE else m,
            "epsilon": epsilon,
            "sample": sample,
            "estimate": combined.estimate,
            "se": combined.standard_error,
            "df": combined.df,
            "ci_lower": lower,
            "ci_upper": upper,
        }
        self.frames.append(self.study.frame(statistic, column, {**_arrays(values)}))

    def refuse(self, samples: Sequence[int], methods: Sequence[str], reason: object) -> None:
        """Record samples without a table by these methods."""
        self.refused += [
            {"sample": sample, "method": method, "reason": str(reason)}
            for sample in samples
            for method in methods
        ]

    def made(self) -> TaskResult:
        """Return everything collected."""
        refusals = pd.DataFrame(self.refused, columns=["sample", "method", "reason"])
        if not self.frames:  # a file without rows, but with all columns and their types
            blank = np.zeros(1)
            none = Combined(blank, blank, blank, 1.0, blank, blank)
            self.add(0, SAMPLE, 0, *self.study.table_keys()[0], none)
            return TaskResult(self.frames.pop().iloc[:0], refusals)
        return TaskResult(pd.concat(self.frames, ignore_index=True), refusals)


def _arrays(values: dict[str, Any]) -> dict[str, Any]:
    """Put columns that are arrays first: they determine the number of rows."""
    return dict(sorted(values.items(), key=lambda item: not isinstance(item[1], np.ndarray)))


def alike(
    study: CoverageStudy,
    samples: Sequence[int],
    prepared: "Callable[[int, Survey], Survey | None] | None" = None,
) -> "list[dict[int, Survey]]":
    """Group the samples of a batch that can be fitted side by side.

    Samples of a group have the same columns of X and equally many PSUs; a sample without a level of
    some variable has fewer columns. ``prepared``: returns what is fitted of a sample, None for
    nothing.
    """
    groups: dict[tuple[tuple[str, ...], int], dict[int, Survey]] = {}
    for sample in samples:
        drawn = study.survey(sample)
        survey = drawn if prepared is None else prepared(sample, drawn)
        if survey is None:
            continue
        psu = survey.design.psu
        units = 0 if psu is None else int(psu.max()) + 1
        groups.setdefault((survey.design.matrix.columns, units), {})[sample] = survey
    return list(groups.values())
