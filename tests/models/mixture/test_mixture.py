"""The mixture of normal regressions: SciPy's densities record by record, quadrature of a posterior
of two components free of labels, moments of simulated data, and the mechanism."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as st

from surveysynth.errors import InputError, RefusedError
from surveysynth.inference.synthesis import synthesise
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run
from surveysynth.models import get_model
from surveysynth.models.base import Simulated
from surveysynth.models.mixture.model import NormalMixture
from surveysynth.models.mixture.start import find_mode
from surveysynth.models.mixture.stats import mixture_records
from surveysynth.models.parts import log_lik
from surveysynth.models.weighted import stacked
from surveysynth.sampling.convergence import check_convergence, effective_sample_size, r_hat
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential
from surveysynth.survey.transforms import Transform
from tests import oracles
from tests.models.model_cases import COMPONENTS, make_case
from tests.models.model_designs import continuous_design, group_design

each_q = pytest.mark.parametrize("q", [1, 2])


def theta_of(q, draws=None):
    theta = {
        "log_shares": np.log([0.7, 0.25, 0.05]),
        "concentration": np.array([0.4]),
        "beta": np.array([[9.0, 0.4, -0.3], [7.0, 0.2, 0.3], [10.0, 0.0, 0.0]]),
        "residual_sd": np.array([0.4, 0.6, 0.2]),
    }
    if q == 2:
        theta["weight_coefficients"] = np.array([-0.4, 7.0, 0.3, 0.1])
        theta["weight_variance"] = np.array([0.09])
    if draws is None:
        return theta
    rng = np.random.default_rng(1)
    varied = {
        k: v * np.exp(0.1 * rng.normal(size=(draws, *v.shape))) for k, v in theta.items()
    }
    shares = np.exp(varied["log_shares"])
    return {**varied, "log_shares": np.log(shares / shares.sum(1, keepdims=True))}


def design_of(n, q):
    design = replace(group_design(n), outcomes=(Outcome("y0", transform=Transform("log")),))
    return design if q == 2 else replace(design, weight_name=None)


def model_of(**options):
    return NormalMixture(components=COMPONENTS, **options)


def log_lik_of(theta, records):
    draws = theta["beta"].shape[0]
    result, seen = np.full((draws, records.n), np.nan), np.zeros(records.n, dtype=int)
    for rows, block in model_of().log_lik_blocks(theta, records):
        result[:, rows] = block
        np.add.at(seen, rows, 1)
    assert np.all(seen == 1)
    return result


@each_q
@pytest.mark.parametrize("make", [group_design, continuous_design])
def test_log_likelihood_equals_scipy_whatever_the_order_and_the_blocks(q, make, monkeypatch):
    design, theta = make(120), theta_of(q, draws=6)
    z = model_of().simulate(theta_of(q), design, np.random.default_rng(2)).z
    z[:20, 0] = 9.0
    records = model_of().records_from_simulated(design, Simulated(z))
    found = log_lik_of(theta, records)
    x = design.matrix.x_cells[design.matrix.cell]
    mean = np.einsum("shk,nk->snh", theta["beta"], x)
    density = st.norm.pdf(z[:, :1], mean, theta["residual_sd"][:, None])
    expected = np.log(np.einsum("snh,sh->sn", density, np.exp(theta["log_shares"])))
    if q == 2:
        delta, gamma = theta["weight_coefficients"][:, :1], theta["weight_coefficients"][:, 1:]
        of_weight = delta * z[:, 0] + gamma @ x.T
        expected += st.norm.logpdf(z[:, 1], of_weight, np.sqrt(theta["weight_variance"]))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    order = np.random.default_rng(3).permutation(120)
    moved = mixture_records(
        design.matrix.x_cells, design.matrix.cell[order], z[order, 0],
        z[order, 1] if q == 2 else None,
    )  # fmt: skip
    np.testing.assert_allclose(log_lik_of(theta, moved), found[:, order], atol=1e-11)
    whole = log_lik.ranges_of_blocks
    for budget in (1, 40):
        monkeypatch.setattr(log_lik, "BLOCK", budget)
        monkeypatch.setattr(log_lik, "ranges_of_blocks", lambda s, d, b=budget: whole(s, d, b))
        np.testing.assert_allclose(log_lik_of(theta, records), found, atol=1e-11)


def test_compression_changes_nothing():
    """Every record its own cell, against cells and distinct outcomes with summed weights."""
    case = make_case("normal_mixture", 1)
    one_each = mixture_records(case.x, np.arange(300), case.z[:, 0], None)
    points = case.points(6, np.random.default_rng(4))
    stats = case.model.compress(one_each, case.alpha)
    assert stats.outcome.y.size == 300 > case.stats.outcome.y.size + 15
    value, gradient = oracles.log_density(case.model, points, case.stats)
    other_value, other_gradient = oracles.log_density(case.model, points, stats)
    np.testing.assert_allclose(value, other_value, rtol=1e-11)
    np.testing.assert_allclose(gradient, other_gradient, rtol=1e-8, atol=1e-7)


def test_relabelled_components_are_the_same_posterior_and_the_same_monitored_scalars():
    case = make_case("normal_mixture", 2)
    u = case.points(5, np.random.default_rng(6))
    theta = oracles.constrain(case.model, u, case.shape)
    order = [2, 0, 1]
    moved = {**theta, "log_shares": theta["log_shares"][:, order]}
    moved |= {"beta": theta["beta"][:, order], "residual_sd": theta["residual_sd"][:, order]}
    value = oracles.log_density(case.model, u, case.stats)[0]
    other = oracles.log_density(case.model, oracles.unconstrain(case.model, moved), case.stats)[0]
    np.testing.assert_allclose(value, other, rtol=1e-10)
    for name, scalars in case.model.monitored(theta).items():
        np.testing.assert_allclose(scalars, case.model.monitored(moved)[name], rtol=1e-10)


def test_one_component_is_a_normal_regression():
    """Against the Gibbs draws of the normal regression, whose prior of sigma is the same but for
    ``least_sd``, here next to nothing."""
    design = design_of(400, 1)
    theta = {"beta": np.array([9.0, 0.4, -0.3]), "variance": np.array([0.2])}
    z = get_model("normal").simulate(theta, design, np.random.default_rng(7)).z
    alpha, plan = np.random.default_rng(8).random(400), SamplingPlan(8, 60, 125)
    model = NormalMixture(components=1, priors={"least_sd": 1e-6})
    stats = model.compress(model.records_from_simulated(design, Simulated(z)), alpha)
    draws = model.sample(stats, plan, np.random.default_rng(9))
    normal = get_model("normal")
    stats = normal.compress(normal.records_from_simulated(design, Simulated(z)), alpha)
    gibbs = normal.sample(stats, SamplingPlan(4, 250, 1000), np.random.default_rng(10))
    ours = np.concatenate([draws["beta"][0, :, :, 0], np.log(draws["residual_sd"][0])], axis=-1)
    log_sd = 0.5 * np.log(gibbs["variance"][0])
    theirs = np.concatenate([gibbs["beta"][0], log_sd], axis=-1)
    error = ours.std((0, 1)) / np.sqrt(effective_sample_size(ours))
    error = np.hypot(error, theirs.std((0, 1)) / np.sqrt(effective_sample_size(theirs)))
    assert np.abs((ours.mean((0, 1)) - theirs.mean((0, 1))) / error).max() < 4.0
    np.testing.assert_allclose(ours.std((0, 1)), theirs.std((0, 1)), rtol=0.15)
    assert np.abs((1.1 * ours.mean((0, 1)) - theirs.mean((0, 1))) / error).max() > 8.0


def test_density_of_two_components_equals_that_of_importance_sampling():
    """The predictive density, which has no labels, against draws from the prior weighted by the
    marginal likelihood of a few records raised to their risk weights."""
    rng = np.random.default_rng(11)
    y = np.array([-1.0, -0.8, -1.3, 1.5, 1.2, 1.9])
    alpha = np.array([1.0, 0.3, 0.6, 0.9, 0.5, 0.8])
    priors = {"concentration_shape": 4.0, "concentration_rate": 2.0, "least_sd": 0.3}
    model = NormalMixture(components=2, priors=priors)
    records = mixture_records(np.ones((1, 1)), np.zeros(6, dtype=int), y, None)
    stats = model.compress(records, alpha)
    theta = model.sample(stats, SamplingPlan(8, 60, 250), np.random.default_rng(12))
    grid = np.array([-1.5, 0.0, 1.5, 4.0])

    def density(share, beta, sd):
        return np.einsum("...gh,...h->...g", st.norm.pdf(grid[:, None], beta[..., None, :],
                                                          sd[..., None, :]), share)  # fmt: skip

    ours = density(np.exp(theta["log_shares"][0]), theta["beta"][0, ..., 0],
                   theta["residual_sd"][0])  # fmt: skip
    count = 200_000
    a = rng.gamma(4.0, 0.5, count)
    share = rng.gamma(a[:, None] / 2, 1.0, (count, 2)) + 1e-300
    share /= share.sum(1, keepdims=True)
    scale = np.abs(rng.standard_t(3, (count, 1)))
    beta = scale * rng.standard_normal((count, 2))
    sd = 0.3 + np.abs(rng.standard_t(3, (count, 2)))
    each = st.norm.pdf(y[:, None], beta[:, None], sd[:, None])
    log_weight = np.log(np.einsum("nih,nh->ni", each, share) + 1e-300) @ alpha
    weight = np.exp(log_weight - log_weight.max())
    truth = weight @ density(share, beta, sd) / weight.sum()
    deviation = density(share, beta, sd) - truth
    truth_error = np.sqrt((weight**2) @ deviation**2) / weight.sum()
    error = np.hypot(ours.std((0, 1)) / np.sqrt(effective_sample_size(ours)), truth_error)
    z = np.abs(ours.mean((0, 1)) - truth) / error
    assert z.max() < 4.0, z
    # Risk weights on the terms of the mixture, and not on their sum, are found out.
    powers = each ** alpha[:, None]
    terms = np.log(np.einsum("nih,nh->ni", powers, share) + 1e-300).sum(1)
    wrong_weight = np.exp(terms - terms.max())
    wrong = wrong_weight @ density(share, beta, sd) / wrong_weight.sum()
    assert (np.abs(ours.mean((0, 1)) - wrong) / error).max() > 5.0


def test_a_fit_of_a_mixture_converges_and_finds_its_density():
    design, model = design_of(600, 2), model_of()
    theta = theta_of(2)
    z = model.simulate(theta, design, np.random.default_rng(13)).z
    stats = model.compress(model.records_from_simulated(design, Simulated(z)), np.ones(600))
    draws = model.sample(stats, SamplingPlan(4, 100, 150), np.random.default_rng(14))
    for name, values in model.monitored({k: v[0] for k, v in draws.items()}).items():
        assert r_hat(values).max() < 1.05, name
    share = np.exp(draws["log_shares"][0])
    mean = np.einsum("...h,...hk->...k", share, draws["beta"][0]).mean((0, 1))
    truth = np.exp(theta["log_shares"]) @ theta["beta"]
    np.testing.assert_allclose(mean, truth, atol=0.35)


@pytest.fixture(scope="module")
def two_modes():
    """A mixture of three cut into two, which can be done in two ways: (chains, draws) of each."""
    design, model = design_of(300, 2), NormalMixture(components=2)
    z = model_of().simulate(theta_of(2), design, np.random.default_rng(17)).z
    stats = model.compress(model.records_from_simulated(design, Simulated(z)), np.ones(300))
    draws = model.sample(stats, SamplingPlan(4, 100, 250), np.random.default_rng(14))
    return model, {name: values[0] for name, values in draws.items()}


def test_chains_move_between_the_modes_of_a_posterior(two_modes):
    model, draws = two_modes
    second = draws["log_shares"].max(-1) > np.log(0.72)
    assert np.all((second.mean(axis=1) > 0.1) & (second.mean(axis=1) < 0.9))
    r_hat, ess = check_convergence(model.monitored(draws), None)
    assert {"marginal", "mean_beta", "log_weight_variance"} <= r_hat.keys()
    assert min(ess.values()) > 100


def test_chains_that_each_stay_in_a_mode_are_refused(two_modes):
    """What is monitored has no labels, and tells all the same."""
    model, draws = two_modes
    second = (draws["log_shares"].max(-1) > np.log(0.72)).ravel()
    order = np.concatenate([np.flatnonzero(second)[:200], np.flatnonzero(~second)[:200]])
    stuck = {
        name: values.reshape(-1, *values.shape[2:])[order].reshape(4, 100, *values.shape[2:])
        for name, values in draws.items()
    }
    with pytest.raises(RefusedError, match="marginal"):
        check_convergence({"marginal": model.monitored(stuck)["marginal"]}, None)


def test_databases_of_a_batch_are_fitted_as_they_are_alone():
    """Databases of different sizes and cells, one without weight on any record."""
    model = NormalMixture(components=2)
    plan, parts = SamplingPlan(2, 3, 4), []
    for n, size in ((60, 1.0), (25, 0.5), (40, 0.0)):
        case = make_case("normal_mixture", 2, n=n)
        parts.append(model.compress(case.records, size * case.alpha))
    generators = [np.random.default_rng(seed) for seed in (1, 2, 3)]
    together = model.sample(stacked(parts), plan, generators)
    for d, part in enumerate(parts):
        alone = model.sample(part, plan, np.random.default_rng(d + 1))
        for name, values in alone.items():
            np.testing.assert_allclose(together[name][d], values[0], rtol=1e-7, atol=1e-7)


def test_without_weight_on_any_record_draws_are_from_the_prior():
    case = make_case("normal_mixture", 1)
    stats = case.model.compress(case.records, np.zeros(300))
    draws = case.model.sample(stats, SamplingPlan(16, 40, 100), np.random.default_rng(20))
    sd, scale = draws["residual_sd"][0] - 0.1, draws["coefficient_scale"][0]
    for values in (sd, scale):
        rejected = 0.0
        for share in (0.25, 0.5, 0.75):
            limit = st.t.ppf(0.5 + 0.5 * share, 3)
            below = (values < limit).astype(float)
            error = np.sqrt(share * (1 - share) / effective_sample_size(below))
            assert np.abs((below.mean((0, 1)) - share) / error).max() < 4.5
            wrong = (1.5 * values < limit).mean((0, 1))
            rejected = max(rejected, np.abs((wrong - share) / error).max())
        assert rejected > 4.5


def test_a_fit_begins_where_the_components_are():
    """Three far apart, one of them a spike; the second is found in a part of many records."""
    rng = np.random.default_rng(21)
    x_cells = np.column_stack([np.ones(4), [0.0, 1.0, 2.0, 3.0]])
    for n in (300, 9000):
        cell, component = rng.integers(0, 4, n), rng.choice(3, n, p=[0.6, 0.1, 0.3])
        beta = np.array([[0.0, 1.0], [-4.0, 0.0], [9.0, 0.5]])
        sd = np.array([0.5, 0.0, 1.0])
        y = np.einsum("nk,nk->n", x_cells[cell], beta[component])
        y += sd[component] * rng.standard_normal(n)
        sums = NormalMixture().compress(mixture_records(x_cells, cell, y, None), np.ones(n)).outcome
        mode = find_mode(sums, 3, 0.1, 1 / 9)
        order = [0, 2, 1]
        np.testing.assert_allclose(mode.share, [0.6, 0.3, 0.1], atol=0.06)
        np.testing.assert_allclose(mode.beta, beta[order], atol=0.35)
        np.testing.assert_allclose(mode.sd, [0.5, 1.0, 0.1], rtol=0.15)
        np.testing.assert_allclose(mode.mass, n * mode.share, rtol=1e-6)
        fewer = find_mode(sums, 2, 0.1, 1 / 9)
        assert np.abs(fewer.beta[0] - beta[0]).max() > 0.35 or fewer.sd[1] > 2.0


def test_simulated_outcomes_follow_the_mixture_and_weights_their_regression():
    design, theta, model = design_of(200_000, 2), theta_of(2), model_of()
    simulated = model.simulate(theta, design, np.random.default_rng(15))
    share = np.exp(theta["log_shares"])
    for cell, x in enumerate(design.matrix.x_cells):
        y = simulated.z[design.matrix.cell == cell, 0]

        def cdf(value, x=x):
            each = st.norm.cdf(np.asarray(value)[..., None], x @ theta["beta"].T,
                               theta["residual_sd"])  # fmt: skip
            return each @ share

        assert st.kstest(y, cdf).pvalue > 1e-4
        assert st.kstest(y, lambda v, c=cdf: c(np.asarray(v) - 0.05)).pvalue < 1e-6
    drawn, smooth = model.drawn_weight(design, simulated), model.smooth_weight(
        theta, design, simulated
    )
    for inside in (simulated.z[:, 0] > 9, design.matrix.cell == 1):
        gap = (drawn - smooth)[inside]
        assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(gap.size)
    without = design_of(20, 1)
    simulated = model.simulate(theta_of(1), without, np.random.default_rng(16))
    assert np.all(model.smooth_weight(theta_of(1), without, simulated) == 1)


def test_labels_switch_so_nothing_is_debiased():
    model, theta = model_of(), theta_of(2, draws=4)
    assert not model.identified
    assert model.log_scales(theta).shape == (4, 0)
    assert model.with_log_scales(theta, np.empty((4, 0))).keys() == theta.keys()


@pytest.mark.slow
def test_the_mechanism_reaches_its_target_and_synthesis_follows():
    design, model = design_of(300, 2), NormalMixture(components=2)
    z = model_of().simulate(theta_of(2), design, np.random.default_rng(17)).z
    confidential = Confidential(np.exp(z[:, :1]), np.exp(z[:, 1]))
    settings = MechanismSettings(epsilon=15.0, m=2, plan=SamplingPlan(4, 200, 175))
    rng = np.random.default_rng(18)
    private, fit = run(model, design, confidential, settings, rng)
    assert 0.8 * 3.75 <= fit.realised_bound <= 3.75
    synthetic = synthesise(model, design, private, replicates_per_draw=1, rng=rng, scale_to=1e5)
    logs = [np.log(dataset.outcome).mean() for dataset in synthetic]
    assert abs(np.mean(logs) - z[:, 0].mean()) < 0.4


@pytest.mark.parametrize("components", [0, 51, 2.0, "3"])
def test_a_number_of_components_that_is_none_is_refused(components):
    with pytest.raises(InputError, match="components must be a whole number"):
        NormalMixture(components=components)


def test_the_guess_has_the_spread_asked_for():
    design, model = design_of(200_000, 2), model_of()
    z = model.simulate(model.prior_guess(design, 0.4), design, np.random.default_rng(19)).z
    np.testing.assert_allclose(z[:, 0].std(), 0.4, rtol=0.01)
    np.testing.assert_allclose(z[:, 1].std(), 0.5, rtol=0.01)
