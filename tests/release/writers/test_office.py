"""Workbooks of a release in LibreOffice, which reads xlsx and ods. Truth: its csv of every sheet
against the csv files of the release, and the one format's sheets against the other's."""

import csv
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.api.start import write_example
from surveysynth.release.pipeline import release

pytestmark = pytest.mark.skipif(
    shutil.which("soffice") is None, reason="LibreOffice is not installed"
)
#: All sheets, with cells as they are shown (true) or whole (false).
FILTER = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,{shown},false,false,false,-1"
BOOKS = ("xlsx", "ods")


def sheets(book: Path, folder: Path, *, shown: bool) -> dict[str, list[list[str]]]:
    """Cells of each sheet, by name, as LibreOffice has them."""
    folder.mkdir()
    subprocess.run(
        ["soffice", "--headless", f"-env:UserInstallation=file://{book.parent}/../../profile",
         "--convert-to", FILTER.format(shown=str(shown).lower()), "--outdir", str(folder),
         str(book)],
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    return {
        path.stem.removeprefix(f"{book.stem}-"): list(
            csv.reader(path.read_text("utf-8").splitlines())
        )
        for path in sorted(folder.glob("*.csv"))
    }


def test_numbers_of_workbooks_are_those_of_the_release(
    tmp_path: Path, stand_in_posterior: None
) -> None:
    _, spec = write_example(tmp_path / "in", 1000)
    text = spec.read_text(encoding="utf-8")
    books = text.replace('"xlsx", "latex", "markdown"', '"xlsx", "ods"')
    assert books != text
    spec.write_text(books, encoding="utf-8")
    release(spec, tmp_path / "out", ledger=tmp_path / "ledger.jsonl", seed=1)
    tables = tmp_path / "out" / "release" / "tables"
    read = {
        (ending, shown): sheets(
            tables / f"tables.{ending}", tmp_path / f"{ending}-{shown}", shown=shown
        )
        for ending in BOOKS
        for shown in (True, False)
    }
    for name, file, unit in (("Counts", "counts.csv", 100), ("Means", "means.csv", 0.1)):
        published = pd.read_csv(tables / file)
        of = {each: rows[name][-len(published) :] for each, rows in read.items()}
        whole = of["xlsx", False]
        assert whole == of["ods", False]
        assert [int(row[6]) for row in whole] == published["n"].tolist()
        # Neither a known total nor a withheld number has an error.
        kept = [number for number, row in enumerate(whole) if row[3][0].isdigit()]
        assert not published["estimate"][kept].isna().any()
        assert len(kept) > 15
        for place, column in enumerate(("estimate", "se", "ci_lower", "ci_upper"), start=2):
            numbers = np.array([float(whole[number][place]) for number in kept])
            half = unit / 2 / (1 + (column == "se"))
            assert np.abs(numbers - published[column][kept]).max() <= half * (1 + 1e-9)
            for ending in BOOKS:  # as people see them, with separators of thousands
                seen = [of[ending, True][number][place].replace(",", "") for number in kept]
                assert [float(each) for each in seen] == numbers.tolist()
    for ending in BOOKS:
        cells = [cell for sheet in read[ending, True].values() for row in sheet for cell in row]
        assert not [cell for cell in cells if cell.startswith(("#", "Err:"))]
        assert list(read[ending, True]) == ["Contents", "Counts", "Cover", "Means", "Notes"]
