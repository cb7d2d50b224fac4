"""A workbook before any file format: a cover, and sheets of one table each.

The arrangement is that of official statistics: cover, contents, notes, then a sheet for each table.
Every by-column and every number has a column of its own. Tables have no merged and no empty cells,
so that screen readers and programs can follow them.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from surveysynth._support.messages import xml_text
from surveysynth.estimation.statistics import statistic_of
from surveysynth.release.tables.layout import (
    ABSENT,
    KNOWN,
    Cell,
    Layout,
    Presentation,
    Row,
    TableSet,
    lay_out,
)

NO_NUMBER, NOT_APPLICABLE, NONE = "[x]", "[z]", "[none]"
CONTENTS, NOTES = "Contents", "Notes"
#: Names that sheets of tables cannot have.
RESERVED = ("Cover", CONTENTS, NOTES)
_LEGEND = (
    f"{NO_NUMBER} no number is available or it is withheld, for a reason that the notes give",
    f"{NOT_APPLICABLE} not applicable: a known total has no standard error and no interval",
    f"{NONE} nothing to remark",
)
_DEFAULT_TITLE = "Tables from synthetic survey microdata"
_INTRODUCTION = (
    "Tables estimated from synthetic microdata. The contents sheet lists them; the notes sheet "
    "explains what stands in brackets."
)
_ONE_TABLE = "This worksheet contains one table."
_LONGEST_NAME = 31
_NO_SIGNS = re.compile(r"[^\w ]")

ColumnKind = Literal["label", "link", "number", "flag", "text"]
Value = str | int | float


@dataclass(frozen=True)
class SheetColumn:
    """A heading and the kind of cells below it; ``decimals`` are those that numbers show.

    A "link" holds names of sheets; a "label" names a row.
    """

    heading: str
    kind: ColumnKind
    decimals: int = 0


@dataclass(frozen=True)
class Sheet:
    """A worksheet: a title, lines of text and one table.

    ``banner``: a warning below the title, "" without one. Texts are those that XML can hold.
    """

    name: str
    title: str
    banner: str
    lines: tuple[str, ...]
    columns: tuple[SheetColumn, ...]
    rows: tuple[tuple[Value, ...], ...]

    @property
    def heading_row(self) -> int:
        """The row of the headings, from 0."""
        return 1 + bool(self.banner) + len(self.lines)

    @property
    def labels(self) -> int:
        """The number of columns that name a row."""
        return sum(column.kind == "label" for column in self.columns)

    @property
    def table_name(self) -> str:
        """The name of the table in the file."""
        plain = self.name.lower().replace(" ", "_")
        return f"{plain}_table" if self.name in RESERVED else f"table_{plain}"


@dataclass(frozen=True)
class Book:
    """A workbook; ``cover``: lines of text by their heading, below ``title``.

    ``banner``: the warning that stands among these lines, "" without one.
    """

    title: str
    banner: str
    cover: Mapping[str, tuple[str, ...]]
    sheets: tuple[Sheet, ...]


def make_book(shown: TableSet) -> Book:
    """Lay all tables out as one workbook, a sheet for each outcome of each statistic."""
    presentation, notes = shown.presentation, _Notes()
    tables = [
        _table_sheet(name, layout, notes, presentation)
        for name, layout in _layouts(shown).items()
    ]
    contents = _listing(
        CONTENTS, "Table of contents", ("Sheet name", "Table description"), "link",
        [(sheet.name, sheet.title) for sheet in tables],
    )  # fmt: skip
    texts = _listing(
        NOTES, NOTES, ("Note number", "Note text"), "text", list(enumerate(notes.texts, start=1))
    )
    intro = [presentation.banner, _INTRODUCTION]
    about = [_source(presentation), presentation.privacy_note]
    cover = {"Introductory information": intro, "About these data": about}
    return Book(
        xml_text(presentation.title or _DEFAULT_TITLE),
        xml_text(presentation.banner),
        {heading: tuple(map(xml_text, filter(None, lines))) for heading, lines in cover.items()},
        (contents, texts, *tables),
    )


class _Notes:
    """Notes of all sheets, numbered from 1 in the order in which the sheets refer to them."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    def reference(self, text: str) -> str:
        """Return the number of a note in brackets."""
        return f"[note {self._number.setdefault(text, len(self._number) + 1)}]"

    @property
    def texts(self) -> list[str]:
        """The notes in the order of their numbers."""
        return [xml_text(text) for text in self._number]


def _listing(
    name: str, title: str, headings: tuple[str, str], kind: ColumnKind,
    rows: Sequence[tuple[Value, Value]],
) -> Sheet:  # fmt: skip
    """Make a sheet of two columns."""
    columns = (SheetColumn(headings[0], kind), SheetColumn(headings[1], "text"))
    return Sheet(name, title, "", (_ONE_TABLE,), columns, tuple(rows))


def _layouts(shown: TableSet) -> dict[str, Layout]:
    """Return the layout of every sheet of a table, by the name of the sheet."""
    layouts: dict[str, Layout] = {}
    for statistic, of_outcomes in shown.tables.items():
        for number, table in enumerate(of_outcomes, start=1):
            suffix = f" {number}" if len(of_outcomes) > 1 else ""
            name = sheet_name(statistic_of(statistic).title, suffix, (*RESERVED, *layouts))
            layouts[name] = lay_out([table], shown.presentation.for_sheets)
    return layouts


def sheet_name(title: str, suffix: str, taken: Iterable[str]) -> str:
    """Return a name that spreadsheet programs accept: short, of letters and digits, not taken."""
    used = {name.casefold() for name in taken}
    plain = _NO_SIGNS.sub("", title).strip()
    for number in count(1):
        end = suffix if number == 1 else f" {number}{suffix}"
        name = plain[: _LONGEST_NAME - len(end)].rstrip() + end
        if name.casefold() not in used:
            return name
    raise AssertionError  # numbers do not end


def _table_sheet(name: str, layout: Layout, notes: _Notes, presentation: Presentation) -> Sheet:
    source = _source(presentation)
    references = [
        notes.reference(text)
        for text in (*layout.notes, *(text for _, text in layout.footnotes))
        if text not in (source, presentation.banner)  # which have lines of their own
    ]
    explained = f"{_ONE_TABLE} The notes sheet explains it: {''.join(references)}"
    lines = (layout.subtitle, explained, *_LEGEND, source)
    titles = layout.by_titles or (layout.stub_heading,)
    columns = [
        *(SheetColumn(xml_text(title), "label") for title in titles),
        *(
            SheetColumn(xml_text(column.in_one_line), "flag")
            if column.key == "flag"
            else SheetColumn(
                xml_text(column.in_one_line), "number",
                max((row.cells[place].decimals for row in layout.rows), default=0),
            )
            for place, column in enumerate(layout.columns)
        ),
        SheetColumn(NOTES, "text"),
    ]
    return Sheet(
        name=name,
        title=xml_text(layout.title),
        banner=xml_text(layout.banner),
        lines=tuple(map(xml_text, filter(None, lines))),
        columns=tuple(columns),
        rows=tuple(_row(row, dict(layout.footnotes), notes) for row in layout.rows),
    )


def _row(row: Row, text_of: Mapping[str, str], notes: _Notes) -> tuple[Value, ...]:
    """Return the labels, the numbers, and references to the footnotes of the row."""
    marks = sorted({mark for cell in row.cells for mark in cell.marks})
    remarks = " ".join(notes.reference(text_of[mark]) for mark in marks)
    labels = map(xml_text, row.labels or (row.stub.label,))
    return (*labels, *map(_value, row.cells), remarks or NONE)


def _value(cell: Cell) -> Value:
    """Return the number of a cell, or the text in its place."""
    if cell.value is not None and math.isfinite(cell.value):
        return cell.value
    return {ABSENT: NO_NUMBER, KNOWN: NOT_APPLICABLE, "": NONE}.get(cell.text, cell.text)


def _source(presentation: Presentation) -> str:
    return f"Source: {presentation.source}" if presentation.source else ""
