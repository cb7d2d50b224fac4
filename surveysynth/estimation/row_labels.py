"""The labels of one by variable in a table: its margin, and its levels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from surveysynth._support.types import BoolArray
from surveysynth.errors import InputError

DEFAULT_MARGIN_LABEL = "All"


@dataclass(frozen=True)
class RowLabels:
    """The labels of a by variable.

    margin, levels: its label and those of the L levels in table order.
    """

    margin: str
    levels: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All labels in table order: the margin, then the levels."""
        return (self.margin, *self.levels)

    @cached_property
    def member(self) -> BoolArray:
        """Flags (names, L) of the levels in each label: all in the margin, each by itself."""
        count = len(self.levels)
        return np.vstack([np.ones((1, count), dtype=bool), np.eye(count, dtype=bool)])


def row_labels(column: str, levels: Sequence[str], margin: str) -> RowLabels:
    """Return the labels of a by variable; raise ``InputError`` if the margin's is also a level."""
    if margin in levels:
        raise InputError(
            f"The margin of '{column}' is labelled '{margin}', which is also one of its levels; "
            f"choose another label for the margin."
        )
    return RowLabels(margin, tuple(levels))


def margin_sets(labels: Sequence[RowLabels]) -> Iterator[tuple[bool, ...]]:
    """Yield for each margin set whether each by variable keeps its levels: the whole first."""
    return product((False, True), repeat=len(labels))
