"""What each format shows. Truth: the layout itself, read back by readers of other makers: Python's
csv, XML and HTML parsers, LaTeX's own rules spelled out, pdfLaTeX where installed."""

import csv
import io
import re
import shutil
import subprocess
import unicodedata
import zipfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surveysynth.config.sections import LabelSection
from surveysynth.config.tables_section import FORMATS
from surveysynth.release.tables.layout import (
    Labels,
    Layout,
    Presentation,
    Rounding,
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
from surveysynth.release.writers import html, latex, markdown, xlsx
from surveysynth.release.writers.csv import plain_text, write_records, write_table

label_of = LabelSection.model_construct

XLSX = FORMATS["xlsx"]
# Everything that XML can hold: control characters are refused by the reader of surveys.
TEXT = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1)
SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
HOSTILE = [
    "<script>alert('x')</script>",
    "A & B <b>",
    r"\input{/etc/passwd} $x_1^2$ 100% #1 {~}",
    '=HYPERLINK("http://evil.example","x")',
    "{=1+1}",
    "[x](http://evil.example) $$note1$$ | `c` **b**",
    "http://evil.example/?a=1",
    "+-@'",
    "[5pt]",
    "*",
    "男 Ελλάδα",
    "--- '' ,, ?` !`",
]


def table(levels: list[str], statistic: str = "mean", flags: str = "none") -> ReleaseTable:
    """A margin and the levels; the second has no records, the third one, the fourth three."""
    d = len(levels)
    cells = pd.DataFrame({"g": levels, "is_margin": [True] + [False] * (d - 1)})
    x = np.linspace(1234.56, -99999.5, d)
    n = np.array([5000, 0, 1, 3, *range(40, 40 + d)])[:d]
    numbers = TableNumbers(x, np.abs(x) / 10 + 1e-3, 0 * x + 7, 9.0, x - 5.5, x + 1e6, n)
    outcome = None if statistic == "count" else "y"
    policy = policy_of(flags)
    return make_table(  # type: ignore[arg-type]
        statistic, outcome, cells, numbers, level=0.95, notes=["A note."], flags=policy
    )


def presentation(labels: Labels | None = None, **given_texts: object) -> Presentation:
    texts = {"title": "Title", "source": "A frame", "privacy_note": "Privacy: epsilon.",
             "banner": "", **given_texts}  # fmt: skip
    rounding = {("mean", "y"): to_digits(1), ("count", None): Rounding(10.0, 0)}
    return Presentation(labels=labels or Labels(), rounding=rounding, **texts)  # type: ignore[arg-type]


def layout_of(levels: list[str], **given_texts: object) -> Layout:
    return lay_out([table(levels)], presentation(**given_texts))  # type: ignore[arg-type]


def hostile_presentation(text: str) -> Presentation:
    labels = Labels({name: label_of(title=text, unit=text) for name in ("g", "y")})
    return presentation(labels, title=text, source=text, banner=text)


def workbook_parts(tables: list[ReleaseTable], shown: Presentation, path: Path) -> dict[str, str]:
    xlsx.write(TableSet({"mean": tables}, shown), path.parent, replace(XLSX, one_file=path.name))
    with zipfile.ZipFile(path) as parts:
        return {name: parts.read(name).decode() for name in parts.namelist()}


def sheet_rows(parts: dict[str, str], number: int) -> list[list[object]]:
    """Cells of a worksheet as text or numbers, read by the file format's rules."""
    strings = [
        "".join(text.text or "" for text in item.iter(f"{SHEET}t"))
        for item in ElementTree.fromstring(parts["xl/sharedStrings.xml"])
    ]
    root = ElementTree.fromstring(parts[f"xl/worksheets/sheet{number}.xml"])
    rows = []
    for row in root.iter(f"{SHEET}row"):
        cells: list[object] = []
        for cell in row.iter(f"{SHEET}c"):
            value = cell.find(f"{SHEET}v")
            assert cell.find(f"{SHEET}f") is None, "a formula"
            if value is not None and value.text is not None:
                shared = cell.get("t") == "s"
                cells.append(strings[int(value.text)] if shared else float(value.text))
        rows.append(cells)
    return rows


def test_the_layout_holds_every_part() -> None:
    layout = lay_out([table(["All", "a", "b", "c"], flags="nchs")], presentation())
    assert [column.heading for column in layout.columns] == [
        "Estimated mean", "Standard error", "Lower", "Upper", "Sample size (unweighted)", "Flag",
    ]  # fmt: skip
    assert [column.spanner for column in layout.columns[2:4]] == ["95% confidence interval"] * 2
    first, *others = layout.rows
    assert [cell.text for cell in first.cells] == (
        ["1,234.6", "123.5", "1,229.1", "1,001,234.6", "5,000", "R"]
    )
    assert [row.cells[5].text for row in others] == ["", "U", "U"]
    assert [row.cells[0].text for row in others] == ["–", "–", "–"]
    # What the flags mean is said once, in their legend.
    assert [row.cells[0].marks for row in others] == [("a",), (), ()]
    assert [text[:9] for _, text in layout.footnotes] == ["No sample"]
    assert sum("withheld" in note for note in layout.notes) == 1
    assert "Source: A frame" in layout.notes
    assert layout.notes[-1] == "Privacy: epsilon."


def test_compact_pairs_an_estimate_with_its_error() -> None:
    layout = lay_out([table(["All", "a", "b", "c"])], presentation(kind="compact"))
    assert [column.heading for column in layout.columns] == (
        ["Estimated mean (standard error)", "Sample size (unweighted)"]
    )
    assert [row.cells[0].text for row in layout.rows] == (
        ["1,234.6 (123.5)", "–", "−66,254.8 (–)", "−99,999.5 (10,000.0)"]
    )
    assert [row.cells[0].marks for row in layout.rows] == [(), ("a",), ("b", "c"), ("b",)]


@given(st.floats(-1e15, 1e15), st.integers(1, 10**6), st.integers(0, 6))
def test_spreadsheets_hold_the_number_that_readers_see(x: float, base: int, digits: int) -> None:
    for rounding in (Rounding(float(base), 0), to_digits(digits), Rounding(0.01, 2, 100.0)):
        shown = rounding.show(x).replace(",", "").replace("−", "-")
        assert rounding.rounded(x) == pytest.approx(float(shown), rel=1e-15, abs=1e-300)


def test_every_format_shows_every_part(tmp_path: Path) -> None:
    shown = presentation(banner="NOT PRIVATE")
    tables = [table(["All", "a", "b", "c"], flags="statcan")]
    layout = lay_out(tables, shown)
    parts = workbook_parts(tables, shown, tmp_path / "t.xlsx")
    text = {
        "html": html.render_page(layout),
        "latex": latex.render_fragment(layout).replace(r"\%", "%"),
        "markdown": markdown.render_page(layout).replace("\\", ""),
        "xlsx": "".join(parts.values()),
    }
    for name, content in text.items():
        for part in ["Title", "NOT PRIVATE", "Source: A frame", "A note.", "Privacy: epsilon.",
                     "too unreliable to be published", "No sample records in this cell",
                     "95% confidence interval"]:  # fmt: skip
            assert part in content, (name, part)
    numbers = sheet_rows(parts, 4)[-4:]
    assert numbers[0] == ["All", 1234.6, 123.5, 1229.1, 1001234.6, 5000.0, "[none]", "[none]"]
    assert numbers[1][:3] == ["a", "[x]", "[x]"]
    notes = {row[0]: row[1] for row in sheet_rows(parts, 3)[3:]}
    number = re.findall(r"\d+", str(numbers[1][-1]))[0]
    assert "No sample records" in str(notes[float(number)])
    assert numbers[0][0] == "All"


def test_an_error_below_one_unit_is_shown_as_that_in_every_format(tmp_path: Path) -> None:
    cells = pd.DataFrame({"g": ["All"], "is_margin": [True]})
    one = np.ones(1)
    numbers = TableNumbers(7 * one, 0.04 * one, 9 * one, 9.0, 7 * one, 7 * one, np.array([50]))
    made = make_table("mean", "y", cells, numbers, level=0.95)
    layout = lay_out([made], presentation())
    assert [cell.text for cell in layout.rows[0].cells[:2]] == ["7.0", "<0.1"]
    assert ">&lt;0.1<" in html.render_page(layout)
    assert r"\textless{}0.1" in latex.render_fragment(layout)
    assert "\\<0.1" in markdown.render_page(layout)
    parts = workbook_parts([made], presentation(), tmp_path / "t.xlsx")
    assert sheet_rows(parts, 4)[-1][1:3] == [7.0, "<0.1"]


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
    made = table(["All", "a,b", 'c "d"\ne'])
    write_table([made], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["g"] for row in rows] == ["All", "a,b", 'c "d"\ne']
    assert rows[1]["estimate"] == ""  # without records
    known = made.frame["se"].notna().tolist()
    assert [row["se"] != "" for row in rows] == known
    assert float(rows[0]["se"]) == made.frame["se"].iloc[0]


@given(st.lists(TEXT, min_size=1, max_size=4, unique=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_any_code_survives_csv(tmp_path: Path, codes: list[str]) -> None:
    write_table([table(codes)], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as stream:
        fields = [row["g"] for row in csv.DictReader(stream)]
    assert [plain_text(field) for field in fields] == codes
    assert len(set(fields)) == len(codes)


class _Table(HTMLParser):
    """Header ids, the headers that each data cell names, and all texts; style sheets apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: dict[str, str] = {}
        self.cells: list[list[str]] = []
        self.scopes: list[str | None] = []
        self.opened: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self._header = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given_attrs = dict(attrs)
        self.opened.append(tag)
        self.attributes |= set(given_attrs)
        if tag == "th":
            self._header = str(given_attrs["id"])
            self.ids[self._header] = ""
            self.scopes.append(given_attrs.get("scope"))
        elif tag == "td" and "headers" in given_attrs:
            self.cells.append(str(given_attrs["headers"]).split())
            self._header = ""

    def handle_endtag(self, tag: str) -> None:
        self._header = "" if tag == "th" else self._header

    def handle_data(self, data: str) -> None:
        if self.opened[-1:] != ["style"]:
            self.texts.append(data)
        if self._header:
            self.ids[self._header] += data


def test_a_screen_reader_finds_the_headers_of_every_cell() -> None:
    cells = pd.DataFrame({"f": ["All", "All", "1", "1"], "g": ["All", "m", "All", "m"]})
    cells["is_margin"] = [True, True, True, False]
    x = np.full(4, 10.0)
    made = make_table("count", None, cells, TableNumbers(x, x, x, 9.0, x, x, np.full(4, 9)),
                      level=0.95)  # fmt: skip
    of_levels = {"f": {"1": "Physics"}, "g": {"m": "Male"}}
    labels = Labels({name: label_of(levels=levels) for name, levels in of_levels.items()})
    read = _Table(html.render_page(lay_out([made], presentation(labels))))
    assert read.opened.index("caption") == read.opened.index("table") + 1
    assert set(read.scopes) <= {"col", "colgroup", "row", "rowgroup"}
    assert len(read.cells) == 4 * 5
    for headers in read.cells:
        assert set(headers) <= set(read.ids), "a header that does not exist"
    last = [" ".join(read.ids[each].strip() for each in headers) for headers in read.cells[-5:]]
    assert last[:3] == [
        "Physics Male Estimated number",
        "Physics Male Standard error",
        "Physics Male 95% confidence interval Lower",
    ]
    assert [read.ids[headers[0]].strip() for headers in read.cells[5:10]] == ["All"] * 5
    # Levels of the second column stand indented below the first.
    page = html.render_page(lay_out([made], presentation(labels)))
    lines = [line for line in page.splitlines() if 'scope="row"' in line]
    assert ["gt_indent_1" in line for line in lines] == [False, True, False, True]
    assert ["Male" in line for line in lines] == [False, True, False, True]


@given(TEXT, TEXT, TEXT)
@settings(deadline=None, max_examples=25)
def test_any_label_is_shown_as_it_stands(title: str, level: str, column: str) -> None:
    labels = Labels({"g": label_of(title=column, levels={"a": level})})
    page = _Table(html.render_page(layout_of(["All", "a"], labels=labels, title=title)))
    plain = _Table(html.render_page(layout_of(["All", "a"])))
    shown = " ".join(" ".join(page.texts).split())
    for text in (title, level, column):
        assert " ".join(text.split()) in shown
    assert page.opened == plain.opened


def test_a_page_is_self_contained_and_deterministic() -> None:
    page = html.render_page(layout_of(["All", "a"]))
    assert page == html.render_page(layout_of(["All", "a"]))
    for loading in ("url(", "@import", "http://", "https://", "<script", "src=", "href="):
        assert loading not in page


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_labels_stay_text_in_a_workbook(tmp_path: Path, text: str) -> None:
    parts = workbook_parts([table(["All", text])], hostile_presentation(text), tmp_path / "t.xlsx")
    for name, content in parts.items():
        ElementTree.fromstring(content)
        assert "<f>" not in content, name
        assert 'TargetMode="External"' not in content, name
    rows = sheet_rows(parts, 4)
    found = [str(cell).replace("\u2060", "") for row in rows for cell in row]
    assert " ".join(text.split()) in found
    assert any(cell.startswith("Source: ") and text in cell for cell in found)


@pytest.mark.parametrize("text", [*HOSTILE, '" onmouseover="alert(1)', "'><b>x", "a b\"c"])
def test_group_headings_are_text_and_headers_of_their_cells(text: str) -> None:
    cells = pd.DataFrame({"r": ["All", text, text], "f": "1", "g": ["All", "All", "m"]})
    cells["is_margin"] = [True, True, False]
    x = np.full(3, 10.0)
    made = make_table("count", None, cells, TableNumbers(x, x, x, 9.0, x, x, np.full(3, 9)),
                      level=0.95)  # fmt: skip
    read = _Table(html.render_page(lay_out([made], presentation())))
    ours = {each for each in read.attributes if not each.startswith("data-quarto")}
    assert ours <= {"class", "colspan", "headers", "id", "lang", "charset", "name",
                    "content", "rowspan", "scope", "style", "aria-label", "aria-describedby",
                    "aria-level", "role", "tabindex"}  # fmt: skip
    for headers in read.cells:
        assert set(headers) <= set(read.ids), "a header that does not exist"
    last = [read.ids[each].strip() for each in read.cells[-1]]
    assert last[1:] == ["1", "m", "Sample size (unweighted)"]
    assert " ".join(last[0].split()) == f"r: {' '.join(text.split())}"


def test_control_characters_make_no_broken_file(tmp_path: Path) -> None:
    """No XML file can hold them, and codes of levels may have them."""
    bell = "Bio\x07\ufffe\x00logy"
    parts = workbook_parts([table(["All", bell])], hostile_presentation(bell), tmp_path / "t.xlsx")
    for content in parts.values():
        ElementTree.fromstring(content)
    assert sum("Biology" in map(str, row) for row in sheet_rows(parts, 4)) >= 1
    assert latex.escape(bell) == "Biology"


def test_a_workbook_is_the_same_each_time(tmp_path: Path) -> None:
    for name in "ab":
        workbook_parts([table(["All", "x"])], presentation(), tmp_path / f"{name}.xlsx")
    assert (tmp_path / "a.xlsx").read_bytes() == (tmp_path / "b.xlsx").read_bytes()


def _read_latex(source: str) -> str:
    """Undo the escapes; fails on any command or special sign that is not one of ours."""
    back = {escaped: char for char, escaped in latex._SPECIAL.items()}
    pattern = "|".join(re.escape(each) for each in sorted(back, key=len, reverse=True))
    rest = re.sub(pattern, "", source).replace("{}", "")
    assert not re.search(r"[\\&%$#_{}~^\"<>|`\[\]*]", rest), rest
    pieces = re.split(f"({pattern})", source)
    return "".join(back.get(piece, piece.replace("{}", "")) for piece in pieces)


@given(st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=30))
@settings(max_examples=200)
def test_latex_prints_any_text_as_it_stands(text: str) -> None:
    assert _read_latex(latex.escape(text)) == " ".join(text.split())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_labels_stay_text_in_pages_latex_and_markdown(text: str) -> None:
    layout = lay_out([table(["All", text])], hostile_presentation(text))
    shown = " ".join(text.split())
    web = html.render_page(layout)
    assert "<script" not in web
    assert "".join(_Table(web).texts).count(text) >= 8
    source = latex.render_fragment(layout)
    assert source.count(latex.escape(shown)) >= 5
    assert r"\input" not in source
    # What follows a line's end would be its argument.
    assert not re.search(r"\\\\\s*[\[*]", source)
    page = markdown.render_page(layout)
    lines = [line for line in page.splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    assert cells == {len(layout.columns) + 2}
    assert "<script" not in page.replace("\\<", "")
    assert "](" not in page.replace("\\]", "")


def test_long_tables_break_over_pages_in_latex() -> None:
    layout = layout_of(["All", *(f"level {i}" for i in range(60))])
    source = latex.render_fragment(layout)
    assert r"\begin{longtable}" in source
    assert r"\insertTableNotes" in source
    assert source.count("Std. error") == 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("rows", [3, 60])
def test_pdflatex_prints_hostile_labels(tmp_path: Path, rows: int) -> None:
    latin = [t for t in HOSTILE if all(unicodedata.name(c, "").startswith("LATIN") or ord(c) < 128
                                       for c in t)]  # fmt: skip
    levels = ["All", *latin, *(f"level {i}" for i in range(rows))]
    text = " ".join(latin)
    shown = TableSet({"mean": [table(levels)]}, hostile_presentation(text))
    latex.write(shown, tmp_path, FORMATS["latex"])
    done = subprocess.run(
        ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode",
         "all_tables.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:].decode(errors="replace")
