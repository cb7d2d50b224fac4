"""The technical report as one printable page, and as a PDF where Chromium is installed."""

import re
import shutil
import subprocess
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from sphinx import addnodes
from sphinx.util import logging

#: The front page of the report, and the mark on it that becomes links.
FRONT, MARK = "technical/index", "<!-- printed -->"
STYLE = Path(__file__).with_name("print.css")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
logger = logging.getLogger(__name__)


def _announce(app: Any, docname: str, source: list[str]) -> None:
    if docname == FRONT:
        pdf = '<a href="report.pdf">PDF</a>' if BROWSER else "no PDF: Chromium is not installed"
        page = '<a href="report.html">one page</a>'
        source[0] = source[0].replace(MARK, f"To print: the whole report on {page} ({pdf}).")


def _name(docname: str) -> str:
    return docname.removeprefix("technical/").replace("/", "-")


def _article(site: Path, docname: str, parts: set[str]) -> str:
    """Return the text of a page: anchors get its name, links out of the report are gone."""
    text = (site / f"{docname}.html").read_text(encoding="utf-8")
    (body,) = re.findall(r"<article[^>]*>(.*)</article>", text, re.DOTALL)

    def link(found: re.Match[str]) -> str:
        page, _, anchor = found[2].partition("#")
        target = normpath(join(dirname(docname), page)) if page else f"{docname}.html"
        if found[1] == "src":
            return f'src="{relpath(target, "technical")}"'
        name = target.removesuffix(".html")
        if name in parts:
            return f'href="#{_name(name)}{"-" * bool(anchor)}{anchor}"'
        return found[0] if "://" in found[2] else ""

    body = re.sub(r'\b(href|src)="([^"]*)"', link, body)
    body = re.sub(r'\bid="([^"]*)"', rf'id="{_name(docname)}-\1"', body)
    return f'<div id="{_name(docname)}">{body}</div>'


def _write(app: Any, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html" or FRONT not in app.env.all_docs:
        return
    site, front, bodies = Path(app.outdir).resolve(), [], []
    trees = app.env.get_doctree("index").findall(addnodes.toctree)
    trees = [tree for tree in trees if re.match(r"[A-D]\. ", tree["caption"] or "")]
    parts = {name for tree in trees for name in tree["includefiles"]}
    for tree in trees:
        front.append(f"<h3>{tree['caption']}</h3>")
        for name in tree["includefiles"]:
            front.append(f'<div><a href="#{_name(name)}">{app.env.titles[name].astext()}</a></div>')
            bodies.append(_article(site, name, parts))
    title, style = f"{app.config.html_title}: technical report", STYLE.read_text(encoding="utf-8")
    head = f'<meta charset="utf-8"><title>{title}</title><style>{style}</style>'
    page, pdf = site / "technical" / "report.html", site / "technical" / "report.pdf"
    text = f'<html lang="en">{head}<h2>{title}</h2>{"".join([*front, *bodies])}</html>'
    page.write_text(text, encoding="utf-8")
    if BROWSER is None:
        return logger.info("The report is not printed: Chromium is not installed.")
    options = ["--headless", "--no-sandbox", "--no-pdf-header-footer", f"--print-to-pdf={pdf}"]
    done = subprocess.run([BROWSER, *options, page.as_uri()], capture_output=True, check=False)
    if done.returncode or not pdf.exists():
        logger.warning("Chromium did not print the report: %s", done.stderr[-500:])


def setup(app: Any) -> dict[str, bool]:
    """Print before the links of the site are checked."""
    app.connect("source-read", _announce)
    app.connect("build-finished", _write, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
