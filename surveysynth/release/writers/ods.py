"""All tables as one OpenDocument spreadsheet, written by odfpy from ``sheets.Book``.

The sheets are those of the ``xlsx`` workbook. The row of headings is marked as such, and the table
as a named range, which screen readers announce.
"""

import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
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

from surveysynth._support.xml_text import xml_text
from surveysynth.config.formats import Format
from surveysynth.release.tables.layout import Shown
from surveysynth.release.writers.sheets import RESERVED, Book, Sheet, SheetColumn, Value, make_book

#: Widths of columns of numbers, of labels, and of texts.
_NARROW, _LABELS, _TEXTS = "3.6cm", "4.8cm", "20cm"
#: The time of every part of the file: equal tables must give equal bytes.
_WRITTEN = (1980, 1, 1, 0, 0, 0)


def write(shown: Shown, folder: Path, made: Format) -> None:
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
            style = Style(name=name, family="table-cell")
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
            style.addElement(TableCellProperties(**cell))
            align = "end" if name.endswith("right") else "start"
            style.addElement(ParagraphProperties(textalign=align))
            style.addElement(TextProperties(**text))
            self._document.styles.addElement(style)

    def _pages(self) -> None:
        """Print a sheet one page wide, in landscape."""
        size = PageLayoutProperties(
            printorientation="landscape", pagewidth="29.7cm", pageheight="21cm"
        )
        size.setAttrNS(STYLENS, "scale-to-X", "1")  # which odfpy does not know of
        size.setAttrNS(STYLENS, "scale-to-Y", "0")
        layout = PageLayout(name="wide")
        layout.addElement(size)
        self._document.automaticstyles.addElement(layout)
        self._document.masterstyles.addElement(MasterPage(name="wide", pagelayoutname=layout))
        style = Style(name="sheet", family="table", masterpagename="wide")
        self._document.automaticstyles.addElement(style)

    def _column(self, width: str) -> Any:
        """Return a column of this width."""
        name = f"width-{width.replace('.', '-')}"
        if name not in self._styles:
            self._styles.add(name)
            style = Style(name=name, family="table-column")
            style.addElement(TableColumnProperties(columnwidth=width))
            self._document.automaticstyles.addElement(style)
        return TableColumn(stylename=name)

    def _number_style(self, decimals: int) -> str:
        """Return the style of numbers: right-aligned, with decimals and thousands separators."""
        name = f"number-{decimals}"
        if name not in self._styles:
            self._styles.add(name)
            data = NumberStyle(name=f"{name}-form")
            data.addElement(Number(decimalplaces=decimals, minintegerdigits=1, grouping="true"))
            style = Style(name=name, family="table-cell", datastylename=data)
            style.addElement(TableCellProperties(verticalalign="top"))
            style.addElement(ParagraphProperties(textalign="end"))
            style.addElement(TextProperties(fontsize="11pt", fontfamily="Arial"))
            self._document.automaticstyles.addElement(data)
            self._document.automaticstyles.addElement(style)
        return name

    def _start(self, name: str, widths: Sequence[str]) -> Any:
        sheet = Table(name=name, stylename="sheet")
        for width in widths:
            sheet.addElement(self._column(width))
        self._document.spreadsheet.addElement(sheet)
        return sheet

    def cover(self, book: Book) -> None:
        """Write the lines of the cover below each other."""
        sheet = self._start(RESERVED[0], [_TEXTS])
        sheet.addElement(_table_row([_text_cell(book.title, "title")]))
        for heading, texts in book.cover.items():
            sheet.addElement(_table_row([_text_cell(heading, "head")]))
            for text in texts:
                style = "banner" if text == book.banner else "note"
                sheet.addElement(_table_row([_text_cell(text, style)]))

    def sheet(self, sheet: Sheet) -> None:
        """Write a table below its lines; the headings and the range of cells are marked."""
        widths = [_LABELS if column.kind == "label" else _NARROW for column in sheet.columns]
        made = self._start(sheet.name, widths if sheet.labels else [_LABELS, _TEXTS])
        made.addElement(_table_row([_text_cell(sheet.title, "title")]))
        for line in filter(None, (sheet.banner, *sheet.lines)):
            made.addElement(_table_row([_text_cell(line, "text")]))
        head = TableHeaderRows()
        head.addElement(
            _table_row(
                _text_cell(each.heading, "head-right" if _on_the_right(each) else "head")
                for each in sheet.columns
            )
        )
        made.addElement(head)
        for row in sheet.rows:
            made.addElement(_table_row(self._cells(row, sheet)))
        self._mark(sheet)

    def _cells(self, row: Sequence[Value], sheet: Sheet) -> Iterator[Any]:
        for value, column in zip(row, sheet.columns, strict=True):
            if column.kind == "link":
                cell, paragraph = TableCell(valuetype="string", stylename="note"), P()
                quoted = str(value).replace("'", "''")
                paragraph.addElement(A(href=f"#'{quoted}'.A1", text=str(value)))
                cell.addElement(paragraph)
                yield cell
            elif isinstance(value, str):
                yield _text_cell(value, "note-right" if _on_the_right(column) else "note")
            else:
                style = self._number_style(column.decimals) if column.kind == "number" else "note"
                cell = TableCell(valuetype="float", value=repr(value), stylename=style)
                cell.addElement(P(text=f"{value:,.{column.decimals}f}"))
                yield cell

    def _mark(self, sheet: Sheet) -> None:
        """Mark the table of a sheet as a named range."""
        first, last = sheet.heading_row + 1, sheet.heading_row + 1 + len(sheet.rows)
        quoted = sheet.name.replace("'", "''")
        corner = f"{_letters(len(sheet.columns))}{last}"
        self._ranges.addElement(
            DatabaseRange(
                name=sheet.table_name,
                targetrangeaddress=f"'{quoted}'.A{first}:'{quoted}'.{corner}",
                containsheader="true",
            )
        )

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


def _table_row(cells: Iterable[Any]) -> Any:
    row = TableRow()
    for cell in cells:
        row.addElement(cell)
    return row


def _text_cell(text: str, style: str) -> Any:
    """Make a cell of text, in which nothing is a formula, a link or a number."""
    cell = TableCell(valuetype="string", stylename=style)
    cell.addElement(P(text=xml_text(text)))
    return cell


def _letters(number: int) -> str:
    """Return the name of a column: 1 is A, 27 is AA."""
    name = ""
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name
