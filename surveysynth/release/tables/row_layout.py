"""The rows of a table for readers: labels on the left, and for cross tables levels side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from surveysynth.estimation.statistics import LEVEL
from surveysynth.release.tables.labels import Labels, listed
from surveysynth.release.tables.table import ReleaseTable

if TYPE_CHECKING:
    import pandas as pd


_BY_COLUMNS_IN_STUB = 2
_LEVEL_HEADING = "Level"


@dataclass(frozen=True)
class StubRow:
    """One line: the group heading above it ("" for none), label, indent, bold or not."""

    group: str
    label: str
    indent: int
    strong: bool


def stub_rows(
    frame: "pd.DataFrame", by: Sequence[str], labels: Labels, *, prefix: str = ""
) -> list[StubRow]:
    """Return one line for every row of ``frame``, in its order.

    The last two by-columns share the stub: a level of the first of them heads the levels of the
    second, and its own line is the margin over them. Earlier by-columns, and ``prefix``, make the
    group heading; where there are no such margins, the last but one is among these.
    """
    shared = _BY_COLUMNS_IN_STUB
    if len(by) > 1 and not (frame[by[-1]] == labels.of(by[-1]).margin).any():
        shared = 1
    outer, inner = by[: len(by) - shared], by[len(by) - shared :]
    rows = []
    for record in frame[list(by)].itertuples(index=False, name=None):
        codes = dict(zip(by, record, strict=True))
        headings = [f"{labels.title(c)}: {labels.level(c, codes[c])}" for c in outer]
        group = " · ".join([prefix, *headings] if prefix else headings)
        margins = [codes[column] == labels.of(column).margin for column in inner]
        if len(inner) < _BY_COLUMNS_IN_STUB:
            label = labels.level(inner[0], codes[inner[0]]) if inner else "All"
            rows.append(StubRow(group, label, 0, not inner or margins[0]))
            continue
        head, leaf = inner
        shown = head if margins[1] else leaf
        rows.append(
            StubRow(group, labels.level(shown, codes[shown]), 0 if margins[1] else 1, margins[1])
        )
    return rows


def level_rows(
    frame: "pd.DataFrame", by: Sequence[str], labels: Labels, outcome: str, *, prefix: str = ""
) -> list[StubRow]:
    """Return one line for every row of ``frame``, which has an outcome's levels in each domain.

    The domain, and ``prefix``, make the group heading; a line is a level.
    """
    rows = []
    columns = [LEVEL, *by]
    for level, *codes in frame[columns].itertuples(index=False, name=None):
        pairs = list(zip(by, codes, strict=True))
        inside = [
            f"{labels.title(column)}: {labels.level(column, code)}"
            for column, code in pairs
            if code != labels.of(column).margin
        ]
        domain = inside or [code for _, code in pairs[:1]]
        group = " · ".join([prefix, *domain] if prefix else domain)
        rows.append(StubRow(group, labels.level(outcome, level), 0, bool(by) and not inside))
    return rows


def level_heading(outcomes: Sequence[str], labels: Labels) -> str:
    """Return the heading of the levels: the outcome's title, or for several a common word."""
    return labels.title(outcomes[0]) if len(outcomes) == 1 else _LEVEL_HEADING


def stub_heading(by: Sequence[str], labels: Labels) -> str:
    """Return the titles of the by-columns that share the stub."""
    return listed([labels.title(column) for column in by[-_BY_COLUMNS_IN_STUB:]]) or "Domain"


Record: TypeAlias = Mapping[str, Any]
"""One row of a table's frame."""


def levels_across(table: ReleaseTable, labels: Labels) -> list[str]:
    """Return labels of the levels of the last by-column, the margin first."""
    column = table.by[-1]
    return [labels.level(column, code) for code in dict.fromkeys(table.frame[column])]


def crossed(table: ReleaseTable) -> tuple[ReleaseTable, list[tuple[Record, ...]]]:
    """Return the table of the first level across, and for each line the records of all levels.

    The table has lost the column of that level.
    """
    across, frame = table.by[-1], table.frame
    parts = [part for _, part in frame.groupby(across, sort=False, observed=True)]
    head = replace(table, by=table.by[:-1], frame=parts[0].reset_index(drop=True))
    return head, list(zip(*(records_of(replace(table, frame=part)) for part in parts), strict=True))


def records_of(table: ReleaseTable) -> Sequence[Record]:
    """Return the rows of a table's frame."""
    records = table.frame.to_dict("records")
    return [{str(name): value for name, value in each.items()} for each in records]
