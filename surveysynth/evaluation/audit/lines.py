"""What a test is of, and what it found: one line a replacement."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from surveysynth.models.base import Model
from surveysynth.survey.survey import Survey

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.mechanisms.base import Mechanism

#: holds: at most what is stated; passed: more; refused: the mechanism would not release;
#: skipped: there is nothing to test, or no means to.
Verdict = Literal["holds", "passed", "refused", "skipped"]


@dataclass(frozen=True, repr=False)
class Case:
    """A simulated survey, and the model and mechanism that would release it; ``name``: what is
    special about them."""

    name: str
    model: Model
    survey: Survey
    mechanism: "Mechanism"


@dataclass(frozen=True)
class Line:
    """One replacement.

    Attributes
    ----------
    case, mechanism, model, n, epsilon
        What is tested, epsilon as stated.
    record, change
        Which record is replaced, and what becomes of it.
    random_numbers
        Of the two fits: "common", or "fresh" as in releases; empty where there are none.
    ratio
        What the replacement moves, over what is stated: of the log posterior of a draw, or the
        distance of the exact statistics. None where the verdict is "refused" or "skipped".
    jointly
        The same of parameters and effects of PSUs together, which are not released.
    beyond
        Probability that the log ratios of m draws add up to more than epsilon.
    verdict, reason
        And in words why nothing was measured.
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
    """What all lines of a case have in common."""
    settings, n = case.mechanism.settings, case.survey.design.n
    return Line(case.name, case.mechanism.name, case.model.name, n, settings.epsilon, "", "")


def measured(ratio: float) -> Verdict:
    """The verdict on a ratio."""
    return "holds" if ratio <= 1.0 else "passed"


def frame_of(lines: Iterable[Line]) -> "pd.DataFrame":
    """The lines as a table, a column an attribute."""
    import pandas as pd

    names = [each.name for each in fields(Line)]
    return pd.DataFrame([[getattr(line, name) for name in names] for line in lines], columns=names)


def worst(lines: Iterable[Line]) -> list[Line]:
    """Of each case, kind of record and source of random numbers the line with the largest ratio;
    where none was measured the first."""
    found: dict[tuple[str, str, int, str, str], Line] = {}
    for line in lines:
        key = (line.case, line.mechanism, line.n, line.record, line.random_numbers)
        if key not in found or _size(line) > _size(found[key]):
            found[key] = line
    return list(found.values())


def _size(line: Line) -> float:
    return -1.0 if line.ratio is None else line.ratio
