"""The figure of expected standard errors: public, made before any confidential value is read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.estimation.statistics import statistic_of
from surveysynth.release import figure_style as style
from surveysynth.release.expected import Expectation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CELLS, _MARGINS = "#0072B2", style.INK
_TITLE = "Expected before any confidential value is read: public"


def expected_png(expected: Sequence[Expectation]) -> bytes:
    """The figure of every table as PNG; equal inputs give equal bytes."""
    return style.png_bytes(style.draw(expected_figure, expected))


def expected_figure(every: Sequence[Expectation]) -> "Figure":
    """A panel for each statistic of each table: SE over the sample's against epsilon, on log
    scales."""
    keys = [(expected, key) for expected in every for key in expected.tables]
    budgets = every[0].budgets
    height = 0.9 + 2.7 * len(keys)
    figure = style.new_figure(7.2, height, _TITLE, style.INK)
    panels = figure.subplots(len(keys), 1, squeeze=False, sharex=True)[:, 0]
    epsilon = np.array([budget.epsilon for budget in budgets])
    for panel, (expected, (statistic, column)) in zip(panels, keys, strict=True):
        margin = expected.domains.table["is_margin"].to_numpy(dtype=bool)[expected.shown]
        ratios = expected.ratios((statistic, column), budgets)
        _panel(panel, epsilon, ratios, margin, expected.settings.epsilon)
        name = "" if column is None else f" of {expected.design.outcome_names[column]}"
        table = f"{expected.spec.table.name}: " if expected.spec.table.name else ""
        panel.set_title(f"{table}{statistic_of(statistic).title}{name}", parse_math=False)
    panels[0].legend(fontsize=8.5, loc="upper right", framealpha=1.0, edgecolor="none")
    panels[-1].set_xlabel(f"epsilon, at delta = {every[0].settings.budget.delta:.3g}")
    return figure


def _panel(
    panel: Any, epsilon: FloatArray, ratios: FloatArray, margin: BoolArray, own: float
) -> None:
    told = np.isfinite(ratios).all(axis=0)
    x = np.log10(epsilon)
    for chosen, colour, name in ((~margin, _CELLS, "cells"), (margin, _MARGINS, "margins")):
        values = np.log10(ratios[:, told & chosen])
        if not values.size:
            continue
        low, high = values.min(axis=1), values.max(axis=1)
        panel.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
        panel.plot(
            x, np.median(values, axis=1), "o-", color=colour, markersize=3.5, linewidth=1.6,
            label=f"{name}: median, smallest to largest",
        )  # fmt: skip
    panel.axhline(0.0, color=style.FAINT, linewidth=1)
    panel.axvline(np.log10(own), color=style.FAINT, linewidth=1, linestyle="--")
    panel.annotate(
        "as specified", (np.log10(own), 0.02), xycoords=("data", "axes fraction"),
        xytext=(4, 0), textcoords="offset points", fontsize=8, color=style.FAINT,
    )  # fmt: skip
    panel.set_xticks(x, [f"{each:.3g}" for each in epsilon])
    panel.grid(visible=True, axis="y")
    style.log_ticks(panel, "y")
    panel.set_ylabel("SE over the sample's", fontsize=9)
