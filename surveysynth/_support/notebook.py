"""What long work shows in a notebook: one bar, replaced as it goes on, gone at the end.

The bar is an HTML element that every notebook shows; rich's needs ipywidgets, which a kernel may
not have.
"""

import sys
from html import escape
from importlib import import_module
from typing import Any


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook: IPython runs and is no terminal."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if callable(get_ipython) else None
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """One output of the cell that runs, which each call of ``show`` replaces."""

    def __init__(self) -> None:
        self._display: Any = import_module("IPython.display")
        self._handle = self._display.display(self._display.HTML(""), display_id=True)

    def show(self, words: str, done: int, total: int) -> None:
        """``done`` of ``total`` parts are finished, and ``words`` says what begins; no part is
        counted where ``total`` is zero."""
        self._handle.update(self._display.HTML(bar_html(words, done, total)))

    def close(self) -> None:
        """Nothing is left of the bar."""
        self._handle.update(self._display.HTML(""))


def bar_html(words: str, done: int, total: int) -> str:
    """The bar with its words, which a screen reader has as its name."""
    shown = escape(words)
    if not total:
        return f'<div role="status">surveysynth: {shown}</div>'
    return (
        f'<div><progress max="{total}" value="{done}" aria-label="{shown}"></progress> '
        f"surveysynth: {shown} ({done} of {total})</div>"
    )
