"""What debiasing shifts of the general location model: probabilities written out; odds of a rare
amount against the unweighted fit to the same records."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from surveysynth.inference.debias import debias_draws, debias_many
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.sampling.plan import SamplingPlan
from tests.models.general_location.general_cases import (
    ALL,
    BENEFIT,
    INCOME,
    general_design,
    model_for,
    random_theta,
)

BOUNDED = replace(INCOME, lower=-2.0)


@pytest.mark.parametrize("by", [(), ("sex",)])
def test_scales_logits_and_bounded_means_move_and_nothing_else(by):
    design, model = general_design(400, (*ALL, BOUNDED)), model_for(by)
    theta = random_theta(model, design, draws=3)
    coordinates = model.debiased(theta, design)
    x, groups = design.matrix.x_cells, theta["variance_1"].shape[-1]
    logits = ("logit_1", "logit_2", "logit_4", "logit_5")
    # Benefit at zero or not, two of work, sick, two spikes of capped; four amounts and the weight.
    scales = ("scale",) * 5 * groups
    assert coordinates.kinds[: len(scales)] == scales
    assert coordinates.kinds.count("odds") == 6
    assert coordinates.kinds.count("location") == x.shape[1]
    assert coordinates.kinds.count("slope") == sum(theta[name][0].size for name in logits)
    rng = np.random.default_rng(2)
    other = {key: values + 0.1 * rng.random(values.shape) for key, values in theta.items()}
    wanted = model.debiased(other, design).values
    moved = model.with_debiased(theta, wanted, design)
    np.testing.assert_allclose(model.debiased(moved, design).values, wanted, atol=1e-12)
    for name, values in theta.items():
        if name.startswith(("variance_", "logit_")):
            np.testing.assert_allclose(moved[name], other[name])
        elif name == "coefficients_6":
            np.testing.assert_allclose(moved[name][:, : x.shape[1]], other[name][:, : x.shape[1]])
            np.testing.assert_array_equal(moved[name][:, x.shape[1] :], values[:, x.shape[1] :])
        else:
            np.testing.assert_array_equal(moved[name], values)


def test_odds_are_means_over_the_records():
    design, model = general_design(400, [BENEFIT]), model_for()
    theta = random_theta(model, design, draws=3)
    coordinates = model.debiased(theta, design)
    odds = np.array(coordinates.kinds) == "odds"
    eta = theta["logit_1"][..., 0] @ design.matrix.x_cells.T
    mean = eta[:, design.matrix.cell].mean(axis=1)
    np.testing.assert_allclose(coordinates.values[:, odds][:, 0], mean)
    moved = model.with_debiased(theta, coordinates.values + 0.3 * odds, design)
    before, after = (
        _probabilities(design.matrix.x_cells, each["logit_1"]) for each in (theta, moved)
    )
    change = np.log(after[..., 1:] / after[..., :1]) - np.log(before[..., 1:] / before[..., :1])
    np.testing.assert_allclose(change, 0.3)


def test_continuous_outcomes_have_scales_alone_group_by_group():
    design, model = general_design(400, [INCOME]), model_for(("sex",))
    theta = random_theta(model, design, draws=2)
    assert model.debiased(theta, design).kinds == ("scale",) * 4
    values = model.log_scales(theta) + np.array([0.1, 0.2, 0.3, 0.4])
    moved = model.with_debiased(theta, values, design)
    factor = np.exp(2.0 * np.array([0.1, 0.2]))
    np.testing.assert_allclose(moved["variance_1"], theta["variance_1"] * factor)


def test_groups_of_unequal_spread_come_back_each_to_its_own():
    """Wide groups lose more weight. One factor for all leaves the widest a tenth too narrow."""
    design, model = general_design(300, [INCOME], regions=2), model_for(("sex",))
    settings = MechanismSettings(epsilon=5.0, m=2, plan=SamplingPlan(2, 60, 150))
    theta, rng = model.prior_guess(design, 0.5), np.random.default_rng(3)
    theta["variance_1"] = np.array([0.2, 1.2]) ** 2
    databases = [
        Database.simulated(model, design, model.simulate(theta, design, rng, "sample"))
        for _ in range(9)
    ]
    results = [each for each in run_batch(model, databases, settings, rng) if type(each) is tuple]
    private = [draws for draws, _ in results]
    made = debias_many(model, [(design, draws) for draws in private], rng, databases=6, rounds=3)
    before = np.array([fit.means - fit.unweighted_means for _, fit in results])[:, :2]
    shift = np.array([each.record.shift for each in made])[:, :2]
    assert all(each.record.debiased for each in made)
    difference = before[:, 1] - before[:, 0]
    assert difference.mean() < -0.06
    left = (before + shift).mean(0)
    assert np.all(np.abs(left) < 0.03)
    one_factor = (before + shift.mean(1, keepdims=True)).mean(0)
    assert np.any(np.abs(one_factor) >= 0.03)


def test_the_share_of_a_rare_amount_comes_back():
    """A benefit that one record in six receives, by the mechanism and from its draws alone."""
    design, model = general_design(1500, [BENEFIT], regions=2), model_for(("sex",))
    settings = MechanismSettings(epsilon=10.8, plan=SamplingPlan(4, 100, 125), origin="density")
    theta = _truth(model, design)
    rng = np.random.default_rng(3)
    simulated = model.simulate(theta, design, rng, "sample")
    database = Database.simulated(model, design, simulated)
    (result,) = run_batch(model, [database], settings, rng)
    private, fit = result
    made = debias_draws(model, design, private, rng, databases=9, rounds=3)
    kinds = np.array(made.record.kinds)
    assert made.record.debiased
    odds = kinds == "odds"
    assert set(kinds) == {"scale", "odds", "slope"}
    before = fit.means - fit.unweighted_means
    after = before + np.array(made.record.shift)
    assert np.abs(before[odds]) > 0.4
    assert np.abs(after[odds]) < 0.2 * np.abs(before[odds])
    assert np.all(np.abs(after[kinds == "scale"]) < 0.06)


def _truth(model, design):
    guess = model.prior_guess(design, 0.5)
    logit = np.zeros_like(guess["logit_1"])
    logit[0, 0] = 1.6  # at zero against not, the reference
    return {**guess, "logit_1": logit}


def _probabilities(x, logit):
    """(S, cells, C) where earlier discrete parts have their first category."""
    eta = x @ logit[:, : x.shape[1]]
    return softmax(np.concatenate([np.zeros((*eta.shape[:-1], 1)), eta], axis=-1), axis=-1)


def test_a_formula_without_intercept_has_a_constant_all_the_same():
    """Indicators of all regions in place of a constant: the same shift for every record."""
    design, model = general_design(400, [BENEFIT]), model_for()
    x = design.matrix.x_cells.copy()
    x[:, 0] -= x[:, 1] + x[:, 2]
    design = replace(design, matrix=replace(design.matrix, x_cells=x))
    theta = random_theta(model, design, draws=2)
    coordinates = model.debiased(theta, design)
    odds = np.array(coordinates.kinds) == "odds"
    moved = model.with_debiased(theta, coordinates.values + 0.3 * odds, design)
    change = x @ (moved["logit_1"] - theta["logit_1"])[:, : x.shape[1]]
    np.testing.assert_allclose(change, 0.3)
