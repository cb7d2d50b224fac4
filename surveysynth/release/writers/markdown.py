"""Tables as Markdown (pipe tables, which GitHub, Pandoc and most others read)."""

from pathlib import Path

from surveysynth.config.tables_section import Format
from surveysynth.release.tables.layout import Layout, TableSet

_SPECIAL = frozenset("\\`*_[]{}<>#|&~$")
_INDENT = "&emsp;"


def escape(text: str) -> str:
    """Return text that Markdown shows unchanged, on one line."""
    joined = " ".join(text.split())
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in joined)


def write(shown: TableSet, folder: Path, made: Format) -> None:
    """Write one page a statistic."""
    for statistic, layout in shown.layouts.items():
        path = folder / made.file_of(statistic)
        path.write_text(render_page(layout), encoding="utf-8")


def render_page(layout: Layout) -> str:
    """Return the page as text. A spanner is part of the heading of each of its columns."""
    headings = [layout.stub_heading, *(column.in_one_line for column in layout.columns)]
    table = [
        _line([escape(text) for text in headings]),
        _line([":---", *("---:" for _ in layout.columns)]),
        *_body(layout),
    ]
    parts = [
        f"# {escape(layout.title)}",
        *([f"**{escape(layout.banner)}**"] if layout.banner else []),
        *([escape(layout.subtitle)] if layout.subtitle else []),
        "\n".join(table),
        *(f"<sup>{mark}</sup> {escape(text)}" for mark, text in layout.footnotes),
        *(escape(note) for note in layout.notes),
    ]
    return "\n\n".join(parts) + "\n"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _body(layout: Layout) -> list[str]:
    lines, group = [], ""
    for row in layout.rows:
        if row.stub.group != group:
            group = row.stub.group
            lines.append(_line([f"*{escape(group)}*", *("" for _ in layout.columns)]))
        bold = "**" if row.stub.strong else ""
        cells = [f"{_INDENT * row.stub.indent}{bold}{escape(row.stub.label)}{bold}"]
        for cell in row.cells:
            marks = "".join(f"<sup>{mark}</sup> " for mark in cell.marks)
            cells.append(f"{marks}{bold}{escape(cell.text)}{bold}" if cell.text else marks)
        lines.append(_line(cells))
    return lines
