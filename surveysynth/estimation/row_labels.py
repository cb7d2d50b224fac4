"""The labels of one by variable in a table: its margin, its levels, and levels taken together.

Levels combine into labels in several ways: all of them in the margin, each by itself, and for every
group those in it and the rest. Within one way a record has exactly one label. The rest of a group
is a row that no table shows; without it the rows of a way would not cover all records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TypeAlias

import numpy as np

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import BoolArray, IntArray
from surveysynth.errors import InputError

DEFAULT_MARGIN_LABEL = "All"
#: Begins the label of a rest, which no level of a file has.
_REST = "\0not "

Collapsed: TypeAlias = Mapping[str, Mapping[str, Sequence[str]]]
"""Levels taken together: by column, and by the label of their row."""


@dataclass(frozen=True)
class RowLabels:
    """The labels of a by variable.

    margin, levels: its label and those of the L levels in table order; groups: the label and the
    positions of levels that are taken together.
    """

    margin: str
    levels: tuple[str, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All labels in table order: the margin, the levels, each group and its rest."""
        groups = (name for label, _ in self.groups for name in (label, _REST + label))
        return (self.margin, *self.levels, *groups)

    @cached_property
    def ways(self) -> IntArray:
        """The position among ``names`` of each level (ways, L): margin first, levels last."""
        count = len(self.levels)
        found = np.zeros((2 + len(self.groups), count), dtype=np.int64)
        for way, (_, members) in enumerate(self.groups, start=1):
            found[way] = 2 * way + count
            found[way, list(members)] -= 1
        found[-1] = 1 + np.arange(count)
        return found

    @cached_property
    def way_of_label(self) -> IntArray:
        """The way that each of ``names`` belongs to."""
        groups = np.repeat(1 + np.arange(len(self.groups)), 2)
        levels = np.full(len(self.levels), len(self.groups) + 1)
        return np.concatenate([[0], levels, groups]).astype(np.int64)

    @cached_property
    def member(self) -> BoolArray:
        """Flags (names, L) of the levels that a label takes together."""
        flags = self.ways[self.way_of_label] == np.arange(len(self.names))[:, None]
        return np.asarray(flags, dtype=bool)

    @cached_property
    def hidden(self) -> BoolArray:
        """Flags of ``names`` that no table shows."""
        return np.array([name.startswith(_REST) for name in self.names], dtype=bool)

    @property
    def kept(self) -> int:
        """The way in which each level has its own row."""
        return len(self.groups) + 1


def row_labels(
    column: str,
    levels: Sequence[str],
    margin: str,
    groups: Mapping[str, Sequence[str]],
) -> RowLabels:
    """Return the labels of a by variable.

    Raises ``InputError`` for a label that is also a level, and for a group of levels that do not
    exist, of fewer than two, or of all.
    """
    if margin in levels:
        raise InputError(
            f"The margin of '{column}' is labelled '{margin}', which is also one of its levels; "
            f"choose another label for the margin."
        )
    position = {level: place for place, level in enumerate(levels)}
    made = []
    for label, members in groups.items():
        _check_group(column, levels, margin, label, members)
        made.append((label, tuple(sorted(position[each] for each in members))))
    return RowLabels(margin, tuple(levels), tuple(made))


def _check_group(
    column: str, levels: Sequence[str], margin: str, label: str, members: Sequence[str]
) -> None:
    """Raise ``InputError`` unless levels can be taken together under a label."""
    here = f"{column}: the row {label!r}"
    if label == margin or label in levels:
        what = "the margin" if label == margin else "a level"
        raise InputError(
            f"{here} has the label of {what} of '{column}'; choose another label, such as "
            f"{{ {column} = {{ \"Combined\" = [{listing(members)}] }} }}."
        )
    unknown = [each for each in members if each not in levels]
    if unknown:
        raise InputError(
            f"{here} takes together {listing(unknown)}, but the levels of '{column}' are "
            f"{listing(levels)}.{nearest(unknown[0], levels)} Write levels as in the file (codes, "
            "not labels)."
        )
    if len(set(members)) < 2 or len(set(members)) < len(members):
        raise InputError(
            f"{here} needs two or more different levels, but has {listing(members) or 'none'}."
        )
    if len(members) == len(levels):
        raise InputError(
            f"{here} takes all levels together, which is the margin {margin!r}; leave one out."
        )


def margin_sets(labels: Sequence[RowLabels]) -> Iterator[tuple[int, ...]]:
    """Yield the way of each by variable in each margin set: the whole first, cells last."""
    return product(*(range(len(each.ways)) for each in labels))


def hidden_rows(labels: Sequence[RowLabels]) -> BoolArray:
    """Return flags (D,) of the rows that no table shows: the rest of levels taken together."""
    return _rows_with([each.hidden for each in labels])


def collapsed_rows(labels: Sequence[RowLabels]) -> BoolArray:
    """Return flags (D,) of the rows in which some levels of a by variable are taken together."""
    ways = [(each.way_of_label > 0) & (each.way_of_label < each.kept) for each in labels]
    return _rows_with(ways)


def _rows_with(flags: Sequence[BoolArray]) -> BoolArray:
    """Return which rows (D,) have a flagged label of some by variable."""
    found = np.zeros(1, dtype=bool)
    for each in flags:
        found = (found[:, None] | each).ravel()
    return found
