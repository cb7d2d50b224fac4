"""Tests of the reference pages and the site: every public name, command, and formula is listed."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

import surveysynth as ss
from surveysynth import cli, datasets

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "vignettes"
REFERENCE = PAGES / "reference"
EQUATIONS = (PAGES / "technical" / "equations.md").read_text(encoding="utf-8")


def _text(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def test_every_public_name_is_in_the_interface() -> None:
    parts = re.split(r"^\.\. currentmodule:: ([\w.]+)$", _text("api.rst"), flags=re.MULTILINE)
    listed: dict[str, list[str]] = {}
    for module, text in zip(parts[1::2], parts[2::2], strict=True):
        listed.setdefault(module, []).extend(re.findall(r"^   (\w+)$", text, re.MULTILINE))
    modules = {name for name in ss.__all__ if inspect.ismodule(getattr(ss, name))}
    assert modules == {"datasets", "errors"}
    assert sorted(listed["surveysynth"]) == sorted({*ss.__all__} - modules)
    assert sorted(listed["surveysynth.datasets"]) == sorted(datasets.__all__)
    assert "automodule:: surveysynth.errors" in _text("api.rst")


def test_every_command_is_in_the_list() -> None:
    listed = re.findall(r"^\| `surveysynth ([a-z-]+)", _text("commands.md"), re.MULTILINE)
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert sorted(listed) == sorted(commands)


def _resolved(name: str) -> Any:
    """Import a dotted name below the package: a module, or an object in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(["surveysynth", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def test_code_of_the_equations_exists() -> None:
    rows = re.findall(r"^\| .* \| `([\w.]+)` \|$", EQUATIONS, re.MULTILINE)
    assert len(rows) > 30
    assert [name for name in rows if _resolved(name) is None] == []
    with pytest.raises(AttributeError):
        _resolved("estimation.combining.none_such")
    # A line that the pattern does not take would not be looked at.
    lines = [line for line in EQUATIONS.splitlines() if line.startswith("| ")]
    assert len(lines) - len(rows) == len([line for line in lines if line.startswith("| formula")])


def test_what_is_to_be_cited_is_on_its_page() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    page = _text("cite.md")
    titles = re.findall(r'title: "(.+)"', citation)
    assert len(titles) >= 5
    assert [title for title in titles if title not in page] == []
    assert [doi for doi in re.findall(r"doi: (\S+)", citation) if doi not in page] == []
    (version,) = re.findall(r"^version: (\S+)$", citation, re.MULTILINE)
    assert f"version = {{{version}}}" in page


def test_every_page_is_in_the_contents() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", index, re.MULTILINE | re.DOTALL)
    listed = {line for block in blocks for line in block.splitlines() if line and line[0] != ":"}
    pages = {
        path.relative_to(PAGES).with_suffix("").as_posix()
        for kind in ("*.md", "*.rst")
        for path in PAGES.rglob(kind)
        if not {"built", "gallery"} & set(path.relative_to(PAGES).parts)
    }
    assert listed == (pages - {"index"}) | {"built/gallery/index"}


def _built(folder: Path, link: str) -> subprocess.CompletedProcess[str]:
    """Build a page with one link, with the extensions of the site."""
    pages = folder / "pages"
    pages.mkdir()
    (folder / "code").mkdir()
    (folder / "code" / "one.py").write_text('"""One <file>."""\n', encoding="utf-8")
    (folder / "data.csv").write_text("a\n1\n", encoding="utf-8")
    (pages / "index.md").write_text(
        f"# Page <a id='there'></a>\n\n[there]({link}) and $\\mathrm{{N}}(0, 1)$\n\n"
        "$$\n\\sum_{i=1}^n x_i\n$$\n",
        encoding="utf-8",
    )
    (pages / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(PAGES / '_site')!r})\n"
        "extensions = ['myst_parser', 'mathml', 'outside', 'links']\n"
        "myst_enable_extensions = ['dollarmath']\nhtml_math_renderer = 'mathml'\n"
        "myst_url_schemes = {'outside': '{{path}}'}\n",
        encoding="utf-8",
    )
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", str(pages), str(folder / "site")],
        capture_output=True,
        text=True,
        check=False,
    )


def test_links_out_of_the_pages_lead_to_the_file(tmp_path: Path) -> None:
    pytest.importorskip("latex2mathml")
    pytest.importorskip("myst_parser")
    made = _built(tmp_path, "../code")
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="files/code/contents.html"' in page
    listing = (tmp_path / "site" / "files" / "code" / "contents.html").read_text(encoding="utf-8")
    assert "One &lt;file&gt;." in listing
    assert "One &lt;file&gt;." in (
        tmp_path / "site" / "files" / "code" / "one.py.html"
    ).read_text(encoding="utf-8")
    # Formulas need no script: limits above and below, and roman letters upright.
    assert "munderover" in page
    assert "<mtext>N</mtext>" in page
    assert not re.search(r"<(script|link)[^>]+(src|href)=.https?:", page)


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ("../code/gone.py", "link to nothing: ../code/gone.py"),
        (").\n\n<a href='#gone'>raw</a> (", "broken link in index.html: #gone"),
    ],
)
def test_a_link_to_nothing_is_an_error(link: str, told: str, tmp_path: Path) -> None:
    pytest.importorskip("latex2mathml")
    pytest.importorskip("myst_parser")
    made = _built(tmp_path, link)
    assert made.returncode != 0
    assert told in made.stderr


@pytest.mark.parametrize("browser", [False, True])
def test_the_report_is_one_page_for_printing(browser: bool, tmp_path: Path) -> None:
    """Links between its pages lead to its anchors, others are gone; the front page names a PDF."""
    for name in ("latex2mathml", "myst_parser", "furo"):
        pytest.importorskip(name)
    pages = tmp_path / "pages"
    (pages / "technical").mkdir(parents=True)
    contents = "```{toctree}\n:caption: %s\n\n%s\n```\n"
    texts = {
        "index": "# Guide\n\n" + contents % ("Report", "technical/index")
        + contents % ("A. Proofs", "technical/one\ntechnical/two"),
        "technical/index": "# Report\n\n<!-- printed -->\n",
        "technical/one": "# One\n\n[there](two.md#second-part), [guide](../index.md)\n",
        "technical/two": "# Two\n\n## Second part\n\n$x^2$\n",
    }  # fmt: skip
    for name, text in texts.items():
        (pages / f"{name}.md").write_text(text, encoding="utf-8")
    (pages / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(PAGES / '_site')!r})\n"
        "extensions = ['myst_parser', 'mathml', 'report']\nmyst_heading_anchors = 2\n"
        "html_theme = 'furo'\n"
        "myst_enable_extensions = ['dollarmath']\nhtml_math_renderer = 'mathml'\n",
        encoding="utf-8",
    )
    printer = tmp_path / "chromium"
    if browser:  # in place of Chromium, which takes seconds: it leaves its last option
        printer.write_text('#!/bin/sh\nfor each; do :; done\necho "$each" > "${4#*=}"\n')
        printer.chmod(0o755)
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", str(pages), str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert made.returncode == 0, made.stderr
    technical = tmp_path / "site" / "technical"
    report = (technical / "report.html").read_text(encoding="utf-8")
    assert 'href="#two-second-part"' in report
    assert 'id="two-second-part"' in report
    assert "<msup>" in report
    assert "index.html" not in report
    front = (technical / "index.html").read_text(encoding="utf-8")
    assert ("no PDF: Chromium is not installed" in front) != browser
    assert (technical / "report.pdf").exists() == browser
    if browser:
        assert (technical / "report.pdf").read_text().strip() == (
            technical / "report.html"
        ).resolve().as_uri()
