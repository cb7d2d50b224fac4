"""Truth: Python's own csv reader and HTML parser give back what was written."""

import csv
import io
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surveysynth.release.tables.labels import ColumnLabel, Labels
from surveysynth.release.tables.layout import Presentation, lay_out, to_digits, to_multiples
from surveysynth.release.tables.table import ReleaseTable, TableNumbers, make_table
from surveysynth.release.writers.csv import plain_text, write_records, write_table
from surveysynth.release.writers.html import render_page

HOSTILE = "<script>alert('x')</script> & \"quoted\" *a* _b_ `c` <b>"
# Everything that XML can hold: control characters are refused by the reader of surveys.
TEXT = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1)


def _table(levels: list[str], statistic: str = "mean", outcome: str | None = "y") -> ReleaseTable:
    d = len(levels)
    cells = pd.DataFrame({"g": levels, "is_margin": [True] + [False] * (d - 1)})
    x = np.linspace(1000.25, 99999.5, d)
    numbers = TableNumbers(x, x / 10, x / x * 7, 9.0, x / 2, x * 2, np.arange(d) * 3)
    return make_table(statistic, outcome, cells, numbers, level=0.95)  # type: ignore[arg-type]


def _presentation(labels: Labels | None = None, **given: str) -> Presentation:
    texts = {"title": "", "source": "", "privacy_note": "Privacy.", "banner": "", **given}
    rounding = {
        ("mean", "y"): to_digits(0),
        ("mean", "z"): to_digits(1),
        ("count", None): to_multiples(1),
    }
    return Presentation(**texts, labels=labels or Labels(), rounding=rounding)


class _Page(HTMLParser):
    """Texts and tags of a page; style sheets apart."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "onload")]

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_microdata_read_back_to_the_same_doubles(
    tmp_path: Path, file_format: str, values: list[float]
) -> None:
    path = tmp_path / f"x.{file_format}"
    write_records(pd.DataFrame({"x": values}), path, file_format)  # type: ignore[arg-type]
    if file_format == "parquet":
        read = pd.read_parquet(path)["x"].tolist()
    else:
        read = [float(row[0]) for row in csv.reader(io.StringIO(path.read_text())) if row[0] != "x"]
    assert read == values


def test_table_reads_back_exactly_and_missing_is_empty(tmp_path: Path) -> None:
    table = _table(["All", "a,b", 'c "d"\ne'])
    write_table([table], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["g"] for row in rows] == ["All", "a,b", 'c "d"\ne']
    assert rows[0]["estimate"] == ""
    assert [float(row["se"]) for row in rows[1:]] == table.frame["se"].tolist()[1:]


@given(st.lists(TEXT, min_size=1, max_size=4, unique=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_any_code_survives_csv(tmp_path: Path, codes: list[str]) -> None:
    write_table([_table(codes)], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as stream:
        fields = [row["g"] for row in csv.DictReader(stream)]
    assert [plain_text(field) for field in fields] == codes
    assert len(set(fields)) == len(codes)


@given(TEXT, TEXT, TEXT)
@settings(deadline=None, max_examples=25)
def test_any_label_is_shown_as_it_stands(title: str, level: str, column: str) -> None:
    labels = Labels({"g": ColumnLabel(title=column, levels={"a": level})})
    page = _Page(render_page(lay_out([_table(["All", "a"])], _presentation(labels, title=title))))
    plain = _Page(render_page(lay_out([_table(["All", "a"])], _presentation())))
    shown = page.text
    for text in (title, level, column):
        assert " ".join(text.split()) in shown
    assert set(page.tags) == set(plain.tags)


def test_hostile_labels_are_escaped_everywhere() -> None:
    labels = Labels({name: ColumnLabel(title=HOSTILE, unit=HOSTILE) for name in ("g", "y")})
    texts = dict.fromkeys(["title", "source", "privacy_note", "banner"], HOSTILE)
    page = render_page(lay_out([_table(["All", HOSTILE])], _presentation(labels, **texts)))
    assert "<script" not in page
    assert _Page(page).text.count(HOSTILE) >= 8


def test_page_is_self_contained_and_deterministic() -> None:
    tables = [_table(["All", "a"])]
    page = render_page(lay_out(tables, _presentation()))
    assert page == render_page(lay_out(tables, _presentation()))
    parsed = _Page(page)
    assert "script" not in parsed.tags
    assert parsed.links == []
    for loading in ("url(", "@import", "http://", "https://"):
        assert loading not in page


def test_page_shows_statistic_flags_and_notes() -> None:
    tables = [_table(["All", "a", "b"]), _table(["All", "a", "b"], outcome="z")]
    presentation = _presentation(source="A frame", banner="NOT PRIVATE")
    text = _Page(render_page(lay_out(tables, presentation))).text
    for shown in (
        "95% confidence interval",
        "Standard error",
        "Mean y and z, by g",
        "No sample records in this cell",
        "Fewer than 5",
        "Source: A frame",
        "Privacy.",
    ):
        assert shown in text
    assert text.count("NOT PRIVATE") == 2
    assert "50,500" in text
    assert "50,499.9" in text


def test_levels_of_the_second_variable_stand_indented_below_the_first() -> None:
    cells = pd.DataFrame({"f": ["All", "All", "1", "1"], "g": ["All", "m", "All", "m"]})
    cells["is_margin"] = [True, True, True, False]
    x = np.full(4, 10.0)
    numbers = TableNumbers(x, x, x, 9.0, x, x, np.full(4, 9))
    labels = Labels(
        {"f": ColumnLabel(levels={"1": "Physics"}), "g": ColumnLabel(levels={"m": "Male"})}
    )
    table = make_table("count", None, cells, numbers, level=0.95)
    page = render_page(lay_out([table], _presentation(labels)))
    rows = [line for line in page.splitlines() if 'scope="row"' in line]
    assert ["gt_indent_1" in row for row in rows] == [False, True, False, True]
    assert [("Physics" in row, "Male" in row) for row in rows] == [
        (False, False),
        (False, True),
        (True, False),
        (False, True),
    ]
