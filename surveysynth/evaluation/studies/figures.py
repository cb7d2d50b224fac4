"""Figures of a coverage study, from its cells (``measures``).

Each function returns a figure without a display. The figures show averages over simulated samples
of a population that the reader of a study has.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.methods import SAMPLE, color_of, is_strict, label_of
from surveysynth.evaluation.studies.measures import ROUNDING
from surveysynth.release import figure_style as style
from surveysynth.release.figure_style import log_ticks, new_figure, violin

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: Of lines: one for each bound.
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1, 2)))


def tables_of(cells: "pd.DataFrame") -> list[tuple[str, str]]:
    """Return (statistic, outcome) of every table, in order."""
    return list(dict.fromkeys(zip(cells["statistic"], cells["outcome"], strict=True)))


def table_title(statistic: str, outcome: str, tables: Sequence[tuple[str, str]]) -> str:
    """Return the title of a statistic, with the outcome if there are several."""
    several = len({name for _, name in tables if name}) > 1
    title = statistic_of(statistic).title
    return f"{title}: {outcome}" if outcome and several else title


def with_error(cells: "pd.DataFrame") -> "pd.DataFrame":
    """Return the cells whose sample has sampling error; a public total has none."""
    place = ["statistic", "outcome", "row"]
    sample = cells[cells["method"] == SAMPLE]
    used = sample[sample["rmse"] > ROUNDING * sample["truth"].abs()]
    known = pd.MultiIndex.from_frame(used[place])
    return cells[pd.MultiIndex.from_frame(cells[place]).isin(known)]


def coverage_against_cv(cells: "pd.DataFrame", level: float, mark: str) -> "Figure":
    """Draw coverage of every cell against its coefficient of variation.

    A panel a method and table. cells: at one number of draws and one epsilon, and the sample's.
    """
    cells = with_error(cells)
    methods, tables = list(dict.fromkeys(cells["method"])), tables_of(cells)
    figure = _figure(3.4 * len(tables) + 1.2, 0.9 + 1.35 * len(methods), mark)
    panels = figure.subplots(len(methods), len(tables), squeeze=False, sharey=True, sharex="col")
    samples = int(cells["replicates"].max())
    error = 2 * np.sqrt(level * (1 - level) / samples)
    for column, key in enumerate(tables):
        of_table = cells[(cells["statistic"] == key[0]) & (cells["outcome"] == key[1])]
        for row, method in enumerate(methods):
            panel, part = panels[row, column], of_table[of_table["method"] == method]
            color = color_of(method, methods)
            panel.axhspan(level - error, min(level + error, 1.0), color="#eeeeee", linewidth=0)
            panel.axhline(level, color=style.FAINT, linewidth=1, linestyle=_DASHES[1])
            panel.plot(np.log10(part["cv"]), part["coverage"], "o", color=color, markersize=4.2,
                       alpha=0.75, markeredgewidth=0)  # fmt: skip
            panel.text(0.985, 0.06, f"mean {part['coverage'].mean():.3f}, least "
                       f"{part['coverage'].min():.2f}", transform=panel.transAxes, ha="right",
                       fontsize=8, color=style.INK)  # fmt: skip
            head = f"{table_title(*key, tables)}: " if row == 0 else ""
            panel.set_title(f"{head}{label_of(method)}", color=color)
        log_ticks(panels[-1, column])
        panels[-1, column].set_xlabel("coefficient of variation (mean SE over truth), log scale")
    for panel in panels[:, 0]:
        panel.set_ylabel("coverage")
        panel.set_ylim(min(0.45, float(cells["coverage"].min()) - 0.04), 1.03)
    return figure


def rmse_ratio_violins(cells: "pd.DataFrame", mark: str) -> "Figure":
    """Draw RMSE over the sample's in every cell, by method and m; a column a bound.

    With several epsilons only synthesizers are shown: noise, ten times as far off, has its figure
    of error against epsilon.
    """
    cells = _ratios(cells)
    several = cells["epsilon"].nunique() > 1
    synthesised = ~cells["method"].str.startswith("laplace")
    if several and synthesised.any():
        cells = cells[synthesised]
    tables, methods = tables_of(cells), list(dict.fromkeys(cells["method"]))
    bounds, m_values = sorted(set(cells["bound"])), sorted(set(cells["m"]))
    places = [(method, m) for method in methods for m in m_values]
    height = 0.8 + len(tables) * (0.8 + 0.42 * len(places))
    figure = _figure(4.4 + 3.3 * len(bounds), height, mark)
    panels = figure.subplots(len(tables), len(bounds), squeeze=False, sharex="row", sharey=True)
    for row, key in zip(panels, tables, strict=True):
        for panel, bound in zip(row, bounds, strict=True):
            part = cells[(cells["statistic"] == key[0]) & (cells["outcome"] == key[1])
                         & (cells["bound"] == bound)]  # fmt: skip
            for place, (method, m) in enumerate(places):
                values = part[(part["method"] == method) & (part["m"] == m)]["rmse_ratio"]
                violin(panel, place, np.log10(values.to_numpy()), color_of(method, methods))
            panel.axvline(0.0, color=style.WARNING, linewidth=1, linestyle=_DASHES[1])
            labels = [label_of(method) + (f", m = {m}" if len(m_values) > 1 else "")
                      for method, m in places]  # fmt: skip
            panel.set_yticks(range(len(places)), labels)
            panel.set_ylim(len(places) - 0.4, -0.8)
            of_bound = f", bound {bound:.3g} a draw" if len(bounds) > 1 else ""
            panel.set_title(table_title(*key, tables) + of_bound)
        log_ticks(row[0])
        for panel in row:
            panel.set_xlabel("RMSE over the sample's, log scale")
    return figure


def rmse_against_epsilon(cells: "pd.DataFrame", mark: str) -> "Figure":
    """Draw the median cell's RMSE over the sample's against epsilon.

    A line a method and bound.
    """
    cells = _ratios(cells)
    tables, methods = tables_of(cells), list(dict.fromkeys(cells["method"]))
    bounds = sorted(set(cells["bound"]))
    figure = _figure(8.2, 0.8 + 2.9 * len(tables), mark)
    panels = figure.subplots(len(tables), 1, squeeze=False, sharex=True)[:, 0]
    for panel, key in zip(panels, tables, strict=True):
        part = cells[(cells["statistic"] == key[0]) & (cells["outcome"] == key[1])]
        for method, bound, line in _lines(part, methods, bounds):
            named = len(bounds) > 1 and not (method.startswith("laplace") or is_strict(method))
            panel.plot(
                np.log10(line.index), np.log10(line), "o", markersize=4.5,
                linestyle=_DASHES[bounds.index(bound) % len(_DASHES)],
                color=color_of(method, methods),
                label=label_of(method) + (f", bound {bound:.3g}" if named else ""),
            )  # fmt: skip
        panel.axhline(0.0, color=style.FAINT, linewidth=1, linestyle=_DASHES[1])
        panel.set_title(table_title(*key, tables))
        panel.set_ylabel("RMSE over the sample's, log")
        panel.grid(True, axis="both")
        log_ticks(panel, "y")
    places = np.log10(sorted(set(cells["epsilon"])))
    apart = np.diff(places, prepend=-np.inf) > 0.05 * np.ptp(places)
    labels = [f"{10**place:.3g}" if far else "" for place, far in zip(places, apart, strict=True)]
    panels[-1].set_xticks(places, labels)
    panels[-1].set_xlabel("epsilon of the release, log scale")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8,
                  frameon=False)  # fmt: skip
    return figure


def _lines(
    part: "pd.DataFrame", methods: Sequence[str], bounds: Sequence[float]
) -> "Iterator[tuple[str, float, pd.Series[float]]]":
    """Yield medians over cells by epsilon. Noise has no bound: one line over all epsilons."""
    for method in methods:
        of_method = part[part["method"] == method]
        if method.startswith("laplace") or is_strict(method):
            yield method, bounds[0], of_method.groupby("epsilon")["rmse_ratio"].median()
            continue
        for bound in bounds:
            line = of_method[of_method["bound"] == bound].groupby("epsilon")["rmse_ratio"].median()
            if len(line):
                yield method, bound, line


def _ratios(cells: "pd.DataFrame") -> "pd.DataFrame":
    """Return cells of every method but the sample that have a ratio, with the bound of one draw."""
    # A total that synthetic weights are scaled to has no error but rounding.
    kept = cells[(cells["method"] != SAMPLE) & (cells["rmse_ratio"] > ROUNDING)].copy()
    bound: pd.Series[float] = kept["epsilon"] / (2.0 * kept["m"])
    kept["bound"] = bound.round(9)
    return kept


def _figure(width: float, height: float, mark: str) -> "Figure":
    return new_figure(width, height, mark, style.FAINT)
