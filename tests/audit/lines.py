"""Cases to test and the lines of results: one line a replacement."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

import pandas as pd

from surveysynth.models.base import Model
from surveysynth.survey.survey import Survey

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.mechanisms.base import Mechanism

#: holds: at most the stated bound; passed: more; refused: the mechanism would not release;
#: skipped: there is nothing to test, or no means to; fires, missed: a planted violation that the
#: test must find, found or not.
Verdict = Literal["holds", "passed", "refused", "skipped", "fires", "missed"]


@dataclass(frozen=True, repr=False)
class Case:
    """A simulated survey, and the model and mechanism that would release it.

    ``name``: what distinguishes the case; ``calibrated``: weights are calibrated again after a
    replacement; ``without_prior``: a planted violation, pseudo-records that weigh nothing.
    """

    name: str
    model: Model
    survey: Survey
    mechanism: "Mechanism"
    calibrated: bool = False
    without_prior: bool = False


@dataclass(frozen=True)
class Line:
    """One replacement.

    Attributes
    ----------
    case, mechanism, model, n, epsilon
        The tested case, with the stated epsilon.
    record, change
        The replaced record, and its change.
    random_numbers
        Of the two fits: "common", or "fresh" as in releases; empty without fits.
    ratio
        What the replacement moves, over the stated bound: the log posterior of a draw, or the
        distance of the exact statistics. None if the verdict is "refused" or "skipped".
    jointly
        The same for parameters and effects of PSUs together, which are not released.
    beyond
        Probability that the log ratios of m draws add up to more than epsilon.
    verdict, reason
        The verdict, and why nothing was measured, in words.
    """

    case: str
    mechanism: str
    model: str
    n: int
    epsilon: float
    record: str
    change: str
    random_numbers: str = ""
    ratio: float | None = None
    jointly: float | None = None
    beyond: float | None = None
    verdict: Verdict = "skipped"
    reason: str = ""


def head_of(case: Case) -> Line:
    """Return the fields that all lines of a case share."""
    settings, n = case.mechanism.settings, case.survey.design.n
    return Line(case.name, case.mechanism.name, case.model.name, n, settings.epsilon, "", "")


def measured(ratio: float) -> Verdict:
    """Return the verdict on a ratio."""
    return "holds" if ratio <= 1.0 else "passed"


def frame_of(lines: Iterable[Line]) -> "pd.DataFrame":
    """Return the lines as a table, a column an attribute."""
    names = [each.name for each in fields(Line)]
    return pd.DataFrame([[getattr(line, name) for name in names] for line in lines], columns=names)


def worst(lines: Iterable[Line]) -> list[Line]:
    """Return the line with the largest ratio of each case, kind of record and random numbers.

    If none was measured, the first line.
    """
    found: dict[tuple[str, str, int, str, str], Line] = {}
    for line in lines:
        key = (line.case, line.mechanism, line.n, line.record, line.random_numbers)
        if key not in found or _size(line) > _size(found[key]):
            found[key] = line
    return list(found.values())


def _size(line: Line) -> float:
    return -1.0 if line.ratio is None else line.ratio
