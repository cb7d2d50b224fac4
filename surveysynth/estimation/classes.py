"""Classes that divide the records of a dataset, such as the levels of an outcome."""

from dataclasses import dataclass
from typing import Protocol

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.survey.outcome import Outcome


class Classes(Protocol):
    """Classes that divide the records of each dataset."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        ...

    def of(self, outcomes: FloatArray) -> IntArray:
        """Return the class (n,) of each record, from the outcomes (n, p) of a dataset."""
        ...


@dataclass(frozen=True)
class ByOutcome:
    """An outcome whose levels make rows; ``column`` is its place among the outcomes."""

    column: int
    outcome: Outcome

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its levels."""
        return self.outcome.category_names

    def of(self, outcomes: FloatArray) -> IntArray:
        """Return the level (n,) of each record."""
        return self.outcome.category(outcomes[:, self.column])
