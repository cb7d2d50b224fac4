"""FBP with effects of PSUs: the formula of methods 3 record by record and its quadrature, samples
of PSUs and records drawn from a simulated population with probability proportional to pi, moments
of releases, chains on designs at the edge. Of the sampler itself: ``test_sbc.py``.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models import get_model
from surveysynth.models.base import SimulationKind, stacked
from surveysynth.models.parts.gaussian import GaussianRecords
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from surveysynth.sampling.convergence import effective_sample_size, r_hat
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import PublicDesign
from tests.models.model_designs import group_design, make_design, rows_of

X_CELLS = np.array([[1.0, 0.0], [1.0, 1.0]])
K_Y, K_X, BETA = -0.8, np.array([0.4, 0.9]), np.array([1.5, -0.7])
VARIANCE, TILT = np.array([0.36, 0.25]), np.array([K_Y, 1.0])
T = np.array([[0.3, -0.06], [-0.06, 0.2]])
MODEL = get_model("fbp")


def theta(effects: FloatArray | None = None) -> Theta:
    result = {
        "beta": BETA,
        "selection": np.array([K_Y, *K_X]),
        "variance": VARIANCE,
        PSU_COVARIANCE: T,
    }
    return result if effects is None else {**result, PSU_EFFECT: effects}


def log_lik(parameters: Theta, records: GaussianRecords) -> FloatArray:
    """(S, n)."""
    result = np.empty((parameters["beta"].shape[0], records.n))
    for rows, values in MODEL.log_lik_blocks(parameters, records):
        result[:, rows] = values
    return result


@pytest.mark.parametrize("n", [40, 400])
def test_log_lik_is_the_formula_given_the_effects(n: int) -> None:
    rng, draws, psus = np.random.default_rng(110), 5, 6
    design = group_design(n)
    psu, z = rng.integers(0, psus, n), rng.normal(size=(n, 2)) * 2.0
    many = {
        "beta": rng.normal(size=(draws, 3)),
        "selection": rng.normal(size=(draws, 4)),
        "variance": rng.uniform(0.1, 2.0, (draws, 2)),
        PSU_EFFECT: rng.normal(size=(draws, psus, 2)),
    }
    records = GaussianRecords(design.matrix.x_cells, design.matrix.cell, z, psu)
    found = log_lik(many, records)
    for s in range(draws):
        k_y, k_x = many["selection"][s, 0], many["selection"][s, 1:]
        v_y, v_pi = many["variance"][s]
        for i, x in enumerate(rows_of(design)):
            a_y, a_pi = many[PSU_EFFECT][s, psu[i]]
            mean, log_mean = x @ many["beta"][s] + a_y, x @ k_x + a_pi
            truth = (
                stats.norm.logpdf(z[i, 1], k_y * z[i, 0] + log_mean, np.sqrt(v_pi))
                + stats.norm.logpdf(z[i, 0], mean, np.sqrt(v_y))
                - (log_mean + v_pi / 2 + k_y * mean + k_y**2 * v_y / 2)
            )
            assert found[s, i] == pytest.approx(truth, rel=1e-9)


def test_the_density_given_the_effect_integrates_to_one_in_pi() -> None:
    effect = np.array([[0.7, -1.1]])
    mean_y = X_CELLS[1] @ BETA + effect[0, 0] + K_Y * VARIANCE[0]
    mean_pi = K_Y * mean_y + X_CELLS[1] @ K_X + effect[0, 1] + VARIANCE[1]
    grid = np.linspace(-9, 9, 401)
    y = mean_y + np.sqrt(VARIANCE[0]) * grid
    log_pi = mean_pi + np.sqrt(VARIANCE[1] + K_Y**2 * VARIANCE[0]) * grid
    z = np.stack(np.meshgrid(y, log_pi, indexing="ij"), axis=-1).reshape(-1, 2)
    ones = np.ones(z.shape[0], dtype=np.int64)
    one_draw = {name: values[None] for name, values in theta(effect).items()}
    records = GaussianRecords(X_CELLS, ones, z, 0 * ones)
    density = np.exp(log_lik(one_draw, records)).reshape(y.size, log_pi.size)
    whole = np.trapezoid(np.trapezoid(density * np.exp(log_pi), log_pi, axis=1), y)
    assert whole == pytest.approx(1.0, abs=1e-6)
    forgotten = {**one_draw, PSU_EFFECT: 0.0 * one_draw[PSU_EFFECT]}
    assert np.abs(log_lik(forgotten, records) - log_lik(one_draw, records)).max() > 0.5


PSUS, EACH = 3000, 4


def clustered_design(psus: int = PSUS, each: int = EACH) -> PublicDesign:
    design = make_design(X_CELLS, np.ones(psus * each, dtype=np.int64))
    return replace(design, psu=np.repeat(np.arange(psus), each))


def sampled_from_a_population(rng: np.random.Generator) -> FloatArray:
    """(PSUS, EACH, 2): PSUs drawn in proportion to their mean pi, in each of them records in
    proportion to pi."""
    effects = rng.multivariate_normal(np.zeros(2), T, 100_000)
    mean_pi = np.exp(effects @ TILT)
    chosen = effects[rng.choice(mean_pi.size, PSUS, p=mean_pi / mean_pi.sum())]
    noise = rng.standard_normal((2, PSUS, 1500))
    x = X_CELLS[1]
    y = x @ BETA + chosen[:, :1] + np.sqrt(VARIANCE[0]) * noise[0]
    log_pi = K_Y * y + x @ K_X + chosen[:, 1:] + np.sqrt(VARIANCE[1]) * noise[1]
    cumulative = np.cumsum(np.exp(log_pi), axis=1)
    level = rng.random((EACH, PSUS)) * cumulative[:, -1]
    index = np.stack([(cumulative < u[:, None]).sum(1) for u in level], axis=1)
    pair = [np.take_along_axis(values, index, axis=1) for values in (y, log_pi)]
    return np.stack(pair, axis=-1)


def moments(z: FloatArray) -> dict[str, FloatArray]:
    """By PSU (PSUS,): means of both columns, squares and products, of one record and of two."""
    centred = z - np.array([2.0, 0.5])
    first, second = centred[:, 0], centred[:, 1]
    result = {f"mean {j}": z[:, :, j].mean(1) for j in range(2)}
    for j, k in ((0, 0), (0, 1), (1, 1)):
        result[f"within a record {j}{k}"] = first[:, j] * first[:, k]
        result[f"between records {j}{k}"] = first[:, j] * second[:, k]
    return result


def largest_z(one: FloatArray, other: FloatArray) -> float:
    ours, theirs = moments(one), moments(other)
    error = {k: np.hypot(stats.sem(v), stats.sem(theirs[k])) for k, v in ours.items()}
    return max(abs(v.mean() - theirs[k].mean()) / error[k] for k, v in ours.items())


def simulated(kind: SimulationKind, parameters: Theta, seed: int) -> FloatArray:
    z = MODEL.simulate(parameters, clustered_design(), np.random.default_rng(seed), kind).z
    return z.reshape(PSUS, EACH, 2)


def test_sampling_psus_and_records_by_pi_gives_the_sample() -> None:
    truth = sampled_from_a_population(np.random.default_rng(111))
    assert largest_z(simulated("sample", theta(), 112), truth) < 4.0
    wide = {**theta(), PSU_COVARIANCE: 1.3 * T}
    assert largest_z(simulated("sample", wide, 112), truth) > 6.0
    # Effects without their tilt: the records' own alone.
    effects = np.random.default_rng(113).multivariate_normal(np.zeros(2), T, PSUS)
    bare = {name: values for name, values in theta().items() if name != PSU_COVARIANCE}
    design = replace(clustered_design(), psu=None)
    z = MODEL.simulate(bare, design, np.random.default_rng(112), "sample").z
    y_shift, pi_shift = effects.T
    shift = np.stack([y_shift, pi_shift + K_Y * y_shift], axis=-1)
    assert largest_z(z.reshape(PSUS, EACH, 2) + shift[:, None], truth) > 10.0


def test_a_release_has_fresh_effects_of_the_population() -> None:
    z = simulated("release", theta(), 114)
    x = X_CELLS[1]
    residual = np.stack([z[:, :, 0] - x @ BETA, z[:, :, 1] - K_Y * z[:, :, 0] - x @ K_X], axis=-1)
    for j in range(2):
        mean = residual[:, :, j].mean(1)
        assert abs(mean.mean()) < 4.0 * stats.sem(mean)
        for k in range(2):
            between = residual[:, 0, j] * residual[:, 1, k]
            assert abs(between.mean() - T[j, k]) < 4.0 * stats.sem(between)
    again = simulated("release", theta(), 115)
    correlation = np.corrcoef(z[:, :, 0].mean(1), again[:, :, 0].mean(1))[0, 1]
    assert abs(correlation) < 0.1


def test_smoothed_weights_are_one_over_the_mean_of_pi_over_psus_too() -> None:
    design = replace(make_design(X_CELLS, np.arange(6) % 2), psu=np.arange(6))
    z = MODEL.simulate(theta(), design, np.random.default_rng(116), "release")
    weight = MODEL.smooth_weight(theta(), design, z)
    rng = np.random.default_rng(117)
    effects = rng.multivariate_normal(np.zeros(2), T, 400_000)
    noise = rng.standard_normal((2, 400_000)) * np.sqrt(VARIANCE)[:, None]
    for cell in range(2):
        y = X_CELLS[cell] @ BETA + effects[:, 0] + noise[0]
        mean_pi = np.exp(K_Y * y + X_CELLS[cell] @ K_X + effects[:, 1] + noise[1]).mean()
        truth = design.population_size / (design.n * mean_pi)
        np.testing.assert_allclose(weight[cell::2], truth, rtol=0.02)


def records_of_psus(psu: IntArray, x_cells: FloatArray, seed: int) -> GaussianRecords:
    rng = np.random.default_rng(seed)
    cell = rng.integers(0, x_cells.shape[0], psu.size)
    design = replace(make_design(x_cells, cell), psu=psu)
    parameters = {
        "beta": np.full(x_cells.shape[1], 0.5),
        "selection": np.full(x_cells.shape[1] + 1, -0.6),
        "variance": np.array([0.16, 0.16]),
        PSU_COVARIANCE: np.diag([0.02, 0.02]),
    }
    z = MODEL.simulate(parameters, design, rng, "sample")
    return MODEL.records_from_simulated(design, z)


NO_CONSTANT = np.random.default_rng(118).normal(size=(12, 2))


@pytest.mark.parametrize(
    ("psus", "x_cells"), [(1, X_CELLS), (2, X_CELLS), (50, X_CELLS), (50, NO_CONSTANT)]
)
def test_chains_agree_on_any_design(psus: int, x_cells: FloatArray) -> None:
    """One PSU, two, one of them without weight; X without a constant."""
    records = records_of_psus(np.arange(20 * psus) % psus, x_cells, 119)
    alpha = np.where(records.psu == 1, 0.0, 1.0)
    drawn = MODEL.sample(
        MODEL.compress(records, alpha), SamplingPlan(4, 250, 250), np.random.default_rng(120)
    )
    assert drawn[PSU_EFFECT].shape == (1, 4, 250, psus, 2)
    for name, values in MODEL.monitored(drawn).items():
        assert np.isfinite(values).all(), name
        # One or two PSUs tell next to nothing of T, which has the tails of its prior.
        if psus > 2:
            assert r_hat(values[0]).max() < 1.05, name
            assert effective_sample_size(values[0]).min() > 100.0, name


def test_chains_converge_whatever_psus_add() -> None:
    """Ten strata of five PSUs: variances of 0.02, next to none, and large under selection."""
    strata = np.eye(10)
    strata[:, 0] = 1.0
    psu = np.repeat(np.arange(50), 20)
    stats_of, rng = [], np.random.default_rng(121)
    for variance, k_y, residual in ((0.02, -0.8, 0.16), (1e-7, -0.8, 0.16), (1.0, -3.0, 1.0)):
        design = replace(make_design(strata, psu // 5), psu=psu)
        parameters = {
            "beta": np.linspace(9.0, 10.0, 10),
            "selection": np.linspace(-0.5, 0.5, 11),
            "variance": np.full(2, residual),
            PSU_COVARIANCE: variance * np.eye(2),
        }
        parameters["selection"][0] = k_y
        z = MODEL.simulate(parameters, design, rng, "sample")
        records = MODEL.records_from_simulated(design, z)
        stats_of.append(MODEL.compress(records, np.ones(psu.size)))
    drawn = MODEL.sample(stacked(stats_of), SamplingPlan(4, 250, 250), np.random.default_rng(122))
    for name, values in MODEL.monitored(drawn).items():
        for each in values:
            assert r_hat(each).max() < 1.05, name
            assert effective_sample_size(each).min() > 100.0, name
    sd = np.sqrt(drawn[PSU_COVARIANCE][:, :, :, 0, 0]).mean((1, 2))
    assert 0.08 < sd[0] < 0.25
    assert sd[1] < 0.06
    assert 0.75 < sd[2] < 1.4


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_debiasing_moves_the_effects_with_the_residuals(name: str) -> None:
    """Shares of the variance that lie between PSUs stay, column by column; so do correlations."""
    model, design = get_model(name), clustered_design(4, 3)
    one = model.prior_guess(design, 0.4)
    draws = {key: np.stack([values, 1.5 * values]) for key, values in one.items()}
    draws[PSU_COVARIANCE] = np.stack([T, 0.3 * T])
    shift = np.array([[0.2, 0.3], [-0.1, 0.05]])
    moved = model.with_log_scales(draws, model.log_scales(draws) + shift)
    np.testing.assert_allclose(model.log_scales(moved), model.log_scales(draws) + shift)
    factor = np.exp(shift)
    expected = draws[PSU_COVARIANCE] * factor[:, :, None] * factor[:, None, :]
    np.testing.assert_allclose(moved[PSU_COVARIANCE], expected, rtol=1e-12)
    np.testing.assert_array_equal(moved["beta"], draws["beta"])
