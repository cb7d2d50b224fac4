"""Densities and shares in figures of one variable. Truth: SciPy's kernel density, sums written out,
bars read back from the figures."""

import numpy as np
import pytest
from scipy.stats import gaussian_kde

from surveysynth.estimation.quantiles import weighted_quantiles
from surveysynth.evaluation.compare.distributions import (
    QUARTILES,
    Curve,
    bandwidth,
    density,
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


@pytest.mark.parametrize("shape", ["normal", "two humps", "heavy tail"])
def test_densities_are_those_of_scipy(shape: str) -> None:
    rng = np.random.default_rng(3)
    values = rng.standard_normal(3000)
    if shape == "two humps":
        values[:1000] = 4 + 0.3 * values[:1000]
    if shape == "heavy tail":
        values = rng.standard_t(3, 3000)
    weight = np.exp(0.5 * rng.standard_normal(3000))
    grid = np.linspace(-4, 6, 400)
    width = bandwidth(values, weight, weighted_quantiles(values, weight, np.array(QUARTILES)))
    kernel = gaussian_kde(values, weights=weight)
    kernel.set_bandwidth(width / np.sqrt(kernel.covariance[0, 0]) * kernel.factor)
    made = density(values, weight, grid, width)
    expected = kernel(grid)
    assert np.abs(made - expected).max() < 0.01 * expected.max()
    unweighted = density(values, np.ones(3000), grid, width)
    tilted = density(values, np.exp(values), grid, width)
    assert np.abs(tilted - unweighted).max() > 0.1 * expected.max()


def test_the_bandwidth_is_silvermans_for_as_many_records_as_the_weights_are_worth() -> None:
    values, quartiles = np.random.default_rng(4).standard_normal(4000), np.array([-0.6745, 0.6745])
    for weight, records in ((np.ones(4000), 4000), (np.repeat([1.0, 0.0], 2000), 2000)):
        made = bandwidth(values, weight, quartiles)
        assert made == pytest.approx(0.9 * records**-0.2, rel=0.05)


def test_a_lump_with_far_outliers_is_drawn_and_not_smeared() -> None:
    values = np.concatenate([np.zeros(600), np.linspace(-1, 1, 399), [1e9]])
    grid = np.linspace(-1.1, 1.1, 400)
    wide = bandwidth(values, np.ones(1000), np.zeros(2))
    assert wide > 1e6  # the quartiles lie in the lump, and the deviation is the outlier's
    made = density(values, np.ones(1000), grid, wide)
    assert np.isfinite(made).all()
    constant = density(np.zeros(50), np.ones(50), grid, 0.0)
    assert constant.sum() * (grid[1] - grid[0]) == pytest.approx(1.0, rel=1e-4)
    assert (constant > 0.01 * constant.max()).sum() < 9


def test_figures_show_the_shares_and_densities_of_every_kind() -> None:
    mine, theirs = values_of_kinds(400, 1), values_of_kinds(400, 2, spike=0.8)
    weight = np.exp(np.random.default_rng(8).normal(0, 0.5, 400))
    for column, (outcome, panels) in enumerate(zip(KINDS, (1, 2, 1, 1, 2), strict=True)):
        figure = new_figure(7.6, 3.2)
        assert figure.get_suptitle() == MARK
        curves = [Curve("sample", "k", mine[:, column], weight, strong=True),
                  Curve("synthetic", "r", theirs[:, column], None)]  # fmt: skip
        outcome_row(figure, figure.add_gridspec(1, 3), 0, outcome, curves, outcome.name)
        assert len(figure.axes) == panels
        if outcome.split is not None:  # one axis, round numbers on both sides of the split
            (left, right), axis = figure.axes[1].get_xlim(), figure.axes[1].xaxis
            ticks = dict(zip([t.get_text() for t in axis.get_ticklabels()], axis.get_ticklocs(),
                             strict=True))  # fmt: skip
            assert left < -1.0 < 1.0 < right
            assert ticks["0"] == 0.0
            assert ticks["5k"] == -ticks["-5k"] == pytest.approx(2.0 * (6.0**0.5 - 1.0))
        if not outcome.is_discrete:
            continue
        widths = np.array([bar.get_width() for bar in figure.axes[0].patches])  # type: ignore[attr-defined]
        category = outcome.category(mine[:, column])
        for number in range(outcome.categories):
            of_sample = weight[category == number].sum() / weight.sum()
            assert widths[number] == pytest.approx(of_sample)
            of_other = outcome.category(theirs[:, column]) == number
            assert widths[number + outcome.categories] == pytest.approx(of_other.mean())
