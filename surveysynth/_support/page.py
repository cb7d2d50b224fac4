"""Parts of all HTML reports: the style sheet, and figures inside the page."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

PAGE_CSS = """
:root { --ink: #1b1b1b; --faint: #6b6b6b; --line: #e4e4e4; --warning: #b00020; }
body { margin: 0; color: var(--ink); background: #fff;
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 0 20px 40px; }
.banner { position: sticky; top: 0; z-index: 3; margin: 0; max-width: none;
  padding: 7px 20px; color: #fff;
  background: var(--warning); font-weight: 600; font-size: 14px; text-align: center; }
.banner.end { position: static; }
h1 { font-size: 26px; line-height: 1.25; margin: 28px 0 10px; }
h2 { font-size: 19px; margin: 36px 0 6px; }
p { max-width: 46rem; margin: 6px 0; }
.note, caption { color: var(--faint); font-size: 13px; }
caption { text-align: left; padding: 0 0 4px; }
/* Stays in view while a wide table scrolls under it. */
.fit { display: block; position: sticky; left: 0; width: fit-content; max-width: 100%; }
/* Shadows at the ends show that there is more to the side. */
.scroll { overflow-x: auto; margin: 8px 0 14px;
  background: linear-gradient(to right, #fff 30%, transparent) left / 32px 100%,
    linear-gradient(to left, #fff 30%, transparent) right / 32px 100%,
    linear-gradient(to right, rgba(0, 0, 0, .22), transparent) left / 12px 100%,
    linear-gradient(to left, rgba(0, 0, 0, .22), transparent) right / 12px 100%;
  background-repeat: no-repeat; background-attachment: local, local, scroll, scroll; }
.scroll:focus-visible { outline: 2px solid #0b4f8a; outline-offset: 2px; }
table { border-collapse: separate; border-spacing: 0; font-size: 13.5px;
  font-variant-numeric: tabular-nums;
  border-top: 2px solid var(--ink); border-bottom: 1px solid var(--ink); }
thead th { border-bottom: 1px solid var(--ink); vertical-align: bottom; text-align: right;
  font-weight: 600; }
th, td { padding: 4px 12px; white-space: nowrap; }
td { text-align: right; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody th { text-align: left; font-weight: 400; }
thead th:first-child { text-align: left; }
th:first-child { position: sticky; left: 0; background: #fff; z-index: 1; }
tr.strong > * { font-weight: 600; }
tr.group th { padding-top: 12px; font-weight: 600; }
th.indent { padding-left: 28px; }
td span { color: var(--faint); font-weight: 400; padding-left: 6px; }
td sup { color: var(--warning); font-weight: 700; }
th i { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 6px; }
img { display: block; max-width: 100%; height: auto; }
.figure img { width: 50rem; }
@media (max-width: 640px) {
  main { padding: 0 10px 30px; }
  h1 { font-size: 21px; }
  .banner { padding: 6px 10px; font-size: 12px; }
  th, td { padding: 3px 6px; }
  table { font-size: 12px; }
  thead th, tbody th { white-space: normal; }
  thead th:first-child { min-width: 5.5rem; }
  td span { display: block; padding-left: 0; font-size: 11px; }
  .fit { max-width: calc(100vw - 24px); }
  table.summary th, table.summary td { padding: 3px 4px; }
  th.indent { padding-left: 16px; }
  .figure img { width: 100%; }
}
@page { size: A4 landscape; margin: 12mm; }
@media print {
  /* A table's header group is repeated on every page and keeps its own space. */
  body { display: table; width: 100%; }
  .banner { display: table-header-group; position: static; break-inside: avoid;
    color: var(--warning); background: none; }
  .banner.end { display: none; }
  main { display: table-row-group; }
  .scroll { overflow: visible; background: none; }
  .fit { position: static; }
  table { font-size: 10px; }
  th, td { padding: 2px 5px; }
  th:first-child { position: static; }
  .figure img { width: auto; max-width: 100%; max-height: 150mm; }
  h2, caption { break-after: avoid; }
  .figure, tr { break-inside: avoid; }
}
"""


@dataclass(frozen=True)
class Picture:
    """A figure of a report: its file name without ending, heading, explanation, PNG bytes."""

    name: str
    heading: str
    text: str
    png: bytes

    @property
    def base64(self) -> str:
        """The PNG as text, for a page that holds it."""
        return b64encode(self.png).decode("ascii")


def whole_page(title: str, mark: str, body: Sequence[str], style: str = "") -> str:
    """Return a complete page, with ``mark`` (if not empty) at its top and end.

    body: HTML; style: CSS added to that of all pages.
    """
    inner = "\n".join(
        [
            *([f'<header class="banner">{escape(mark)}</header>'] if mark else []),
            "<main>",
            *body,
            "</main>",
            *([f'<footer class="banner end">{escape(mark)}</footer>'] if mark else []),
        ]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{PAGE_CSS}{style}</style>\n</head>\n<body>\n{inner}\n</body>\n</html>\n"
    )
