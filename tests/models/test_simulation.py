"""Simulated datasets and smoothed weights against the densities that define them: quadrature of
FBP's sample density, and conditional means by Monte Carlo."""

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.models import get_model
from surveysynth.models.base import Simulated, SimulationKind
from surveysynth.survey.survey import PublicDesign
from tests.models.model_designs import make_design, records_of

LEVEL = 1e-4
X_CELLS = np.array([[1.0, 0.0], [1.0, 1.0]])
BETA, K_Y, K_X = np.array([1.5, -0.7]), -0.8, np.array([0.4, 0.9])
V_Y, V_PI = 0.36, 0.25
FBP: Theta = {
    "beta": BETA,
    "selection": np.array([K_Y, *K_X]),
    "variance": np.array([V_Y, V_PI]),
}


def two_cells(n: int, outcomes: int = 1) -> PublicDesign:
    return make_design(X_CELLS, np.arange(n) % 2, outcomes, population_size=50.0 * n)


def fbs_theta(outcomes: int) -> Theta:
    sd = np.array([0.5, 0.8, 0.3, 0.6])[3 - outcomes :]
    correlation = np.eye(outcomes + 1)
    correlation[-1, :-1] = correlation[:-1, -1] = -0.45
    beta = np.linspace(-1.0, 1.0, 2 * (outcomes + 1)).reshape(2, -1)
    return {"beta": beta, "covariance": correlation * sd[:, None] * sd}


def density_grid(cell: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """FBP's sample density of the package on a grid of (y, log pi): y, log pi, density."""
    mean_y = X_CELLS[cell] @ BETA + K_Y * V_Y
    y = mean_y + np.sqrt(V_Y) * np.linspace(-9, 9, 401)
    mean_pi = K_Y * mean_y + X_CELLS[cell] @ K_X + V_PI
    log_pi = mean_pi + np.sqrt(V_PI + K_Y**2 * V_Y) * np.linspace(-9, 9, 401)
    z = np.stack(np.meshgrid(y, log_pi, indexing="ij"), axis=-1).reshape(-1, 2)
    design = make_design(X_CELLS, np.full(z.shape[0], cell))
    one_draw = {name: values[None] for name, values in FBP.items()}
    log_lik = np.empty(z.shape[0])
    for rows, values in get_model("fbp").log_lik_blocks(one_draw, records_of(design, z)):
        log_lik[rows] = values[0]
    return y, log_pi, np.exp(log_lik).reshape(y.size, log_pi.size)


@pytest.mark.parametrize("cell", [0, 1])
def test_sample_density_integrates_to_one_in_pi_not_in_its_log(cell: int) -> None:
    y, log_pi, density = density_grid(cell)
    in_log = np.trapezoid(np.trapezoid(density, log_pi, axis=1), y)
    in_pi = np.trapezoid(np.trapezoid(density * np.exp(log_pi), log_pi, axis=1), y)
    assert in_pi == pytest.approx(1.0, abs=1e-6)
    assert abs(in_log - 1.0) > 0.1


def simulated_cell(kind: SimulationKind, cell: int, n: int = 40_000) -> FloatArray:
    design = two_cells(n)
    z = get_model("fbp").simulate(FBP, design, np.random.default_rng(61), kind).z
    return z[design.matrix.cell == cell]


@pytest.mark.parametrize("cell", [0, 1])
def test_simulated_sample_follows_the_sample_density(cell: int) -> None:
    """Both margins against the quadrature of the density, and the covariance."""
    y, log_pi, density = density_grid(cell)
    weight = density * np.exp(log_pi)
    z = simulated_cell("sample", cell)
    for j, (grid, margin) in enumerate(((y, weight.sum(1)), (log_pi, weight.sum(0)))):
        cdf = (np.cumsum(margin) - 0.5 * margin) / margin.sum()
        ours = stats.kstest(z[:, j], lambda v, g=grid, c=cdf: np.interp(v, g, c))
        assert ours.pvalue > LEVEL
        population = simulated_cell("release", cell)[:, j]
        assert stats.ks_2samp(z[:, j], population).pvalue < 1e-12
    mass = weight / weight.sum()
    covariance = y @ mass @ log_pi - (y @ mass.sum(1)) * (log_pi @ mass.sum(0))
    assert np.cov(z.T)[0, 1] == pytest.approx(covariance, rel=0.05)


@pytest.mark.parametrize("cell", [0, 1])
def test_simulated_release_follows_the_population(cell: int) -> None:
    z, x = simulated_cell("release", cell), X_CELLS[cell]
    mean = x @ BETA
    assert stats.kstest(z[:, 0], stats.norm(mean, np.sqrt(V_Y)).cdf).pvalue > LEVEL
    residual = z[:, 1] - K_Y * z[:, 0] - x @ K_X
    assert stats.kstest(residual, stats.norm(0.0, np.sqrt(V_PI)).cdf).pvalue > LEVEL
    assert stats.pearsonr(residual, z[:, 0]).pvalue > LEVEL


def test_sampling_the_population_by_pi_gives_the_sample() -> None:
    """Drawn from "release" with probability proportional to pi, records follow "sample"."""
    population = simulated_cell("release", 1, 400_000)
    rng = np.random.default_rng(62)
    pi = np.exp(population[:, 1])
    chosen = population[rng.choice(pi.size, 8_000, p=pi / pi.sum())]
    sample = simulated_cell("sample", 1)
    for j in range(2):
        assert stats.ks_2samp(chosen[:, j], sample[:, j]).pvalue > LEVEL


@pytest.mark.parametrize("outcomes", [1, 2, 3])
def test_fbs_simulates_its_normal(outcomes: int) -> None:
    design, theta = two_cells(40_000, outcomes), fbs_theta(outcomes)
    model = get_model("fbs")
    z = model.simulate(theta, design, np.random.default_rng(63), "release").z
    sample = model.simulate(theta, design, np.random.default_rng(63), "sample").z
    np.testing.assert_array_equal(z, sample)
    mean = (X_CELLS @ theta["beta"])[design.matrix.cell]
    white = np.linalg.solve(np.linalg.cholesky(theta["covariance"]), (z - mean).T)
    for row in white:
        assert stats.kstest(row, "norm").pvalue > LEVEL
    square = (white**2).sum(0)
    assert stats.kstest(square, stats.chi2(outcomes + 1).cdf).pvalue > LEVEL


@pytest.mark.parametrize("outcomes", [1, 2])
def test_fbs_weight_is_the_conditional_mean(outcomes: int) -> None:
    """E(w | y) from the joint normal alone: pairs (y, w) are drawn from it, and the smoothed weight
    is the regression of w on what is known: E(w g(y)) = E(w_smooth g(y)) for any g. The median,
    which leaves out half the remaining variance, is not."""
    n = 400_000
    theta = fbs_theta(outcomes)
    rng = np.random.default_rng(64)
    design = two_cells(n, outcomes)
    mean = (X_CELLS @ theta["beta"])[design.matrix.cell]
    z = rng.multivariate_normal(np.zeros(outcomes + 1), theta["covariance"], n) + mean
    smooth = get_model("fbs").smooth_weight(theta, design, Simulated(z))
    drawn = np.exp(z[:, -1])
    covariance = theta["covariance"]
    slope = np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
    median = smooth * np.exp(-0.5 * (covariance[-1, -1] - covariance[-1, :-1] @ slope))
    tests = [np.ones(n), design.matrix.cell == 1]
    tests += [z[:, j] > mean[:, j] for j in range(outcomes)]
    tests += [z[:, j] - mean[:, j] for j in range(outcomes)]
    wrong = []
    for g in tests:
        for weight, scores in ((smooth, None), (median, wrong)):
            gap = (drawn - weight) * g
            score = float(gap.mean() / (gap.std() / np.sqrt(n)))
            if scores is None:
                assert abs(score) < 4.0
            else:
                scores.append(abs(score))
    assert max(wrong) > 20.0
    # A function of y and x alone.
    shuffled = z.copy()
    shuffled[:, -1] = rng.permutation(shuffled[:, -1])
    again = get_model("fbs").smooth_weight(theta, design, Simulated(shuffled))
    np.testing.assert_array_equal(again, smooth)


def test_fbs_weight_in_a_narrow_window_of_the_outcome() -> None:
    """The same, seen directly: the mean weight of simulated records with y in a window."""
    theta = fbs_theta(1)
    design = two_cells(2_000_000)
    model = get_model("fbs")
    simulated = model.simulate(theta, design, np.random.default_rng(65), "release")
    smooth = model.smooth_weight(theta, design, simulated)
    y = simulated.z[:, 0]
    for cell in (0, 1):
        center = X_CELLS[cell] @ theta["beta"][:, 0]
        inside = (design.matrix.cell == cell) & (np.abs(y - center - 0.3) < 0.01)
        weights = np.exp(simulated.z[inside, 1])
        error = weights.std() / np.sqrt(weights.size)
        assert abs(weights.mean() - smooth[inside].mean()) < 4.0 * error


def test_fbp_default_weight_is_one_over_the_mean_inclusion() -> None:
    design = two_cells(400_000)
    model = get_model("fbp")
    simulated = model.simulate(FBP, design, np.random.default_rng(66), "release")
    weight = model.smooth_weight(FBP, design, simulated)
    pi = np.exp(simulated.z[:, 1])
    for cell in (0, 1):
        inside = design.matrix.cell == cell
        assert np.unique(weight[inside]).size == 1
        error = pi[inside].std() / np.sqrt(inside.sum()) / pi[inside].mean()
        # pi~ = N / (n w): in units of the sampling weight, N/n times over.
        assert weight[inside][0] / 50.0 * pi[inside].mean() == pytest.approx(1.0, abs=4 * error)


def test_fbp_outcome_weight_is_that_of_the_paper() -> None:
    design = two_cells(1000)
    model = get_model("fbp", smoothing="outcome")
    simulated = model.simulate(FBP, design, np.random.default_rng(67), "release")
    ratio = model.smooth_weight(FBP, design, simulated) * np.exp(K_Y * simulated.z[:, 0])
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)


def test_an_unknown_smoothing_is_refused() -> None:
    with pytest.raises(InputError, match="smoothing must be"):
        get_model("fbp", smoothing="median")
