"""Documents from the templates in ``templates/``, which hold all of their prose, and as pages.

A template is Markdown with Jinja2 in it. Every value is escaped when it is printed, so that a label
shows the characters that it has; ``| safe`` prints trusted Markdown, ``| code`` a value between
backticks. The lines of a paragraph may be broken anywhere: ``joined`` makes one line of them.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from surveysynth._support.messages import capitalized
from surveysynth._support.page import full_page
from surveysynth._support.resources import environment, render
from surveysynth.release.tables.layout import listed
from surveysynth.release.writers.markdown import escape

if TYPE_CHECKING:
    from jinja2 import Environment
    from markdown_it.token import Token

_FENCE = "```"
#: How lines begin that are no continuation of the line above.
_BLOCKS = ("# ", "## ", "### ", "#### ", "- ", "|", _FENCE)


def render_markdown(name: str, context: dict[str, Any]) -> str:
    """Return the document of ``templates/NAME``, filled in."""
    return joined(_templates().get_template(f"templates/{name}").render(context))


def joined(text: str) -> str:
    """Return Markdown with every paragraph and every item of a list on one line.

    Items indented by two spaces stay below the item before them; code is unchanged.
    """
    lines: list[str] = []
    in_code = False
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(_FENCE):
            in_code = not in_code
            lines.append(stripped)
        elif in_code:
            lines.append(line)
        elif not stripped:
            lines += [""] * bool(lines and lines[-1])
        elif stripped.startswith(_BLOCKS):
            nested = stripped.startswith("- ") and line.startswith("  ")
            lines.append(f"  {stripped}" if nested else stripped)
        elif lines and lines[-1] and not lines[-1].startswith(("#", "|", _FENCE)):
            lines[-1] += f" {stripped}"
        else:
            lines.append(stripped)
    return "\n".join(lines).strip("\n") + "\n"


@cache
def _templates() -> "Environment":
    """Return the templates, which print every value escaped for Markdown."""
    from markupsafe import Markup

    def marked(text: Callable[[Any], str]) -> Callable[[Any], Markup]:
        return lambda value: Markup(text(value))

    def shown(value: Any) -> Markup:
        """Escape a value; spaces at its ends stay, for words in a template."""
        if isinstance(value, Markup):
            return value
        text = str(value)
        before, after = (" " if end.isspace() else "" for end in (text[:1], text[1:][-1:]))
        return Markup(f"{before}{escape(text)}{after}")

    found = environment(__package__).overlay(autoescape=True, finalize=shown)
    found.filters = {
        **found.filters,
        "code": marked(str),
        "named": marked(lambda names: ", ".join(f"**{escape(name)}**" for name in names)),
        "one_line": marked(lambda text: " ".join(text.split())),
        "listed": listed,
        "capitalized": capitalized,
        "commas": lambda value: f"{value:,}",
        "short": lambda value: f"{value:g}",
        "two": lambda value: f"{value:.2g}",
        "three": lambda value: f"{value:.3g}",
        "four": lambda value: f"{value:.4g}",
        "amount": lambda value: f"{value:,.10g}",
        "percent": lambda share: f"{share:.0%}",
        "limit": percent,
        "sentence": lambda text: text if text.endswith(".") else f"{text}.",
    }
    return found


def percent(probability: float) -> str:
    """Return a limit in percent, rounded up to two digits of it or of what is left to 100%."""
    value = 100.0 * probability
    if value <= 50.0:
        places = max(0, 1 - math.floor(math.log10(value)))
        return f"{math.ceil(value * 10**places - 1e-9) / 10**places:.{places}f}%"
    rest = 100.0 * (1.0 - probability)
    if rest < 1e-4:
        return "nearly 100%"
    places = 1 - math.floor(math.log10(rest))
    return f"{100.0 - math.floor(rest * 10**places + 1e-9) / 10**places:.{max(places, 0)}f}%"


_BOX = "[ ] "


def page_of(markdown: str, title: str, mark: str) -> str:
    """Return Markdown as an HTML page that is self-contained.

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
            items = [each.children for each in tokens[start : _end(tokens, start)] if each.children]
            if items and all(text.content.startswith(_BOX) for text, *_ in items):
                token.attrSet("class", "boxes")  # the style sheet draws them
                for text, *_ in items:
                    text.content = text.content.removeprefix(_BOX)
    body: str = parser.renderer.render(tokens, parser.options, {})
    # Text in the page has no "<" of its own.
    body = body.replace("<table", '<div class="scroll"><table')
    body = body.replace("</table>", "</table></div>")
    style = render(__package__, "templates/dossier/dossier.css")
    return full_page(title, mark, [body], style)


def _end(tokens: "list[Token]", start: int) -> int:
    """Return the end of the block that opens at ``start``."""
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


def _mark_table(tokens: "list[Token]") -> None:
    """Say what every cell is, for those who hear a table, and for screens that show blocks."""
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
