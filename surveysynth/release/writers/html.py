"""Tables as self-contained HTML pages that read like an official statistics table.

No script, no font or style from elsewhere, no random ids: the same numbers give the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth.release.labels import Labels, listed
from surveysynth.release.rounding import Rounding
from surveysynth.release.stub import StubRow, stub_heading, stub_rows
from surveysynth.release.table import (
    FILE_STEMS,
    NO_SAMPLE_FLAG,
    SMALL_SAMPLE,
    SMALL_SAMPLE_FLAG,
    ReleaseTable,
    stacked_frame,
)

if TYPE_CHECKING:
    import pandas as pd

_NUMERIC = ("estimate", "se", "ci_lower", "ci_upper", "n")
_ESTIMATE_HEADINGS = {
    "count": "Estimated number",
    "total": "Estimated total",
    "mean": "Estimated mean",
    "proportion": "Estimated percentage",
}
_FOOTNOTES = {
    NO_SAMPLE_FLAG: "No sample records in this cell, hence no estimate.",
    SMALL_SAMPLE_FLAG: f"Fewer than {SMALL_SAMPLE} sample records: use with great caution.",
}
_ONE_RECORD = "One sample record: a standard error cannot be estimated."

_OPTIONS: dict[str, Any] = {
    "table_font_names": [
        "system-ui",
        "Segoe UI",
        "Roboto",
        "Helvetica Neue",
        "Arial",
        "sans-serif",
    ],
    "table_font_size": "14px",
    "heading_align": "left",
    "heading_title_font_size": "19px",
    "heading_subtitle_font_size": "14px",
    "heading_border_bottom_style": "none",
    "table_border_top_style": "none",
    "table_border_bottom_style": "none",
    "column_labels_font_weight": "600",
    "column_labels_border_top_width": "2px",
    "column_labels_border_top_color": "#1b1b1b",
    "column_labels_border_bottom_width": "1px",
    "column_labels_border_bottom_color": "#1b1b1b",
    "table_body_hlines_color": "#e4e4e4",
    "table_body_border_top_color": "#1b1b1b",
    "table_body_border_bottom_color": "#1b1b1b",
    "stub_border_style": "none",
    "row_group_border_top_color": "#9a9a9a",
    "row_group_border_bottom_color": "#e4e4e4",
    "data_row_padding": "4px",
    "data_row_padding_horizontal": "12px",
    "column_labels_padding_horizontal": "12px",
    "source_notes_font_size": "12px",
    "source_notes_border_bottom_style": "none",
}

_PAGE_CSS = """
body { margin: 0; padding: 24px 16px; background: #fff; color: #1b1b1b; }
#TABLE { padding: 0 !important; max-width: 100%; }
#TABLE .gt_table { margin-left: auto; margin-right: auto; max-width: 56rem;
  font-variant-numeric: tabular-nums; }
#TABLE .gt_title { font-weight: 600; }
#TABLE .gt_subtitle { color: #444; }
#TABLE .gt_stub { border-right: none; padding-right: 24px; }
#TABLE .gt_indent_1 { padding-left: 26px; text-indent: 0; }
#TABLE .gt_group_heading { font-weight: 600; padding-top: 12px; }
#TABLE .gt_sourcenote, #TABLE .gt_footnote { color: #333; }
.banner { max-width: 54rem; margin: 0 auto 16px; padding: 10px 14px; border: 2px solid #b00020;
  color: #b00020; font: 600 15px/1.4 system-ui, sans-serif; }
@media (max-width: 640px) {
  body { padding: 12px 6px; }
  #TABLE .gt_table { font-size: 12px; margin-left: 0; }
  #TABLE .gt_row, #TABLE .gt_col_heading { padding-left: 3px; padding-right: 3px; }
  #TABLE .gt_stub { position: sticky; left: 0; background: #fff; padding-right: 8px; }
  #TABLE .gt_indent_1 { padding-left: 12px; }
  #TABLE thead .fit, #TABLE tfoot .fit { position: sticky; left: 0;
    max-width: calc(100vw - 24px); }
  #TABLE .gt_col_heading .fit { max-width: 6.5rem; }
}
@media (max-width: 430px) {
  #TABLE .gt_table { font-size: 11px; }
  #TABLE .gt_row, #TABLE .gt_col_heading { padding-left: 2px; padding-right: 2px; }
  #TABLE .gt_indent_1 { padding-left: 10px; }
}
"""


@dataclass(frozen=True)
class Presentation:
    """What the pages of one release share.

    title, source: the caller's, may be empty; privacy_note: one sentence with the epsilon;
    banner: a warning set above and below the table, empty for a private release;
    rounding: by statistic and outcome (None for counts).
    """

    title: str
    source: str
    privacy_note: str
    banner: str
    labels: Labels
    rounding: dict[tuple[str, str | None], Rounding]


def describe(tables: Sequence[ReleaseTable], labels: Labels) -> str:
    """What the table shows, as a phrase: the statistic, the outcomes, the by-columns."""
    statistic = tables[0].statistic
    outcomes = [labels.titled_with_unit(t.outcome) for t in tables if t.outcome is not None]
    heading = _ESTIMATE_HEADINGS[statistic]
    if outcomes:
        heading = f"{heading}: {', '.join(outcomes)}"
    by = [labels.title(column) for column in tables[0].by]
    return f"{heading}, by {listed(by)}" if by else heading


def write_page(tables: Sequence[ReleaseTable], presentation: Presentation, path: Path) -> None:
    """Write the tables of one statistic (one an outcome) as one page."""
    path.write_text(render_page(tables, presentation), encoding="utf-8")


def render_page(tables: Sequence[ReleaseTable], presentation: Presentation) -> str:
    """The page as text; every label is escaped."""
    identifier = FILE_STEMS[tables[0].statistic]
    body = _great_table(tables, presentation, identifier).as_raw_html()
    title = presentation.title or describe(tables, presentation.labels)
    banner = f'<p class="banner">{escape(presentation.banner)}</p>\n' if presentation.banner else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n</head>\n<body>\n{banner}{body}\n"
        f"<style>{_PAGE_CSS.replace('#TABLE', '#' + identifier)}</style>\n</body>\n</html>\n"
    )


def _great_table(
    tables: Sequence[ReleaseTable], presentation: Presentation, identifier: str
) -> Any:
    labels, first = presentation.labels, tables[0]
    rows = [row for table in tables for row in _stub(table, labels, several=len(tables) > 1)]
    frame = _text_frame(tables, rows, presentation)
    shown = describe(tables, labels)
    title, subtitle = (presentation.title, shown) if presentation.title else (shown, None)
    table = (
        _grid(frame, identifier, grouped=any(row.group for row in rows))
        .tab_header(_plain(title), _plain(subtitle) if subtitle else None)
        .tab_stubhead(_plain(stub_heading(first.by, labels)))
        .cols_label(
            estimate=_ESTIMATE_HEADINGS[first.statistic],
            se="Standard error",
            ci_lower="Lower",
            ci_upper="Upper",
            n="Sample records",
        )
        .tab_spanner(f"{100 * first.level:.4g}% confidence interval", ["ci_lower", "ci_upper"])
    )
    table = _styled(table, rows)
    table = _footnoted(table, stacked_frame(tables))
    for note in _source_notes(tables, presentation):
        table = table.tab_source_note(_plain(note))
    return table


def _grid(frame: "pd.DataFrame", identifier: str, *, grouped: bool) -> Any:
    from great_tables import GT

    if not grouped:
        frame = frame.drop(columns="group")
    table = GT(
        frame, rowname_col="label", groupname_col="group" if grouped else None, id=identifier
    )
    return table.cols_align("right", list(_NUMERIC)).cols_align("left", "label")


def _styled(table: Any, rows: Sequence[StubRow]) -> Any:
    from great_tables import loc, style

    strong = [index for index, row in enumerate(rows) if row.strong]
    indented = [index for index, row in enumerate(rows) if row.indent]
    if strong:
        bold = style.text(weight="bold")
        table = table.tab_style(bold, [loc.body(rows=strong), loc.stub(rows=strong)])
    if indented:
        table = table.tab_stub_indent(rows=indented, indent=1)
    return table.opt_footnote_marks("letters").tab_options(**_OPTIONS)


def _text_frame(
    tables: Sequence[ReleaseTable], rows: Sequence[StubRow], presentation: Presentation
) -> "pd.DataFrame":
    """Every cell as it is shown; great_tables escapes text columns."""
    import pandas as pd

    lines = []
    for table in tables:
        rounding = presentation.rounding[table.statistic, table.outcome]
        columns = [table.frame[name].tolist() for name in _NUMERIC]
        for estimate, se, lower, upper, n in zip(*columns, strict=True):
            shown_se = rounding.show(se, size=estimate)
            bounds = (rounding.show(lower), rounding.show(upper))
            lines.append((rounding.show(estimate), shown_se, *bounds, f"{n:,}"))
    frame = pd.DataFrame(lines, columns=list(_NUMERIC), dtype=str)
    frame.insert(0, "label", [row.label for row in rows])
    frame.insert(0, "group", [row.group for row in rows])
    return frame


def _footnoted(table: Any, frame: "pd.DataFrame") -> Any:
    from great_tables import loc

    for flag, text in _FOOTNOTES.items():
        flagged = [i for i, value in enumerate(frame["flag"]) if value == flag]
        if flagged:
            table = table.tab_footnote(text, loc.body("estimate", flagged), placement="left")
    single = [
        i for i in range(len(frame)) if frame["n"].iloc[i] == 1 and frame["se"].isna().iloc[i]
    ]
    if single:
        table = table.tab_footnote(_ONE_RECORD, loc.body("se", single), placement="left")
    return table


def _source_notes(tables: Sequence[ReleaseTable], presentation: Presentation) -> list[str]:
    notes = [presentation.banner] if presentation.banner else []
    if presentation.source:
        notes.append(f"Source: {presentation.source}")
    notes.extend(dict.fromkeys(note for table in tables for note in table.notes))
    return [*notes, presentation.privacy_note]


def _plain(text: str) -> Any:
    """Text that is shown as it stands: neither HTML nor Markdown in a label has any effect.

    On a phone it stays within the screen while a wide table scrolls under it.
    """
    from great_tables import html

    return html(f'<div class="fit">{escape(text)}</div>')


def _stub(table: ReleaseTable, labels: Labels, *, several: bool) -> list[StubRow]:
    prefix = labels.titled_with_unit(table.outcome) if several and table.outcome else ""
    return stub_rows(table.frame, table.by, labels, prefix=prefix)
