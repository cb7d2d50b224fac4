"""Links from a page to files and folders of the checkout that are not pages of the site.

On GitHub they lead to the file. Here each text file gets a page with its content, each folder a
page with a list of its files, and data files are copied. A link to nothing is
a warning, hence an error.
"""

import re
from html import escape
from pathlib import Path
from typing import Any

from sphinx.util import logging

_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
_TEXT = {".py", ".md", ".stan", ".toml", ".R", ".cff", ".rst", ""}
_FOLDER = "files"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; }}
body {{ font-family: sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
pre {{ overflow-x: auto; }} td {{ padding: 0.2rem 1rem 0.2rem 0; vertical-align: top; }}
</style></head>
<body><p><a href="{home}">surveysynth</a></p><h1>{title}</h1>{body}</body></html>
"""

logger = logging.getLogger(__name__)


def _page_of(path: Path, root: Path) -> str:
    """Return the name of the page of a file or folder."""
    name = path.relative_to(root).as_posix()
    return f"{_FOLDER}/{name}" + ("/contents" if path.is_dir() else "")


def _rewrite(app: Any, docname: str, source: list[str]) -> None:
    """Lead links that leave the pages to the pages made here."""
    if not str(app.env.doc2path(docname)).endswith(".md"):
        return
    pages, root = Path(app.srcdir).resolve(), Path(app.srcdir).resolve().parent
    here = (pages / docname).parent
    up = "../" * docname.count("/")

    def link(found: re.Match[str]) -> str:
        path = (here / found[1]).resolve()
        own = path.is_relative_to(pages) and path.suffix in (".md", ".png", ".html")
        if own or (pages / docname).with_suffix(".rst").exists():
            return found[0]
        if not path.exists() or not path.is_relative_to(root):
            logger.warning("link to nothing: %s", found[1], location=docname)
            return found[0]
        app.env.linked_files.add(path)
        ending = ".html" if path.is_dir() or path.suffix in _TEXT else ""
        return f"](outside:{up}{_page_of(path, root)}{ending}{found[2] or ''})"

    source[0] = _LINK.sub(link, source[0])


def _write(app: Any, error: Exception | None) -> None:
    """Write a page for each linked file and folder, and for the files in a linked folder.

    Bare ones: the theme's navigation on each would take most of the time of the build.
    """
    if error is not None or app.builder.format != "html":
        return
    root = Path(app.srcdir).resolve().parent
    linked: set[Path] = set(app.env.linked_files)
    for folder in [path for path in linked if path.is_dir()]:
        linked |= {path for path in folder.iterdir() if path.is_file() and path.suffix in _TEXT}
    for path in sorted(linked):
        name, title = _page_of(path, root), path.relative_to(root).as_posix()
        target = Path(app.outdir) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() or path.suffix in _TEXT:
            body = _listing(path) if path.is_dir() else _content(path)
            home = "../" * name.count("/") + "index.html"
            page = _PAGE.format(title=escape(title), body=body, home=home)
            target.with_name(f"{target.name}.html").write_text(page, encoding="utf-8")
        else:
            target.write_bytes(path.read_bytes())


def _content(path: Path) -> str:
    return f"<pre>{escape(path.read_text(encoding='utf-8'))}</pre>"


def _listing(folder: Path) -> str:
    """Files with the first line of what they say of themselves."""
    rows = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in _TEXT:
            first = path.read_text(encoding="utf-8").partition("\n")[0].strip('"#/ ')
            link = f'<a href="{escape(path.name)}.html">{escape(path.name)}</a>'
            rows.append(f"<tr><td>{link}</td><td>{escape(first)}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _start(app: Any) -> None:
    app.env.linked_files = getattr(app.env, "linked_files", set())


def setup(app: Any) -> dict[str, bool]:
    """Connect the events."""
    app.connect("builder-inited", _start)
    app.connect("source-read", _rewrite)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
