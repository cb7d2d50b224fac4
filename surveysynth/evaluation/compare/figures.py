"""Figures of a comparison: they show confidential estimates and records, and say so.

Each function returns a figure without a display.
"""

from typing import TYPE_CHECKING

import numpy as np

from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.compare.adequacy_report import differences_figure
from surveysynth.evaluation.compare.distributions import Curve, outcome_row
from surveysynth.evaluation.compare.tables import ROUNDING, sample_weight
from surveysynth.evaluation.methods import SAMPLE, color_of, label_of
from surveysynth.evaluation.style import heading_of
from surveysynth.release.facts import labels_of
from surveysynth.release.figure_style import log_ticks, new_figure, violin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surveysynth.evaluation.compare.comparison import Comparison


def rmse_violins(comparison: "Comparison") -> "Figure":
    """Draw RMSE against the sample over the rows of each table, by method, a panel a statistic."""
    keys, labels = list(comparison.tables), labels_of(comparison.spec)
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


def differences(comparison: "Comparison") -> "Figure":
    """Draw differences from the sample in expected errors, a panel for each synthesizer."""
    found = {name: run.found for name, run in comparison.runs.items() if run.found is not None}
    return differences_figure({label_of(name): each for name, each in found.items()})


def densities(comparison: "Comparison") -> "Figure":
    """Draw weighted distributions of every outcome: confidential sample and synthesizers."""
    survey, runs = comparison.survey, comparison.runs
    outcomes, labels = survey.design.outcomes, labels_of(comparison.spec)
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
