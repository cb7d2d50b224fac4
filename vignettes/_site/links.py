"""Check that every link within the built site leads to an existing file and anchor."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sphinx.util import logging

logger = logging.getLogger(__name__)


class _Page(HTMLParser):
    """The anchors of a page and the targets of its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value is not None:
                self.links.add(value)


def broken(site: Path) -> list[str]:
    """Return ``page: link`` for every link to a missing file or anchor."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            there = target.exists() and (
                target not in pages or not anchor or anchor in pages[target].anchors
            )
            if not there:
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def _check(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for each in broken(Path(app.outdir).resolve()):
            logger.warning("broken link in %s", each)


def setup(app: Any) -> dict[str, bool]:
    """Check the links after everything else is written."""
    app.connect("build-finished", _check, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
