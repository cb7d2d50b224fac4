"""The documented recipe for a format, followed with one of tables as tab-separated text and one of
figures: a file with the writer and a row of the registry, two files in all.

Truth: the files read back, and the words in which every other part of a release tells of them."""

import csv
import sys
from pathlib import Path
from types import ModuleType

import pytest

import surveysynth
from surveysynth.config.build import model_of, read_survey
from surveysynth.config.spec import load_spec, parse_spec
from surveysynth.config.tables_section import FORMATS, Format
from surveysynth.errors import InputError
from surveysynth.release.check import preview_lines
from surveysynth.release.pipeline import release
from surveysynth.release.tables.layout import TableSet
from tests.surveys import MakeSpec

pytestmark = pytest.mark.usefixtures("stand_in_mechanism", "tabs")

# --- 1. The writer, a file of its own ----------------------------------------------------------


def write(shown: TableSet, folder: Path, made: Format) -> None:
    """Write one file a statistic: a line of headings, then a line a row."""
    for statistic, layout in shown.layouts.items():
        lines = [[layout.stub_heading, *(column.heading for column in layout.columns)]]
        lines += [[row.stub.label, *(cell.text for cell in row.cells)] for row in layout.rows]
        text = "\n".join("\t".join(line) for line in lines)
        (folder / made.file_of(statistic)).write_text(text, encoding="utf-8")


# --- 2. Its row in the registry ----------------------------------------------------------------

TABS = Format("tsv", "the same with tabs", "toy_tabs:write")
DRAWN = Format("txt", "a drawing in words", "toy_tabs:write", folder="figures")


@pytest.fixture
def tabs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("toy_tabs")
    module.write = write  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "toy_tabs", module)
    monkeypatch.setitem(FORMATS, "tabs", TABS)
    monkeypatch.setitem(FORMATS, "words", DRAWN)


def test_a_release_has_it_and_tells_of_it(make_spec: MakeSpec, tmp_path: Path) -> None:
    path = make_spec(tables='formats = ["tabs", "words"]')
    folder = release(path, tmp_path / "out").out / "release"
    written = sorted(str(each.relative_to(folder)) for each in folder.rglob("*.t*"))
    assert written == [
        "figures/counts.txt", "figures/means.txt", "tables/counts.tsv", "tables/means.tsv",
    ]  # fmt: skip
    with (folder / "tables" / "means.tsv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t"))
    assert rows[0][:3] == ["field and gender", "Estimated mean", "Standard error"]
    assert len(rows) == 13
    readme = (folder / "README.md").read_text()
    for name, meaning in (("tables/means.tsv", TABS.meaning), ("figures/means.txt", DRAWN.meaning)):
        assert f"- `{name}`: {meaning}" in readme
    spec = load_spec(path)
    told = "\n".join(map(str, preview_lines(spec, read_survey(spec).design, model_of(spec))))
    assert "tables/counts.tsv, tables/means.tsv, figures/counts.txt, figures/means.txt" in told


def test_a_specification_knows_it_by_name(make_spec: MakeSpec) -> None:
    for line, message in (
        ('formats = ["tab"]', "'tabs' or 'words', got 'tab'. Did you mean 'tabs'?"),
    ):
        with pytest.raises(InputError) as caught:
            parse_spec(make_spec(tables=line).read_text())
        assert message in str(caught.value)


def test_no_format_is_named_outside_its_writer_and_its_row() -> None:
    package = Path(surveysynth.__file__).parent
    allowed = {*(package / "release" / "writers").glob("*.py")}
    allowed.add(package / "config" / "tables_section.py")
    allowed.add(package / "api" / "start.py")  # the text of a specification
    named = [
        f"{path.name}: {line.strip()}"
        for path in package.rglob("*.py")
        if path not in allowed
        for line in path.read_text(encoding="utf-8").splitlines()
        if any(f'"{name}"' in line for name in ("latex", "xlsx", "markdown", "svg", "pdf"))
    ]
    assert named == []
