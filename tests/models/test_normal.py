"""The normal regression with and without a survey weight: SciPy's densities, the prior where no
record counts, and the whole mechanism on data simulated from known parameters."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as st

from surveysynth.errors import InputError
from surveysynth.inference.synthesis import synthesize
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run
from surveysynth.models import get_model
from surveysynth.models.base import Simulated
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential
from surveysynth.survey.transforms import Transform
from tests.guesses import guessed_theta
from tests.models.model_cases import make_case
from tests.models.model_designs import group_design, rows_of


def design_of(n, q):
    design = replace(group_design(n), outcomes=(Outcome("y0", transform=Transform("log")),))
    return design if q == 2 else replace(design, weight_name=None)


def theta_of(q):
    theta = {"beta": np.array([9.5, 0.4, -0.3]), "variance": np.array([0.16, 0.09][:q])}
    if q == 2:
        theta["weight_coefficients"] = np.array([-0.6, 10.0, 0.3, 0.1])
    return theta


def confidential_of(design, theta, rng):
    z = get_model("normal").simulate(theta, design, rng).z
    weight = np.exp(z[:, 1]) if z.shape[1] == 2 else None
    return Confidential(np.exp(z[:, :1]), weight)


@pytest.mark.parametrize("q", [1, 2])
def test_records_hold_the_transformed_outcome_and_the_log_weight(q):
    design, rng = design_of(40, q), np.random.default_rng(1)
    confidential = confidential_of(design, theta_of(q), rng)
    z = get_model("normal").records(design, confidential).z
    assert z.shape == (40, q)
    np.testing.assert_allclose(z[:, 0], np.log(confidential.outcome[:, 0]))
    if q == 2:
        np.testing.assert_allclose(z[:, 1], np.log(confidential.sampling_weight))


def test_several_outcomes_are_refused():
    design = group_design(30, outcomes=2)
    with pytest.raises(InputError, match="takes one outcome, got 2"):
        get_model("normal").records(design, Confidential(np.ones((30, 2)), np.ones(30)))


@pytest.mark.parametrize("q", [1, 2])
def test_log_likelihood_equals_scipy(q):
    case = make_case("normal", q, n=80)
    plan = SamplingPlan(2, 10, 10)
    draws = case.model.sample(case.stats, plan, np.random.default_rng(2))
    flat = {key: values[0].reshape(-1, *values.shape[3:]) for key, values in draws.items()}
    result = np.full((plan.kept, 80), np.nan)
    for rows, block in case.model.log_lik_blocks(flat, case.records):
        result[:, rows] = block
    sd = np.sqrt(flat["variance"])
    expected = st.norm.logpdf(case.z[:, 0], flat["beta"] @ case.x.T, sd[:, :1])
    if q == 2:
        delta, gamma = flat["weight_coefficients"][:, :1], flat["weight_coefficients"][:, 1:]
        mean = delta * case.z[:, 0] + gamma @ case.x.T
        expected += st.norm.logpdf(case.z[:, 1], mean, sd[:, 1:])
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("q", [1, 2])
def test_an_unweighted_fit_recovers_the_parameters(q):
    design, theta = design_of(4000, q), theta_of(q)
    model = get_model("normal")
    simulated = model.simulate(theta, design, np.random.default_rng(4), "sample")
    records = model.records_from_simulated(design, simulated)
    stats = model.compress(records, np.ones(design.n))
    draws = model.sample(stats, SamplingPlan(2, 200, 400), np.random.default_rng(5))
    for key, expected in theta.items():
        values = draws[key].reshape(-1, expected.size)
        z = (values.mean(0) - expected) / values.std(0)
        assert np.abs(z).max() < 4, key
    # A flat prior's posterior, nearly: least squares.
    fit = np.linalg.lstsq(rows_of(design), simulated.z[:, 0], rcond=None)[0]
    values = draws["beta"].reshape(-1, 3)
    assert np.abs((values.mean(0) - fit) / values.std(0)).max() < 0.3


def test_smoothed_weight_is_the_conditional_mean():
    design, theta, model = design_of(5, 2), theta_of(2), get_model("normal")
    z = np.column_stack([np.linspace(8.5, 10.5, 5), np.zeros(5)])
    smoothed = model.smooth_weight(theta, design, Simulated(z))
    delta, *gamma = theta["weight_coefficients"]
    mean = delta * z[:, 0] + rows_of(design) @ gamma
    np.testing.assert_allclose(
        smoothed, st.lognorm.mean(np.sqrt(theta["variance"][1]), scale=np.exp(mean)), rtol=1e-12
    )


def test_without_weights_every_record_counts_once():
    design, theta, model = design_of(20, 1), theta_of(1), get_model("normal")
    simulated = model.simulate(theta, design, np.random.default_rng(6))
    np.testing.assert_array_equal(model.smooth_weight(theta, design, simulated), np.ones(20))


@pytest.mark.parametrize("q", [1, 2])
def test_the_guess_has_the_spread_asked_for(q):
    design, model = design_of(200_000, q), get_model("normal")
    z = model.simulate(guessed_theta(model, design, 0.4), design, np.random.default_rng(7)).z
    np.testing.assert_allclose(z[:, 0].std(), 0.4, rtol=0.01)
    if q == 2:
        np.testing.assert_allclose(z[:, 1].std(), 0.5, rtol=0.01)
        np.testing.assert_allclose(np.corrcoef(z.T)[0, 1], -0.5, atol=0.01)


@pytest.mark.parametrize("q", [1, 2])
def test_the_mechanism_reaches_its_target_and_synthesis_follows(q):
    design, rng = design_of(600, q), np.random.default_rng(8)
    confidential = confidential_of(design, theta_of(q), rng)
    settings = MechanismSettings(epsilon=10.8, m=3)
    model = get_model("normal")
    private, fit = run(model, design, confidential, settings, rng)
    assert 0.97 * 1.8 <= fit.realised_bound <= 1.8
    assert set(private.theta) >= {"beta", "variance"}
    datasets = list(
        synthesize(model, design, private, replicates_per_draw=2, rng=rng, scale_to=1e5)
    )
    assert len(datasets) == 6
    log_outcome = np.log([dataset.outcome for dataset in datasets])
    expected = np.log(confidential.outcome).mean()
    assert abs(log_outcome.mean() - expected) < 0.1
    for dataset in datasets:
        np.testing.assert_allclose(dataset.weight.sum(), 1e5)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("q", [1, 2])
def test_fewer_records_than_columns_give_finite_draws(n, q):
    case = make_case("normal", q, n=n, weighting="ones")
    draws = case.model.sample(case.stats, SamplingPlan(4, 100, 200), np.random.default_rng(10))
    for values in draws.values():
        assert np.isfinite(values).all()
    assert (draws["variance"] > 0).all()
