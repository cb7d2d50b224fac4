"""All tables as one workbook, before any file format (``Book``), and as Excel's, by XlsxWriter.

The arrangement is that of official statistics: cover, contents, notes, then a sheet for each table.
Every by-column and every number has a column of its own. Tables have no merged and no empty cells,
so that screen readers and programs can follow them.

Text is written as text and numbers as numbers, so that no label becomes a formula or a link. Each
table is marked as a table with a row of headings, which screen readers announce.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal

from xlsxwriter import Workbook

from surveysynth._support.messages import xml_text
from surveysynth.config.tables_section import Format
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


#: XlsxWriter's default is the present time; equal tables must give equal bytes.
_CREATED = datetime(1980, 1, 1)
_LONGEST_HEADING = 200
#: Widths of columns in characters; height of a line of text in points.
_NARROW, _BY, _TEXTS, _COVER, _LINE = 18, 24, 110, 85, 18
#: Columns of labels that are as wide as labels; tables seldom have more.
_WIDE_LABELS = 3
_FONT = {"font_name": "Arial", "font_size": 12}
_STYLES: dict[str, dict[str, Any]] = {
    "cover title": {"bold": True, "font_size": 16, "text_wrap": True},
    "cover heading": {"bold": True, "font_size": 14, "text_wrap": True},
    "cover text": {"text_wrap": True},
    "title": {"bold": True, "font_size": 16},
    "banner": {"font_size": 14},
    "line": {},
    "heading": {"bold": True, "bottom": 1, "text_wrap": True, "valign": "top"},
    "row name": {"bold": True, "text_wrap": True},
    "cell": {"text_wrap": True},
    "link": {"text_wrap": True, "font_color": "blue", "underline": True},
}


def write(shown: TableSet, folder: Path, made: Format) -> None:
    """Write every table, one sheet for each outcome of each statistic, into one workbook."""
    with Workbook(str(folder / str(made.one_file))) as workbook:
        workbook.set_properties({"title": shown.presentation.title, "created": _CREATED})
        book = make_book(shown)
        writer = _Writer(workbook, book)
        writer.cover()
        for sheet in book.sheets:
            writer.sheet(sheet)


class _Writer:
    """Writes a book sheet by sheet; a format is made once for each use of it."""

    def __init__(self, workbook: Workbook, book: Book) -> None:
        self._workbook, self._book = workbook, book
        self._formats: dict[tuple[str, str, str], Any] = {}

    def _format(self, style: str, align: str = "", numbers: str = "") -> Any:
        key = style, align, numbers
        if key not in self._formats:
            given = {"align": align, "num_format": numbers}
            own = {name: value for name, value in given.items() if value}
            self._formats[key] = self._workbook.add_format({**_FONT, **_STYLES[style], **own})
        return self._formats[key]

    def _worksheet(self, name: str) -> Any:
        worksheet = self._workbook.add_worksheet(name)
        worksheet.hide_gridlines(2)
        worksheet.set_landscape()
        worksheet.fit_to_pages(1, 0)
        return worksheet

    def cover(self) -> None:
        """Write the lines of the cover below each other."""
        worksheet = self._worksheet(RESERVED[0])
        worksheet.set_column(0, 0, _COVER)
        lines = [(self._book.title, "cover title")]
        for heading, texts in self._book.cover.items():
            lines += [(heading, "cover heading"), *((text, "cover text") for text in texts)]
        for row, (text, style) in enumerate(lines):
            worksheet.write_string(row, 0, text, self._format(style))
            size = 2 if style == "cover title" else 1
            worksheet.set_row(row, _height(text * size, _COVER))

    def sheet(self, sheet: Sheet) -> None:
        """Write a table below its lines."""
        worksheet = self._worksheet(sheet.name)
        banner = [(sheet.banner, "banner")] if sheet.banner else []
        lines = [(sheet.title, "title"), *banner, *((line, "line") for line in sheet.lines)]
        for row, (text, style) in enumerate(lines):
            worksheet.write_string(row, 0, text, self._format(style))
        self._table(worksheet, sheet)
        self._sizes(worksheet, sheet)

    def _table(self, worksheet: Any, sheet: Sheet) -> None:
        top, last = sheet.heading_row, len(sheet.columns) - 1
        headings = _distinct([column.heading for column in sheet.columns])
        options = {
            "name": sheet.table_name,
            "autofilter": False,
            "style": None,
            "columns": [
                {"header": heading, "header_format": self._format("heading", *_arranged(column))}
                for heading, column in zip(headings, sheet.columns, strict=True)
            ],
        }
        worksheet.add_table(top, 0, top + len(sheet.rows), last, options)
        for number, row in enumerate(sheet.rows, start=top + 1):
            for place, (value, column) in enumerate(zip(row, sheet.columns, strict=True)):
                style = "row name" if column.kind == "label" and place == 0 else "cell"
                shown = self._format(style, *_arranged(column))
                if not isinstance(value, str):
                    worksheet.write_number(number, place, value, shown)
                elif column.kind == "link":
                    link = self._format("link", "left")
                    worksheet.write_url(number, place, f"internal:'{value}'!A1", link, value)
                else:
                    worksheet.write_string(number, place, value, shown)

    def _sizes(self, worksheet: Any, sheet: Sheet) -> None:
        """Set widths, and heights of rows with wrapped text, which some readers do not work out."""
        top = sheet.heading_row
        if sheet.name in (CONTENTS, NOTES):
            worksheet.set_column(0, 0, _NARROW)
            worksheet.set_column(1, 1, _TEXTS)
            if sheet.name == NOTES:
                for row, (_, text) in enumerate(sheet.rows, start=top + 1):
                    worksheet.set_row(row, _height(str(text), _TEXTS))
            return
        labels = min(sheet.labels, _WIDE_LABELS)
        worksheet.set_column(0, labels - 1, _BY)
        worksheet.set_column(labels, len(sheet.columns) - 1, _NARROW)
        headings = _distinct([column.heading for column in sheet.columns])
        worksheet.set_row(top, max(_height(text, _NARROW) for text in headings))


def _arranged(column: SheetColumn) -> tuple[str, str]:
    """Return the alignment of a column and the format of its numbers, "" for text."""
    if column.kind == "number":
        return "right", "#,##0" + (f".{'0' * column.decimals}" if column.decimals else "")
    return "center" if column.kind == "flag" else "left", ""


def _distinct(headings: list[str]) -> list[str]:
    """Make headings differ whatever their case, and not too long, as tables of Excel require."""
    found: list[str] = []
    taken: set[str] = set()
    for heading in headings:
        base = name = heading[:_LONGEST_HEADING] or "Column"
        number = 1
        while name.lower() in taken:
            number += 1
            name = f"{base} ({number})"
        taken.add(name.lower())
        found.append(name)
    return found


def _height(text: str, width: int) -> float:
    """Return points; bold and capital letters take more than the average width."""
    return _LINE * math.ceil(1.2 * len(text) / width)
