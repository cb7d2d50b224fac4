"""Tables as self-contained HTML pages that read like an official statistics table.

No script, no font or style from elsewhere, no random ids: the same numbers give the same bytes.
"""

import hashlib
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth._support.resources import render
from surveysynth.config.tables_section import Format
from surveysynth.release.tables.layout import Layout, TableSet

if TYPE_CHECKING:
    import pandas as pd

STATEMENT = "dossier.html"
"""The privacy statement for a review board, in the folder of a release."""

_OPTIONS: dict[str, Any] = {
    "table_font_names": [
        "system-ui", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif",
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


def write(shown: TableSet, folder: Path, made: Format) -> None:
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
    words = "How these numbers were made, and what protects the people in them"
    link = f'<p class="link"><a href="{escape(statement)}">{words}</a></p>\n' if statement else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(layout.title)}</title>\n</head>\n<body>\n<main>\n{banner}{table}\n"
        f"{link}"
        # After the table's own style, which it changes.
        f"<style>{_style(layout, page=True)}</style>\n</main>\n</body>\n</html>\n"
    )


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
    return f"{banner}{table}\n<style>{_style(layout, page=False)}</style>\n"


def _style(layout: Layout, *, page: bool) -> str:
    banner = ".banner" if page else f"#{layout.stem}-banner"
    return render(__package__, "table.css", id=layout.stem, page=page, banner=banner)


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
    from great_tables import GT, loc, style

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
    strong = [index for index, row in enumerate(layout.rows) if row.stub.strong]
    indented = [index for index, row in enumerate(layout.rows) if row.stub.indent]
    if strong:
        bold = style.text(weight="bold")
        table = table.tab_style(bold, [loc.body(rows=strong), loc.stub(rows=strong)])
    if indented:
        table = table.tab_stub_indent(rows=indented, indent=1)
    for mark, text in layout.footnotes:
        table = table.tab_source_note(_plain(text, mark))
    for note in layout.notes:
        table = table.tab_source_note(_plain(note))
    return table.tab_options(**_OPTIONS)


def _text_frame(layout: Layout) -> "pd.DataFrame":
    """Return every cell as shown; great_tables escapes the labels, the rest is escaped here."""
    import pandas as pd

    columns: dict[str, list[str]] = {"label": [row.stub.label for row in layout.rows]}
    if layout.grouped:
        columns["group"] = [row.stub.group for row in layout.rows]
    for index, column in enumerate(layout.columns):
        # Marks stand on the left, so that digits stay below digits.
        columns[column.key] = [
            "".join(f"<sup>{mark}</sup>" for mark in cell.marks) + escape(cell.text)
            for cell in (row.cells[index] for row in layout.rows)
        ]
    return pd.DataFrame(columns, dtype=str)


def _plain(text: str, mark: str = "") -> Any:
    """Return text without effect as HTML; on a phone it stays while a wide table scrolls."""
    from great_tables import html

    return html(f'<div class="fit">{f"<sup>{mark}</sup> " if mark else ""}{escape(text)}</div>')


def _with_caption(table: str, layout: Layout, *, heading: bool) -> str:
    """Add a caption, which screen readers announce; ``heading``: of the page as well."""
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
    """Name the heading above an indented row as a header too: "Biology, Female"."""
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
