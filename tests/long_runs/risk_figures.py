"""Figures of risk measures: weights, bounds, identification risk, the risk-utility map.

All show confidential records or values, and say so. Each function returns a figure that belongs to
no display.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.release import figure_style as style
from surveysynth.release.figure_style import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Okabe and Ito's palette: what the papers call the schemes has the same color everywhere.
_KNOWN = {
    "confidential": "#4d4d4d",
    "unweighted": "#999999",
    "none": "#999999",
    "lw": "#0072B2",
    "lipschitz": "#0072B2",
    "cw": "#D55E00",
    "count": "#D55E00",
    "pairwise": "#009E73",
    "sw": "#CC79A7",
    "scalar": "#CC79A7",
}
_OTHERS = ("#E69F00", "#56B4E9", "#7F5AA2", "#8C6D31")
#: Bins of equal numbers of records along the risk before.
_BINS = 20
_MOST_POINTS = 10_000


def _styled(function: Callable[..., "Figure"]) -> Callable[..., "Figure"]:
    """Draw with the style of all figures."""

    def draw(*arguments: Any, **named: Any) -> "Figure":
        import matplotlib as mpl

        settings: Any = style.RC
        with mpl.rc_context(settings):
            return function(*arguments, **named)

    draw.__doc__ = function.__doc__
    return draw


@_styled
def identification_violins(risks: Mapping[str, FloatArray]) -> "Figure":
    """Identification risk of the records, a violin for each of ``risks`` (n,) by name."""
    return _violins(risks, "identification risk of a record")


@_styled
def weight_violins(weights: Mapping[str, FloatArray]) -> "Figure":
    """Risk weights alpha of the records, a violin for each of ``weights`` (n,) by name."""
    return _violins(weights, "risk weight alpha of a record")


@_styled
def identification_against_before(risks: Mapping[str, FloatArray]) -> "Figure":
    """Mean identification risk after synthesis along the risk before: where it falls and pops up.

    risks: (n,) by name, the first the risk before, which orders the records in bins of one size.
    """
    names = list(risks)
    before = risks[names[0]]
    order = np.argsort(before, kind="stable")
    bins = np.array_split(order, _BINS)
    centres = (np.arange(_BINS) + 0.5) / _BINS * 100
    figure = new_figure(7.6, 4.2)
    panel = figure.subplots()
    colors = _colors(names[1:])
    for place, (name, color) in enumerate(zip(names[1:], colors, strict=True)):
        means = [risks[name][part].mean() for part in bins]
        # A second scheme of one measure has the measure's color, dashed.
        dashes = "--" if color in colors[:place] else "-"
        panel.plot(
            centres, means, color=color, linestyle=dashes, linewidth=1.8, marker="o",
            markersize=3.5, label=name,
        )  # fmt: skip
    panel.legend(frameon=False)
    panel.set_xlim(0, 100)
    panel.set_xticks(range(0, 101, 20), [f"{share}%" for share in range(0, 101, 20)])
    panel.set_ylim(bottom=0)
    panel.grid(True, axis="both")
    panel.set_title("Identification risk after synthesis")
    panel.set_xlabel("records in order of their risk in the confidential data, lowest first")
    panel.set_ylabel("mean identification risk")
    return figure


@_styled
def bounds_against_weights(fits: Mapping[str, tuple[FloatArray, FloatArray]]) -> "Figure":
    """Bound of each record against its weight, a panel for each (weights, bounds) by name.

    A flat cloud at the largest bound wastes no weight ([R], figures 2 and 3).
    """
    figure = new_figure(max(3.6, 2.5 * len(fits) + 0.8), 3.2)
    panels = figure.subplots(1, len(fits), squeeze=False, sharex=True, sharey=True)[0]
    for panel, (name, (weights, bounds)), color in zip(
        panels, fits.items(), _colors(fits), strict=True
    ):
        step = -(-weights.size // _MOST_POINTS)
        panel.plot(weights[::step], bounds[::step], ".", color=color, markersize=3, alpha=0.4,
                   markeredgewidth=0)  # fmt: skip
        panel.axhline(bounds.max(), color=style.WARNING, linewidth=1.1, linestyle=(0, (4, 2)))
        panel.set_title(name)
        panel.set_xlim(-0.03, 1.03)
        panel.set_ylim(0, None)
        panel.set_xlabel("risk weight alpha")
        panel.grid(True, axis="both")
    panels[0].set_ylabel("bound of the record")
    return figure


def _violins(values: Mapping[str, FloatArray], label: str) -> "Figure":
    figure = new_figure(7.6, 1.0 + 0.62 * len(values))
    panel = figure.subplots()
    for place, (each, color) in enumerate(
        zip(values.values(), _colors(values), strict=True)
    ):
        if np.ptp(each) > 0:
            parts: Any = panel.violinplot(
                [each], positions=[place], orientation="horizontal", widths=0.85,
                showextrema=False,
            )["bodies"]  # fmt: skip
            parts[0].set(facecolor=color, alpha=0.55, edgecolor=color)
        low, middle, high = np.quantile(each, [0.25, 0.5, 0.75])
        panel.plot([low, high], [place, place], color=style.INK, linewidth=2.2)
        panel.plot([middle], [place], "o", color="white", markeredgecolor=style.INK, markersize=5)
    panel.set_yticks(range(len(values)), list(values))
    panel.invert_yaxis()
    panel.set_xlim(0, max(1.0, *(float(each.max()) for each in values.values())))
    panel.set_xlabel(label)
    panel.set_title("circle and bar: median and middle half", fontsize=8.5, fontweight="normal")
    return figure


def _colors(names: Iterable[str]) -> list[str]:
    """A color a name: by the first word of what is known ("CW" of "CW final"), else the others."""
    found, unknown = [], 0
    for name in names:
        key = name.lower().replace("_", " ").split()[0]
        found.append(_KNOWN.get(key) or _OTHERS[unknown % len(_OTHERS)])
        unknown += key not in _KNOWN
    return found
