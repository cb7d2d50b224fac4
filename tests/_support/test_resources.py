"""Data folders and templates. Truth: folders of a checkout and a wheel, and a package of templates
made for the test; texts written by hand."""

from pathlib import Path

import pytest
from jinja2 import TemplateNotFound, UndefinedError

from surveysynth._support.resources import literature_table, render, tables_directory


def _with_literature(folder: Path) -> Path:
    (folder / "literature").mkdir(parents=True)
    return folder


def test_checkout_beside_the_package_wins_over_the_copy_inside(tmp_path: Path) -> None:
    package = tmp_path / "surveysynth"
    _with_literature(package / "tables")
    beside = _with_literature(tmp_path / "tables")
    (tmp_path / "pyproject.toml").touch()
    assert tables_directory(package) == beside


def test_installed_wheel_ignores_a_foreign_folder_beside_it(tmp_path: Path) -> None:
    package = tmp_path / "surveysynth"
    inside = _with_literature(package / "tables")
    _with_literature(tmp_path / "tables")
    assert tables_directory(package) == inside


def test_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="tables/literature"):
        tables_directory(tmp_path / "surveysynth")


def test_published_tables_are_there() -> None:
    assert literature_table("simulation_counts_table4.csv").is_file()
    assert literature_table("simulation_mean_salary_table5.csv").is_file()


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
