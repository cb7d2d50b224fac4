"""Cross tables for readers.

Truth: the same numbers in the long table, cell by cell; the files of every format read back."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.sections import LabelSection
from surveysynth.config.tables_section import FORMATS
from surveysynth.release.tables.layout import (
    Column,
    Labels,
    Layout,
    Presentation,
    TableSet,
    lay_out,
    to_digits,
)
from surveysynth.release.tables.table import (
    ReleaseTable,
    TableNumbers,
    make_table,
    policy_of,
)
from surveysynth.release.writers import html, latex, markdown

label_of = LabelSection.model_construct

LABELS = Labels({"sex": label_of(title="Sex", levels={"f": "Women", "m": "Men"})})


def table_of(by: tuple[str, ...], *, categories: tuple[str, ...] = ()) -> ReleaseTable:
    levels = {"area": ["All", "n", "s"], "age": ["All", "1", "2", "3"], "sex": ["All", "f", "m"]}
    cells = pd.DataFrame(list(product(*(levels[name] for name in by))), columns=list(by))
    cells["is_margin"] = (cells == "All").any(axis=1)
    size = len(cells) * max(len(categories), 1)
    estimate = 1000.0 + 10.0 * np.arange(size)
    se = np.where(np.arange(size) % 5 == 3, 400.0, 20.0)
    n = np.full(len(cells), 50)
    n[4:5] = 0  # but for the smallest table
    numbers = TableNumbers(estimate, se, np.full(size, 30.0), 30.0, estimate - 40, estimate + 40, n)
    return make_table(
        "share" if categories else "mean", "y", cells, numbers, level=0.95,
        flags=policy_of("statcan_marked"), categories=categories,
    )  # fmt: skip


def presentation(kind: str) -> Presentation:
    rounding = {("mean", "y"): to_digits(0), ("share", "y"): to_digits(0)}
    return Presentation("", "", "Privacy.", "", LABELS, rounding, kind, csv=True)  # type: ignore[arg-type, arg-type]


def long_cells(table: ReleaseTable) -> dict[tuple[str, ...], tuple[str, str]]:
    """Estimate and standard error as the long table shows them, by the labels of a row."""
    made = lay_out([table], presentation("columns"))
    return {row.labels: (row.cells[0].text, row.cells[1].text) for row in made.rows}


def crossed(by: tuple[str, ...], kind: str, categories: tuple[str, ...] = ()) -> Layout:
    return lay_out([table_of(by, categories=categories)], presentation(kind))


@pytest.mark.parametrize("by", [("sex",), ("area", "sex"), ("area", "age", "sex")])
@pytest.mark.parametrize("categories", [(), ("yes", "no")])
def test_every_number_is_where_its_row_and_column_say(
    by: tuple[str, ...], categories: tuple[str, ...]
) -> None:
    expected = long_cells(table_of(by, categories=categories))
    paired, apart = crossed(by, "crosstab", categories), crossed(by, "sheet_crosstab", categories)
    assert [column.heading for column in paired.columns] == ["All", "Women", "Men"]
    assert {column.spanner for column in paired.columns} == {"Sex"}
    assert [column.spanner for column in apart.columns[::2]] == ["All", "Women", "Men"]
    found = 0
    for one, two in zip(paired.rows, apart.rows, strict=True):
        rest, level = (one.labels[:-1], one.labels[-1:]) if categories else (one.labels, ())
        for place, column in enumerate(paired.columns):
            estimate, se = expected[(*rest, column.heading, *level)]
            shown = f"{estimate} ({se})" if estimate != "–" else estimate
            assert one.cells[place].text == shown
            assert [cell.text for cell in two.cells[2 * place : 2 * place + 2]] == [estimate, se]
            found += 1
    assert found == len(expected)


def test_flags_and_empty_cells_have_footnotes_in_reading_order() -> None:
    made = crossed(("area", "sex"), "crosstab")
    marks = [mark for row in made.rows for cell in row.cells for mark in cell.marks]
    assert [text for _, text in made.footnotes] == [
        "Flag F; the notes say what it means.",
        "No sample records in this cell, hence no estimate.",
    ]
    assert list(dict.fromkeys(marks)) == ["a", "b"]
    assert any(note.startswith("Flags by Statistics Canada") for note in made.notes)
    assert made.notes[0] == (
        "Standard errors are in brackets. Intervals and numbers of sample records are in the csv "
        "file."
    )


def test_the_stub_has_the_other_columns() -> None:
    made = crossed(("area", "age", "sex"), "crosstab")
    assert made.by_titles == ("area", "age")
    assert made.stub_heading == "area and age"
    assert [(row.stub.label, row.stub.strong) for row in made.rows[4:6]] == [
        ("n", True), ("1", False)
    ]  # fmt: skip
    assert crossed(("sex",), "crosstab").rows[0].stub.label == "All"


def test_worksheets_keep_numbers_apart() -> None:
    assert presentation("crosstab").for_sheets.kind == "sheet_crosstab"
    assert presentation("compact").for_sheets.kind == "columns"
    made = crossed(("area", "sex"), "sheet_crosstab")
    assert made.rows[0].cells[0].value == 1000.0
    assert not any(note.startswith("Standard errors are in") for note in made.notes)


def test_every_format_shows_it() -> None:
    made = crossed(("area", "sex"), "crosstab")
    page, text, tex = (
        html.render_page(made), markdown.render_page(made), latex.render_fragment(made)
    )  # fmt: skip
    assert "| area | Sex: All | Sex: Women | Sex: Men |" in text
    assert "1,000 (20)" in page
    assert 'scope="colgroup"' in page
    assert r"\multicolumn{3}{c}{Sex}" in tex
    assert "1,010 (20)" in tex
    one_row = crossed(("area", "sex"), "sheet_crosstab").columns[2].in_one_line
    assert one_row == "Women: Estimated mean"


def test_labels_of_levels_keep_their_letters() -> None:
    """F and f are two levels."""
    columns = (Column("one", "F", "England"), Column("other", "f", "England"))
    made = crossed(("area", "sex"), "crosstab")
    cells = made.rows[0].cells[:2]
    row = replace(made.rows[0], cells=cells)
    text = markdown.render_page(replace(made, columns=columns, rows=(row,)))
    assert "| area | England: F | England: f |" in text


def test_pages_say_how_a_table_is_arranged() -> None:
    """What a screen reader tells: title, arrangement, what headings are of, a place to scroll."""
    made = replace(crossed(("area", "sex"), "crosstab"), title='A "title" & more')
    page = html.render_page(made)
    assert 'aria-describedby="means-summary"' in page
    assert '<div class="summary" id="means-summary">3 rows by area, 3 columns: Sex: All;' in page
    region = 'id="means" role="group" tabindex="0" aria-label="A &quot;title&quot; &amp; more"'
    assert region in page
    assert 'role="heading" aria-level="1"' in page
    assert "overflow-x:auto" in page
    assert page.count("<main>") == page.count("</main>") == 1
    assert page.count("<th ") == len(re.findall(r"<th [^>]*scope=", page))


@pytest.mark.parametrize("writer", ["xlsx", "ods"])
def test_workbooks_have_a_column_for_every_number(writer: str, tmp_path: Path) -> None:
    """A row of the sheet is a row of the cross table, an estimate and its error by level."""
    made = FORMATS[writer]
    shown = TableSet({"mean": [table_of(("area", "sex"))]}, presentation("crosstab"))
    made.load_writer()(shown, tmp_path, made)
    part = {"xlsx": "xl/sharedStrings.xml", "ods": "content.xml"}[writer]
    with ZipFile(tmp_path / str(made.one_file)) as parts:
        text = parts.read(part).decode()
        numbers = text + "".join(
            parts.read(name).decode() for name in parts.namelist() if "worksheets/sheet" in name
        )
    assert "Women: Estimated mean" in text
    assert "Men: Standard error" in text
    for value in (1010, 1020):  # a number each, not a text with its error
        assert re.search(rf'<v>{value}</v>|office:value="{value}(\.0)?"', numbers)
