"""Results in notebooks. Truth: Python's XML parser, which takes no HTML that is not well formed;
the numbers that went in; a stand-in for IPython that notes what it is asked to show."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth._support.messages import xml_text
from surveysynth._support.page import MOST_ROWS, fragment, frame_html, shown
from surveysynth._support.progress import (
    StageReporter,
    bar_html,
    in_notebook,
    shows_parts,
    shows_stages,
)
from surveysynth.config.draft import Drafted
from surveysynth.evaluation.compare.folder import ComparisonResult
from surveysynth.release.check import Kind, Warned
from surveysynth.release.ledger import LedgerSummary
from surveysynth.release.pipeline import Rebuilt, ReleaseResult

VOID = {"br", "col", "hr", "img", "input", "meta", "link", "wbr"}
HERE = Path("a <b> folder")
LEDGER = LedgerSummary("sdr", 10.8, 1, 0, 0, 0)


class _Nesting(HTMLParser):
    """Fails where a tag is closed that is not the last one open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(html: str) -> ElementTree.Element:
    """As XML, which is stricter than what notebooks take."""
    _Nesting(html)
    return ElementTree.fromstring(html)


def text_of(html: str) -> str:
    root = parsed(html)
    for style in root.iter("style"):
        style.text = ""
    return " ".join(" ".join(root.itertext()).split())


def release_result() -> ReleaseResult:
    return ReleaseResult(
        HERE, HERE / "confidential", {}, (Warned(Kind.UNPUBLISHABLE, "TEST RUN"),), LEDGER,
        HERE / "ledger", ("a hint",),
        confidential_warning="canary",
    )  # fmt: skip


def read_release() -> ss.Release:
    table = pd.DataFrame({
        "field": ["<b>", "All"], "is_margin": [False, True], "estimate": [1234.5678, 0.012341],
        "df": 7.0, "df_design": 9.0,
    })  # fmt: skip
    privacy = {"private": True, "epsilon": 10.8, "guarantee": "asymptotic"}
    levels = [{"code": "<b>", "label": "Biology & <co>"}]
    columns = [{"name": "field", "title": "Field <of>", "levels": levels}]
    codebook = {"title": "Salaries & more", "warnings": ["NOT PRIVATE"], "columns": columns}
    return ss.Release(HERE, {"means": table}, codebook, privacy)


def comparison_result() -> ComparisonResult:
    frame = pd.DataFrame({"method": ["sample", "fbs"], "rmse": [1.0, np.nan]})
    comparison: Any = SimpleNamespace(summary=lambda: frame)
    return ComparisonResult(HERE, comparison, LEDGER)


RESULTS: dict[str, tuple[Callable[[], Any], list[str], list[str]]] = {
    "release": (release_result, ["TEST RUN", "a <b> folder", "1 note.", "10.8"],
                ["4711", "815", "canary"]),
    "read": (read_release, ["Salaries & more", "NOT PRIVATE", "means", "Biology & <co>",
                            "Field <of>", "All", "1,235", "0.01234", "epsilon 10.8"],
             ["is_margin"]),
    "comparison": (comparison_result, ["CONFIDENTIAL", "report.html", "sample"], ["nan"]),
    "check": (lambda: ss.CheckResult(("400 records <x>",), confidential="canary"),
        ["Valid.", "400 records <x>"], ["canary"]),
    "drafted": (lambda: Drafted(HERE / "spec.toml", ("outcomes.y.kind",), ()),
                ["a <b> folder", "outcomes.y.kind"], []),
    "rebuilt": (lambda: Rebuilt(HERE, ("a", "b"), ("tables/x",)), ["2 files", "tables/x"], []),
    "ledger": (lambda: LEDGER, ["sdr", "10.8"], []),
    "dataset": (lambda: ss.datasets.example(n=200), ["doctorate holders", "salary", "public"], []),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results_show_themselves(name: str) -> None:
    make, there, absent = RESULTS[name]
    found = text_of(make()._repr_html_())
    for part in there:
        assert part in found, part
    for part in absent:
        assert part not in found, part


def test_private_tables_are_well_formed_and_say_what_they_are() -> None:
    tables = ss.tables(
        ss.example_survey(n=400), mechanism="pseudo_posterior", epsilon=10.8, by="gender", m=1,
        inference="paper", seed=1, options={"chains": 2},
        labels={"gender": {"title": "<i>Gender</i> & co"}},
    )  # fmt: skip
    read = _Nesting(tables._repr_html_())
    assert read.seen.count("table") == 2
    assert "i" not in read.seen
    assert "script" not in read.seen


@given(st.text(), st.lists(st.text(max_size=5), min_size=1, max_size=4), st.text())
def test_any_text_is_text(title: str, cells: list[str], line: str) -> None:
    title, line, *cells = (xml_text(each) for each in (title, line, *cells))
    frame = pd.DataFrame({title: cells})
    root = parsed(fragment(title, mark=title, lines=[line], text=line, frames=[(title, frame)]))
    assert {each.tag for each in root.iter()} <= {
        "div", "style", "h3", "p", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    assert [each.text or "" for each in root.iter("td")] == cells


def test_long_tables_are_cut_and_numbers_short() -> None:
    frame = pd.DataFrame({"a": range(100), "b": np.linspace(0, 1, 100)})
    html = frame_html(frame, "caption")
    assert html.count("<tr>") == 1 + MOST_ROWS
    assert "and 60 more rows" in html
    assert [shown(x) for x in (1234567, 1234.5, 0.123456, 3.0, None, float("nan"), "a", True)] == [
        "1,234,567", "1,234", "0.1235", "3", "", "", "a", "True",
    ]  # fmt: skip
    assert shown(np.int64(12345)) == "12,345"
    assert shown(float("inf")) == "inf"


@dataclass
class _Handle:
    shown: list[str]

    def update(self, html: Any) -> None:
        self.shown.append(html.data)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """IPython as a kernel has it; what is displayed, in order."""
    displayed: list[str] = []

    def display(html: Any, display_id: bool) -> _Handle:
        displayed.append(html.data)
        return _Handle(displayed)

    module, screen = ModuleType("IPython"), ModuleType("IPython.display")
    module.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    screen.display = display  # type: ignore[attr-defined]
    screen.HTML = lambda data: SimpleNamespace(data=data)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", screen)
    return displayed


def test_a_notebook_shows_one_bar_that_goes_away(
    notebook: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_notebook()
    with StageReporter(("first", "second")) as say:
        say("second")
        say("something <else>")
    assert notebook[0] == notebook[-1] == ""
    bar = parsed(notebook[1])[0]
    assert (bar.tag, bar.get("max"), bar.get("value")) == ("progress", "2", "1")
    assert escape("something <else>") in notebook[2]
    assert "<progress" not in notebook[2]
    assert capsys.readouterr().err == ""


def test_functions_show_a_bar_unless_they_are_given_one(notebook: list[str]) -> None:
    @shows_stages(("only",))
    def stages(progress: Callable[[str], None] | None = None) -> str:
        """Words."""
        assert progress is not None
        progress("only")
        return "done"

    @shows_parts
    def parts(fail: bool, *, progress: Callable[[str, int, int], None] | None = None) -> None:
        assert progress is not None
        progress("a batch", 3, 4)
        if fail:
            raise KeyError

    assert stages() == "done"
    assert stages.__doc__ == "Words."
    assert 'max="1" value="0"' in notebook[1]
    notebook.clear()
    with pytest.raises(KeyError):
        parts(True)
    assert 'max="4" value="3"' in notebook[1]
    assert notebook[-1] == ""
    notebook.clear()
    told: list[str] = []
    stages(progress=told.append)
    assert (told, notebook) == (["only"], [])


def test_elsewhere_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = ModuleType("IPython")
    terminal.get_ipython = SimpleNamespace  # type: ignore[attr-defined]
    calls = []
    for module in (None, terminal):
        if module is None:
            monkeypatch.delitem(sys.modules, "IPython", raising=False)
        else:
            monkeypatch.setitem(sys.modules, "IPython", module)
        assert not in_notebook()
        shows_parts(lambda progress=None: calls.append(progress))()
    assert calls == [None, None]


def test_a_bar_is_well_formed() -> None:
    for total in (0, 5):
        assert "a &lt;b&gt;" in bar_html("a <b>", 2, total)
        parsed(bar_html("a <b> \"c\" 'd'", 2, total))
