"""Templates are found in the folder of their package, and refuse a name that nobody gave them."""

from pathlib import Path

import pytest
from jinja2 import TemplateNotFound, UndefinedError

from surveysynth._support.templates import render


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with three templates, one of which includes another."""
    folder = tmp_path / f"templates_of_{tmp_path.name}"
    (folder / "words").mkdir(parents=True)
    (folder / "__init__.py").write_text('"""Empty."""\n', encoding="utf-8")
    (folder / "words" / "name.j2").write_text("<{{ name }}>", encoding="utf-8")
    (folder / "words" / "list.md.j2").write_text(
        '{% for name in names %}\n- {% include "words/name.j2" %}\n\n{% endfor %}\n',
        encoding="utf-8",
    )
    (folder / "page.html.j2").write_text("<p>{{ name }}</p>\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return folder.name


def test_control_lines_leave_no_blank_lines_and_text_is_not_escaped(package: str) -> None:
    made = render(package, "words/list.md.j2", names=["a", "b & c"])
    assert made == "- <a>\n- <b & c>\n"


def test_html_is_escaped(package: str) -> None:
    assert render(package, "page.html.j2", name="a < b") == "<p>a &lt; b</p>\n"


def test_a_missing_name_is_an_error(package: str) -> None:
    with pytest.raises(UndefinedError, match="'name' is undefined"):
        render(package, "page.html.j2")


def test_a_missing_template_is_an_error(package: str) -> None:
    with pytest.raises(TemplateNotFound, match=r"words/none\.j2"):
        render(package, "words/none.j2")
