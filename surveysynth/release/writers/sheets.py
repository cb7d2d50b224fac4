"""What workbooks of any form share: their sheets, and what stands in cells without a number."""

import math
import re
from collections.abc import Iterable
from itertools import count

from surveysynth.estimation.statistics import statistic_of
from surveysynth.release.tables.layout import Cell, Layout, Presentation, Shown, lay_out
from surveysynth.release.tables.rounding import ABSENT

NO_NUMBER, NONE = "[x]", "[none]"
LEGEND = (
    f"{NO_NUMBER} no number is available or it is withheld, for a reason that the notes give",
    f"{NONE} nothing to remark",
)
DEFAULT_TITLE = "Tables from synthetic survey microdata"
INTRODUCTION = (
    "Tables estimated from synthetic microdata. The contents sheet lists them; the notes sheet "
    "explains what stands in brackets."
)
INSTRUCTIONS = "This worksheet contains one table. The notes sheet explains it: "
_LONGEST_NAME = 31
_NO_SIGNS = re.compile(r"[^\w ]")


class Notes:
    """Notes of all sheets, numbered from 1 in the order in which the sheets refer to them."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Of a note, which is new or was there."""
        return self._number.setdefault(text, len(self._number) + 1)

    @property
    def texts(self) -> list[str]:
        """By number."""
        return list(self._number)


def sheet_layouts(shown: Shown, reserved: Iterable[str] = ()) -> dict[str, Layout]:
    """A sheet for each outcome of each statistic, by name; ``reserved``: names that none has."""
    layouts: dict[str, Layout] = {}
    for statistic, of_outcomes in shown.tables.items():
        for number, table in enumerate(of_outcomes, start=1):
            suffix = f" {number}" if len(of_outcomes) > 1 else ""
            name = sheet_name(statistic_of(statistic).title, suffix, (*reserved, *layouts))
            layouts[name] = lay_out([table], shown.presentation.for_sheets)
    return layouts


def sheet_name(title: str, suffix: str, taken: Iterable[str]) -> str:
    """A name that spreadsheet programs take: short, without their signs, and not taken."""
    used = {name.casefold() for name in taken}
    plain = _NO_SIGNS.sub("", title).strip()
    for number in count(1):
        end = suffix if number == 1 else f" {number}{suffix}"
        name = plain[: _LONGEST_NAME - len(end)].rstrip() + end
        if name.casefold() not in used:
            return name
    raise AssertionError  # numbers do not end


def source_of(presentation: Presentation) -> str:
    """The line that names the source; "" without one."""
    return f"Source: {presentation.source}" if presentation.source else ""


def note_texts(layout: Layout, presentation: Presentation) -> list[str]:
    """Notes on a table and on single cells, but for what has a place of its own."""
    apart = (source_of(presentation), presentation.banner)
    return [
        *(text for text in layout.notes if text not in apart),
        *(text for _, text in layout.footnotes),
    ]


def marks_of(row: Iterable[Cell]) -> list[str]:
    """Marks of footnotes in a row, each once."""
    return sorted({mark for cell in row for mark in cell.marks})


def value_of(cell: Cell) -> str | float:
    """A number, or what stands in its place."""
    if cell.value is not None and math.isfinite(cell.value):
        return cell.value
    return {ABSENT: NO_NUMBER, "": NONE}.get(cell.text, cell.text)


def decimals_of(layout: Layout, place: int) -> int:
    """The digits after the point that a column shows."""
    return max((row.cells[place].decimals for row in layout.rows), default=0)
