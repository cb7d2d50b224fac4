"""What debiasing shifts of the general location model: probabilities written out; odds of a rare
amount against the unweighted fit to the same records."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from surveysynth.inference.debias import debias_draws
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


@pytest.mark.parametrize("by", [(), ("sex",)])
def test_scales_and_intercepts_move_and_nothing_else(by):
    design, model = general_design(400, ALL), model_for(by)
    theta = random_theta(model, design, draws=3)
    coordinates = model.debiased(theta, design)
    # Benefit at zero or not, two of work, sick, two spikes of capped; three amounts and the weight.
    assert coordinates.kinds == ("scale",) * 4 + ("odds",) * 6
    shift = np.linspace(-0.5, 0.7, 10)
    moved = model.with_debiased(theta, coordinates.logs + shift, design)
    np.testing.assert_allclose(model.debiased(moved, design).logs, coordinates.logs + shift)
    x = design.matrix.x_cells
    first = 4
    for name in ("logit_1", "logit_2", "logit_4", "logit_5"):
        size = theta[name].shape[-1]
        own = shift[first : first + size]
        before, after = (_probabilities(x, each[name]) for each in (theta, moved))
        odds = np.log(after[..., 1:] / after[..., :1]) - np.log(before[..., 1:] / before[..., :1])
        np.testing.assert_allclose(odds, np.broadcast_to(own, odds.shape))
        np.testing.assert_array_equal(moved[name][:, x.shape[1] :], theta[name][:, x.shape[1] :])
        first += size
    assert first == 10
    for name in theta.keys() - {"logit_1", "logit_2", "logit_4", "logit_5"}:
        if not name.startswith("variance_"):
            np.testing.assert_array_equal(moved[name], theta[name])
    np.testing.assert_allclose(
        moved["variance_1"], theta["variance_1"] * np.exp(2.0 * shift[0])
    )


def test_continuous_outcomes_have_scales_alone():
    design, model = general_design(100, [INCOME]), model_for(("sex",))
    theta = random_theta(model, design, draws=2)
    assert model.debiased(theta, design).kinds == ("scale", "scale")
    logs = model.log_scales(theta) + 0.1
    np.testing.assert_allclose(
        model.log_scales(model.with_debiased(theta, logs, design)), logs
    )


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
    made = debias_draws(model, design, private, rng)
    kinds = np.array(made.record.kinds)
    assert made.record.debiased
    assert kinds.tolist() == ["scale", "scale", "odds"]
    assert made.record.rounds == 3
    before = fit.mean_logs - fit.unweighted_mean_logs
    after = before + np.array(made.record.log_shift)
    assert np.abs(before[2]) > 0.4
    assert np.abs(after[2]) < 0.2 * np.abs(before[2])
    assert np.all(np.abs(after[:2]) < 0.06)


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
    logs = model.debiased(theta, design).logs
    moved = model.with_debiased(theta, logs + 0.3, design)
    change = x @ (moved["logit_1"] - theta["logit_1"])[:, : x.shape[1]]
    np.testing.assert_allclose(change, 0.3)
