"""HTML of the package: pages of reports, and results in a notebook.

A notebook's HTML styles nothing outside itself, has no ids, and needs no script.
"""

import math
import numbers
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

#: Rows of a table that a notebook shows; the frame itself has all.
MOST_ROWS = 40

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

_RESULT_CSS = """
.surveysynth-result { font: 14px/1.45 system-ui, "Segoe UI", Roboto, Arial, sans-serif; }
.surveysynth-result h3 { font-size: 16px; margin: 4px 0; }
.surveysynth-result p { margin: 4px 0; max-width: 50rem; text-align: left; }
.surveysynth-result .mark { border: 2px solid #b00020; color: #b00020; font-weight: 600;
  padding: 6px 10px; }
.surveysynth-result .scroll { overflow-x: auto; margin: 6px 0; }
.surveysynth-result table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.surveysynth-result caption { text-align: left; font-weight: 600; padding: 4px 0; }
.surveysynth-result th, .surveysynth-result td { padding: 3px 10px; text-align: right; }
.surveysynth-result .text { text-align: left; }
.surveysynth-result thead th { border-bottom: 1px solid; vertical-align: bottom; }
.surveysynth-result pre { white-space: pre-wrap; margin: 6px 0; }
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
        """The PNG as text, to embed in a page."""
        return b64encode(self.png).decode("ascii")


def full_page(title: str, mark: str, body: Sequence[str], style: str = "") -> str:
    """Return a complete page, with ``mark`` (if not empty) at its top and end.

    body: HTML; style: CSS added to that of all pages.
    """
    top = [f'<header class="banner">{escape(mark)}</header>'] * bool(mark)
    end = [f'<footer class="banner end">{escape(mark)}</footer>'] * bool(mark)
    inner = "\n".join([*top, "<main>", *body, "</main>", *end])
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{PAGE_CSS}{style}</style>\n</head>\n<body>\n{inner}\n</body>\n</html>\n"
    )


def fragment(
    title: str,
    *,
    mark: str | Iterable[str] = (),
    lines: Iterable[str] = (),
    text: str = "",
    frames: "Iterable[tuple[str, pd.DataFrame]]" = (),
) -> str:
    """Return the HTML of a result, with all text escaped.

    mark: warnings, shown first; lines: one paragraph each; text: preformatted, with its line ends;
    frames: tables with their captions.
    """
    marks = (mark,) if isinstance(mark, str) else mark
    parts = [
        f'<div class="surveysynth-result"><style>{_RESULT_CSS}</style>',
        f"<h3>{escape(title)}</h3>",
        *(f'<p class="mark">{escape(each)}</p>' for each in marks if each),
        *(f"<p>{escape(each)}</p>" for each in lines),
        *([f"<pre>{escape(text)}</pre>"] if text else []),
        *(frame_html(frame, caption) for caption, frame in frames),
        "</div>",
    ]
    return "\n".join(parts)


def frame_html(frame: "pd.DataFrame", caption: str) -> str:
    """Return the HTML of at most ``MOST_ROWS`` rows, with text aligned left."""
    import pandas as pd

    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    kinds = ["" if right else ' class="text"' for right in numeric]
    head = "".join(
        f'<th scope="col"{kind}>{escape(str(name))}</th>'
        for name, kind in zip(frame, kinds, strict=True)
    )
    rows = [
        "".join(
            f"<td{kind}>{escape(shown(value))}</td>" for value, kind in zip(row, kinds, strict=True)
        )
        for row in frame.head(MOST_ROWS).itertuples(index=False)
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    rest = len(frame) - MOST_ROWS
    more = f"<p>and {rest:,} more rows.</p>" if rest > 0 else ""
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )


def shown(value: Any) -> str:
    """Return a value in few digits; empty for missing values.

    Whole numbers and numbers from 1,000 have no decimals, others have four significant digits.
    """
    if isinstance(value, bool | str) or not isinstance(value, numbers.Real):
        return "" if value is None else str(value)
    number = float(value)
    if math.isnan(number):
        return ""
    if number.is_integer() or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4g}"
