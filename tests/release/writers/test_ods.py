"""The OpenDocument spreadsheet. Truth: the layout itself, read back from the XML by the rules of
the format, and LibreOffice where installed; OpenDocument's own order of the parts of a package."""

import csv
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.tables_section import FORMATS
from surveysynth.release.tables.layout import Presentation, TableSet, lay_out
from surveysynth.release.tables.table import ReleaseTable, TableNumbers, make_table
from surveysynth.release.writers import ods
from tests.release.writers.test_formats import HOSTILE, hostile_presentation, presentation, table

ODS = FORMATS["ods"]
OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
LINK = "{http://www.w3.org/1999/xlink}href"


def written(
    path: Path, tables: list[ReleaseTable], shown: Presentation, statistic: str = "mean"
) -> ElementTree.Element:
    ods.write(TableSet({statistic: tables}, shown), path.parent, replace(ODS, one_file=path.name))
    with zipfile.ZipFile(path) as parts:
        return ElementTree.fromstring(parts.read("content.xml"))


def sheets(root: ElementTree.Element) -> dict[str, list[list[str | float]]]:
    """Cells of every sheet as text, or numbers where the file says so."""
    return {
        str(sheet.get(f"{TABLE}name")): [
            [_cell(cell) for cell in row.iter(f"{TABLE}table-cell")]
            for row in sheet.iter(f"{TABLE}table-row")
        ]
        for sheet in root.iter(f"{TABLE}table")
    }


def _cell(cell: ElementTree.Element) -> str | float:
    assert cell.get(f"{TABLE}formula") is None, "a formula"
    if cell.get(f"{OFFICE}value-type") == "float":
        return float(str(cell.get(f"{OFFICE}value")))
    assert cell.get(f"{OFFICE}value-type") == "string"
    return "".join(cell.itertext())


def test_every_part_is_shown_and_numbers_are_numbers(tmp_path: Path) -> None:
    made = table(["All", "a", "b", "c"], flags="statcan")
    shown = presentation(banner="NOT PRIVATE")
    found = sheets(written(tmp_path / "t.ods", [made], shown))
    assert list(found) == ["Cover", "Contents", "Notes", "Means"]
    assert [row[0] for row in found["Cover"]][:3] == (
        ["Title", "Introductory information", "NOT PRIVATE"]
    )
    text = "\n".join(str(cell) for rows in found.values() for row in rows for cell in row)
    for part in ["Source: A frame", "A note.", "Privacy: epsilon.",
                 "No sample records in this cell", "too unreliable",
                 "95% confidence interval: Lower"]:  # fmt: skip
        assert part in text, part
    rows = found["Means"][-4:]
    assert rows[0] == ["All", 1234.6, 123.5, 1229.1, 1001234.6, 5000.0, "[none]", "[none]"]
    assert rows[1][:3] == ["a", "[x]", "[x]"]
    assert all(len(row) == 8 for row in found["Means"][-5:])
    assert all(cell != "" for row in rows for cell in row)
    notes = {f"[note {number:g}]": text for number, text in found["Notes"][3:]}
    assert "No sample records" in notes[str(rows[1][-1])]


def test_headings_are_marked_and_tables_named(tmp_path: Path) -> None:
    root = written(tmp_path / "t.ods", [table(["All", "a"])], presentation())
    means = next(s for s in root.iter(f"{TABLE}table") if s.get(f"{TABLE}name") == "Means")
    rows = list(means.iter(f"{TABLE}table-row"))
    ((heading,),) = [list(head) for head in means.iter(f"{TABLE}table-header-rows")]
    assert next(heading.itertext()) == "g"
    *lists, marked = root.iter(f"{TABLE}database-range")
    assert [each.get(f"{TABLE}name") for each in lists] == ["contents_table", "notes_table"]
    first = 1 + rows.index(heading)
    assert marked.get(f"{TABLE}target-range-address") == (
        f"'Means'.A{first}:'Means'.G{first + 2}"
    )
    assert marked.get(f"{TABLE}contains-header") == "true"
    links = [link.get(LINK) for link in root.iter(f"{TEXT}a")]
    assert links == ["#'Means'.A1"]


@pytest.mark.parametrize("text", [*HOSTILE, "a\x00b\x1f", "=1+1", "'x'"])
def test_hostile_labels_stay_text(tmp_path: Path, text: str) -> None:
    shown = hostile_presentation(text)
    rows = sheets(written(tmp_path / "t.ods", [table(["All", text])], shown))
    expected = " ".join(text.replace("\x00", "").replace("\x1f", "").split())
    cells = [cell for each in rows.values() for row in each for cell in row]
    assert expected in cells
    assert f"Source: {expected}" in cells


def test_a_package_is_the_same_each_time_and_in_order(tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(tmp_path / f"{name}.ods", [table(["All", "x"])], presentation())
    assert (tmp_path / "a.ods").read_bytes() == (tmp_path / "b.ods").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.ods") as parts:
        first = parts.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        assert parts.read("mimetype") == b"application/vnd.oasis.opendocument.spreadsheet"


def test_sheets_of_tables_keep_apart_from_the_others(tmp_path: Path) -> None:
    """Several outcomes, and more columns than letters."""
    by = [f"by {number}" for number in range(27)]
    cells = pd.DataFrame({name: ["All", "x"] for name in by} | {"is_margin": [True, False]})
    x = np.ones(2)
    numbers = TableNumbers(x, x, x, 9.0, x, x, np.full(2, 9))
    both = [make_table("mean", "y", cells, numbers, level=0.95) for _ in range(2)]
    root = written(tmp_path / "t.ods", both, presentation())
    assert list(sheets(root)) == ["Cover", "Contents", "Notes", "Means 1", "Means 2"]
    ranges = list(root.iter(f"{TABLE}database-range"))
    address = str(ranges[2].get(f"{TABLE}target-range-address"))
    assert address.split(":")[1].startswith("'Means 1'.AG")
    assert len({each.get(f"{TABLE}name") for each in ranges}) == 4


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_libreoffice_reads_it(tmp_path: Path) -> None:
    made = table(["All", "a", "=1+1", "c"])
    written(tmp_path / "t.ods", [made], presentation())
    fourth = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,false,false,4"
    subprocess.run(
        ["soffice", "--headless", f"-env:UserInstallation=file://{tmp_path}/profile",
         "--convert-to", fourth,
         "--outdir", str(tmp_path), str(tmp_path / "t.ods")],
        capture_output=True, check=True,
    )  # fmt: skip
    (found,) = tmp_path.glob("*.csv")
    rows = list(csv.reader(found.read_text(encoding="utf-8").splitlines()))[-4:]
    layout = lay_out([made], presentation())
    assert [row[0] for row in rows] == ["All", "a", "=1+1", "c"]
    assert [float(each) for each in rows[0][1:5]] == [c.value for c in layout.rows[0].cells[:4]]
