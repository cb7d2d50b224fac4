"""Shares and histograms of one variable, sample and synthetic. Confidential."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.estimation.quantiles import weighted_quantiles
from surveysynth.release.figure_style import axis_of, outcome_axis, spread
from surveysynth.survey.outcome import Outcome


def category_name(outcome: Outcome, category: int) -> str:
    """Return the name of a category of the discrete part, for readers."""
    if not outcome.is_amount:
        return outcome.levels[category]
    if category in outcome.sides:
        return outcome.side_name(category) or "at no spike"
    return f"at {outcome.spikes[category - len(outcome.sides)]:g}"


#: What lies outside these shares of a dataset on both sides is not shown.
SHOWN = (0.001, 0.999)
BINS = 40
#: With more categories than this, bars have no room for labels of shares.
_MOST_BARS = 12


@dataclass(frozen=True, eq=False)
class Curve:
    """One dataset: its name and color, and the values and weights (n,)."""

    label: str
    color: str
    values: FloatArray
    weight: FloatArray | None
    strong: bool = False

    def weights(self) -> FloatArray:
        """Return the weights, ones if there are none."""
        return np.ones(self.values.size) if self.weight is None else self.weight


def outcome_row(
    figure: Any, grid: Any, row: int, outcome: Outcome, curves: Sequence[Curve], label: str
) -> None:
    """Draw an outcome into a row of a grid of three columns.

    It shows bars of its categories, a histogram of its amounts, or both.
    """
    if not outcome.is_amount:
        bars(figure.add_subplot(grid[row, :]), outcome, curves, label)
        return
    if outcome.is_discrete:
        bars(figure.add_subplot(grid[row, 0]), outcome, curves, label, legend=False)
    panel = figure.add_subplot(grid[row, 1:] if outcome.is_discrete else grid[row, :])
    transform = axis_of(outcome)
    regular = [_at_no_spike(outcome, curve) for curve in curves]
    ends = histogram_panel(panel, regular)
    if ends is not None:
        outcome_axis(panel.xaxis, transform, *ends)
    plain = outcome.transform.kind == "identity"
    scale = "" if plain else f"; axis as {transform.describe(outcome.name)}"
    panel.set_xlabel(f"{label}{scale}")
    panel.set_title("Weighted histogram" + (" at no spike" if outcome.is_discrete else ""))


def _at_no_spike(outcome: Outcome, curve: Curve) -> Curve:
    """Return transformed amounts at no spike, inside the transform's domain despite rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = axis_of(outcome).forward(curve.values)
    used = outcome.regular(curve.values) & np.isfinite(z)
    return Curve(curve.label, curve.color, z[used], curve.weights()[used], curve.strong)


def histogram_panel(panel: Any, curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Draw histograms on one axis, with a legend in their colors.

    Returns the ends of the axis, None if no curve has values.
    """
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    legend(panel, curves)
    shown = [curve for curve in curves if curve.weights().sum() > 0]
    if not shown:
        return None
    known = [weighted_quantiles(c.values, c.weights(), np.array(SHOWN)) for c in shown]
    low, high = spread(np.concatenate(known))
    for curve in shown:
        panel.hist(
            curve.values, BINS, range=(low, high),
            weights=curve.weights() / curve.weights().sum(),
            histtype="step", color=curve.color, linewidth=2.6 if curve.strong else 1.7,
        )  # fmt: skip
    panel.set_xlim(low, high)
    return low, high


def legend(panel: Any, curves: Sequence[Curve]) -> None:
    """Write names of the curves, in their colors, at the right."""
    for number, curve in enumerate(curves):
        panel.text(0.985, 0.94 - 0.11 * number, curve.label, color=curve.color, ha="right",
                   transform=panel.transAxes, fontweight="bold")  # fmt: skip


def category_shares(outcome: Outcome, curve: Curve) -> FloatArray:
    """Return the weighted share of each category of the discrete part (c,)."""
    weight = curve.weights()
    sums = np.bincount(outcome.category(curve.values), weight, minlength=outcome.categories)
    return np.asarray(sums / weight.sum())


def bars(
    panel: Any, outcome: Outcome, curves: Sequence[Curve], label: str, *, legend: bool = True
) -> None:
    """Draw shares of the categories, a bar a dataset, the first category on top."""
    places = np.arange(outcome.categories)
    height = 0.8 / len(curves)
    largest = 0.0
    for number, curve in enumerate(curves):
        shares = category_shares(outcome, curve)
        largest = max(largest, float(shares.max()))
        at = places - 0.4 + (number + 0.5) * height
        panel.barh(at, shares, 0.9 * height, color=curve.color)
        if outcome.categories <= _MOST_BARS:
            for place, share in zip(at, shares, strict=True):
                panel.annotate(f"{100 * share:.1f}%", (share, place), xytext=(3, 0),
                               textcoords="offset points", va="center", fontsize=8)  # fmt: skip
    panel.set_yticks(places, [category_name(outcome, category) for category in places.tolist()])
    panel.invert_yaxis()
    panel.set_xlim(0, 1.25 * largest or 1.0)
    panel.set_xticks([])
    panel.spines["bottom"].set_visible(False)
    panel.set_title(f"Weighted shares{f': {label}' if legend else ''}")
    if legend:
        for number, curve in enumerate(reversed(curves)):
            panel.text(1.0, 1.02 + 0.07 * number, curve.label, color=curve.color, ha="right",
                       transform=panel.transAxes, fontweight="bold")  # fmt: skip
