"""The mixture of normal regressions: SciPy's densities record by record, quadrature of a posterior
of two components free of labels, moments of simulated data, and the mechanism."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as st

from surveysynth.errors import InputError
from surveysynth.models.base import Simulated
from surveysynth.models.gaussian import model as log_lik
from surveysynth.models.mixture import NormalMixture
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform
from tests import oracles
from tests.guesses import guessed_theta
from tests.models.model_cases import COMPONENTS, make_case, mixture_records
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
    assert stats.y.size == 300 > case.stats.y.size + 15
    for theta in (oracles.constrain(case.model, u, case.shape) for u in points):
        densities = [
            case.model.log_mass({k: v[None] for k, v in theta.items()}, each.y, each.x[each.cell])
            @ each.mass
            for each in (case.stats, stats)
        ]
        np.testing.assert_allclose(*densities, rtol=1e-11)


def test_relabelled_components_are_the_same_posterior_and_the_same_monitored_scalars():
    case = make_case("normal_mixture", 2)
    u = case.points(5, np.random.default_rng(6))
    theta = oracles.constrain(case.model, u, case.shape)
    order = [2, 0, 1]
    moved = {**theta, "log_shares": theta["log_shares"][:, order]}
    moved |= {"beta": theta["beta"][:, order], "residual_sd": theta["residual_sd"][:, order]}
    of_records = [case.model.log_mass(each, case.z[:, 0], case.x) for each in (theta, moved)]
    np.testing.assert_allclose(*of_records, rtol=1e-10)
    for name, scalars in case.model.monitored(theta).items():
        np.testing.assert_allclose(scalars, case.model.monitored(moved)[name], rtol=1e-10)


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


@pytest.mark.parametrize("components", [0, 51, 2.0, "3"])
def test_a_number_of_components_that_is_none_is_refused(components):
    with pytest.raises(InputError, match="components must be a whole number"):
        NormalMixture(components=components)


def test_the_guess_has_the_spread_asked_for():
    design, model = design_of(200_000, 2), model_of()
    z = model.simulate(guessed_theta(model, design, 0.4), design, np.random.default_rng(19)).z
    np.testing.assert_allclose(z[:, 0].std(), 0.4, rtol=0.01)
    np.testing.assert_allclose(z[:, 1].std(), 0.5, rtol=0.01)
