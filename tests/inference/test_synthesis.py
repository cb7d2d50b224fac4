"""Synthetic datasets: their number, units and weights, from public inputs and m draws alone."""

import inspect

import numpy as np
import pytest

from surveysynth.errors import InputError, RefusedError
from surveysynth.inference import synthesis
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.survey.transforms import Transform
from tests.guesses import guessed_theta
from tests.surveys import make_survey

M = 3


def design_with(transform, population_size=5000.0):
    return make_survey(
        by=["gender"], population_size=population_size, transforms=transform
    ).design


def draws(design, model, spread=0.3):
    guess = guessed_theta(model, design, spread)
    theta = {name: np.stack([values] * M) for name, values in guess.items()}
    return PrivateDraws(model.name, theta, MechanismSettings(epsilon=10.8, m=M))


def datasets(design, model, *, r=2, seed=1, scale_to=5000.0, private=None, variance="sample"):
    return list(
        synthesis.synthesize(
            model, design, private or draws(design, model), replicates_per_draw=r,
            rng=np.random.default_rng(seed), scale_to=scale_to, variance=variance,
        )
    )  # fmt: skip


@pytest.mark.parametrize("name", ["fbs", "fbp"])
@pytest.mark.parametrize("variance", ["sample", "release"])
def test_m_by_r_datasets_with_weights_that_sum_to_n(name, variance):
    design, model = design_with(Transform("log")), get_model(name)
    made = datasets(design, model, variance=variance)
    assert [(d.draw, d.replicate) for d in made] == [(i, j) for i in (1, 2, 3) for j in (1, 2)]
    for dataset in made:
        assert dataset.outcome.shape == (design.n, 1)
        assert dataset.weight.sum() == pytest.approx(5000.0, rel=1e-12)
        assert (dataset.weight > 0).all()
        assert dataset.variance_weight.sum() == pytest.approx(5000.0, rel=1e-12)
        assert (dataset.variance_weight is dataset.weight) == (variance == "release")
        same_outcome = variance == "release" or name == "fbs"
        assert (dataset.variance_outcome is dataset.outcome) == same_outcome
    assert not np.allclose(made[0].outcome, made[1].outcome)
    again = datasets(design, model, variance=variance)
    np.testing.assert_array_equal(made[5].outcome, again[5].outcome)


def test_without_a_population_size_weights_stay_as_modelled():
    design, model = design_with(Transform("log"), None), get_model("fbs")
    private = draws(design, model)
    private.theta["beta"][:, 0, 1] = 4.0  # intercept of the log weight
    made = datasets(design, model, scale_to=None, private=private, r=20)
    # E(w) = exp(4 + 0.5^2 / 2), whatever is smoothed.
    mean = np.mean([d.weight.mean() for d in made])
    assert mean == pytest.approx(np.exp(4.125), rel=0.02)


@pytest.mark.parametrize(
    "transform", [Transform("log"), Transform("asinh", scale=0.5), Transform("identity", scale=7.0)]
)
def test_outcomes_are_in_original_units(transform):
    design, model = design_with(transform), get_model("fbs")
    theta = draws(design, model).draw(0)
    simulated = model.simulate(theta, design, np.random.default_rng(1), "release")
    first = datasets(design, model)[0]
    np.testing.assert_allclose(transform.forward(first.outcome[:, 0]), simulated.z[:, 0], rtol=1e-9)


def test_confidential_data_cannot_be_passed():
    names = set(inspect.signature(synthesis.synthesize).parameters)
    public = {"model", "design", "private_draws", "replicates_per_draw", "rng", "scale_to"}
    assert names == public | {"variance"}
    assert "Confidential" not in vars(synthesis)


def test_refusals():
    design, model = design_with(Transform("log")), get_model("fbs")
    private = draws(design, model)
    private.theta["beta"][:, 0, 0] = 800.0
    with pytest.raises(RefusedError, match="too large to be numbers"):
        datasets(design, model, private=private)
    private = draws(design, model)
    private.theta["beta"][:, 0, 1] = 709.0  # each weight is a number, their sum is not
    with pytest.raises(RefusedError, match="too large to be numbers"):
        datasets(design, model, private=private)
    with pytest.raises(InputError, match="at least 1"):
        datasets(design, model, r=0)


def test_datasets_are_of_the_draws_in_turn():
    design, model = design_with(Transform("log")), get_model("fbs")
    private = draws(design, model)
    for draw in range(M):
        private.theta["beta"][draw, 0, 0] = 10.0 * draw
    made = datasets(design, model, private=private)
    level = [np.log(dataset.outcome).mean() for dataset in made]
    np.testing.assert_allclose(np.diff(level[::2]), 10.0, atol=0.5)
    np.testing.assert_allclose(level[::2], level[1::2], atol=0.5)


def test_the_variance_of_a_tilted_model_is_that_of_the_sample():
    """FBP's sample has its outcomes tilted by k_y s_y^2 (methods 3)."""
    design, model = design_with(Transform("log")), get_model("fbp")
    private = draws(design, model, spread=1.0)
    private.theta["selection"][:, 0] = 0.8
    made = datasets(design, model, private=private, r=40)
    apart = [
        (np.log(each.variance_outcome) - np.log(each.outcome)).mean() for each in made
    ]
    error = np.std(apart, ddof=1) / np.sqrt(len(apart))
    assert abs(np.mean(apart) - 0.8 * 1.0**2) < 4 * error
    assert error < 0.1
