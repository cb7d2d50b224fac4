"""HTML of results in a notebook: a heading, paragraphs, and tables.

The HTML styles nothing outside itself, has no ids, and needs no script.
"""

import math
import numbers
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

#: Rows of a table that are shown; the frame itself has all.
MOST_ROWS = 40

_CSS = """
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
        f"<h3>{escape(title)}</h3>",
        *(f'<p class="mark">{escape(each)}</p>' for each in marks if each),
        *(f"<p>{escape(each)}</p>" for each in lines),
        *([f"<pre>{escape(text)}</pre>"] if text else []),
        *(frame_html(frame, caption) for caption, frame in frames),
    ]
    return (
        f'<div class="surveysynth-result"><style>{_CSS}</style>\n' + "\n".join(parts) + "\n</div>"
    )


def frame_html(frame: "pd.DataFrame", caption: str) -> str:
    """Return the HTML of at most ``MOST_ROWS`` rows, with text aligned left."""
    import pandas as pd

    text = [not pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    head = "".join(
        f'<th scope="col"{_kind(left)}>{escape(str(name))}</th>'
        for name, left in zip(frame, text, strict=True)
    )
    body = "".join(
        f"<tr>{_cells(row, text)}</tr>" for row in frame.head(MOST_ROWS).itertuples(index=False)
    )
    rest = len(frame) - MOST_ROWS
    more = f"<p>and {rest:,} more rows.</p>" if rest > 0 else ""
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
    )


def _cells(row: Sequence[Any], text: Sequence[bool]) -> str:
    return "".join(
        f"<td{_kind(left)}>{escape(shown(value))}</td>"
        for value, left in zip(row, text, strict=True)
    )


def _kind(left: bool) -> str:
    return ' class="text"' if left else ""


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
