"""All tables as one workbook in the form of official statistics: cover, contents, notes, tables.

gptables arranges it. Numbers are numbers, rounded as readers see them elsewhere; each by-column has
a column of its own, without merged or empty cells, so that screen readers and programs follow. An
estimate and its standard error keep their own columns in the compact layout too.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    import pandas as pd

#: XlsxWriter's default is the present time; the same tables shall give the same bytes.
_CREATED = datetime(1980, 1, 1)
#: Text in cells is text: no formula, link or number is made of it.
_INERT = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
_WORD_JOINER = "\u2060"
_INDEX_LEVELS = 3
_LONGEST_HEADING = 200
#: Columns in characters, lines of text in points.
_WIDTH, _BY_WIDTH, _NOTES_WIDTH, _COVER_WIDTH, _LINE = 18, 24, 110, 85, 18
_COVER = "Cover"
#: Title, instructions and headings come before the first note.
_NOTES_START = 3


def write(shown: Shown, folder: Path, made: Format) -> None:
    """Write every table, one sheet for each outcome of each statistic, into one workbook."""
    presentation, layouts = shown.presentation, sheet_layouts(shown)
    with _own_warnings_of_gptables():
        workbook = _workbook(layouts, presentation, folder / str(made.one_file))
    workbook.set_properties({"title": presentation.title, "created": _CREATED})
    workbook.close()


@contextmanager
def _own_warnings_of_gptables() -> Iterator[None]:
    """gptables 2.0 leaves its theme file open and calls pandas in ways that pandas deprecates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"unclosed file .*gptheme\.pickle", ResourceWarning)
        for message, module in (
            (r"The inplace keyword in DataFrame\.\w+ is deprecated", r"gptables\.core\."),
            (r"The copy keyword is deprecated", r"gptables\.core\."),
            (r"Setting an item of incompatible dtype is deprecated", r"gptables\.core\."),
            # Raised inside a context manager, hence as if by the standard library.
            (r"'future\.no_silent_downcasting' is deprecated", r"contextlib|gptables\.core\."),
        ):
            warnings.filterwarnings("ignore", message, module=module)
        yield


def _workbook(layouts: Mapping[str, Layout], presentation: Presentation, path: Path) -> Any:
    import gptables

    notes = _Notes()
    sheets = {name: _sheet(name, layout, notes, presentation) for name, layout in layouts.items()}
    workbook = gptables.produce_workbook(
        str(path),
        sheets,
        cover=_cover(presentation),
        notes_table=notes.frame(),
        auto_width=False,
        workbook_options=_INERT,
    )
    _arrange(workbook, sheets, presentation)
    notes_sheet = workbook.get_worksheet_by_name("Notes")
    for row, text in enumerate(notes.texts, start=_NOTES_START):
        notes_sheet.set_row(row, _height(text, _NOTES_WIDTH))
    return workbook


class _Notes(Notes):
    """With what gptables wants of them."""

    def reference(self, text: str) -> str:
        """What gptables turns into ``[note 1]``."""
        return f"$$note{self.number(text)}$$"

    def frame(self) -> "pd.DataFrame":
        """References and texts."""
        import pandas as pd

        rows = [(f"note{self.number(text)}", _label(text)) for text in self.texts]
        return pd.DataFrame(rows, columns=["Note reference", "Note text"], dtype=object)


def _inert(text: str) -> str:
    """One line in which gptables finds neither a note reference nor a link.

    It has no way to escape them. A word joiner has no width. Codes of levels may have anything.
    """
    return xml_text(text).replace("$$", f"${_WORD_JOINER}$").replace("](", f"]{_WORD_JOINER}(")


def _label(text: str) -> Any:
    """A cell of text; in this form it needs no Latin letter or digit, which gptables demands."""
    from gptables.core.gptable import FormatList

    return FormatList([{}, _inert(text)])


def _cover(presentation: Presentation) -> Any:
    import gptables

    intro, about = _cover_texts(presentation)
    return gptables.Cover(
        title=_inert(presentation.title or DEFAULT_TITLE),
        intro=[_inert(text) for text in intro],
        about=[_inert(text) for text in about],
        cover_label=_COVER,
        width=_COVER_WIDTH,
    )


def _cover_texts(presentation: Presentation) -> tuple[list[str], list[str]]:
    """Introduction and what is said about the data."""
    intro = [
        *([presentation.banner] if presentation.banner else []),
        INTRODUCTION,
    ]
    source = [source_of(presentation)] if presentation.source else []
    return intro, [*source, presentation.privacy_note]


def _sheet(name: str, layout: Layout, notes: _Notes, presentation: Presentation) -> Any:
    import gptables

    source = source_of(presentation)
    references = "".join(notes.reference(text) for text in note_texts(layout, presentation))
    frame = _frame(layout, notes)
    by = max(len(layout.by_titles), 1)
    return gptables.GPTable(
        table=frame,
        table_name="table_" + name.lower().replace(" ", "_"),
        title=_inert(layout.subtitle or layout.title),
        subtitles=[_inert(layout.banner)] if layout.banner else [],
        instructions=INSTRUCTIONS + references,
        source=_inert(source) if source else None,
        legend=list(LEGEND),
        index_columns={level: level - 1 for level in range(1, min(by, _INDEX_LEVELS) + 1)},
        additional_formatting=_formats(layout, by),
    )


def _frame(layout: Layout, notes: _Notes) -> "pd.DataFrame":
    """By-columns, numbers and references to notes on single cells; no cell is empty."""
    import pandas as pd

    text_of = dict(layout.footnotes)
    rows = []
    for row in layout.rows:
        marks = marks_of(row.cells)
        remarks = " ".join(f"[note {notes.number(text_of[mark])}]" for mark in marks)
        labels = row.labels or (row.stub.label,)
        cells = [value_of(cell) for cell in row.cells]
        rows.append([*(_label(text) for text in labels), *cells, remarks or NONE])
    titles = layout.by_titles or (layout.stub_heading,)
    headings = _distinct([*titles, *(each.in_one_line for each in layout.columns), "Notes"])
    return pd.DataFrame(rows, columns=headings, dtype=object)


def _distinct(headings: Sequence[str]) -> list[str]:
    """Headings of a worksheet table differ, whatever their case, and are not too long."""
    found: list[str] = []
    taken: set[str] = set()
    for heading in headings:
        base = name = _inert(heading)[:_LONGEST_HEADING] or "Column"
        number = 1
        while name.lower() in taken:
            number += 1
            name = f"{base} ({number})"
        taken.add(name.lower())
        found.append(name)
    return found


def _formats(layout: Layout, by: int) -> list[dict[str, Any]]:
    """Numbers to the right with the digits of the table."""
    formats: list[dict[str, Any]] = []
    for index, column in enumerate(layout.columns):
        decimals = decimals_of(layout, index)
        shown = "#,##0" + (f".{'0' * decimals}" if decimals else "")
        number = {"align": "right", "num_format": shown}
        kind = {"align": "center"} if column.key == "flag" else number
        formats.append({"column": {"columns": [by + index], "format": kind, "include_names": True}})
    return formats


def _arrange(workbook: Any, sheets: Mapping[str, Any], presentation: Presentation) -> None:
    """Widths, and heights of rows with wrapped text, which not every reader works out itself."""
    for sheet in workbook.worksheets():
        name = sheet.get_name()
        sheet.set_landscape()
        sheet.fit_to_pages(1, 0)
        if name == _COVER:
            for row, text in enumerate(_cover_rows(presentation)):
                sheet.set_row(row, _height(text, _COVER_WIDTH))
        elif name in sheets:
            table = sheets[name]
            sheet.set_column(0, table.index_levels - 1, _BY_WIDTH)
            sheet.set_column(table.index_levels, table.table.shape[1] - 1, _WIDTH)
            headings = map(str, table.table.columns)
            sheet.set_row(table.data_range[0], max(_height(text, _WIDTH) for text in headings))
        else:
            sheet.set_column(0, 0, _WIDTH)
            sheet.set_column(1, 1, _NOTES_WIDTH)


def _height(text: str, width: int) -> float:
    """Points; bold and capital letters take more than the average width."""
    return _LINE * math.ceil(1.2 * len(text) / width)


def _cover_rows(presentation: Presentation) -> list[str]:
    """The cover line by line, with the headings that gptables puts between."""
    intro, about = _cover_texts(presentation)
    title = presentation.title or DEFAULT_TITLE
    return [title * 2, "Introductory information", *intro, "About these data", *about]
