"""All tables as one Excel workbook, written by XlsxWriter from ``sheets.Book``.

Text is written as text and numbers as numbers, so that no label becomes a formula or a link. Each
table is marked as a table with a row of headings, which screen readers announce.
"""

import math
from datetime import datetime
from pathlib import Path
from typing import Any

from xlsxwriter import Workbook

from surveysynth.config.tables_section import Format
from surveysynth.release.tables.layout import TableSet
from surveysynth.release.writers.sheets import (
    CONTENTS,
    NOTES,
    RESERVED,
    Book,
    Sheet,
    SheetColumn,
    make_book,
)

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
