"""Rendering of templates. Truth: texts and pages written by hand; Python's parser of HTML."""

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from surveysynth.release.documents import render
from surveysynth.release.documents.render import joined, page_of, render_markdown


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of templates in the place of the package's."""
    folder = tmp_path / f"documents_of_{tmp_path.name}"
    (folder / "templates").mkdir(parents=True)
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(render, "__package__", folder.name)
    render._templates.cache_clear()
    yield folder / "templates"
    render._templates.cache_clear()


def test_a_paragraph_and_an_item_become_one_line_and_code_stays() -> None:
    text = (
        "# A\n\n\nOne\n  two.\n\n- first\n  goes on\n  - below\n    it\n- second\n\n"
        "```python\nif x:\n    y\n\n\n    z\n```\n| a |\n| b |\n\n"
    )
    assert joined(text) == (
        "# A\n\nOne two.\n\n- first goes on\n  - below it\n- second\n\n"
        "```python\nif x:\n    y\n\n\n    z\n```\n| a |\n| b |\n"
    )


def test_values_are_escaped_and_words_of_the_template_are_not(templates: Path) -> None:
    (templates / "a.md.j2").write_text(
        "**{{ name }}**{{ ' and' if name else '' }}\n"
        "{% if name %}\n`{{ name | code }}`, {{ trusted | safe }}.\n{% endif %}\n",
        encoding="utf-8",
    )  # fmt: skip
    context = {"name": "*x* <b>\n# y", "trusted": "*x*"}
    assert render_markdown("a.md.j2", context) == (
        "**\\*x\\* \\<b\\> \\# y** and `*x* <b>\n# y`, *x*.\n"
    )
    with pytest.raises(UndefinedError, match="'name' is undefined"):
        render_markdown("a.md.j2", {})


def test_tables_lists_and_headings_of_a_page() -> None:
    page = page_of(
        "# T\n\n*Of what*\n\n| A | B |\n| :--- | ---: |\n| x\\|y | 1 |\n\n- [ ] one\n- [ ] two\n\n"
        "*no caption*\n\n<b>\n\n| A |\n| --- |\n| word |\n\n| A |\n| --- |\n|  |\n",
        "T & U", "",
    )  # fmt: skip
    body = "".join(page.split("<main>")[1].split("</main>")[0].splitlines())
    cell = '<{0} scope="row" role="rowheader" data-head="A">'
    for part in (
        "<title>T &amp; U</title>", '<html lang="en">',
    ):  # fmt: skip
        assert part in page
    for part in (
        '<table role="table" class="numbers"><caption>Of what</caption><thead role="rowgroup">',
        '<th scope="col" role="columnheader">B</th>',
        f'{cell.format("th")}x|y</th><td role="cell" data-head="B">1</td>',
        '<ul class="boxes"><li>one</li><li>two</li></ul><p><em>no caption</em></p><p>&lt;b&gt;</p>',
        '<table role="table" class="words"><thead',
        '<table role="table" class="words blank"><thead',
    ):  # fmt: skip
        assert part in body, part
    assert body.count('<div class="scroll"><table') == body.count("</table></div>") == 3
