"""Figures of a comparison: they show confidential estimates and records, and say so.

Each function returns a figure without a display.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.compare.distributions import Curve, outcome_row
from surveysynth.evaluation.methods import SAMPLE, color_of, label_of
from surveysynth.release import figure_style as style
from surveysynth.release.facts import labels_of
from surveysynth.release.figure_style import (
    axis_of,
    log_ticks,
    new_figure,
    outcome_axis,
    violin,
)
from surveysynth.survey.outcome import Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surveysynth.evaluation.compare.comparison import Comparison
    from surveysynth.evaluation.compare.tables import ModelRun

#: More points than this are thinned evenly.
MOST_POINTS = 20_000

#: Errors below this share of an estimate are rounding.
ROUNDING = 1e-9


def rmse_violins(comparison: "Comparison") -> "Figure":
    """Draw RMSE against the sample over the rows of each table, by method, a panel a statistic."""
    keys = list(comparison.tables)
    rows = max(len(each) for each in comparison.tables.values())
    height = 0.7 + len(keys) * (0.9 + 0.48 * rows)
    figure = new_figure(7.6, height)
    panels = figure.subplots(len(keys), 1, squeeze=False)[:, 0]
    for panel, key in zip(panels, keys, strict=True):
        by_method = comparison.tables[key]
        for place, (method, table) in enumerate(by_method.items()):
            values = table["rmse"].to_numpy(dtype=np.float64)
            # A public total has only a rounding error, which a log scale would show.
            least = ROUNDING * np.abs(by_method["sample"]["estimate"].to_numpy(dtype=np.float64))
            values = values[np.isfinite(values) & (values > least)]
            color = color_of(method, comparison.methods)
            violin(panel, place, np.log10(values), color)
        panel.set_yticks(range(len(by_method)), [label_of(name) for name in by_method])
        panel.invert_yaxis()
        panel.set_title(_statistic_title(comparison, *key))
        unit = _unit(comparison, *key)
        panel.set_xlabel(f"RMSE against the sample ({unit}), log scale; a dot is a cell or margin")
        log_ticks(panel)
    return figure


def weighted_runs(comparison: "Comparison") -> "dict[str, ModelRun]":
    """Return the synthesizers that weight records down; noisy statistics do not."""
    return {name: run for name, run in comparison.runs.items() if run.by_record}


def record_bounds(comparison: "Comparison") -> "Figure":
    """Draw record-level bounds before and after down-weighting, by synthesizer that has them."""
    runs = weighted_runs(comparison)
    figure = new_figure(7.6, 0.8 + 1.5 * len(runs))
    panels = figure.subplots(len(runs), 1, squeeze=False, sharex=True)[:, 0]
    for panel, (method, run) in zip(panels, runs.items(), strict=True):
        color = color_of(method, comparison.methods)
        for place, values, shade in (
            (0, run.by_record["unweighted_lipschitz"], style.FAINT),
            (1, run.by_record["lipschitz"], color),
        ):
            violin(panel, place, values[np.isfinite(values)], shade, points=False)
        panel.set_yticks([0, 1], ["unweighted", "weighted"])
        panel.set_ylim(1.6, -0.6)
        panel.set_title(f"{label_of(method)}: bound of each record")
        _target_line(panel, run)
    panels[-1].set_xlabel("largest |log-likelihood| of a record over the draws, times its weight")
    return figure


def risk_weights(comparison: "Comparison") -> "Figure":
    """Draw risk weights alpha against records' bounds, before and after weighting.

    Each synthesizer with bounds has a row.
    """
    runs = weighted_runs(comparison)
    figure = new_figure(7.6, 0.7 + 2.5 * len(runs))
    panels = figure.subplots(len(runs), 2, squeeze=False, sharey=True)
    for row, (method, run) in zip(panels, runs.items(), strict=True):
        color = color_of(method, comparison.methods)
        for panel, values, words in (
            (row[0], run.by_record["unweighted_lipschitz"], "before: unweighted fit"),
            (row[1], run.by_record["lipschitz"], "after: under the weights"),
        ):
            _points(panel, values, run.by_record["risk_weight"], color)
            panel.set_title(f"{label_of(method)}, {words}")
            panel.set_ylim(-0.03, 1.06)
            panel.set_xlabel("bound of the record")
        row[0].set_ylabel("risk weight alpha")
        _target_line(row[1], run)
    return figure


def amounts_of(comparison: "Comparison") -> tuple[int, ...]:
    """Return the columns of the outcomes with values on a continuous scale."""
    outcomes = comparison.survey.design.outcomes
    return tuple(column for column, outcome in enumerate(outcomes) if outcome.is_amount)


def outcome_against_weight(comparison: "Comparison", column: int) -> "Figure":
    """Draw an amount against the weight: confidential, as drawn, and smoothed as released.

    Values at spikes are left out.
    """
    survey, runs = comparison.survey, comparison.runs
    outcome = survey.design.outcomes[column]
    figure = new_figure(8.6, 0.8 + 2.55 * len(runs))
    panels = figure.subplots(len(runs), 3, squeeze=False, sharex=True, sharey=True)
    confidential = survey.confidential
    weight = survey.sampling_weight
    assert weight is not None  # a comparison is not made without
    ends = []
    for row, (method, run) in zip(panels, runs.items(), strict=True):
        data = run.dataset
        color = color_of(method, comparison.methods)
        for panel, y, w, shade, words in (
            (row[0], confidential.outcome, weight, style.INK, "Confidential"),
            (row[1], data.variance_outcome, data.variance_weight, color, "synthesised"),
            (row[2], data.outcome, data.weight, color, "smoothed"),
        ):
            z = _on_axis(outcome, y[:, column])
            ends.append(z[np.isfinite(z)])
            _points(panel, z, np.log10(w), shade)
            own = words if words == "Confidential" else f"{label_of(method)}, {words}"
            panel.set_title(own)
        row[0].set_ylabel("survey weight (log)")
    low, high = style.spread(np.concatenate(ends))
    label = labels_of(comparison.spec).titled_with_unit(survey.design.outcome_names[column])
    for panel in panels[-1]:
        outcome_axis(panel.xaxis, axis_of(outcome), low, high)
        panel.set_xlabel(label)
    for panel in panels.ravel():
        panel.set_xlim(low, high)
        panel.grid(True, axis="both")
    log_ticks(panels[0, 0], "y")
    return figure


def densities(comparison: "Comparison") -> "Figure":
    """Draw weighted distributions of every outcome: confidential sample and synthesizers."""
    survey, runs = comparison.survey, comparison.runs
    outcomes, labels = survey.design.outcomes, labels_of(comparison.spec)
    figure = new_figure(7.6, 0.8 + 2.6 * len(outcomes))
    grid = figure.add_gridspec(len(outcomes), 3)
    confidential = survey.confidential
    for column, outcome in enumerate(outcomes):
        curves = [
            Curve("Confidential sample", color_of(SAMPLE), confidential.outcome[:, column],
                  survey.sampling_weight, strong=True)
        ]  # fmt: skip
        for method, run in runs.items():
            data = run.dataset
            color = color_of(method, comparison.methods)
            curves.append(Curve(label_of(method), color, data.outcome[:, column], data.weight))
        label = labels.titled_with_unit(outcome.name)
        outcome_row(figure, grid, column, outcome, curves, label)
    return figure


def _points(panel: Any, x: FloatArray, y: FloatArray, color: str) -> None:
    step = -(-x.size // MOST_POINTS)
    alpha = float(np.clip(600 / x.size, 0.12, 0.6))
    panel.plot(x[::step], y[::step], ".", color=color, markersize=2.6, alpha=alpha,
               markeredgewidth=0)  # fmt: skip


def _target_line(panel: Any, run: "ModelRun") -> None:
    privacy = run.spec.privacy
    if not privacy.private:
        return
    target = privacy.epsilon / (2 * privacy.m)
    panel.axvline(target, color=style.WARNING, linewidth=1.1, linestyle=(0, (4, 2)))
    panel.annotate(
        f"target {target:.3g}", (target, 0.0), xycoords=("data", "axes fraction"),
        xytext=(3, 2), textcoords="offset points", va="bottom", fontsize=8, color=style.WARNING,
    )  # fmt: skip


def _on_axis(outcome: Outcome, values: FloatArray) -> FloatArray:
    """Return transformed values (n,), not finite at spikes and outside the transform's domain."""
    with np.errstate(divide="ignore", invalid="ignore"):
        transformed = axis_of(outcome).forward(values)
    return np.where(outcome.regular(values), transformed, np.nan)


def _statistic_title(comparison: "Comparison", statistic: str, outcome: str | None) -> str:
    title = statistic_of(statistic).title
    if outcome is None:
        return title
    return f"{title}: {labels_of(comparison.spec).title(outcome)}"


def _unit(comparison: "Comparison", statistic: str, outcome: str | None) -> str:
    unit = statistic_of(statistic).unit
    if unit or outcome is None:
        return unit
    return labels_of(comparison.spec).of(outcome).unit or f"units of {outcome}"
