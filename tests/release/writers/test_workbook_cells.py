"""The Excel workbook cell by cell, read by openpyxl. Truth: cells, styles, widths and tables of the
same workbooks as gptables 2.0 of the UK's Government Analysis Function arranged them, kept in
``tests/golden/workbook_cells.json``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.tables_section import FORMATS
from surveysynth.release.tables.layout import Presentation, TableSet
from surveysynth.release.tables.table import ReleaseTable, TableNumbers, make_table
from surveysynth.release.writers import xlsx
from tests.release.writers.test_formats import HOSTILE, hostile_presentation, presentation, table

openpyxl = pytest.importorskip("openpyxl")

GOLDEN = Path(__file__).parents[2] / "golden" / "workbook_cells.json"
Case = tuple[Mapping[str, Sequence[ReleaseTable]], Presentation]


def two_by_columns() -> ReleaseTable:
    cells = pd.DataFrame({"f": ["All", "All", "1", "1"], "g": ["All", "m", "All", "m"]})
    cells["is_margin"] = [True, True, True, False]
    x = np.array([10.0, 20.0, np.nan, 40.0])
    numbers = TableNumbers(x, x, x, 9.0, x, x, np.full(4, 9))
    return make_table("count", None, cells, numbers, level=0.95)


CASES: dict[str, Case] = {
    "flags": (
        {
            "mean": [table(["All", "a", "b", "c"], flags="statcan")],
            "count": [table(["All", "a", "b"], "count")],
        },
        presentation(banner="NOT PRIVATE"),
    ),
    "several": (
        {"mean": [table(["All", "a"]), table(["All", "a", "b"])], "count": [two_by_columns()]},
        presentation(title="", source=""),
    ),
    "crosstab": ({"count": [two_by_columns()]}, presentation(kind="crosstab")),
    "hostile": ({"mean": [table(["All", *HOSTILE])]}, hostile_presentation(HOSTILE[5])),
}


def read_workbook(path: Path) -> dict[str, Any]:
    """Every cell of every sheet with its style, widths, heights and tables; JSON-ready."""
    book = openpyxl.load_workbook(path)
    found: dict[str, Any] = {"title": book.properties.title}
    for sheet in book.worksheets:
        found[sheet.title] = {
            "cells": {
                cell.coordinate: _cell(cell)
                for row in sheet.iter_rows()
                for cell in row
                if cell.value is not None
            },
            "widths": {name: each.width for name, each in sheet.column_dimensions.items()},
            "heights": {
                str(row): each.height for row, each in sheet.row_dimensions.items() if each.height
            },
            "tables": {
                each.name: [each.ref, *(column.name for column in each.tableColumns)]
                for each in sheet.tables.values()
            },
            "merged": [str(each) for each in sheet.merged_cells.ranges],
            "page": [sheet.page_setup.orientation, sheet.sheet_view.showGridLines],
        }
    return found


def _cell(cell: Any) -> list[Any]:
    font, place = cell.font, cell.alignment
    link = cell.hyperlink.location if cell.hyperlink else None
    return [
        cell.value, cell.number_format, font.name, font.sz, font.b, font.u,
        place.horizontal, place.vertical, place.wrap_text, cell.border.bottom.style, link,
    ]  # fmt: skip


def written(name: str, folder: Path) -> dict[str, Any]:
    tables, shown = CASES[name]
    path = folder / f"{name}.xlsx"
    xlsx.write(TableSet(tables, shown), folder, replace(FORMATS["xlsx"], one_file=path.name))
    return read_workbook(path)


@pytest.mark.parametrize("name", CASES)
def test_cells_are_those_of_gptables(name: str, tmp_path: Path) -> None:
    assert written(name, tmp_path) == json.loads(GOLDEN.read_text(encoding="utf-8"))[name]


def test_a_writer_that_loses_digits_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = xlsx._value
    monkeypatch.setattr(
        xlsx, "_value", lambda cell: each if isinstance(each := value(cell), str) else int(each)
    )
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["flags"]
    cells = written("flags", tmp_path)["Means"]["cells"]
    assert cells["B10"][0] == 1234
    assert golden["Means"]["cells"]["B10"][0] == 1234.6
