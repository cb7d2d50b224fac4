"""Figures of a comparison: they show confidential estimates and records, and say so.

Each function returns a figure without a display.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.estimation.quantiles import weighted_quantiles
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.compare.adequacy import differences_figure
from surveysynth.evaluation.compare.comparison import Comparison
from surveysynth.evaluation.compare.tables import ROUNDING, sample_weight
from surveysynth.evaluation.methods import SAMPLE, color_of, label_of
from surveysynth.evaluation.style import heading_of
from surveysynth.release.figure_style import log_ticks, new_figure, outcome_axis, violin
from surveysynth.release.tables.labels import Labels
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    weight: FloatArray
    strong: bool = False


def outcome_row(
    figure: Any, grid: Any, row: int, outcome: Outcome, curves: Sequence[Curve], label: str
) -> None:
    """Draw an outcome into a row of a grid of three columns.

    It shows bars of its categories, a histogram of its amounts, or both.
    """
    if not outcome.is_amount:
        bars(figure.add_subplot(grid[row, :]), outcome, curves, f"Weighted shares: {label}")
        return
    if outcome.is_discrete:
        bars(figure.add_subplot(grid[row, 0]), outcome, curves, "Weighted shares")
    panel = figure.add_subplot(grid[row, 1:] if outcome.is_discrete else grid[row, :])
    transform = outcome.transform.axis if outcome.split is None else Transform("asinh")
    ends = histogram_panel(panel, [_at_no_spike(outcome, each, transform) for each in curves])
    if ends is not None:
        outcome_axis(panel.xaxis, transform, *ends)
    plain = transform.kind == "identity"
    panel.set_xlabel(label + ("" if plain else f"; axis as {transform.describe(outcome.name)}"))
    panel.set_title("Weighted histogram" + (" at no spike" if outcome.is_discrete else ""))


def _at_no_spike(outcome: Outcome, curve: Curve, transform: Transform) -> Curve:
    """Return transformed amounts at no spike, inside the transform's domain despite rounding."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = transform.forward(curve.values)
    used = outcome.regular(curve.values) & np.isfinite(z)
    return Curve(curve.label, curve.color, z[used], curve.weight[used], curve.strong)


def histogram_panel(panel: Any, curves: Sequence[Curve]) -> tuple[float, float] | None:
    """Draw histograms on one axis, with a legend in their colors.

    Returns the ends of the axis, None if no curve has values.
    """
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    legend(panel, curves)
    shown = [curve for curve in curves if curve.weight.sum() > 0]
    if not shown:
        return None
    known = np.concatenate([weighted_quantiles(c.values, c.weight, np.array(SHOWN)) for c in shown])
    margin = 0.03 * float(np.ptp(known)) or 1.0
    low, high = float(known.min()) - margin, float(known.max()) + margin
    for curve in shown:
        panel.hist(
            curve.values, BINS, range=(low, high), weights=curve.weight / curve.weight.sum(),
            histtype="step", color=curve.color, linewidth=2.6 if curve.strong else 1.7,
        )  # fmt: skip
    panel.set_xlim(low, high)
    return low, high


def legend(panel: Any, curves: Sequence[Curve]) -> None:
    """Write names of the curves, in their colors, at the right."""
    for number, curve in enumerate(curves):
        panel.text(0.985, 0.94 - 0.11 * number, curve.label, color=curve.color, ha="right",
                   transform=panel.transAxes, fontweight="bold")  # fmt: skip


def bars(panel: Any, outcome: Outcome, curves: Sequence[Curve], title: str) -> None:
    """Draw weighted shares of the categories, a bar a dataset, the first category on top."""
    places = np.arange(outcome.categories)
    height, largest = 0.8 / len(curves), 0.0
    for number, curve in enumerate(curves):
        sums = np.bincount(outcome.category(curve.values), curve.weight, minlength=places.size)
        shares = sums / curve.weight.sum()
        largest = max(largest, float(shares.max()))
        at = places - 0.4 + (number + 0.5) * height
        panel.barh(at, shares, 0.9 * height, color=curve.color)
        if outcome.categories <= _MOST_BARS:
            for place, share in zip(at, shares, strict=True):
                panel.annotate(f"{100 * share:.1f}%", (share, place), xytext=(3, 0),
                               textcoords="offset points", va="center", fontsize=8)  # fmt: skip
    panel.set_yticks(places, outcome.category_names)
    panel.invert_yaxis()
    panel.set_xlim(0, 1.25 * largest or 1.0)
    panel.set_xticks([])
    panel.spines["bottom"].set_visible(False)
    panel.set_title(title)
    if not outcome.is_amount:
        legend(panel, curves)


def rmse_violins(comparison: Comparison) -> "Figure":
    """Draw RMSE against the sample over the rows of each table, by method, a panel a statistic."""
    keys, labels = list(comparison.tables), Labels(comparison.spec.labels)
    rows = max(len(each) for each in comparison.tables.values())
    figure = new_figure(7.6, 0.7 + len(keys) * (0.9 + 0.48 * rows))
    panels = figure.subplots(len(keys), 1, squeeze=False)[:, 0]
    for panel, key in zip(panels, keys, strict=True):
        by_method = comparison.tables[key]
        for place, (method, table) in enumerate(by_method.items()):
            values = table["rmse"].to_numpy(dtype=np.float64)
            # A public total has only a rounding error, which a log scale would show.
            least = ROUNDING * np.abs(by_method["sample"]["estimate"].to_numpy(dtype=np.float64))
            values = values[np.isfinite(values) & (values > least)]
            violin(panel, place, np.log10(values), color_of(method, comparison.methods))
        panel.set_yticks(range(len(by_method)), [label_of(name) for name in by_method])
        panel.invert_yaxis()
        panel.set_title(heading_of(labels, *key))
        outcome, unit = key[1], statistic_of(key[0]).unit
        if not unit and outcome is not None:
            unit = labels.of(outcome).unit or f"units of {outcome}"
        panel.set_xlabel(f"RMSE against the sample ({unit}), log scale; a dot is a cell or margin")
        log_ticks(panel)
    return figure


def differences(comparison: Comparison) -> "Figure":
    """Draw differences from the sample in expected errors, a panel for each synthesizer."""
    found = {name: run.found for name, run in comparison.runs.items() if run.found is not None}
    return differences_figure({label_of(name): each for name, each in found.items()})


def densities(comparison: Comparison) -> "Figure":
    """Draw weighted distributions of every outcome: confidential sample and synthesizers."""
    survey, runs = comparison.survey, comparison.runs
    outcomes, labels = survey.design.outcomes, Labels(comparison.spec.labels)
    figure = new_figure(7.6, 0.8 + 2.6 * len(outcomes))
    grid = figure.add_gridspec(len(outcomes), 3)
    for column, outcome in enumerate(outcomes):
        values = survey.confidential.outcome[:, column]
        curves = [Curve(
            "Confidential sample", color_of(SAMPLE), values, sample_weight(survey), strong=True
        )]  # fmt: skip
        for method, run in runs.items():
            data, color = run.dataset, color_of(method, comparison.methods)
            curves.append(Curve(label_of(method), color, data.outcome[:, column], data.weight))
        label = labels.titled_with_unit(outcome.name)
        outcome_row(figure, grid, column, outcome, curves, label)
    return figure
