"""Warnings of a run: what each is about, and where it is shown.

All are public: they follow from the specification, the public columns, and counts that a release
publishes. What the confidential values say against a run is ``Survey.confidential_warning``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

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


#: Kinds that ``release`` shows with its last lines; ``check`` shows all of them.
LAST = frozenset({Kind.UNPUBLISHABLE, Kind.GUARANTEE, Kind.RARE_LEVELS, Kind.LEFT_OUT})
#: Kinds that ``release`` shows as Python warnings, before anything is spent.
BEFORE: Mapping[Kind, type[PublicWarning]] = {
    Kind.LEFT_OUT: RecordsLeftOutWarning,
    Kind.FORMULA: FormulaCutWarning,
    Kind.FEW_RECORDS: FewRecordsWarning,
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
    return tuple(each for each in warned if each.kind in LAST)
