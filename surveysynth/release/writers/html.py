"""Tables as self-contained HTML pages that read like an official statistics table.

No script, no font or style from elsewhere, no random ids: the same numbers give the same bytes.
"""

import hashlib
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth.config.formats import Format
from surveysynth.release.tables.layout import Cell, Layout, Shown

if TYPE_CHECKING:
    import pandas as pd

STATEMENT = "dossier.html"
"""The privacy statement for a review board, in the folder of a release."""

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
#TABLE caption { text-align: left; padding: 0 12px 8px; }
#TABLE .title { font-size: 19px; font-weight: 600; }
#TABLE .summary { position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap; }
#TABLE:focus-visible { outline: 2px solid #0b4f8a; }
#TABLE .subtitle { color: #444; padding-top: 4px; }
#TABLE .gt_stub { border-right: none; padding-right: 24px; }
#TABLE .gt_indent_1 { padding-left: 26px; text-indent: 0; }
#TABLE .gt_group_heading { font-weight: 600; padding-top: 12px; }
#TABLE .gt_sourcenote { color: #333; }
#TABLE sup { font-size: 75%; line-height: 0; padding-right: 2px; }
.link { max-width: 54.5rem; margin: 8px auto; font: 12px system-ui, sans-serif; }
.banner { max-width: 54rem; margin: 0 auto 16px; padding: 10px 14px; border: 2px solid #b00020;
  color: #b00020; font: 600 15px/1.4 system-ui, sans-serif; }
@media (max-width: 640px) {
  body { padding: 12px 6px; }
  #TABLE .gt_table { font-size: 12px; margin-left: 0; }
  #TABLE .gt_row, #TABLE .gt_col_heading { padding-left: 3px; padding-right: 3px; }
  #TABLE .gt_stub { position: sticky; left: 0; background: #fff; padding-right: 8px; }
  #TABLE .gt_indent_1 { padding-left: 12px; }
  #TABLE caption { padding: 0 2px 8px; }
  #TABLE caption .fit, #TABLE thead .fit, #TABLE tfoot .fit { position: sticky; left: 0;
    max-width: calc(100vw - 24px); }
  #TABLE .gt_col_heading .fit { max-width: 6.5rem; }
}
@media (max-width: 430px) {
  #TABLE .gt_table { font-size: 11px; }
  #TABLE .gt_row, #TABLE .gt_col_heading { padding-left: 2px; padding-right: 2px; }
  #TABLE .gt_indent_1 { padding-left: 10px; }
}
"""


#: Rules of the page that is all the table's own.
_BODY_RULE = re.compile(r"^\s*body \{[^}]*\}\n", re.MULTILINE)


def write(shown: Shown, folder: Path, made: Format) -> None:
    """Write one page a statistic."""
    for statistic, layout in shown.layouts.items():
        path = folder / made.file_of(statistic)
        up = "../" * (1 + bool(shown.presentation.name))
        path.write_text(render_page(layout, f"{up}{STATEMENT}"), encoding="utf-8")


def render_page(layout: Layout, statement: str = "") -> str:
    """Return the page as text; every label is escaped. statement: address of the dossier."""
    layout = _with_flag_beside_estimate(layout)
    table = _with_caption(_great_table(layout).as_raw_html(), layout, heading=True)
    table = _in_region(_with_parent_headings(table, layout), layout)
    banner = f'<p class="banner">{escape(layout.banner)}</p>\n' if layout.banner else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(layout.title)}</title>\n</head>\n<body>\n<main>\n{banner}{table}\n"
        f"{_link(statement)}"
        # After the table's own style, which it changes.
        f"<style>{_PAGE_CSS.replace('#TABLE', '#' + layout.stem)}</style>\n</main>\n</body>\n"
        "</html>\n"
    )


def _link(address: str) -> str:
    words = "How these numbers were made, and what protects the people in them"
    return f'<p class="link"><a href="{escape(address)}">{words}</a></p>\n' if address else ""


def render_fragment(layout: Layout) -> str:
    """Return the same table for another page, such as a notebook; it styles nothing but itself.

    Its id depends on its content, so that several tables of one page keep apart.
    """
    digest = hashlib.sha256(repr(layout).encode()).hexdigest()[:8]
    layout = replace(_with_flag_beside_estimate(layout), stem=f"{layout.stem}-{digest}")
    table = _with_caption(_great_table(layout).as_raw_html(), layout, heading=False)
    table = _in_region(_with_parent_headings(table, layout), layout)
    # The warning stands below the table too, among the notes.
    banner = f'<p id="{layout.stem}-banner">{escape(layout.banner)}</p>\n' if layout.banner else ""
    css = _BODY_RULE.sub("", _PAGE_CSS).replace(".banner", "#TABLE-banner")
    return f"{banner}{table}\n<style>{css.replace('#TABLE', '#' + layout.stem)}</style>\n"


def _with_flag_beside_estimate(layout: Layout) -> Layout:
    """Move the column of flags behind the first column, so that a phone shows both."""
    keys = [column.key for column in layout.columns]
    if "flag" not in keys:
        return layout
    first, *others = range(len(keys))
    order = [first, *sorted(others, key=lambda index: keys[index] != "flag")]
    rows = [replace(row, cells=tuple(row.cells[index] for index in order)) for row in layout.rows]
    return replace(
        layout, columns=tuple(layout.columns[index] for index in order), rows=tuple(rows)
    )


def _great_table(layout: Layout) -> Any:
    from great_tables import GT

    keys = [column.key for column in layout.columns]
    grouped = "group" if layout.grouped else None
    table = (
        GT(_text_frame(layout), rowname_col="label", groupname_col=grouped, id=layout.stem)
        .fmt_passthrough(keys, escape=False)
        .cols_align("right", keys)
        .cols_align("left", "label")
        .tab_stubhead(_plain(layout.stub_heading))
        .cols_label({column.key: _plain(column.heading) for column in layout.columns})
    )
    for spanner in dict.fromkeys(column.spanner for column in layout.columns if column.spanner):
        under = [column.key for column in layout.columns if column.spanner == spanner]
        table = table.tab_spanner(spanner, under)
    table = _styled(table, layout)
    for mark, text in layout.footnotes:
        table = table.tab_source_note(_plain(text, mark))
    for note in layout.notes:
        table = table.tab_source_note(_plain(note))
    return table


def _styled(table: Any, layout: Layout) -> Any:
    from great_tables import loc, style

    strong = [index for index, row in enumerate(layout.rows) if row.stub.strong]
    indented = [index for index, row in enumerate(layout.rows) if row.stub.indent]
    if strong:
        bold = style.text(weight="bold")
        table = table.tab_style(bold, [loc.body(rows=strong), loc.stub(rows=strong)])
    if indented:
        table = table.tab_stub_indent(rows=indented, indent=1)
    return table.tab_options(**_OPTIONS)


def _text_frame(layout: Layout) -> "pd.DataFrame":
    """Return every cell as shown; great_tables escapes the labels, the rest is escaped here."""
    import pandas as pd

    columns: dict[str, list[str]] = {"label": [row.stub.label for row in layout.rows]}
    if layout.grouped:
        columns["group"] = [row.stub.group for row in layout.rows]
    for index, column in enumerate(layout.columns):
        columns[column.key] = [_cell_html(row.cells[index]) for row in layout.rows]
    return pd.DataFrame(columns, dtype=str)


def _cell_html(cell: Cell) -> str:
    """Put marks on the left, so that digits stay below digits."""
    return "".join(f"<sup>{mark}</sup>" for mark in cell.marks) + escape(cell.text)


def _plain(text: str, mark: str = "") -> Any:
    """Return text without effect as HTML or Markdown.

    On a phone it stays within the screen while a wide table scrolls under it.
    """
    from great_tables import html

    return html(f'<div class="fit">{f"<sup>{mark}</sup> " if mark else ""}{escape(text)}</div>')


def _with_caption(table: str, layout: Layout, *, heading: bool) -> str:
    """Add the title as the table's caption, which screen readers announce, and a summary.

    ``heading``: whether the title is that of the page.
    """
    subtitle = (
        f'<div class="subtitle">{escape(layout.subtitle)}</div>' if layout.subtitle else ""
    )
    level = ' role="heading" aria-level="1"' if heading else ""
    caption = (
        f'<caption><div class="fit"><div class="title"{level}>{escape(layout.title)}</div>'
        f'{subtitle}</div><div class="summary" id="{layout.stem}-summary">'
        f"{escape(layout.summary)}</div></caption>"
    )
    described = f'<table aria-describedby="{layout.stem}-summary"'
    return re.sub(
        r"<table\b([^>]*>)", lambda found: f"{described}{found[1]}\n{caption}", table, count=1
    )


def _in_region(table: str, layout: Layout) -> str:
    """Let the keyboard scroll a table that is wider than the screen."""
    start = f'<div id="{layout.stem}"'
    named = f'{start} role="group" tabindex="0" aria-label="{escape(layout.title)}"'
    return table.replace(start, named, 1)


def _with_parent_headings(table: str, layout: Layout) -> str:
    """Name the heading above an indented row as a header of its cells too.

    "Female" below "Biology" is read as Biology, Female.
    """
    parent = 0
    for number, row in enumerate(layout.rows, start=1):
        own = f"{layout.stem}-stub-{number}"
        if not row.stub.indent:
            parent = number
        elif parent:
            # Under a group heading its id comes first.
            mine = re.compile(rf'(<td [^>]*headers="(?:[^" ]+ )?)({own} )')
            table = mine.sub(rf"\g<1>{layout.stem}-stub-{parent} \g<2>", table)
    return table
