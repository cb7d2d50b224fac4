"""Warnings of a run: what each is about, and where it is shown.

All are public: they follow from the specification, the public columns, and counts that a release
publishes. What the confidential values say against a run is ``Survey.confidential_warning``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from surveysynth.errors import (
    FewRecordsWarning,
    FormulaCutWarning,
    PublicWarning,
    RecordsLeftOutWarning,
)


class Kind(Enum):
    """What a warning is about."""

    UNPUBLISHABLE = auto()
    GUARANTEE = auto()
    QUESTION = auto()
    RARE_LEVELS = auto()
    LEFT_OUT = auto()
    FORMULA = auto()
    FEW_RECORDS = auto()
    ACCURACY = auto()


class Place(NamedTuple):
    """Where ``release`` shows a kind; ``check`` shows all of them.

    ``last``: with its last lines; ``before``: as a Python warning of this category, before anything
    is spent.
    """

    last: bool = False
    before: type[PublicWarning] | None = None


PLACES = {
    Kind.UNPUBLISHABLE: Place(last=True),
    Kind.GUARANTEE: Place(last=True),
    Kind.QUESTION: Place(),
    Kind.RARE_LEVELS: Place(last=True),
    Kind.LEFT_OUT: Place(last=True, before=RecordsLeftOutWarning),
    Kind.FORMULA: Place(before=FormulaCutWarning),
    Kind.FEW_RECORDS: Place(before=FewRecordsWarning),
    Kind.ACCURACY: Place(),
}


@dataclass(frozen=True)
class Warned:
    """One warning."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text if self.kind is Kind.QUESTION else f"WARNING: {self.text}"


#: Of a preview: a detail, or a warning.
Line: TypeAlias = str | Warned


def shown_last(warned: Iterable[Warned]) -> tuple[Warned, ...]:
    """Return the warnings that stand with the last lines of a release."""
    return tuple(each for each in warned if PLACES[each.kind].last)
