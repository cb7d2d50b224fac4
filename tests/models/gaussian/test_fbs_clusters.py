"""FBS with effects of PSUs: log-likelihoods against SciPy record by record given the effects, the
posterior of a model with an intercept alone against quadrature, identities, fresh effects of
simulated datasets against their moments, and what the mechanism lets out.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.lipschitz import likelihood_extremes
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.models import get_model
from surveysynth.models.base import Simulated, stacked
from surveysynth.models.parts import log_lik
from surveysynth.models.parts.gaussian import GaussianRecords, compress
from surveysynth.sampling import convergence
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import PublicDesign
from tests.models.model_designs import (
    continuous_design,
    group_design,
    make_design,
    records_of,
    rows_of,
)

MODEL: Any = get_model("fbs")
N, C, DRAWS, K = 90, 7, 6, 3
RNG = np.random.default_rng(170)
PSU: IntArray = RNG.integers(0, C, N)
ALPHA = np.clip(RNG.uniform(-0.2, 1.2, N), 0.0, 1.0)
DESIGNS = {"cells": group_design(N, K), "continuous": continuous_design(N, K)}
each_design = pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())


def random_theta(q: int, psus: int = C) -> Theta:
    rng = np.random.default_rng(171)
    root = rng.normal(size=(2, DRAWS, q, q))
    sigma, t = root @ root.swapaxes(-1, -2) + 0.1 * np.eye(q)
    return {
        "beta": rng.normal(size=(DRAWS, K, q)),
        "covariance": sigma,
        "psu_covariance": t,
        "psu_effect__": rng.normal(size=(DRAWS, psus, q)),
    }


def gather(theta: Theta, records: GaussianRecords) -> FloatArray:
    """(S, n), every record exactly once."""
    result = np.full((theta["beta"].shape[0], records.n), np.nan)
    for rows, values in MODEL.log_lik_blocks(theta, records):
        assert np.isnan(result[:, rows]).all()
        result[:, rows] = values
    assert not np.isnan(result).any()
    return result


def with_psus(design: PublicDesign, z: FloatArray, psu: IntArray = PSU) -> GaussianRecords:
    return GaussianRecords(design.matrix.x_cells, design.matrix.cell, z, psu)


@each_design
@pytest.mark.parametrize("q", [2, 3])
def test_log_likelihood_is_the_normal_given_the_effects(
    design: PublicDesign, q: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(191)
    z, theta, x = rng.normal(size=(N, q)) + 3.0, random_theta(q), rows_of(design)
    truth = np.empty((DRAWS, N))
    for s in range(DRAWS):
        mean = x @ theta["beta"][s] + theta["psu_effect__"][s, PSU]
        for i in range(N):
            truth[s, i] = stats.multivariate_normal(mean[i], theta["covariance"][s]).logpdf(z[i])
    for small_block in (0, 10**9):
        monkeypatch.setattr(log_lik, "SMALL_BLOCK", small_block)
        np.testing.assert_allclose(gather(theta, with_psus(design, z)), truth, rtol=1e-9)


@each_design
def test_neither_order_nor_labels_nor_block_size_matter(
    design: PublicDesign, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(192)
    z, theta = rng.normal(size=(N, 2)), random_theta(2)
    usual = gather(theta, with_psus(design, z))
    order, names = rng.permutation(N), rng.permutation(C)
    cells, cell = design.matrix.x_cells, design.matrix.cell
    moved = GaussianRecords(cells, cell[order], z[order], names[PSU][order])
    effects = np.empty_like(theta["psu_effect__"])
    effects[:, names] = theta["psu_effect__"]
    renamed = {**theta, "psu_effect__": effects}
    np.testing.assert_allclose(gather(renamed, moved), usual[:, order], rtol=1e-12, atol=1e-12)
    whole = log_lik.ranges_of_blocks
    for budget in (1, 9 * DRAWS):
        monkeypatch.setattr(log_lik, "BLOCK", budget)
        monkeypatch.setattr(log_lik, "ranges_of_blocks", lambda s, d, b=budget: whole(s, d, b))
        small = gather(theta, with_psus(design, z))
        np.testing.assert_allclose(small, usual, rtol=1e-12, atol=1e-12)


def bounds_of(records: GaussianRecords, draws: int = 50) -> FloatArray:
    """Lipschitz bounds (n,) of an unweighted fit."""
    plan = SamplingPlan(4, 50, draws)
    theta = MODEL.sample(compress(records, np.ones(N)), plan, np.random.default_rng(172))
    flat = {name: values.reshape(-1, *values.shape[3:]) for name, values in theta.items()}
    return likelihood_extremes(MODEL.log_lik_blocks(flat, records), N).lipschitz


def test_bounds_of_records_follow_them_whatever_their_order_and_psu_labels() -> None:
    rng = np.random.default_rng(193)
    design = DESIGNS["cells"]
    z = rows_of(design) @ rng.normal(size=(K, 2)) + 0.4 * rng.normal(size=(N, 2))
    z += rng.normal(size=(C, 2))[PSU]
    usual, order = bounds_of(with_psus(design, z)), rng.permutation(N)
    cells, cell = design.matrix.x_cells, design.matrix.cell
    moved = GaussianRecords(cells, cell[order], z[order], PSU[order])
    np.testing.assert_allclose(bounds_of(moved), usual[order], rtol=1e-6)
    # Other labels turn the random numbers of the effects round: equal up to Monte Carlo error.
    renamed = bounds_of(with_psus(design, z, (PSU + 3) % C), draws=125)
    gap = np.log(renamed / bounds_of(with_psus(design, z), draws=125))
    shuffled = bounds_of(with_psus(design, z, rng.permutation(PSU)), draws=125)
    assert np.abs(gap).mean() < 0.2
    assert np.abs(np.log(renamed / shuffled)).mean() > 0.35


@each_design
def test_sums_by_psu_add_up_and_one_record_is_its_own_sum(design: PublicDesign) -> None:
    rng = np.random.default_rng(194)
    z, x = rng.normal(size=(N, 2)), rows_of(design)
    whole = compress(with_psus(design, z), ALPHA)
    assert whole.psu is not None
    np.testing.assert_allclose(whole.psu.total.sum(1), whole.total)
    np.testing.assert_allclose(whole.psu.x_sum.sum(1), whole.x_sum, atol=1e-12)
    alone = compress(with_psus(design, z, np.arange(N)), ALPHA).psu
    assert alone is not None
    np.testing.assert_array_equal(alone.total[0], ALPHA)
    np.testing.assert_allclose(alone.x_sum[0], ALPHA[:, None] * x, atol=1e-14)
    residual = ALPHA[:, None] * (z - x @ whole.fit[0])
    np.testing.assert_allclose(alone.residual[0], residual, atol=1e-13)


def test_weights_of_one_are_the_unweighted_fit_and_copies_are_weights() -> None:
    rng = np.random.default_rng(195)
    design, z = DESIGNS["cells"], rng.normal(size=(N, 2))
    plan = SamplingPlan(chains=2, warmup=20, draws=20)

    def draws(records: GaussianRecords, alpha: FloatArray) -> Theta:
        return MODEL.sample(compress(records, alpha), plan, np.random.default_rng(173))

    weighted = draws(with_psus(design, z), np.full(N, 2.0))
    cells, cell = design.matrix.x_cells, design.matrix.cell
    twice = GaussianRecords(cells, np.tile(cell, 2), np.tile(z, (2, 1)), np.tile(PSU, 2))
    copies = draws(twice, np.ones(2 * N))
    assert {"psu_covariance", "psu_effect__"} < weighted.keys()
    for key, values in weighted.items():
        np.testing.assert_allclose(values, copies[key], rtol=1e-5, atol=1e-7, err_msg=key)


def intercept_only(effect_sd: float) -> tuple[FloatArray, IntArray, FloatArray]:
    rng = np.random.default_rng(174)
    psu = rng.integers(0, 12, 100)
    values = 1.0 + effect_sd * rng.normal(size=12)[psu] + 0.6 * rng.normal(size=100)
    return values, psu, np.clip(rng.uniform(-0.1, 1.2, 100), 0.0, 1.0)


def quadrature(
    values: FloatArray, psu: IntArray, alpha: FloatArray, grids: tuple[FloatArray, ...]
) -> FloatArray:
    """Posterior of (intercept, residual SD, PSU SD) of one column on a grid: the weighted mean of a
    PSU is normal about the intercept with variance tau^2 + sigma^2 / A_c."""
    beta, sigma, tau = np.meshgrid(*grids, indexing="ij")
    mass = np.bincount(psu, alpha)
    means = np.bincount(psu, alpha * values) / mass
    within = (alpha * (values - means[psu]) ** 2).sum()
    log_density = -(alpha.sum() - mass.size) * np.log(sigma) - 0.5 * within / sigma**2
    for mean, total in zip(means, mass, strict=True):
        spread = np.sqrt(tau**2 + sigma**2 / total)
        log_density += stats.norm.logpdf(mean, beta, spread)

    # The prior of the intercept, its scale integrated out.
    scale = np.exp(np.linspace(-9.0, 9.0, 2000))
    each = stats.norm.pdf(grids[0][:, None], 0, scale) * stats.t.pdf(scale, 3, 0, 10.0)
    log_density += np.log(np.trapezoid(each, scale, axis=1))[:, None, None]
    log_density += stats.t.logpdf(sigma, 3, 0, 10.0) + stats.t.logpdf(tau, 3, 0, 10.0)
    density = np.exp(log_density - log_density.max())
    return density / density.sum()


@pytest.mark.parametrize("effect_sd", [0.5, 0.0])
def test_posterior_of_an_intercept_equals_quadrature(effect_sd: float) -> None:
    """Means, SDs and quartiles of all three, and wrong formulas rejected: weights that reach the
    prior of the effects, and scales times 1.3."""
    values, psu, alpha = intercept_only(effect_sd)
    # Priors of the paper but for a single column: no weight, which this model then has not.
    records = GaussianRecords(np.ones((1, 1)), np.zeros(100, int), values[:, None], psu)
    statistics = compress(records, alpha)
    plan = SamplingPlan(chains=8, warmup=100, draws=250)
    theta = MODEL.sample(statistics, plan, np.random.default_rng(175))
    ours = [
        theta["beta"][0, ..., 0, 0],
        np.sqrt(theta["covariance"][0, ..., 0, 0]),
        np.sqrt(theta["psu_covariance"][0, ..., 0, 0]),
    ]
    widest = 3.0 if effect_sd else 1.2
    grids = (
        np.linspace(-0.5, 2.5, 50), np.linspace(0.4, 0.95, 40), np.linspace(1e-4, widest, 150)
    )  # fmt: skip
    density = quadrature(values, psu, alpha, grids)

    def gaps(draws: list[FloatArray]) -> list[float]:
        """Largest distance of the two CDFs in Monte Carlo standard errors, by parameter."""
        result = []
        for axis, (grid, each) in enumerate(zip(grids, draws, strict=True)):
            others = tuple(other for other in range(3) if other != axis)
            cdf = np.cumsum(density.sum(others))
            ess = convergence.effective_sample_size(each[..., None]).min()
            half = 0.5 * (grid[1] - grid[0])
            empirical = np.searchsorted(np.sort(each.ravel()), grid + half) / each.size
            result.append(float(np.abs(cdf - empirical).max() * np.sqrt(ess)))
        return result

    assert max(gaps(ours)) < 2.0
    assert gaps([ours[0], ours[1], 1.3 * ours[2]])[2] > 4.0
    assert gaps([ours[0], 1.3 * ours[1], ours[2]])[1] > 4.0


def test_few_psus_and_psus_without_weight_are_fitted() -> None:
    rng = np.random.default_rng(196)
    design = DESIGNS["cells"]
    z = rng.normal(size=(N, 2))
    plan = SamplingPlan(2, 20, 20)
    for psu in (np.zeros(N, int), PSU % 2, np.arange(N)):
        out = np.where(psu == 0, 0.0, ALPHA)
        for alpha in (out, ALPHA, np.zeros(N)):
            statistics = compress(with_psus(design, z, psu), alpha)
            theta = MODEL.sample(statistics, plan, np.random.default_rng(176))
            assert all(np.isfinite(values).all() for values in theta.values())
            assert theta["psu_effect__"].shape == (1, 2, 20, psu.max() + 1, 2)


def test_databases_of_a_batch_are_fitted_apart() -> None:
    rng = np.random.default_rng(197)
    design, plan = DESIGNS["cells"], SamplingPlan(2, 10, 10)
    each = [
        compress(with_psus(design, rng.normal(size=(N, 2)), rng.permutation(PSU)), ALPHA)
        for _ in range(3)
    ]
    seeds = [177, 178, 179]
    together = MODEL.sample(stacked(each), plan, [np.random.default_rng(seed) for seed in seeds])
    for j, (one, seed) in enumerate(zip(each, seeds, strict=True)):
        alone = MODEL.sample(one, plan, np.random.default_rng(seed))
        for key, values in alone.items():
            np.testing.assert_allclose(values[0], together[key][j], rtol=1e-6, atol=1e-9)


def strata_of_five(strata: int, size: int) -> tuple[PublicDesign, IntArray]:
    """Strata of five PSUs of ``size`` records, an indicator of each."""
    x_cells = np.eye(strata)
    x_cells[:, 0] = 1.0
    psu = np.repeat(np.arange(5 * strata), size)
    return make_design(x_cells, psu // 5), psu


def test_chains_mix_at_the_default_plan() -> None:
    """PSU variances from none to more than that of records, side by side."""
    design, psu = strata_of_five(10, 20)
    rng = np.random.default_rng(180)
    variances = (0.0, 0.002, 0.02, 0.5)
    made = []
    for variance in variances:
        effects = np.sqrt(variance) * rng.normal(size=(50, 2))
        z = effects[psu] + 0.4 * rng.normal(size=(psu.size, 2))
        made.append(compress(with_psus(design, z, psu), np.ones(psu.size)))
    theta = MODEL.sample(stacked(made), SamplingPlan(), rng)
    for j, variance in enumerate(variances):
        monitored = MODEL.monitored({name: values[j] for name, values in theta.items()})
        assert monitored["log_psu_sd"].shape == (4, 250, 2)
        for name, draws in monitored.items():
            assert convergence.r_hat(draws).max() < 1.04, (variance, name)
            assert convergence.effective_sample_size(draws).min() > 130.0, (variance, name)


THETA: Theta = {
    "beta": np.array([[1.0, -0.5], [0.3, 0.8]]),
    "covariance": np.array([[0.30, -0.10], [-0.10, 0.20]]),
    "psu_covariance": np.array([[0.25, -0.12], [-0.12, 0.16]]),
}


def clustered_design(psus: int, size: int) -> PublicDesign:
    psu = np.repeat(np.arange(psus), size)
    plain = make_design(np.array([[1.0, 0.0], [1.0, 1.0]]), np.arange(psus * size) % 2)
    return replace(plain, psu=psu)


def test_simulated_records_of_a_psu_share_a_fresh_effect() -> None:
    design, rng = clustered_design(4000, 2), np.random.default_rng(181)
    z = MODEL.simulate(THETA, design, rng).z
    deviation = z - rows_of(design) @ THETA["beta"]
    first, second = deviation[::2], deviation[1::2]
    within = np.cov(np.concatenate([first, second], axis=1).T)
    t, total = THETA["psu_covariance"], THETA["covariance"] + THETA["psu_covariance"]
    np.testing.assert_allclose(within[:2, 2:], t, atol=0.025)
    np.testing.assert_allclose(within[:2, :2], total, atol=0.04)
    assert np.abs(within[:2, 2:]).max() > 0.2
    again = MODEL.simulate(THETA, design, rng).z - rows_of(design) @ THETA["beta"]
    assert abs(np.corrcoef(first[:, 0], again[::2, 0])[0, 1]) < 0.08
    plain = {name: values for name, values in THETA.items() if name != "psu_covariance"}
    alone = MODEL.simulate(plain, design, rng).z - rows_of(design) @ THETA["beta"]
    assert abs(np.corrcoef(alone[::2, 0], alone[1::2, 0])[0, 1]) < 0.08


def test_smoothed_weights_are_conditional_means_over_effects_too() -> None:
    """E(w | y~) record by record: w regressed on the smoothed weight has slope one; smoothing by
    the residuals' covariance alone is rejected."""
    design, rng = clustered_design(100_000, 2), np.random.default_rng(182)
    simulated = MODEL.simulate(THETA, design, rng)
    drawn = np.exp(simulated.z[:, -1])
    one_each = slice(0, None, 2)

    def ratios(theta: Theta) -> FloatArray:
        """Sums of drawn over smoothed weights by fifth of y."""
        smooth = MODEL.smooth_weight(theta, design, simulated)[one_each]
        rank = np.argsort(np.argsort(simulated.z[one_each, 0])) * 5 // smooth.size
        sums = [np.bincount(rank, weights) for weights in (drawn[one_each], smooth)]
        return np.asarray(sums[0] / sums[1])

    assert np.abs(ratios(THETA) - 1.0).max() < 0.02
    wrong = {name: values for name, values in THETA.items() if name != "psu_covariance"}
    assert np.abs(ratios(wrong) - 1.0).max() > 0.05


def test_effects_never_leave_the_mechanism() -> None:
    design, psu = strata_of_five(4, 15)
    rng = np.random.default_rng(183)
    z = 0.2 * rng.normal(size=(20, 2))[psu] + 0.5 * rng.normal(size=(psu.size, 2))
    database = Database(with_psus(design, z, psu), psu.size)
    settings = MechanismSettings(
        plan=SamplingPlan(2, 100, 250), epsilon=24.0, m=3, origin="density"
    )
    (result,) = run_batch(MODEL, [database], settings, rng)
    assert isinstance(result, tuple), result
    private, confidential = result
    assert isinstance(private, PrivateDraws)
    expected = {"beta", "covariance", "coefficient_scale", "coefficient_correlation"}
    assert private.theta.keys() == expected | {"psu_covariance"}
    assert private.theta["psu_covariance"].shape == (3, 2, 2)
    assert "psu_effect__" in confidential.theta
    assert confidential.realised_bound <= 24.0 / 6.0
    # The bound is that of the records given the effects, over all draws.
    flat = {name: v.reshape(-1, *v.shape[2:]) for name, v in confidential.theta.items()}
    log_lik = gather(flat, with_psus(design, z, psu))
    bound = (confidential.risk_weights * np.abs(log_lik)).max()
    np.testing.assert_allclose(bound, confidential.lipschitz_by_record.max(), rtol=1e-9)
    simulated = MODEL.simulate(private.draw(0), replace(design, psu=psu), rng)
    assert np.isfinite(simulated.z).all()


def test_a_declared_design_effect_switches_the_effects_off() -> None:
    rng = np.random.default_rng(198)
    design = clustered_design(6, 5)
    simulated = Simulated(rng.normal(size=(30, 2)))
    assert MODEL.records_from_simulated(design, simulated).psu is design.psu
    declared = replace(design, design_effect=1.5)
    assert MODEL.records_from_simulated(declared, simulated).psu is None
    assert "psu_covariance" in MODEL.prior_guess(design, 0.5)
    assert "psu_covariance" not in MODEL.prior_guess(declared, 0.5)
    plain = records_of(design, simulated.z)
    assert "psu_covariance" not in MODEL.sample(
        compress(plain, np.ones(30)), SamplingPlan(1, 0, 4), np.random.default_rng(184)
    )
