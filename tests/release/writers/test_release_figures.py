"""Figures for release. Truth: the published numbers, read back from the drawn lines and marks and
from the text of the svg file by Python's XML parser."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.sections import LabelSection
from surveysynth.config.tables_section import FORMATS
from surveysynth.release.tables.layout import Labels, Presentation, TableSet, to_digits, to_percent
from surveysynth.release.tables.table import ReleaseTable, TableNumbers, make_table
from surveysynth.release.writers import figures
from surveysynth.release.writers.figures import MOST_ROWS, estimates_with_intervals

label_of = LabelSection.model_construct

HOSTILE = "<script>alert(1)</script> & $x_1^2$ \\alpha 男"


def table(levels: list[str], statistic: str = "mean", outcome: str = "y") -> ReleaseTable:
    d = len(levels)
    cells = pd.DataFrame({"g": levels, "is_margin": [True] + [False] * (d - 1)})
    x = np.linspace(0.1, 0.9, d)
    n = np.array([50, 0, *range(10, 10 + d)])[:d]
    numbers = TableNumbers(x, x / 10, 0 * x + 7, 9.0, x - 0.05, x + 0.07, n)
    return make_table(statistic, outcome, cells, numbers, level=0.9)  # type: ignore[arg-type]


def presentation(**texts: str) -> Presentation:
    given = {"title": "", "source": "", "privacy_note": "Privacy.", "banner": "", **texts}
    labels = Labels({"g": label_of(levels={"a": HOSTILE}), "y": label_of(title=HOSTILE)})
    rounding = {("mean", "y"): to_digits(0), ("mean", "z"): to_digits(0),
                ("proportion", "y"): to_percent()}  # fmt: skip
    return Presentation(labels=labels, rounding=rounding, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("statistic", "factor"), [("mean", 1.0), ("proportion", 100.0)])
def test_marks_and_lines_are_the_published_numbers(statistic: str, factor: float) -> None:
    made = table(["All", "a", "b", "c"], statistic)
    figure = estimates_with_intervals([made], presentation())
    (panel,) = figure.axes
    marks = [line for line in panel.lines if line.get_marker() != "None"]
    points = np.concatenate([np.column_stack(line.get_data()) for line in marks])
    points = points[np.argsort(points[:, 1])]
    assert np.allclose(points[:, 0], factor * made.frame["estimate"], equal_nan=True)
    assert points[:, 1].tolist() == [0, 1, 2, 3]
    segments = [np.array(each) for c in panel.collections for each in c.get_segments()]
    ends = {(each[0, 1], each[0, 0], each[1, 0]) for each in segments if each.size}
    rows = made.frame[["ci_lower", "ci_upper"]].to_numpy() * factor
    assert ends == {(float(i), *rows[i]) for i in (0, 2, 3)}
    # The first domain is at the top, and one without records says so.
    assert panel.get_ylim()[0] > panel.get_ylim()[1]
    (missing,) = [text for text in panel.texts if text.get_text() == "no estimate"]
    assert missing.get_position()[1] == 1


def test_several_outcomes_have_a_panel_each_and_long_tables_an_end() -> None:
    levels = ["All", *map(str, range(MOST_ROWS + 20))]
    tables = [table(levels, outcome=outcome) for outcome in ("y", "z")]
    figure = estimates_with_intervals(tables, presentation())
    assert [len(panel.get_yticks()) for panel in figure.axes] == [MOST_ROWS] * 2
    assert "The first 150 rows" in figure._supxlabel.get_text()  # type: ignore[attr-defined]


def svg_text(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_files_hold_labels_as_text_and_are_the_same_each_time(tmp_path: Path) -> None:
    shown = presentation(title=HOSTILE, source=HOSTILE, banner="NOT PRIVATE")
    for name in "ab":
        (tmp_path / name).mkdir()
        tables = TableSet({"mean": [table(["All", "a", "b"])]}, shown)
        for file_format in ("png", "svg", "pdf"):
            figures.write(tables, tmp_path / name, FORMATS[file_format])
    for ending in ("png", "svg", "pdf"):
        first, second = ((tmp_path / name / f"means.{ending}").read_bytes() for name in "ab")
        assert first == second
        assert len(first) > 2000
    content = (tmp_path / "a" / "means.svg").read_text()
    assert "<script" not in content
    texts = svg_text(tmp_path / "a" / "means.svg")
    assert HOSTILE in texts
    assert f"Source: {HOSTILE}" in texts
    assert "NOT PRIVATE" in texts
    assert "Privacy." in texts


def test_control_characters_make_no_broken_file(tmp_path: Path) -> None:
    """A code of a level may have them, and no XML file can."""
    bell = "Bio\x07logy"
    shown = presentation(title=bell, source=bell)
    figures.write(TableSet({"mean": [table(["All", bell])]}, shown), tmp_path, FORMATS["svg"])
    assert {"Biology", "Source: Biology"} <= set(svg_text(tmp_path / "means.svg"))
