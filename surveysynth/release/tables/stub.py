"""The left-hand side of a table for readers: groups, indented levels, margins in bold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surveysynth.release.tables.labels import Labels, listed

if TYPE_CHECKING:
    import pandas as pd

_BY_COLUMNS_IN_STUB = 2


@dataclass(frozen=True)
class StubRow:
    """One line: the group heading it stands under ("" for none), label, indent, bold or not."""

    group: str
    label: str
    indent: int
    strong: bool


def stub_rows(
    frame: "pd.DataFrame", by: Sequence[str], labels: Labels, *, prefix: str = ""
) -> list[StubRow]:
    """One line for every row of ``frame``, in its order.

    The last two by-columns share the stub: a level of the first of them heads the levels of the
    second, its own line being the margin over them. Earlier by-columns, and ``prefix``, make the
    group heading.
    """
    outer, inner = by[:-_BY_COLUMNS_IN_STUB], by[-_BY_COLUMNS_IN_STUB:]
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


def stub_heading(by: Sequence[str], labels: Labels) -> str:
    """Titles of the by-columns that share the stub."""
    return listed([labels.title(column) for column in by[-_BY_COLUMNS_IN_STUB:]]) or "Domain"
