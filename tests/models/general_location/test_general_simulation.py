"""Datasets of the general location model: moments by hand, distributions of SciPy, and for the
population form the sample weighted by its own weights, which is what the population is."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.general_location.simulate import cut_log_mean_exp, cut_normal
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign
from tests.models.general_location.general_cases import (
    ALL,
    BENEFIT,
    CAPPED,
    GAIN,
    INCOME,
    PLAIN,
    SICK,
    TAX,
    WORK,
    draw,
    general_design,
    model_for,
    random_theta,
)

BOUNDED = Outcome("bounded", "semicontinuous", transform=PLAIN, spikes=(1.5,), lower=-0.5,
                  upper=1.5)  # fmt: skip
N = 60_000


def simulated(
    form: str, outcomes: tuple[Outcome, ...], kind: str = "release", n: int = N
) -> tuple[GeneralLocation, PublicDesign, Theta, Simulated]:
    design = general_design(n, outcomes)
    model = model_for(("region",), form=form)
    theta = draw(random_theta(model, design, 1, seed=8), 0)
    if form == "fbp":  # weights that tell much of the outcome
        # Reliable means of weighted records need lighter tails where amounts are exponential.
        slopes = 0.9 if outcomes[0].split is None else 0.5
        theta["coefficients_weight"][design.matrix.x_cells.shape[1] :] = slopes
    if outcomes[0].split is not None:  # means well inside of both sides
        for name, centre in (("1", 1.2), ("1_below", 0.7)):
            theta[f"coefficients_{name}"] *= 0.2
            theta[f"coefficients_{name}"][0] += centre
            theta[f"variance_{name}"][:] = (0.5, 0.3, 0.4)
    return model, design, theta, model.simulate(theta, design, np.random.default_rng(9), kind)


def test_the_mean_of_a_two_part_outcome_is_share_times_mean() -> None:
    _, design, theta, data = simulated("fbs", (BENEFIT,))
    x = design.matrix.x_cells
    share = 1.0 / (1.0 + np.exp(-(x @ theta["logit_1"])[:, 0]))
    mean = (1.0 - share) * (x @ theta["coefficients_1"])
    outcome = data.outcomes(design)[:, 0]
    for cell in range(x.shape[0]):
        values = outcome[design.matrix.cell == cell]
        assert abs(values.mean() - mean[cell]) < 4.5 * values.std() / np.sqrt(values.size)
    assert ((outcome == 0.0).mean() > 0.1) & ((outcome == 0.0).mean() < 0.9)


def test_smoothed_weights_are_means_of_drawn_ones() -> None:
    """E(w | x, d, z): unbiased within cells, categories and amounts; without the categories' part
    of the regression it is not."""
    model, design, theta, data = simulated("fbs", ALL)
    smooth, drawn = model.smooth_weight(theta, design, data), model.drawn_weight(design, data)
    wrong = {**theta, "coefficients_weight": theta["coefficients_weight"].copy()}
    k = design.matrix.x_cells.shape[1]
    wrong["coefficients_weight"][k : k + 6] = 0.0
    off = model.smooth_weight(wrong, design, data)
    assert data.category is not None
    ratio, bad = drawn / smooth - 1.0, drawn / off - 1.0
    worst = worst_wrong = 0.0
    for j in range(len(ALL)):
        for code in range(3):
            rows = data.category[:, j] == code
            if rows.sum() > 100:
                error = ratio[rows].std() / np.sqrt(rows.sum())
                worst = max(worst, abs(ratio[rows].mean()) / error)
                worst_wrong = max(worst_wrong, abs(bad[rows].mean()) / error)
    assert worst < 4.5
    assert worst_wrong > 15.0


@pytest.mark.parametrize("outcome", [BENEFIT, CAPPED, WORK, SICK, INCOME, BOUNDED, TAX, GAIN],
                         ids=lambda outcome: outcome.name)  # fmt: skip
def test_the_population_is_the_sample_weighted(outcome: Outcome) -> None:
    """By cell of X: shares of categories and moments of amounts of the release against those of
    the sample with its drawn weights; the sample without weights is rejected."""
    model, design, theta, released = simulated("fbp", (outcome,))
    sample = model.simulate(theta, design, np.random.default_rng(10), "sample")
    weight = model.drawn_weight(design, sample)
    smooth = model.smooth_weight(theta, design, released)
    here, there = features(outcome, released), features(outcome, sample)
    worst = worst_wrong = 0.0
    for cell in range(design.matrix.x_cells.shape[0]):
        rows = design.matrix.cell == cell
        w = weight[rows]
        # The one weight of a cell is the mean of the drawn ones.
        assert np.ptp(smooth[rows]) < 1e-12 * smooth[rows][0]
        assert abs(w.mean() - smooth[rows][0]) < 4.5 * w.std() / np.sqrt(w.size)
        for one, other in zip(here[:, rows], there[:, rows], strict=True):
            mean = (w * other).sum() / w.sum()
            error = np.sqrt(one.var() / one.size + ((w * (other - mean)) ** 2).sum() / w.sum() ** 2)
            if error > 0:
                worst = max(worst, abs(one.mean() - mean) / error)
                worst_wrong = max(worst_wrong, abs(one.mean() - other.mean()) / error)
    assert worst < 4.8
    assert worst_wrong > 8.0


def features(outcome: Outcome, data: Simulated) -> FloatArray:
    """Indicators of categories, amounts and their squares (f, n)."""
    assert data.category is not None
    category = data.category[:, 0]
    rows = [category == c for c in range(1, outcome.categories)]
    for side in outcome.sides:
        amount = np.where(category == side, data.z[:, 0], 0.0)
        rows += [amount, amount**2]
    return np.array(rows, dtype=float)


def test_the_population_has_the_log_weights_of_the_sample_weighted() -> None:
    model, design, theta, released = simulated("fbp", (BENEFIT,))
    sample = model.simulate(theta, design, np.random.default_rng(10), "sample")
    weight = model.drawn_weight(design, sample)
    one, other = released.z[:, -1], sample.z[:, -1]
    # Cells have the same records in both; their weights differ.
    by_cell = np.bincount(design.matrix.cell, weight) / np.bincount(design.matrix.cell)
    weight = weight / by_cell[design.matrix.cell]
    error = np.sqrt(one.var() / N + (weight * (other - other.mean())).var() / N)
    assert abs(one.mean() - (weight * other).mean()) < 4.5 * error


@pytest.mark.parametrize("ends", [(-1.0, 0.5), (2.0, np.inf), (-np.inf, -3.0), (8.0, 8.5)])
def test_cut_normals_are_those_of_scipy(ends: tuple[float, float]) -> None:
    mean, sd, slope = np.full(20_000, 0.3), np.full(20_000, 0.9), np.full(1, 0.7)
    drawn = cut_normal(mean, sd, ends, np.random.default_rng(1))
    law = stats.truncnorm((ends[0] - 0.3) / 0.9, (ends[1] - 0.3) / 0.9, 0.3, 0.9)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-4
    assert stats.kstest(drawn + 0.02, law.cdf).pvalue < 1e-4
    low, high = np.clip(ends, -12.0, 12.0)
    expected = quad(lambda z: np.exp(0.7 * z) * law.pdf(z), low, high, epsabs=0.0)[0]
    found = cut_log_mean_exp(slope, mean[:1], sd[:1], ends)
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-6)


def test_synthetic_amounts_keep_their_bounds_and_spikes() -> None:
    top = Outcome("pay", "semicontinuous", spikes=(0.0, 150.0), lower=20.0, upper=150.0)
    design = general_design(5_000, (top,))
    model = model_for()
    theta = draw(random_theta(model, design, 1), 0)
    theta["coefficients_1"][0] = np.log(90.0)
    outcome = model.simulate(theta, design, np.random.default_rng(1)).outcomes(design)[:, 0]
    amounts = outcome[(outcome != 0.0) & (outcome != 150.0)]
    assert amounts.size > 500
    assert 20.0 <= amounts.min() < 25.0
    assert 140.0 < amounts.max() <= 150.0
    unbound = replace(design, outcomes=(replace(top, lower=None, upper=None),))
    free = model.simulate(theta, unbound, np.random.default_rng(1)).outcomes(unbound)[:, 0]
    assert free.max() > 150.0


def test_amounts_lie_on_their_side_and_have_its_moments() -> None:
    """By cell, shares of the sides and means about the split are those of the logits and of the
    side's own regression: cuts at the split move none. Means of both pooled are rejected."""
    _, design, theta, data = simulated("fbs", (GAIN,))
    outcome, x = data.outcomes(design)[:, 0], design.matrix.x_cells
    assert data.category is not None
    np.testing.assert_array_equal(data.category[:, 0] == 1, outcome < 1.5)
    share_below = 1.0 / (1.0 + np.exp(-(x @ theta["logit_1"])[:, 0]))
    worst = worst_pooled = 0.0
    for cell in range(x.shape[0]):
        values = outcome[design.matrix.cell == cell]
        below = values < 1.5
        error = np.sqrt(share_below[cell] * (1 - share_below[cell]) / values.size)
        assert abs(below.mean() - share_below[cell]) < 4.5 * error
        for name, own, sign in (("1", ~below, 1.0), ("1_below", below, -1.0)):
            distance = sign * (values[own] - 1.5)
            assert distance.min() >= 0.0
            error = distance.std() / np.sqrt(own.sum())
            mean = x[cell] @ theta[f"coefficients_{name}"]
            worst = max(worst, abs(distance.mean() - mean) / error)
            pooled = np.abs(values - 1.5).mean()
            worst_pooled = max(worst_pooled, abs(distance.mean() - pooled) / error)
    assert worst < 4.8
    assert worst_pooled > 20.0
