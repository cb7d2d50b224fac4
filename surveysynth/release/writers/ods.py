"""All tables as one OpenDocument spreadsheet: cover, contents, notes, a sheet a table.

The same sheets as the workbook of ``xlsx``: numbers are numbers, rounded as readers see them
elsewhere; each by-column has a column of its own; no merged and no empty cell in a table. The row
of headings is marked as such, and the table as a named range, which screen readers announce.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from surveysynth._support.xml_text import xml_text
from surveysynth.release.tables.layout import Layout, Presentation, Shown
from surveysynth.release.writers.sheets import (
    DEFAULT_TITLE,
    INSTRUCTIONS,
    INTRODUCTION,
    LEGEND,
    NONE,
    Notes,
    decimals_of,
    marks_of,
    note_texts,
    sheet_layouts,
    source_of,
    value_of,
)
from surveysynth.spec.formats import Format

#: Names that sheets of tables cannot have.
_OWN_SHEETS = ("Cover", "Contents", "Notes")
#: Widths of columns of numbers, of labels, and of texts.
_NARROW, _LABELS, _TEXTS = "3.6cm", "4.8cm", "20cm"
#: The same tables shall give the same bytes: the time of every part of the file.
_WRITTEN = (1980, 1, 1, 0, 0, 0)


def write(shown: Shown, folder: Path, made: Format) -> None:
    """Write every table, one sheet for each outcome of each statistic, into one spreadsheet."""
    presentation = shown.presentation
    layouts = sheet_layouts(shown, _OWN_SHEETS)
    book, notes = _Book(presentation.title or DEFAULT_TITLE), Notes()
    sheets = {name: _sheet(layout, notes, presentation) for name, layout in layouts.items()}
    book.texts("Cover", _cover(presentation))
    book.contents({name: layout.subtitle or layout.title for name, layout in layouts.items()})
    book.listing("Notes", ("Note", "Text"), [
        (_reference(notes, text), text) for text in notes.texts
    ])  # fmt: skip
    for name, sheet in sheets.items():
        book.table(name, sheet)
    (folder / str(made.one_file)).write_bytes(book.content())


@dataclass(frozen=True)
class _Sheet:
    """Lines above, headings, rows of labels, numbers and remarks; decimals by column."""

    lines: tuple[str, ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]
    labels: int
    decimals: tuple[int, ...]


def _cover(presentation: Presentation) -> list[tuple[str, str]]:
    """Lines of the cover with their styles."""
    banner = [("banner", presentation.banner)] if presentation.banner else []
    source = [("text", source_of(presentation))] if presentation.source else []
    return [
        ("title", presentation.title or DEFAULT_TITLE), *banner, ("text", INTRODUCTION), *source,
        ("text", presentation.privacy_note),
    ]  # fmt: skip


def _sheet(layout: Layout, notes: Notes, presentation: Presentation) -> _Sheet:
    references = " ".join(_reference(notes, text) for text in note_texts(layout, presentation))
    lines = (
        layout.subtitle or layout.title,
        layout.banner,
        f"{INSTRUCTIONS}{references}",
        source_of(presentation),
        *LEGEND,
    )
    titles = layout.by_titles or (layout.stub_heading,)
    return _Sheet(
        lines=tuple(filter(None, lines)),
        headings=(*titles, *(each.in_one_line for each in layout.columns), "Notes"),
        rows=tuple(_row(row, dict(layout.footnotes), notes) for row in layout.rows),
        labels=len(titles),
        decimals=tuple(decimals_of(layout, place) for place in range(len(layout.columns))),
    )


def _row(row: Any, text_of: Mapping[str, str], notes: Notes) -> tuple[str | float, ...]:
    remarks = " ".join(_reference(notes, text_of[mark]) for mark in marks_of(row.cells))
    labels = row.labels or (row.stub.label,)
    return (*labels, *map(value_of, row.cells), remarks or NONE)


def _reference(notes: Notes, text: str) -> str:
    return f"[note {notes.number(text)}]"


class _Book:
    """The spreadsheet as odfpy builds it."""

    def __init__(self, title: str) -> None:
        from odf import dc, table
        from odf.opendocument import OpenDocumentSpreadsheet

        self._document: Any = OpenDocumentSpreadsheet()
        self._document.meta.addElement(dc.Title(text=xml_text(title)))
        self._document.meta.addElement(dc.Language(text="en"))
        self._ranges = table.DatabaseRanges()
        self._styles: set[str] = set()
        self._text_styles()
        self._pages()

    def _text_styles(self) -> None:
        from odf.style import ParagraphProperties, Style, TableCellProperties, TextProperties

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
        """A sheet is printed one page wide, on its side."""
        from odf.namespaces import STYLENS
        from odf.style import MasterPage, PageLayout, PageLayoutProperties, Style

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
        """A column of this width."""
        from odf.style import Style, TableColumnProperties
        from odf.table import TableColumn

        name = f"width-{width.replace('.', '-')}"
        if name not in self._styles:
            self._styles.add(name)
            style = Style(name=name, family="table-column")
            style.addElement(TableColumnProperties(columnwidth=width))
            self._document.automaticstyles.addElement(style)
        return TableColumn(stylename=name)

    def _number_style(self, decimals: int) -> str:
        """Numbers to the right with so many decimals and thousands apart."""
        from odf.number import Number, NumberStyle
        from odf.style import ParagraphProperties, Style, TableCellProperties, TextProperties

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
        from odf.table import Table

        sheet = Table(name=name, stylename="sheet")
        for width in widths:
            sheet.addElement(self._column(width))
        self._document.spreadsheet.addElement(sheet)
        return sheet

    def texts(self, name: str, lines: Sequence[tuple[str, str]]) -> None:
        """A sheet of lines below each other, each with its style."""
        sheet = self._start(name, [_TEXTS])
        for style, line in lines:
            wrapped = "note" if style == "text" else style
            sheet.addElement(_table_row([_text_cell(line, wrapped)]))

    def listing(
        self, name: str, headings: Sequence[str], rows: Sequence[tuple[str, str]]
    ) -> None:
        """A sheet of two columns below headings."""
        from odf.table import TableHeaderRows

        sheet = self._start(name, [_LABELS, _TEXTS])
        sheet.addElement(_table_row([_text_cell(name, "title")]))
        head = TableHeaderRows()
        head.addElement(_table_row([_text_cell(each, "head") for each in headings]))
        sheet.addElement(head)
        for row in rows:
            sheet.addElement(_table_row([_text_cell(each, "note") for each in row]))

    def contents(self, titles: Mapping[str, str]) -> None:
        """Names of the sheets, each a link, and what they show."""
        from odf.table import TableHeaderRows

        sheet = self._start("Contents", [_LABELS, _TEXTS])
        sheet.addElement(_table_row([_text_cell("Contents", "title")]))
        head = TableHeaderRows()
        cells = [_text_cell(each, "head") for each in ("Worksheet", "Table")]
        head.addElement(_table_row(cells))
        sheet.addElement(head)
        for name, title in {"Notes": "Notes on all tables", **titles}.items():
            sheet.addElement(_table_row([_link_cell(name), _text_cell(title, "note")]))

    def table(self, name: str, sheet: _Sheet) -> None:
        """A table below its lines; headings and the range of cells are marked."""
        from odf.table import DatabaseRange, TableHeaderRows

        numbers = len(sheet.headings) - sheet.labels
        made = self._start(name, [*[_LABELS] * sheet.labels, *[_NARROW] * numbers])
        for place, line in enumerate(sheet.lines):
            made.addElement(_table_row([_text_cell(line, "text" if place else "title")]))
        head = TableHeaderRows()
        inside = range(sheet.labels, len(sheet.headings) - 1)
        head.addElement(
            _table_row(
                _text_cell(each, "head-right" if place in inside else "head")
                for place, each in enumerate(sheet.headings)
            )
        )
        made.addElement(head)
        for row in sheet.rows:
            made.addElement(_table_row(self._cells(row, sheet)))
        first, last = len(sheet.lines) + 1, len(sheet.lines) + 1 + len(sheet.rows)
        quoted = name.replace("'", "''")
        self._ranges.addElement(
            DatabaseRange(
                name=f"table_{name.lower().replace(' ', '_')}",
                targetrangeaddress=f"'{quoted}'.A{first}:'{quoted}'."
                f"{_letters(len(sheet.headings))}{last}",
                containsheader="true",
            )
        )

    def _cells(self, row: Sequence[str | float], sheet: _Sheet) -> Iterator[Any]:
        from odf.table import TableCell
        from odf.text import P

        for place, value in enumerate(row):
            if isinstance(value, str):
                inside = sheet.labels <= place < len(row) - 1
                yield _text_cell(value, "note-right" if inside else "note")
                continue
            decimals = sheet.decimals[place - sheet.labels]
            style = self._number_style(decimals)
            cell = TableCell(valuetype="float", value=repr(value), stylename=style)
            cell.addElement(P(text=f"{value:,.{decimals}f}"))
            yield cell

    def content(self) -> bytes:
        """The file; what odfpy packs with the present time, and with the namespaces of all that
        it has ever written, is packed again without them."""
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


def _table_row(cells: Any) -> Any:
    from odf.table import TableRow

    row = TableRow()
    for cell in cells:
        row.addElement(cell)
    return row


def _text_cell(text: str, style: str) -> Any:
    """Text is text: nothing in it is a formula, a link or a number."""
    from odf.table import TableCell
    from odf.text import P

    cell = TableCell(valuetype="string", stylename=style)
    cell.addElement(P(text=xml_text(text)))
    return cell


def _link_cell(sheet: str) -> Any:
    from odf.table import TableCell
    from odf.text import A, P

    cell, paragraph = TableCell(valuetype="string", stylename="note"), P()
    quoted = sheet.replace("'", "''")
    paragraph.addElement(A(href=f"#'{quoted}'.A1", text=sheet))
    cell.addElement(paragraph)
    return cell


def _letters(number: int) -> str:
    """The name of a column: 1 is A, 27 is AA."""
    name = ""
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name
