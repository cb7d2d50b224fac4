"""Style of the pages of evaluations: tables of a page, and templates that show them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from surveysynth._support.page import full_page
from surveysynth._support.resources import render
from surveysynth.config.spec import Spec
from surveysynth.estimation.statistics import statistic_of
from surveysynth.release.tables.layout import (
    ABSENT,
    Labels,
    level_heading,
    level_rows,
    stub_heading,
    stub_rows,
    where_words,
)

Key = tuple[str, str | None]


@dataclass(frozen=True)
class Cell:
    """One cell: text, smaller notes after it, and the meaning of an exclamation mark, if any."""

    text: str
    notes: tuple[str, ...] = ()
    warning: str = ""


@dataclass(frozen=True)
class Column:
    """The heading of a column: text, a second line, and the color of a dot before it."""

    text: str
    below: str = ""
    color: str = ""


@dataclass(frozen=True)
class Row:
    """One row of labels and cells. ``span``: columns of a heading over a group of rows."""

    labels: Sequence[str]
    cells: Sequence[Cell] = ()
    strong: bool = False
    indent: bool = False
    color: str = ""
    span: int = 0


@dataclass(frozen=True)
class PageTable:
    """A table that scrolls sideways under its first column; ``kind``: its CSS class."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    kind: str


def columns(*texts: str) -> list[Column]:
    """Return headings of plain text."""
    return [Column(text) for text in texts]


def cells(*texts: object) -> list[Cell]:
    """Return cells of plain text."""
    return [Cell(str(text)) for text in texts]


def page(title: str, mark: str, template: str, /, **context: Any) -> str:
    """Return a page that is self-contained; the template escapes every label."""
    body = render("surveysynth.evaluation", f"templates/{template}", **context)
    return full_page(title, mark, [body])


def heading_of(labels: Labels, statistic: str, outcome: str | None) -> str:
    """Return title and unit of a table."""
    kind = statistic_of(statistic)
    words = f"{kind.title} (%)" if kind.percent else kind.title
    return words if outcome is None else f"{words}: {labels.titled_with_unit(outcome)}"


def table_suffix(spec: Spec) -> str:
    """Return name and subpopulation of a table, to follow its heading; may be empty."""
    section = spec.table
    name = f" (table {section.name})" if section.name else ""
    inside = f"; {where_words(section.where, Labels(spec.labels))}" if section.where else ""
    return f"{name}{inside}"


def side_table(
    caption: str,
    key: Key,
    frame: pd.DataFrame,
    by: Sequence[str],
    labels: Labels,
    heads: Sequence[Column],
    lines: Iterable[Sequence[Cell]],
) -> PageTable:
    """Return a table with the row labels of a release, and methods side by side.

    frame: (D) rows with the columns ``by`` and n; lines: (D) rows of cells for ``heads``.
    """
    statistic, outcome = key
    if outcome is not None and statistic_of(statistic).by_level:
        heading = level_heading([outcome], labels)
        stub = level_rows(frame, by, labels, outcome)
    else:
        heading, stub = stub_heading(by, labels), stub_rows(frame, by, labels)
    span = 2 + len(heads)

    def rows() -> Iterator[Row]:
        group = ""
        for row, n, rest in zip(stub, frame["n"], lines, strict=True):
            if row.group != group:
                group = row.group
                yield Row([group], span=span)
            known = Cell(ABSENT if pd.isna(n) else f"{n:,}")
            yield Row([row.label], [known, *rest], strong=row.strong, indent=bool(row.indent))

    return PageTable(caption, [Column(heading), Column("Records"), *heads], list(rows()), "side")
