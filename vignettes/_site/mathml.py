"""Formulas as MathML, which browsers show by themselves: no script and no network."""

import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert

#: What stands above and below these in a displayed formula stands beside them in a line.
_LARGE = {"∑", "∏", "∫", "max", "min", "sup", "inf", "lim"}
_UNDER = {"msub": "munder", "msubsup": "munderover"}

ElementTree.register_namespace("", "http://www.w3.org/1998/Math/MathML")


def _upright(formula: str) -> str:
    """Write a single letter in roman type, which MathML would slant, as text."""
    return re.sub(r"\\mathrm\{(\w)\}", r"\\text{\1}", formula)


def displayed(formula: str) -> str:
    """Return a displayed formula, with limits above and below."""
    root = ElementTree.fromstring(convert(_upright(formula), display="block"))
    for element in root.iter():
        space, _, name = element.tag.rpartition("}")
        if name in _UNDER and "".join(element[0].itertext()).strip() in _LARGE:
            element.tag = f"{space}}}{_UNDER[name]}"
    return ElementTree.tostring(root, encoding="unicode")


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(_upright(node.astext())))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{displayed(node.astext())}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
