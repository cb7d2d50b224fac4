"""Cross tables: the levels of the last by-column side by side, each with its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from surveysynth.release.tables.labels import Labels
from surveysynth.release.tables.table import ReleaseTable

Record: TypeAlias = Mapping[str, Any]
"""One row of a table's frame."""


def levels_across(table: ReleaseTable, labels: Labels) -> list[str]:
    """Labels of the levels of the last by-column, the margin first."""
    column = table.by[-1]
    return [labels.level(column, code) for code in dict.fromkeys(table.frame[column])]


def crossed(table: ReleaseTable) -> tuple[ReleaseTable, list[tuple[Record, ...]]]:
    """The table of the first level across, without its column, and for each of its lines the
    records of all levels."""
    across, frame = table.by[-1], table.frame
    parts = [part for _, part in frame.groupby(across, sort=False, observed=True)]
    head = replace(table, by=table.by[:-1], frame=parts[0].reset_index(drop=True))
    return head, list(zip(*(records_of(replace(table, frame=part)) for part in parts), strict=True))


def records_of(table: ReleaseTable) -> Sequence[Record]:
    """The rows of a table's frame."""
    records = table.frame.to_dict("records")
    return [{str(name): value for name, value in each.items()} for each in records]
