"""The catalog of release specifications. Truth: the tables kept with it; tampered copies of them,
which must be found, and noise of other machines, which must not."""

import re
import shutil
from pathlib import Path

import pytest

from surveysynth._support.resources import tables_directory
from surveysynth.errors import InputError
from tests import catalog

TABLES = tables_directory()


def test_every_specification_gives_the_tables_kept_with_it() -> None:
    told: list[str] = []
    outcomes = catalog.check(say=told.append)
    assert [outcome.name for outcome in outcomes] == [
        "consumers_by_tenure", "employment_by_region", "hours_by_sector", "salaries_by_field",
    ]  # fmt: skip
    assert [outcome.differences for outcome in outcomes] == [()] * 4
    assert all(line.endswith("as expected") for line in told)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """One entry of the catalog in a folder of its own."""
    shutil.copytree(TABLES / "hours_by_sector", tmp_path / "tables" / "hours_by_sector")
    return tmp_path / "tables"


def test_a_changed_number_a_changed_word_and_missing_files_are_shown(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = copy / "hours_by_sector" / "expected"
    table, page = expected / "totals.csv", expected / "totals.md"
    changed = re.sub(r"(\d{5})(\d)\.", lambda f: f"{f[1]}{(int(f[2]) + 1) % 10}.",
                     table.read_text(), count=1)  # fmt: skip
    table.write_text(changed)
    page.write_text(page.read_text().replace("Small", "Little", 1))
    (expected / "more.csv").write_text("a\n")
    (outcome,) = catalog.check(copy, say=lambda line: None)
    shown = "\n".join(outcome.differences)
    assert shown.count("--- expected/") == 2
    assert re.search(r"^\+.*Small", shown, re.MULTILINE)
    assert re.search(r"^-.*Little", shown, re.MULTILINE)
    assert "more.csv: expected, but not made" in shown
    # One row of each table is shown, not the rows that agree.
    assert len([line for line in outcome.differences if line.startswith("-")]) == 4
    monkeypatch.setattr(catalog, "tables_directory", lambda: copy)
    assert catalog.main([]) == 1
    told = capsys.readouterr()
    assert "hours_by_sector: differs" in told.out
    assert "-| &emsp;Little" in told.out
    catalog.update(copy, say=lambda line: None)
    kept = TABLES / "hours_by_sector" / "expected" / "totals.md"
    assert page.read_bytes() == kept.read_bytes()
    assert not (expected / "more.csv").exists()


@pytest.mark.parametrize(
    ("expected", "made", "same"),
    [
        ("a,1234.5678901234,3", "a,1234.5678901999,3", True),
        ("a,1234.5678,3", "a,1234.5681,3", False),
        ("a,257,120", "a,257,121", False),
        ("x 2.1e-13", "x -3.4e-12", True),
        ("x 2.1e-03", "x 2.2e-03", False),
        ("1,234 (56)", "1,235 (56)", False),
        ("−5.5", "5.5", False),
        ("p 0.1", "q 0.1", False),
    ],
)
def test_what_counts_as_the_same(expected: str, made: str, same: bool) -> None:
    assert catalog.agree(expected, made) is same
    assert (catalog.diff("x", expected, made) == []) is same


def test_a_folder_without_entries_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        catalog.check(tmp_path)
