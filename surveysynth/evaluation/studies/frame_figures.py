"""Figures of a study on a frame, from its rows and its table by size.

Each function returns a figure without a display. A panel is a table (rows of panels) and a method.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.methods import LAPLACE, SAMPLE, color_of
from surveysynth.evaluation.studies.frame_results import BOUNDS, CLASSES, PLACE
from surveysynth.release import figure_style as style
from surveysynth.release.figure_style import log_ticks, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: A method whose intervals cover too little is drawn down to here.
_FLOOR = 0.45
_COLORS = ("#0072B2", "#009E73", "#CC79A7", "#7F5AA2", "#882255", "#999933")


def places_of(rows: "pd.DataFrame") -> list[tuple[str, str, str]]:
    """Return (table, statistic, outcome) of every table, in order."""
    return list(dict.fromkeys(rows[PLACE].itertuples(index=False, name=None)))


def place_title(place: Sequence[str]) -> str:
    """Return the title of a table."""
    table, statistic, outcome = place
    title = statistic_of(statistic).title
    words = f"{title}: {outcome}" if outcome else title
    return f"{words} ({table})" if table else words


def coverage_by_records(
    rows: "pd.DataFrame", methods: Sequence[str], level: float, samples: int, mark: str
) -> "Figure":
    """Draw the coverage of every row against its records in the mean sample."""
    error = 2 * np.sqrt(level * (1 - level) / samples)
    low = min(_FLOOR, float(rows["coverage"].min()) - 0.04)

    def band(panel: Any, part: "pd.DataFrame") -> None:
        panel.axhspan(level - error, min(level + error, 1.0), color="#eeeeee", linewidth=0)
        panel.axhline(level, color=style.FAINT, linewidth=1, linestyle=(0, (5, 2)))
        panel.set_ylim(low, 1.03)
        if len(part):
            panel.text(0.985, 0.05, f"mean {part['coverage'].mean():.3f}, least "
                       f"{part['coverage'].min():.2f}", transform=panel.transAxes, ha="right",
                       fontsize=8, color=style.INK)  # fmt: skip

    return _panels(rows, methods, "coverage", "coverage", band, mark)


def bias_by_records(rows: "pd.DataFrame", methods: Sequence[str], mark: str) -> "Figure":
    """Draw the bias of every row, in standard errors of the sample, against its records."""
    shown = rows[rows["method"].isin(methods)]["bias_ratio"].abs()
    reach = float(np.clip(shown.max(), 1.2, 4.0)) if len(shown) else 1.2

    def band(panel: Any, part: "pd.DataFrame") -> None:
        panel.axhspan(-0.5, 0.5, color="#eeeeee", linewidth=0)
        panel.axhline(0.0, color=style.FAINT, linewidth=1)
        panel.set_ylim(-1.08 * reach, 1.08 * reach)
        beyond = int((part["bias_ratio"].abs() > 1.08 * reach).sum())
        if beyond:
            panel.text(0.985, 0.05, f"{beyond} beyond", transform=panel.transAxes, ha="right",
                       fontsize=8, color=style.WARNING)  # fmt: skip

    return _panels(rows, methods, "bias_ratio", "bias / sample's SE", band, mark)


def _panels(
    rows: "pd.DataFrame", methods: Sequence[str], column: str, label: str, band: Any, mark: str
) -> "Figure":
    """Draw a panel for each table and method: a dot a row, over its records."""
    places = places_of(rows)
    figure = new_figure(
        1.0 + 2.6 * len(methods), 0.7 + 1.9 * len(places), mark, style.FAINT
    )
    panels = figure.subplots(
        len(places), len(methods), squeeze=False, sharey="row", sharex=True
    )
    for line, place in zip(panels, places, strict=True):
        here = (rows[PLACE] == list(place)).all(axis=1)
        for panel, method in zip(line, methods, strict=True):
            part = rows[here & (rows["method"] == method) & (rows["records"] > 0)]
            band(panel, part)
            panel.plot(np.log10(part["records"]), part[column], "o", markersize=3.6, alpha=0.7,
                       markeredgewidth=0, color=method_color(method, methods))  # fmt: skip
            panel.set_title(f"{place_title(place)}\n{method}" if method == methods[0] else (
                f"\n{method}"), fontsize=9, color=style.INK)  # fmt: skip
            for bound in BOUNDS:
                panel.axvline(np.log10(bound), color="#e0e0e0", linewidth=0.8)
        line[0].set_ylabel(label)
    for panel in panels[-1]:
        log_ticks(panel)
        panel.set_xlabel("records in the mean sample")
    return figure


def coverage_by_size(
    by_size: "pd.DataFrame", methods: Sequence[str], level: float, mark: str
) -> "Figure":
    """Draw mean coverage by size of row, with two Monte Carlo errors, a line a method."""
    places = places_of(by_size)
    figure = new_figure(7.6, 0.9 + 2.3 * len(places), mark, style.FAINT)
    panels = figure.subplots(len(places), 1, squeeze=False, sharex=True)[:, 0]
    for panel, place in zip(panels, places, strict=True):
        part = by_size[(by_size[PLACE] == list(place)).all(axis=1)]
        panel.axhline(level, color=style.FAINT, linewidth=1, linestyle=(0, (5, 2)))
        for number, method in enumerate(methods):
            of = part[part["method"] == method].set_index("size").reindex(CLASSES)
            apart = np.arange(len(CLASSES)) + 0.09 * (number - (len(methods) - 1) / 2)
            panel.errorbar(
                apart, of["coverage"], yerr=2 * of["coverage_mcse"].fillna(0.0), marker="o",
                markersize=4.5, linewidth=1, color=method_color(method, methods), label=method,
            )  # fmt: skip
        panel.set_title(place_title(place))
        panel.set_ylabel("mean coverage")
        panel.set_ylim(min(0.7, float(by_size["coverage"].min()) - 0.05), 1.02)
        panel.grid(True, axis="y")
    panels[-1].set_xticks(range(len(CLASSES)), CLASSES)
    panels[-1].set_xlabel("records of a row in the mean sample")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8,
                  frameon=False)  # fmt: skip
    return figure


def method_color(method: str, methods: Sequence[str]) -> str:
    """Return the color of a method; those of specifications follow their order."""
    if method in (SAMPLE, LAPLACE):
        return color_of(method)
    others = [each for each in methods if each not in (SAMPLE, LAPLACE)]
    return _COLORS[others.index(method) % len(_COLORS)]


