"""Figures of risk measures: the drawn numbers against pandas, the mark, degenerate values."""

import numpy as np
import pandas as pd
import pytest

from surveysynth.release.figure_style import MARK
from tests.long_runs import risk_figures

RNG = np.random.default_rng(1)
RISKS = {"Confidential": RNG.random(200), "LW": RNG.random(200), "CW": RNG.random(200) ** 2}


def words(figure):
    figure.draw_without_rendering()
    found = [figure.get_suptitle()]
    for panel in figure.axes:
        found += [panel.get_title(loc="left"), panel.get_xlabel(), panel.get_ylabel()]
        found += [text.get_text() for text in panel.get_xticklabels() + panel.get_yticklabels()]
        found += [text.get_text() for text in panel.texts]
        legend = panel.get_legend()
        found += [text.get_text() for text in legend.get_texts()] if legend else []
    return found


def test_means_along_the_risk_before():
    figure = risk_figures.identification_against_before(RISKS)
    frame = pd.DataFrame(RISKS)
    bins = pd.cut(frame["Confidential"].rank(method="first"), 20, labels=False)
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    assert list(lines) == ["LW", "CW"]
    for name, drawn in lines.items():
        np.testing.assert_allclose(drawn, frame.groupby(bins)[name].mean())
    assert MARK in words(figure)


@pytest.mark.parametrize(
    "function", [risk_figures.identification_violins, risk_figures.weight_violins]
)
def test_violins_mark_the_quartiles(function):
    values = {**RISKS, "SW": np.full(200, 0.3)}
    figure = function(values)
    told = words(figure)
    assert MARK in told
    assert set(values) <= set(told)
    circles = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    medians = [np.median(each) for each in values.values()]
    np.testing.assert_allclose([line.get_xdata()[0] for line in circles], medians)
    # A weight that all records share has no violin, but its mark.
    assert len(figure.axes[0].collections) == 3


def test_bounds_against_weights_show_the_largest_bound():
    fits = {"CW": (RISKS["LW"], RISKS["CW"] * 5), "CW final": (RISKS["CW"], RISKS["LW"])}
    figure = risk_figures.bounds_against_weights(fits)
    assert [panel.get_title(loc="left") for panel in figure.axes] == list(fits)
    for panel, (weights, bounds) in zip(figure.axes, fits.values(), strict=True):
        points, line = panel.lines
        np.testing.assert_array_equal(points.get_xydata(), np.column_stack([weights, bounds]))
        assert set(line.get_ydata()) == {bounds.max()}
        assert points.get_color() == risk_figures._KNOWN["cw"]
