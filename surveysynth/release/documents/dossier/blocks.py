"""The dossier as text, tables and lists, which Markdown and HTML show alike.

Every text is plain: what a specification names may hold any character, and is escaped once, where
it is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from surveysynth._support.page import whole_page
from surveysynth.release.writers.markdown import escape as plain


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list; ``boxes``: one to tick off."""

    texts: tuple[str, ...]
    boxes: bool = False


@dataclass(frozen=True)
class Grid:
    """A table whose first column names its rows; ``words``: cells hold sentences, not numbers."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False


@dataclass(frozen=True)
class Part:
    """A heading below that of a section."""

    heading: str


@dataclass(frozen=True)
class Answer:
    """A question with what the settings say to it."""

    question: str
    texts: tuple[str, ...]


Block: TypeAlias = Text | Items | Grid | Part | Answer


@dataclass(frozen=True)
class Section:
    """What stands under one heading."""

    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Dossier:
    """The whole; ``warnings``: why the release must not be published."""

    title: str
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]


def markdown(dossier: Dossier) -> str:
    """The dossier as Markdown."""
    lines = [f"# {plain(dossier.title)}", *(f"**{plain(each)}**" for each in dossier.warnings)]
    for section in dossier.sections:
        lines += [f"## {plain(section.heading)}", *_markdown_blocks(section.blocks)]
    return "\n\n".join(lines) + "\n"


def _markdown_blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Text):
            yield plain(block.text)
        elif isinstance(block, Items):
            mark = "- [ ]" if block.boxes else "-"
            yield "\n".join(f"{mark} {plain(text)}" for text in block.texts)
        elif isinstance(block, Part):
            yield f"### {plain(block.heading)}"
        elif isinstance(block, Answer):
            yield f"**{plain(block.question)}**"
            yield from map(plain, block.texts)
        else:
            yield f"*{plain(block.caption)}*"
            rows = [block.head, ("---",) * len(block.head), *block.rows]
            yield "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _cell(text: str) -> str:
    return text if text == "---" else plain(text)


#: Beside the style of all pages: tables of sentences wrap, and on a narrow screen each of their
#: rows stands as a block of its own, so that nothing is cut off and nothing has to be scrolled.
DOSSIER_CSS = """
@page { size: A4 portrait; margin: 16mm; }
main { max-width: 54rem; }
h3 { font-size: 16px; margin: 26px 0 4px; }
h4 { font-size: 15px; margin: 16px 0 2px; }
p, li { max-width: 46rem; overflow-wrap: break-word; }
ul.boxes { list-style: none; padding-left: 0; }
ul.boxes li { padding-left: 28px; text-indent: -28px; margin: 8px 0; break-inside: avoid; }
ul.boxes li::before { content: "\\2610"; display: inline-block; width: 28px; text-indent: 0;
  font-size: 18px; line-height: 1; }
table.words th, table.words td { white-space: normal; overflow-wrap: break-word; text-align: left;
  vertical-align: top; }
table.words { width: 100%; }
table.numbers { min-width: 18rem; }
table.numbers thead th { white-space: normal; max-width: 15rem; }
table.words tbody th { font-weight: 600; min-width: 7rem; }
table.blank td, table.blank tbody th { height: 34px; }
@media (max-width: 640px) {
  table.words thead { position: absolute; width: 1px; height: 1px; overflow: hidden;
    clip-path: inset(50%); }
  table.words tr, table.words th, table.words td { display: block; border: 0; min-width: 0; }
  table.words th:first-child { position: static; }
  table.words tbody tr { padding: 8px 0; }
  table.words tbody tr + tr { border-top: 1px solid var(--line); }
  table.words tbody tr + tr > * { border-top: 0; }
  table.words td[data-head]:not(:empty)::before { content: attr(data-head) ": ";
    color: var(--faint); }
  table.blank [data-head]:empty::before { content: attr(data-head) ": ";
    color: var(--faint); font-weight: 400; }
}
@media print { body { font-size: 11px; } h2, h3, h4 { break-after: avoid; }
  .answer { break-inside: avoid; } }
"""


def html(dossier: Dossier) -> str:
    """The dossier as a page that needs nothing else."""
    body = [f"<h1>{escape(dossier.title)}</h1>"]
    for section in dossier.sections:
        parts = "\n".join(map(_html_block, section.blocks))
        body.append(f"<section><h2>{escape(section.heading)}</h2>\n{parts}</section>")
    return whole_page(dossier.title, " ".join(dossier.warnings), body, style=DOSSIER_CSS)


def _html_block(block: Block) -> str:
    if isinstance(block, Text):
        return _paragraph(block.text)
    if isinstance(block, Items):
        kind = ' class="boxes"' if block.boxes else ""
        items = "".join(f"<li>{escape(text)}</li>" for text in block.texts)
        return f"<ul{kind}>{items}</ul>"
    if isinstance(block, Part):
        return f"<h3>{escape(block.heading)}</h3>"
    if isinstance(block, Answer):
        texts = "".join(map(_paragraph, block.texts))
        return f'<div class="answer"><h4>{escape(block.question)}</h4>{texts}</div>'
    return _html_grid(block)


def _html_grid(grid: Grid) -> str:
    head = "".join(f'<th scope="col" role="columnheader">{escape(each)}</th>' for each in grid.head)
    rows = []
    for first, *others in grid.rows:
        cells = "".join(
            f'<td role="cell" data-head="{escape(name)}">{escape(text)}</td>'
            for name, text in zip(grid.head[1:], others, strict=True)
        )
        rows.append(
            f'<tr role="row"><th scope="row" role="rowheader" data-head="{escape(grid.head[0])}">'
            f"{escape(first)}</th>{cells}</tr>"
        )
    blank = all(not any(row) for row in grid.rows)
    kind = "words blank" if blank else "words" if grid.words else "numbers"
    # Roles: a table that a narrow screen shows as blocks stays one for those who hear it.
    return (
        f'<div class="scroll"><table role="table" class="{kind}">'
        f"<caption>{escape(grid.caption)}</caption>"
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table></div>'
    )


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
