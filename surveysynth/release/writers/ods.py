"""All tables as one OpenDocument spreadsheet, written by odfpy from ``xlsx.Book``.

The sheets are those of the ``xlsx`` workbook. The row of headings is marked as such, and the table
as a named range, which screen readers announce.
"""

import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from odf import dc
from odf.namespaces import STYLENS
from odf.number import Number, NumberStyle
from odf.opendocument import OpenDocumentSpreadsheet
from odf.style import (
    MasterPage,
    PageLayout,
    PageLayoutProperties,
    ParagraphProperties,
    Style,
    TableCellProperties,
    TableColumnProperties,
    TextProperties,
)
from odf.table import (
    DatabaseRange,
    DatabaseRanges,
    Table,
    TableCell,
    TableColumn,
    TableHeaderRows,
    TableRow,
)
from odf.text import A, P
from xlsxwriter.utility import xl_col_to_name

from surveysynth._support.messages import xml_text
from surveysynth.config.tables_section import Format
from surveysynth.release.tables.layout import TableSet
from surveysynth.release.writers.xlsx import RESERVED, Book, Sheet, SheetColumn, Value, make_book

#: Widths of columns of numbers, of labels, and of texts.
_NARROW, _LABELS, _TEXTS = "3.6cm", "4.8cm", "20cm"
#: The time of every part of the file: equal tables must give equal bytes.
_WRITTEN = (1980, 1, 1, 0, 0, 0)


def write(shown: TableSet, folder: Path, made: Format) -> None:
    """Write every table, one sheet for each outcome of each statistic, into one spreadsheet."""
    book = make_book(shown)
    writer = _Writer(book.title)
    writer.cover(book)
    for sheet in book.sheets:
        writer.sheet(sheet)
    (folder / str(made.one_file)).write_bytes(writer.content())


class _Writer:
    """Builds the document with odfpy."""

    def __init__(self, title: str) -> None:
        self._document: Any = OpenDocumentSpreadsheet()
        self._document.meta.addElement(dc.Title(text=xml_text(title)))
        self._document.meta.addElement(dc.Language(text="en"))
        self._ranges = DatabaseRanges()
        self._styles: set[str] = set()
        self._text_styles()
        self._pages()

    def _text_styles(self) -> None:
        for name in ("title", "text", "banner", "head", "head-right", "note", "note-right"):
            cell: dict[str, Any] = {"verticalalign": "top"}
            # Lines above a table run on over empty cells; in cells of their own they are wrapped.
            if name not in ("title", "text"):
                cell |= {"wrapoption": "wrap", "paddingleft": "0.15cm", "paddingright": "0.15cm"}
            text: dict[str, Any] = {"fontsize": "11pt", "fontfamily": "Arial"}
            if name.startswith("head"):
                cell["borderbottom"] = "0.8pt solid #1b1b1b"
            if not name.startswith(("text", "note")):
                text["fontweight"] = "bold"
            text |= {"title": {"fontsize": "15pt"}, "banner": {"color": "#b00020"}}.get(name, {})
            align = "end" if name.endswith("right") else "start"
            self._document.styles.addElement(_holding(
                Style(name=name, family="table-cell"), TableCellProperties(**cell),
                ParagraphProperties(textalign=align), TextProperties(**text),
            ))  # fmt: skip

    def _pages(self) -> None:
        """Print a sheet one page wide, in landscape."""
        size = PageLayoutProperties(
            printorientation="landscape", pagewidth="29.7cm", pageheight="21cm"
        )
        size.setAttrNS(STYLENS, "scale-to-X", "1")  # which odfpy does not know of
        size.setAttrNS(STYLENS, "scale-to-Y", "0")
        layout = _holding(PageLayout(name="wide"), size)
        style = Style(name="sheet", family="table", masterpagename="wide")
        _holding(self._document.automaticstyles, layout, style)
        self._document.masterstyles.addElement(MasterPage(name="wide", pagelayoutname=layout))

    def _column(self, width: str) -> Any:
        """Return a column of this width."""
        name = f"width-{width.replace('.', '-')}"
        if name not in self._styles:
            self._styles.add(name)
            style = Style(name=name, family="table-column")
            width_of = TableColumnProperties(columnwidth=width)
            self._document.automaticstyles.addElement(_holding(style, width_of))
        return TableColumn(stylename=name)

    def _number_style(self, decimals: int) -> str:
        """Return the style of numbers: right-aligned, with decimals and thousands separators."""
        name = f"number-{decimals}"
        if name not in self._styles:
            self._styles.add(name)
            digits = Number(decimalplaces=decimals, minintegerdigits=1, grouping="true")
            data = _holding(NumberStyle(name=f"{name}-form"), digits)
            style = _holding(
                Style(name=name, family="table-cell", datastylename=data),
                TableCellProperties(verticalalign="top"), ParagraphProperties(textalign="end"),
                TextProperties(fontsize="11pt", fontfamily="Arial"),
            )  # fmt: skip
            _holding(self._document.automaticstyles, data, style)
        return name

    def _start(self, name: str, widths: Sequence[str]) -> Any:
        sheet = _holding(Table(name=name, stylename="sheet"), *map(self._column, widths))
        self._document.spreadsheet.addElement(sheet)
        return sheet

    def cover(self, book: Book) -> None:
        """Write the lines of the cover below each other."""
        lines = [(book.title, "title")]
        for heading, texts in book.cover.items():
            lines.append((heading, "head"))
            lines += [(text, "banner" if text == book.banner else "note") for text in texts]
        rows = (_holding(TableRow(), _text_cell(*line)) for line in lines)
        _holding(self._start(RESERVED[0], [_TEXTS]), *rows)

    def sheet(self, sheet: Sheet) -> None:
        """Write a table below its lines; the headings and the range of cells are marked."""
        widths = [_LABELS if column.kind == "label" else _NARROW for column in sheet.columns]
        made = self._start(sheet.name, widths if sheet.labels else [_LABELS, _TEXTS])
        above = [(line, "text") for line in (sheet.banner, *sheet.lines) if line]
        for line in [(sheet.title, "title"), *above]:
            made.addElement(_holding(TableRow(), _text_cell(*line)))
        headings = (
            _text_cell(each.heading, "head-right" if _on_the_right(each) else "head")
            for each in sheet.columns
        )
        made.addElement(_holding(TableHeaderRows(), _holding(TableRow(), *headings)))
        _holding(made, *(_holding(TableRow(), *self._cells(row, sheet)) for row in sheet.rows))
        # The table is marked as a named range.
        first, last = sheet.heading_row + 1, sheet.heading_row + 1 + len(sheet.rows)
        quoted = sheet.name.replace("'", "''")
        corner = f"{xl_col_to_name(len(sheet.columns) - 1)}{last}"
        address = f"'{quoted}'.A{first}:'{quoted}'.{corner}"
        self._ranges.addElement(
            DatabaseRange(
                name=sheet.table_name, targetrangeaddress=address, containsheader="true"
            )
        )

    def _cells(self, row: Sequence[Value], sheet: Sheet) -> Iterator[Any]:
        for value, column in zip(row, sheet.columns, strict=True):
            if column.kind == "link":
                quoted = str(value).replace("'", "''")
                link = A(href=f"#'{quoted}'.A1", text=str(value))
                cell = TableCell(valuetype="string", stylename="note")
                yield _holding(cell, _holding(P(), link))
            elif isinstance(value, str):
                yield _text_cell(value, "note-right" if _on_the_right(column) else "note")
            else:
                style = self._number_style(column.decimals) if column.kind == "number" else "note"
                cell = TableCell(valuetype="float", value=repr(value), stylename=style)
                yield _holding(cell, P(text=f"{value:,.{column.decimals}f}"))

    def content(self) -> bytes:
        """Return the file, packed again without the present time and needless namespaces.

        odfpy writes the namespaces of all that it has ever written.
        """
        self._document.spreadsheet.addElement(self._ranges)
        packed, again = io.BytesIO(), io.BytesIO()
        self._document.write(packed)
        with zipfile.ZipFile(packed) as given, zipfile.ZipFile(again, "w") as made:
            for part in given.infolist():
                # The type of the file comes first and is not compressed, as the format wants it.
                stored = part.filename == "mimetype"
                method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
                content = given.read(part)
                if part.filename.endswith(".xml"):
                    content = ET.canonicalize(content.decode()).encode()
                made.writestr(zipfile.ZipInfo(part.filename, _WRITTEN), content, method)
        return again.getvalue()


def _on_the_right(column: SheetColumn) -> bool:
    return column.kind in ("number", "flag")


def _holding(element: Any, *parts: Any) -> Any:
    """Return the element with these parts added to it."""
    for part in parts:
        element.addElement(part)
    return element


def _text_cell(text: str, style: str) -> Any:
    """Make a cell of text, in which nothing is a formula, a link or a number."""
    return _holding(TableCell(valuetype="string", stylename=style), P(text=xml_text(text)))
