"""What divides the records of a dataset into classes of its own: an outcome with levels, say."""

from dataclasses import dataclass
from typing import Protocol

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.survey.outcome import Outcome


class Classes(Protocol):
    """What divides the records of each dataset into classes of its own."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes."""
        ...

    def of(self, outcomes: FloatArray) -> IntArray:
        """The class (n,) of each record, from the outcomes (n, p) of a dataset."""
        ...


@dataclass(frozen=True)
class ByOutcome:
    """An outcome that rows are made by: its column among the outcomes, and what is known of it."""

    column: int
    outcome: Outcome

    @property
    def names(self) -> tuple[str, ...]:
        """Its levels."""
        return self.outcome.category_names

    def of(self, outcomes: FloatArray) -> IntArray:
        """The level (n,) of each record."""
        return self.outcome.category(outcomes[:, self.column])
