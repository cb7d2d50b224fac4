"""Poisson and negative binomial: SciPy's densities record by record, moments of simulated counts,
and the mechanism on data from known parameters."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as st
from scipy.special import gammaln, psi

from surveysynth.errors import InputError, RefusedError
from surveysynth.inference.synthesis import synthesize
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run, run_batch
from surveysynth.models import get_model
from surveysynth.models.base import Simulated
from surveysynth.models.counts import CountPosterior, log_rising
from surveysynth.models.gaussian import model as log_lik
from surveysynth.models.weighted import stacked
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential
from surveysynth.survey.transforms import Transform
from tests import oracles
from tests.guesses import guessed_theta
from tests.models.model_cases import count_records, make_case
from tests.models.model_designs import continuous_design, group_design

MODELS = ("poisson", "negative_binomial")
each_model = pytest.mark.parametrize("name", MODELS)
each_q = pytest.mark.parametrize("q", [1, 2])


def theta_of(name, q, draws=None):
    """Parameters for three columns of X; ``draws``: varied, with a leading axis."""
    theta = {"beta": np.array([2.0, 0.4, -0.3])}
    if name == "negative_binomial":
        theta["overdispersion"] = np.array([3.0])
    if q == 2:
        theta["weight_coefficients"] = np.array([-0.4, 5.0, 0.3, 0.1])
        theta["weight_variance"] = np.array([0.09])
    if draws is None:
        return theta
    rng = np.random.default_rng(1)
    return {k: v * np.exp(0.1 * rng.normal(size=(draws, v.size))) for k, v in theta.items()}


def design_of(n, q):
    design = group_design(n)
    return design if q == 2 else replace(design, weight_name=None)


def confidential_of(design, name, q, seed=2):
    z = get_model(name).simulate(theta_of(name, q), design, np.random.default_rng(seed)).z
    return Confidential(z[:, :1].copy(), np.exp(z[:, 1]) if q == 2 else None)


def log_lik_of(name, theta, records):
    draws = theta["beta"].shape[0]
    result, seen = np.full((draws, records.n), np.nan), np.zeros(records.n, dtype=int)
    for rows, block in get_model(name).log_lik_blocks(theta, records):
        result[:, rows] = block
        np.add.at(seen, rows, 1)
    assert np.all(seen == 1)
    return result


def truth_of(name, theta, x, z):
    mu = np.exp(theta["beta"] @ x.T)
    if name == "poisson":
        result = st.poisson.logpmf(z[:, 0], mu)
    else:
        phi = theta["overdispersion"]
        result = st.nbinom.logpmf(z[:, 0], phi, phi / (phi + mu))
    if z.shape[1] == 2:
        delta, gamma = theta["weight_coefficients"][:, :1], theta["weight_coefficients"][:, 1:]
        mean = delta * np.log1p(z[:, 0]) + gamma @ x.T
        result = result + st.norm.logpdf(z[:, 1], mean, np.sqrt(theta["weight_variance"]))
    return result


@each_q
@each_model
@pytest.mark.parametrize("make", [group_design, continuous_design])
def test_log_likelihood_equals_scipy_whatever_the_order_and_the_blocks(name, q, make, monkeypatch):
    design = make(150)
    model, theta = get_model(name), theta_of(name, q, draws=7)
    z = model.simulate(theta_of(name, q), design, np.random.default_rng(3)).z
    records = model.records_from_simulated(design, Simulated(z))
    found = log_lik_of(name, theta, records)
    x = design.matrix.x_cells[design.matrix.cell]
    np.testing.assert_allclose(found, truth_of(name, theta, x, z), rtol=1e-10, atol=1e-10)
    order = np.random.default_rng(4).permutation(150)
    moved = count_records(
        design.matrix.x_cells, design.matrix.cell[order], z[order, 0],
        z[order, 1] if q == 2 else None,
    )  # fmt: skip
    np.testing.assert_allclose(log_lik_of(name, theta, moved), found[:, order], atol=1e-12)
    whole = log_lik.ranges_of_blocks
    for budget in (1, 30, 300):
        monkeypatch.setattr(log_lik, "BLOCK", budget)
        monkeypatch.setattr(log_lik, "ranges_of_blocks", lambda s, d, b=budget: whole(s, d, b))
        np.testing.assert_allclose(log_lik_of(name, theta, records), found, atol=1e-12)


@each_q
@each_model
def test_compression_changes_nothing(name, q):
    """Every record its own cell and count, against cells and distinct counts with summed weights:
    one density up to rounding."""
    case = make_case(name, q)
    one_each = count_records(case.x, np.arange(300), case.z[:, 0], case.z[:, 1] if q == 2 else None)
    points = case.points(8, np.random.default_rng(5))
    stats = case.model.compress(one_each, case.alpha)
    assert stats.mass.size == 300 > case.stats.mass.size
    value, gradient = oracles.log_density(case.model, points, case.stats)
    other_value, other_gradient = oracles.log_density(case.model, points, stats)
    np.testing.assert_allclose(value, other_value, rtol=1e-11)
    np.testing.assert_allclose(gradient, other_gradient, rtol=1e-8, atol=1e-7)


def test_rising_factorials_keep_their_digits_for_any_overdispersion():
    y = np.array([0.0, 1.0, 2.0, 7.0, 300.0])
    for phi in (1e-3, 1.0, 9e3, 1.1e4, 1e6, 1e12):
        value, slope = log_rising(np.full(5, phi), y)
        # A product of y factors, and its logarithmic derivative.
        steps = [phi + np.arange(count) for count in y.astype(int)]
        np.testing.assert_allclose(value, [np.log(s).sum() for s in steps], rtol=1e-11)
        np.testing.assert_allclose(slope, [(1.0 / s).sum() for s in steps], rtol=1e-9, atol=1e-20)
    wrong = psi(1e12 + y[3]) - psi(1e12), gammaln(1e12 + y[3]) - gammaln(1e12)
    assert abs(wrong[0] / 7e-12 - 1.0) > 1e-6


def columns_of(theta):
    """Scalars (chains, draws) by name of what both samplers draw."""
    result = {f"beta {j}": values for j, values in enumerate(np.moveaxis(theta["beta"], -1, 0))}
    for j, values in enumerate(np.moveaxis(np.log(theta["coefficient_scale"]), -1, 0)):
        result[f"log scale {j}"] = values
    if "overdispersion" in theta:
        result["log phi"] = np.log(theta["overdispersion"])[..., 0]
    return result


@each_q
@each_model
def test_a_batch_equals_its_databases_one_by_one(name, q):
    """Of other cells, sizes, counts and weights: padding plays no part."""
    sizes = ((90, "ones"), (200, "zeros"))
    cases = [make_case(name, q, n=n, seed=n, weighting=weighting) for n, weighting in sizes]
    plan = SamplingPlan(2, 30, 30)
    together = cases[0].model.sample(
        stacked([case.stats for case in cases]), plan, [np.random.default_rng(s) for s in (1, 2)]
    )
    for index, case in enumerate(cases):
        alone = case.model.sample(case.stats, plan, np.random.default_rng(index + 1))
        assert alone.keys() == together.keys()
        for key, values in alone.items():
            assert values.shape[:3] == (1, 2, 30)
            np.testing.assert_allclose(together[key][index], values[0], rtol=1e-5, atol=1e-7)


@each_model
def test_draws_move_smoothly_with_the_weights(name):
    """Common random numbers: a slightly other alpha moves nearly no draw by much."""
    case, plan = make_case(name, 2), SamplingPlan(4, 50, 100)

    def draws(alpha, seed=21):
        stats = case.model.compress(case.records, alpha)
        theta = case.model.sample(stats, plan, np.random.default_rng(seed))
        return columns_of({key: values[0] for key, values in theta.items()})

    base, other = draws(case.alpha), draws(case.alpha, seed=22)
    alpha = case.alpha.copy()
    alpha[:30] *= 1.001
    moved = draws(alpha)
    for key, values in base.items():
        if key.startswith("log scale"):
            continue  # funnels: a scale takes longer to forget a step that one chain rejected
        assert np.median(np.abs(moved[key] - values)) < 0.02 * values.std(), key
        assert np.median(np.abs(other[key] - values)) > 0.5 * values.std(), key


@each_model
def test_the_density_is_that_of_scipy_and_its_expansion_that_of_its_mode(name):
    """Up to the constants of the data; the gradient is that of differences."""
    case = make_case(name, 1, n=400)
    scale = case.model.priors.get("overdispersion_scale")
    k = case.stats.x.shape[-1]
    ridge = np.append(np.full(k, 0.1), np.zeros(int(scale is not None)))
    single = CountPosterior(case.stats, scale, ridge)
    mode, linear, bend = (each[0] for each in single.expanded())
    posterior = single.repeated(6)
    t = mode + 0.2 * np.random.default_rng(26).standard_normal((6, ridge.size))
    mu = np.exp(t[:, :k] @ case.x.T)
    if scale is None:
        truth = st.poisson.logpmf(case.z[:, 0], mu) @ case.alpha
    else:
        phi = np.exp(t[:, k:])
        truth = st.nbinom.logpmf(case.z[:, 0], phi, phi / (phi + mu)) @ case.alpha
        truth = truth + st.halfcauchy.logpdf(1.0 / phi[:, 0], 0, scale) - t[:, k]
    value, gradient = posterior.density(t)
    np.testing.assert_allclose(value - value[0], truth - truth[0], rtol=1e-9, atol=1e-9)
    for j, step in enumerate(1e-5 * np.eye(ridge.size)):
        slope = (posterior.density(t + step)[0] - posterior.density(t - step)[0]) / 2e-5
        np.testing.assert_allclose(gradient[:, j], slope, rtol=1e-5, atol=1e-5)
    best, slope = single.penalized(mode[None])
    np.testing.assert_allclose(slope, 0.0, atol=1e-4)
    for step in 0.05 * np.vstack([np.eye(ridge.size), -np.eye(ridge.size)]):
        assert single.penalized((mode + step)[None])[0] < best
    np.testing.assert_allclose(linear - bend @ mode, single.density(mode[None])[1][0])
    # Of the Poisson the expansion has the curvature of X' diag(alpha mu) X.
    if scale is None:
        information = (case.x.T * case.alpha * np.exp(case.x @ mode)) @ case.x
        np.testing.assert_allclose(bend, information, rtol=1e-4, atol=0.01)


def test_the_mode_is_found_where_counts_vary_far_more_than_their_mean():
    """Far from where the search begins: the slope is zero there, in each of 40 databases."""
    rng, x = np.random.default_rng(27), np.column_stack([np.ones(40), np.linspace(-1.5, 1.5, 40)])
    model, cell = get_model("negative_binomial"), np.arange(40)
    drawn = rng.negative_binomial(0.15, 0.15 / (0.15 + 3.0 * np.exp(x[:, 1])), (40, 40))
    parts = [count_records(x, cell, y.astype(float), None) for y in drawn]
    stats = stacked([model.compress(each, np.ones(40)) for each in parts])
    posterior = CountPosterior(stats, 0.5, np.array([0.7, 0.7, 0.0]))
    mode = posterior.expanded()[0]
    assert np.median(mode[:, 2]) < -1.0
    np.testing.assert_allclose(posterior.penalized(mode)[1], 0.0, atol=1e-3)


@each_model
def test_a_database_with_infinite_counts_leaves_the_others(name):
    design, model = design_of(300, 1), get_model(name)
    good = model.simulate(theta_of(name, 1), design, np.random.default_rng(24))
    bad = Simulated(np.where(np.arange(300)[:, None] == 7, np.inf, good.z))
    databases = [Database(model.records_from_simulated(design, s), 300) for s in (good, bad)]
    settings = MechanismSettings(epsilon=12.0, m=3, plan=SamplingPlan(4, 60, 300))
    fine, refused = run_batch(model, databases, settings, np.random.default_rng(25))
    assert isinstance(refused, RefusedError)
    assert 0.97 * 2.0 <= fine[1].realised_bound <= 2.0


@each_q
@each_model
def test_simulated_counts_have_the_moments_of_the_model(name, q):
    design, theta = design_of(200_000, q), theta_of(name, q)
    z = get_model(name).simulate(theta, design, np.random.default_rng(11)).z
    assert z.shape == (200_000, q)
    mu = np.exp(design.matrix.x_cells @ theta["beta"])
    for cell, mean in enumerate(mu):
        y = z[design.matrix.cell == cell, 0]
        phi = theta.get("overdispersion", [np.inf])[0]
        variance = mean + mean**2 / phi
        np.testing.assert_allclose(y.mean(), mean, atol=5 * np.sqrt(variance / y.size))
        np.testing.assert_allclose(y.var(), variance, rtol=0.06)
        law = st.poisson(mean) if name == "poisson" else st.nbinom(phi, phi / (phi + mean))
        np.testing.assert_allclose(np.mean(y <= mean), law.cdf(mean), atol=0.01)


@each_model
def test_smoothed_weight_is_the_conditional_mean_and_the_drawn_one_varies(name):
    design, theta, model = design_of(300_000, 2), theta_of(name, 2), get_model(name)
    simulated = model.simulate(theta, design, np.random.default_rng(12))
    drawn = model.drawn_weight(design, simulated)
    smooth = model.smooth_weight(theta, design, simulated)
    for y in (4, 7, 10):
        inside = (simulated.z[:, 0] == y) & (design.matrix.cell == 2)
        assert np.unique(smooth[inside]).size == 1
        error = drawn[inside].std() / np.sqrt(inside.sum())
        assert abs(drawn[inside].mean() - smooth[inside][0]) < 4 * error
    without = design_of(20, 1)
    simulated = model.simulate(theta_of(name, 1), without, np.random.default_rng(13))
    assert np.all(model.smooth_weight(theta_of(name, 1), without, simulated) == 1)
    assert np.all(model.drawn_weight(without, simulated) == 1)


@each_q
@each_model
def test_scales_are_read_and_replaced(name, q):
    model, theta = get_model(name), theta_of(name, q, draws=4)
    scales = model.log_scales(theta)
    assert scales.shape == (4, (name == "negative_binomial") + (q == 2))
    moved = model.with_log_scales(theta, scales + 0.2)
    np.testing.assert_allclose(model.log_scales(moved), scales + 0.2, rtol=1e-12)
    for key in ("beta", "weight_coefficients"):
        if key in theta:
            np.testing.assert_array_equal(moved[key], theta[key])
    if q == 2:
        ratio = moved["weight_variance"] / theta["weight_variance"]
        np.testing.assert_allclose(ratio, np.exp(0.4))
    if name == "negative_binomial":
        ratio = moved["overdispersion"] / theta["overdispersion"]
        np.testing.assert_allclose(ratio, np.exp(0.2))


@each_model
def test_the_mechanism_reaches_its_target_and_synthesis_follows(name):
    design, rng = design_of(500, 2), np.random.default_rng(14)
    confidential = confidential_of(design, name, 2)
    settings = MechanismSettings(epsilon=12.0, m=3, plan=SamplingPlan(4, 100, 150))
    model = get_model(name)
    private, fit = run(model, design, confidential, settings, rng)
    assert 0.97 * 2.0 <= fit.realised_bound <= 2.0
    assert not any(key.endswith("__") for key in private.theta)
    synthetic = synthesize(model, design, private, replicates_per_draw=2, rng=rng, scale_to=1e5)
    outcome = []
    for dataset in synthetic:
        np.testing.assert_allclose(dataset.weight.sum(), 1e5)
        assert np.all(dataset.outcome == np.rint(dataset.outcome))
        assert dataset.outcome.min() >= 0
        outcome.append(dataset.outcome.mean())
    assert len(outcome) == 6
    assert abs(np.mean(outcome) / confidential.outcome.mean() - 1) < 0.15


@each_model
def test_an_outcome_that_is_no_count_is_refused_without_showing_it(name):
    design, model = design_of(30, 2), get_model(name)
    weight = np.ones(30)
    for bad in ([0.5], [-1.0, 2.5], [np.nan], [np.inf, 0.25]):
        y = np.full((30, 1), 4.0)
        y[: len(bad), 0] = bad
        with pytest.raises(InputError, match="whole numbers") as caught:
            model.records(design, Confidential(y, weight))
        assert f"{len(bad)} of 30" in str(caught.value)
        assert not any(str(b) in str(caught.value) for b in bad)
    for transform in (Transform("log"), Transform("identity", scale=10.0), Transform("asinh")):
        changed = replace(design, outcomes=(Outcome(design.outcome_names[0], transform=transform),))
        with pytest.raises(InputError, match="transform = 'identity'"):
            model.records(changed, Confidential(np.ones((30, 1)), weight))


@each_q
@each_model
def test_the_guess_has_the_relative_spread_asked_for(name, q):
    design, model = design_of(200_000, q), get_model(name)
    guess = guessed_theta(model, design, 0.5)
    z = model.simulate(guess, design, np.random.default_rng(15)).z
    np.testing.assert_allclose(z[:, 0].std() / z[:, 0].mean(), 0.5, rtol=0.02)
    if q == 2:
        np.testing.assert_allclose(z[:, 1].std(), 0.5, rtol=0.05)


@each_model
def test_far_too_large_means_become_infinite_counts_and_no_error(name):
    design = design_of(10, 2)
    theta = {**theta_of(name, 2), "beta": np.array([800.0, 0.0, 0.0])}
    z = get_model(name).simulate(theta, design, np.random.default_rng(16)).z
    assert np.all(np.isinf(z[:, 0]))


@each_q
@each_model
@pytest.mark.parametrize("weighting", ["none", "few", "zero counts"])
def test_next_to_no_data_give_finite_draws_that_move(name, q, weighting):
    design, model = design_of(60, q), get_model(name)
    z = model.simulate(theta_of(name, q), design, np.random.default_rng(17)).z
    alpha = np.full(60, {"none": 0.0, "few": 0.01, "zero counts": 1.0}[weighting])
    if weighting == "zero counts":
        z[:, 0] = 0.0
    stats = model.compress(model.records_from_simulated(design, Simulated(z)), alpha)
    theta = model.sample(stats, SamplingPlan(2, 100, 200), np.random.default_rng(18))
    assert all(np.isfinite(values).all() for values in theta.values())
    assert np.mean(np.diff(theta["beta"][0, :, :, 0], axis=1) != 0) > 0.4
