"""Figures of learned transforms: published noisy counts, and the curves that they gave."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr

from surveysynth._support.messages import xml_text
from surveysynth._support.types import FloatArray
from surveysynth.config.formats import Format
from surveysynth.mechanisms.learned.histogram import NoisyHistogram, side_of
from surveysynth.release import figure_style as style
from surveysynth.release.tables.labels import Labels
from surveysynth.release.writers.figures import COLOR, save, wrapped, writing_style
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import LearnedTransform

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 7.6, 2.4


@dataclass(frozen=True)
class Curve:
    """One side of a learned outcome, summed over strata: noisy and expected counts (J,)."""

    title: str
    transform: LearnedTransform
    noisy: FloatArray
    expected: FloatArray


def write(curves: Sequence[Curve], note: str, path: Path, made: Format) -> None:
    """Write the figure of all curves."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing_style():
        save(curves_figure(curves, note), path, made)


def curves_of(
    outcomes: Sequence[Outcome], histograms: Sequence[NoisyHistogram], labels: Labels
) -> list[Curve]:
    """Return a curve for each side of each learned outcome, whose histograms these are."""
    found = {each.outcome: each for each in histograms}
    return [
        _curve(outcome, side, found[outcome.name].counts[side].astype(np.float64), labels)
        for outcome in outcomes
        if outcome.learned is not None
        for side in outcome.sides
    ]


def _curve(outcome: Outcome, side: int, noisy: FloatArray, labels: Labels) -> Curve:
    """Return the curve of one side from its noisy counts (H, J).

    Expected counts of a stratum: the chances of bins by its curve, times its noisy total.
    """
    transform = side_of(outcome, side)
    below = ndtr(transform.knots[:, :: transform.parts])
    chances = np.diff(below, axis=1) / (below[:, -1:] - below[:, :1])
    totals = np.maximum(noisy.sum(axis=1), 0.0)
    name, where = labels.titled_with_unit(outcome.name), outcome.side_name(side)
    title = f"{name}, {where} (distance)" if where else name
    return Curve(title, transform, noisy.sum(axis=0), totals @ chances)


def curves_figure(curves: Sequence[Curve], note: str) -> Figure:
    """Draw noisy counts as bars and expected ones as a line, with a panel for each curve."""
    figure = Figure(figsize=(_WIDTH, 0.9 + _HEIGHT * len(curves)), layout="constrained")
    for panel, curve in zip(
        figure.subplots(len(curves), 1, squeeze=False)[:, 0], curves, strict=True
    ):
        _panel(panel, curve)
    figure.suptitle(
        "Learned transforms: noisy counts (bars) and the curve of all strata (line)",
        x=0.01, ha="left", fontsize=10.5, fontweight="bold", color=style.INK,
    )  # fmt: skip
    figure.supxlabel(wrapped(note, 128), x=0.01, ha="left", fontsize=7.5, color=style.INK)
    return figure


def _panel(panel: "Axes", curve: Curve) -> None:
    low, high = curve.transform.grid
    ends = curve.transform.ends
    middle = 0.5 * (ends[1:] + ends[:-1])
    panel.bar(middle, curve.noisy, width=np.diff(ends), color="#d0d0d0", linewidth=0)
    panel.plot(middle, curve.expected, color=COLOR, linewidth=1.6)
    panel.set_xlim(low, high)
    style.outcome_axis(panel.xaxis, curve.transform.axis, low, high)
    panel.set_xlabel(xml_text(curve.title))
    panel.set_ylabel("records")
