"""The common style of all figures: colors, fonts, axes in the units of the data."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.survey.transforms import Transform

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT, WARNING = "#1b1b1b", "#8a8a8a", "#b00020"
RC: dict[str, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "figure.dpi": 160,
}
MARK = "CONFIDENTIAL: shows confidential estimates and records. Not for release."


def draw(function: Callable[..., "Figure"], *arguments: Any) -> "Figure":
    """Call a figure function with the style of all figures."""
    import matplotlib as mpl

    settings: Any = RC
    with mpl.rc_context(settings):
        return function(*arguments)


def png_bytes(figure: "Figure") -> bytes:
    """Return the figure as PNG; without the library's version equal numbers give equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def new_figure(
    width: float, height: float, mark: str = MARK, color: str = WARNING
) -> "Figure":
    """Make an empty figure that needs no display, marked confidential or with another line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(mark, x=0.01, ha="left", color=color, fontsize=9, fontweight="bold")
    return figure


def outcome_axis(axis: Any, transform: Transform, low: float, high: float) -> None:
    """Label an axis that shows transformed values with round numbers in the outcome's units."""
    ticks = outcome_ticks(transform, low, high)
    positions = transform.forward(np.asarray(ticks, dtype=np.float64))
    axis.set_ticks(positions, [short_number(each) for each in ticks])


def outcome_ticks(transform: Transform, low: float, high: float) -> list[float]:
    """Choose round numbers in the outcome's units, spread over transformed values low..high."""
    sizes = [m * 10.0**k for m in (1, 5, 2) for k in range(12, -7, -1)]
    # Zero and rounder numbers come first, then whatever fits between them.
    values = np.array([0.0, *(sign * size for size in sizes for sign in (1.0, -1.0))])
    if transform.kind == "log":
        values = values[values + transform.shift > 0]
    position = transform.forward(values)
    inside = (position >= low) & (position <= high)
    chosen: dict[float, float] = {}
    for value, place in zip(values[inside], position[inside], strict=True):
        if all(abs(place - other) >= 0.13 * (high - low) for other in chosen.values()):
            chosen[float(value)] = float(place)
    return sorted(chosen)


def short_number(value: float) -> str:
    """Shorten a number: 1,500,000 is 1.5M; 20,000 is 20k."""
    for size, letter in ((1e9, "bn"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def violin(
    panel: Any, place: int, values: FloatArray, color: str, *, log: bool = True
) -> None:
    """Draw a horizontal violin with its median as a number; too few or equal values are dots alone.

    log: whether values are logs to base 10.
    """
    if values.size > 2 and np.ptp(values) > 0:
        parts = panel.violinplot(
            [values], positions=[place], orientation="horizontal", widths=0.82, showextrema=False
        )
        for body in parts["bodies"]:
            body.set(facecolor=color, edgecolor=color, alpha=0.32, linewidth=1.0)
    jitter = np.random.default_rng(0).uniform(-0.13, 0.13, values.size)  # for the drawing alone
    panel.plot(values, place + jitter, ".", color=color, markersize=4, alpha=0.75)
    if values.size:
        median = float(np.median(values))
        panel.plot([median] * 2, [place - 0.3, place + 0.3], color=color, linewidth=2)
        shown = short_number(10**median if log else median)
        panel.annotate(
            shown, (median, place - 0.4), xytext=(0, 0), textcoords="offset points",
            ha="center", va="bottom", fontsize=8, color=INK,
        )  # fmt: skip


def log_ticks(panel: Any, which: str = "x") -> None:
    """Set ticks of an axis that shows log10 values: 1, 2, 5 and their multiples of ten.

    They are thinned on a long axis; a short axis has more between them.
    """
    low, high = panel.get_xlim() if which == "x" else panel.get_ylim()
    leading: tuple[float, ...] = (1, 1.25, 1.5, 2, 3, 4, 5, 6, 7, 8)
    for least, fewer in ((0.7, (1, 2, 5)), (1.5, (1, 3)), (3, (1,))):
        leading = fewer if high - low > least else leading
    powers = range(int(np.floor(low)) - 1, int(np.ceil(high)) + 1)
    every = [m * 10.0**k for k in powers for m in leading]
    kept = [value for value in every if low <= np.log10(value) <= high]
    axis = panel.xaxis if which == "x" else panel.yaxis
    axis.set_ticks(np.log10(kept), [short_number(value) for value in kept])
