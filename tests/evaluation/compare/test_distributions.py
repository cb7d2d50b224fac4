"""Histograms and shares in figures of one variable. Truth: sums written out, bars and outlines read
back from the figures."""

import itertools

import numpy as np
import pytest

from surveysynth.evaluation.compare.folder import (
    BINS,
    Curve,
    histogram_panel,
    outcome_row,
)
from surveysynth.release.figure_style import MARK, new_figure
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

POWER = Transform("yeo_johnson", scale=1000.0, power=0.5)
KINDS = (
    Outcome("salary", transform=POWER, lower=0.0),
    Outcome("benefit", "semicontinuous", POWER, spikes=(0.0, 150.0)),
    Outcome("employed", "binary", levels=("no", "yes")),
    Outcome("status", "categorical", levels=("single", "married", "other")),
    Outcome("tax", "semicontinuous", POWER, spikes=(0.0,), split=0.0),
)


def values_of_kinds(n: int, seed: int, spike: float = 0.6) -> np.ndarray:
    """(n, 5) values of the kinds above."""
    rng = np.random.default_rng(seed)
    amount = POWER.inverse(rng.normal(2.0, 0.7, n))
    at = rng.choice(3, n, p=[0.9 - spike, spike, 0.1])
    benefit = np.select([at == 1, at == 2], [0.0, 150.0], POWER.inverse(rng.normal(1.0, 0.3, n)))
    works, status = rng.integers(0, 2, n), rng.integers(0, 3, n)
    tax = rng.choice([-1.0, 0.0, 1.0], n, p=[0.3, 0.3, 0.4]) * amount
    return np.stack([amount, benefit, works, status, tax], axis=1)


def test_a_histogram_has_the_weight_of_each_bin() -> None:
    rng = np.random.default_rng(3)
    values, weight = rng.standard_normal(3000), np.exp(0.5 * rng.standard_normal(3000))
    values[0] = 1e9  # far outliers do not stretch the axis
    panel = new_figure(7.6, 3.2).subplots()
    ends = histogram_panel(panel, [Curve("sample", "k", values, weight, strong=True)])
    assert ends is not None
    assert -4.5 < ends[0] < -2.5 < 2.5 < ends[1] < 4.5
    (outline,) = panel.patches
    edges = np.linspace(*ends, BINS + 1)
    shares = np.array([weight[(values >= low) & (values < high)].sum() / weight.sum()
                       for low, high in itertools.pairwise(edges)])  # fmt: skip
    np.testing.assert_allclose(outline.get_xy()[1:-1:2, 1], shares, rtol=1e-9, atol=1e-9)
    assert histogram_panel(panel, [Curve("none", "k", values[:0], weight[:0])]) is None


def test_figures_show_the_shares_and_histograms_of_every_kind() -> None:
    mine, theirs = values_of_kinds(400, 1), values_of_kinds(400, 2, spike=0.8)
    weight = np.exp(np.random.default_rng(8).normal(0, 0.5, 400))
    for column, (outcome, panels) in enumerate(zip(KINDS, (1, 2, 1, 1, 2), strict=True)):
        figure = new_figure(7.6, 3.2)
        assert figure.get_suptitle() == MARK
        curves = [Curve("sample", "k", mine[:, column], weight, strong=True),
                  Curve("synthetic", "r", theirs[:, column], np.ones(400))]  # fmt: skip
        outcome_row(figure, figure.add_gridspec(1, 3), 0, outcome, curves, outcome.name)
        assert len(figure.axes) == panels
        if outcome.split is not None:  # one axis, round numbers on both sides of the split
            (left, right), axis = figure.axes[1].get_xlim(), figure.axes[1].xaxis
            ticks = dict(zip([t.get_text() for t in axis.get_ticklabels()], axis.get_ticklocs(),
                             strict=True))  # fmt: skip
            assert left < -1.0 < 1.0 < right
            assert ticks["0"] == 0.0
            both = [name for name in ticks if f"-{name}" in ticks]
            assert both
            for name in both:
                value = np.arcsinh(float(name.replace("k", "e3")))
                assert ticks[name] == -ticks[f"-{name}"] == pytest.approx(value)
        if not outcome.is_discrete:
            continue
        widths = np.array([bar.get_width() for bar in figure.axes[0].patches])  # type: ignore[attr-defined]
        category = outcome.category(mine[:, column])
        for number in range(outcome.categories):
            of_sample = weight[category == number].sum() / weight.sum()
            assert widths[number] == pytest.approx(of_sample)
            of_other = outcome.category(theirs[:, column]) == number
            assert widths[number + outcome.categories] == pytest.approx(of_other.mean())
