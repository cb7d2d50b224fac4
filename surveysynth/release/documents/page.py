"""The dossier as a page: its Markdown by markdown-it, in the style of all pages."""

from typing import TYPE_CHECKING

from surveysynth._support.page import whole_page
from surveysynth._support.templates import render

if TYPE_CHECKING:
    from markdown_it.token import Token

_BOX = "[ ] "


def page_of(markdown: str, title: str, mark: str) -> str:
    """Return Markdown as an HTML page that needs nothing else.

    ``mark`` stands at its top and end. HTML in the Markdown is shown as text. A line in italics
    just above a table becomes its caption, a list of ``[ ]`` a list of boxes; the first column of
    a table names its rows. A table whose columns are aligned to the right holds numbers.
    """
    # Imported here: it takes 0.05 s, which only a release should wait for.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = _with_captions(parser.parse(markdown))
    for start, token in enumerate(tokens):
        if token.type == "table_open":
            _mark_table(tokens[start : _end(tokens, start)])
        elif token.type == "bullet_list_open":
            _mark_boxes(tokens[start : _end(tokens, start)])
    body: str = parser.renderer.render(tokens, parser.options, {})
    # Text in the page has no "<" of its own.
    body = body.replace("<table", '<div class="scroll"><table')
    body = body.replace("</table>", "</table></div>")
    style = render(__package__, "templates/dossier/dossier.css")
    return whole_page(title, mark, [body], style)


def _end(tokens: "list[Token]", start: int) -> int:
    """Return where the block ends that opens at ``start``."""
    level = tokens[start].level
    return next(
        place + 1
        for place in range(start + 1, len(tokens))
        if tokens[place].level == level and tokens[place].nesting == -1
    )


def _with_captions(tokens: "list[Token]") -> "list[Token]":
    """Return the tokens with a paragraph in italics just above a table moved into the table."""
    found = list(tokens)
    for place in range(len(found) - 3):
        paragraph, inline, end, table = found[place : place + 4]
        kinds = [child.type for child in inline.children or ()]
        if table.type != "table_open" or paragraph.type != "paragraph_open":
            continue
        if kinds[:1] != ["em_open"] or kinds.index("em_close") != len(kinds) - 1:
            continue
        paragraph.tag = end.tag = "caption"
        paragraph.type, end.type = "caption_open", "caption_close"
        paragraph.level = end.level = table.level + 1
        inline.children = (inline.children or [])[1:-1]
        found[place : place + 4] = [table, paragraph, inline, end]
    return found


def _mark_boxes(tokens: "list[Token]") -> None:
    """Make boxes of the ``[ ]`` of a list, which the style sheet draws."""
    texts = [token.children[0] for token in tokens if token.type == "inline" and token.children]
    if texts and all(text.content.startswith(_BOX) for text in texts):
        tokens[0].attrSet("class", "boxes")
        for text in texts:
            text.content = text.content.removeprefix(_BOX)


def _mark_table(tokens: "list[Token]") -> None:
    """Say what every cell of a table is, for those who hear it and for narrow screens.

    Roles: a table that a narrow screen shows as blocks stays one for those who hear it.
    """
    cells = [place for place, token in enumerate(tokens) if token.type in ("th_open", "td_open")]
    head = [tokens[place + 1].content for place in cells if tokens[place].type == "th_open"]
    texts = [tokens[place + 1].content for place in cells[len(head) :]]
    kind = "words" if tokens[cells[0]].attrGet("style") is None else "numbers"
    tokens[0].attrs = {"role": "table", "class": kind if any(texts) else "words blank"}
    roles = {"thead_open": "rowgroup", "tbody_open": "rowgroup", "tr_open": "row"}
    for token in tokens:
        if token.type in roles:
            token.attrSet("role", roles[token.type])
    for number, place in enumerate(cells):
        token, column = tokens[place], number % len(head)
        named = {"data-head": head[column]}
        if token.type == "th_open":
            token.attrs = {"scope": "col", "role": "columnheader"}
        elif column == 0:
            token.attrs = {"scope": "row", "role": "rowheader", **named}
            token.tag = tokens[place + 2].tag = "th"
        else:
            token.attrs = {"role": "cell", **named}
