"""Log densities on the unconstrained scale: against SciPy record by record, finite differences,
and the draws of the samplers (the gradient of a log density has mean zero under it)."""

import itertools

import numpy as np
import pytest
from scipy import stats as st
from scipy.special import betaln

from surveysynth.sampling.convergence import effective_sample_size
from surveysynth.sampling.plan import SamplingPlan
from tests import oracles
from tests.models.model_cases import SAMPLED, SHRUNKEN, WEIGHTINGS, make_case
from tests.oracles.unconstrained import CorrelationRoot, lkj_log_density

OPTIONS = {
    "fbs": {"coefficient_scale": 3.0, "residual_scale": 2.0, "lkj": 2.5},
    "fbp": {"coefficient_sd": 4.0, "selection_sd": 3.0, "residual_scale": 0.7},
    "normal": {
        "coefficient_scale": 2.0, "residual_scale": 0.8, "lkj": 1.0,
        "weight_coefficient_sd": 5.0, "weight_residual_scale": 0.6,
    },
    "normal_mixture": {
        "coefficient_scale": 2.0, "residual_scale": 0.8, "lkj": 2.5, "least_sd": 0.2,
        "concentration_shape": 1.5, "concentration_rate": 0.7, "weight_coefficient_sd": 5.0,
        "weight_residual_scale": 0.6,
    },
    "poisson": {
        "coefficient_scale": 2.0, "lkj": 1.0, "weight_coefficient_sd": 5.0,
        "weight_residual_scale": 0.6,
    },
    "negative_binomial": {
        "overdispersion_scale": 0.4, "coefficient_scale": 2.0, "lkj": 2.5,
        "weight_coefficient_sd": 5.0, "weight_residual_scale": 0.6,
    },
}  # fmt: skip


SCALE = 0.4
for each, _ in SHRUNKEN:
    OPTIONS[each] = {**OPTIONS[each.removesuffix(" shrunken")], "interaction_scale": SCALE}


def ridge(case, coefficients, sd):
    """Log density of the coefficients (K,) of shrunken columns, N(0, scale^2 sd^2) each, and the
    rest; without the constant scale, which Gaussian models leave out."""
    free = len(coefficients) - case.shrunken
    value = st.norm.logpdf(coefficients[free:] / SCALE, 0, sd).sum()
    return value, coefficients[:free]


def half_t(scale, df, prior_scale):
    return (st.t.logpdf(scale, df, 0, prior_scale) + np.log(2)).sum()


def lkj(correlation, eta):
    """Lewandowski, Kurowicka and Joe (2009), eq. 16, on the correlation matrix itself."""
    d = correlation.shape[0]
    k = np.arange(1, d)
    shape = eta + (d - k - 1) / 2
    log_norm = ((2 * eta - 2 + d - k) * (d - k)).sum() * np.log(2)
    log_norm += ((d - k) * betaln(shape, shape)).sum()
    return (eta - 1) * np.linalg.slogdet(correlation)[1] - log_norm


def coefficient_prior(beta, scale, correlation, priors):
    """beta (K, q), scale (q, K)."""
    value = half_t(scale, 3, priors["coefficient_scale"]) + lkj(correlation, priors["lkj"])
    for column, s in zip(beta.T, scale, strict=True):
        value += st.multivariate_normal.logpdf(column, cov=correlation * np.outer(s, s))
    return value


def fbs_posterior(case, theta):
    """Sum of alpha log p(record) and log prior, and the coordinates that the prior is a density
    of."""
    priors, covariance = case.model.priors, theta["covariance"]
    residual = case.z - case.x @ theta["beta"]
    value = case.alpha @ st.multivariate_normal.logpdf(residual, cov=covariance)
    sd = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sd, sd)
    value += half_t(sd, 3, priors["residual_scale"]) + lkj(correlation, priors["lkj"])
    scale, omega = theta["coefficient_scale"], theta["coefficient_correlation"]
    free = len(theta["beta"]) - case.shrunken
    if case.shrunken:
        value += st.multivariate_normal.logpdf(theta["beta"][free:] / SCALE, cov=covariance).sum()
    value += coefficient_prior(theta["beta"][:free], scale, omega, priors)
    return value, [theta["beta"], sd, lower(correlation), scale, lower(omega)]


def fbp_posterior(case, theta):
    priors, (k_y, *k_x) = case.model.priors, theta["selection"]
    sd_y, sd_pi = np.sqrt(theta["variance"])
    y, log_pi = case.z.T
    mean_y, mean_pi = case.x @ theta["beta"], case.x @ k_x
    log_lik = st.norm.logpdf(log_pi, k_y * y + mean_pi, sd_pi)
    log_lik += st.norm.logpdf(y, mean_y, sd_y)
    # log E(pi | x) of the log-normal pi = exp(k_y y + x k_x + e).
    log_lik -= mean_pi + k_y * mean_y
    log_lik -= (sd_pi**2 + k_y**2 * sd_y**2) / 2
    value = case.alpha @ log_lik
    (of_y, beta), (of_pi, k_x) = ridge(case, theta["beta"], sd_y), ridge(case, np.array(k_x), sd_pi)
    value += of_y + of_pi + st.norm.logpdf(beta, 0, priors["coefficient_sd"]).sum()
    value += st.norm.logpdf([k_y, *k_x], 0, priors["selection_sd"]).sum()
    value += st.halfcauchy.logpdf([sd_y, sd_pi], 0, priors["residual_scale"]).sum()
    return value, [theta["beta"], theta["selection"], [sd_y, sd_pi]]


def normal_posterior(case, theta):
    priors, sd = case.model.priors, np.sqrt(theta["variance"])
    scale, omega = theta["coefficient_scale"], theta["coefficient_correlation"]
    y = case.z[:, 0]
    value = case.alpha @ st.norm.logpdf(y, case.x @ theta["beta"], sd[0])
    value += half_t(sd[:1], 3, priors["residual_scale"])
    of_shrunken, beta = ridge(case, theta["beta"], sd[0])
    value += of_shrunken + coefficient_prior(beta[:, None], scale[None], omega, priors)
    coordinates = [theta["beta"], sd, scale, lower(omega)]
    if case.shape[1] == 2:
        delta, *gamma = theta["weight_coefficients"]
        value += case.alpha @ st.norm.logpdf(case.z[:, 1], delta * y + case.x @ gamma, sd[1])
        of_shrunken, free = ridge(case, np.array(gamma), sd[1])
        value += st.norm.logpdf([delta, *free], 0, priors["weight_coefficient_sd"]).sum()
        value += of_shrunken + half_t(sd[1:], 3, priors["weight_residual_scale"])
        coordinates.append([delta, *gamma])
    return value, coordinates


def count_posterior(case, theta):
    priors, y = case.model.priors, case.z[:, 0]
    mu = np.exp(case.x @ theta["beta"])
    scale, omega = theta["coefficient_scale"], theta["coefficient_correlation"]
    beta, free = theta["beta"], len(theta["beta"]) - case.shrunken
    value = coefficient_prior(beta[:free, None], scale[None], omega, priors)
    value += st.norm.logpdf(beta[free:], 0, priors["interaction_scale"]).sum()
    coordinates = [theta["beta"], scale, lower(omega)]
    if case.model.name == "poisson":
        value += case.alpha @ st.poisson.logpmf(y, mu)
    else:
        phi = theta["overdispersion"][0]
        value += case.alpha @ st.nbinom.logpmf(y, phi, phi / (phi + mu))
        value += st.halfcauchy.logpdf(1 / phi, 0, priors["overdispersion_scale"])
        coordinates.append([1 / phi])
    if case.shape[1] == 2:
        (delta, *gamma), sd = theta["weight_coefficients"], np.sqrt(theta["weight_variance"])
        mean = delta * np.log1p(y) + case.x @ gamma
        value += case.alpha @ st.norm.logpdf(case.z[:, 1], mean, sd[0])
        of_shrunken, free = ridge(case, np.array(gamma), sd[0])
        value += st.norm.logpdf([delta, *free], 0, priors["weight_coefficient_sd"]).sum()
        value += of_shrunken + half_t(sd, 3, priors["weight_residual_scale"])
        coordinates += [[delta, *gamma], sd]
    return value, coordinates


def mixture_posterior(case, theta):
    priors, y = case.model.priors, case.z[:, 0]
    share, sd = np.exp(theta["log_shares"]), theta["residual_sd"]
    density = st.norm.pdf(y[:, None], case.x @ theta["beta"].T, sd) @ share
    value = case.alpha @ np.log(density)
    a, count = theta["concentration"][0], share.size
    value += st.dirichlet.logpdf(share / share.sum(), np.full(count, a / count))
    value += st.gamma.logpdf(
        a, priors["concentration_shape"], scale=1 / priors["concentration_rate"]
    )
    value += half_t(sd - priors["least_sd"], 3, priors["residual_scale"])
    # One D for all components: its half-t priors count once.
    scale, omega = theta["coefficient_scale"], theta["coefficient_correlation"]
    repeated = np.tile(scale, (count, 1))
    value += coefficient_prior(theta["beta"].T, repeated, omega, priors)
    value -= half_t(repeated[1:], 3, priors["coefficient_scale"])
    coordinates = [share[1:], [a], theta["beta"], sd, scale, lower(omega)]
    if case.shape[1] == 2:
        (delta, *gamma), s = theta["weight_coefficients"], np.sqrt(theta["weight_variance"])
        value += case.alpha @ st.norm.logpdf(case.z[:, 1], delta * y + case.x @ gamma, s[0])
        value += st.norm.logpdf([delta, *gamma], 0, priors["weight_coefficient_sd"]).sum()
        value += half_t(s, 3, priors["weight_residual_scale"])
        coordinates += [[delta, *gamma], s]
    return value, coordinates


POSTERIOR = {
    "normal_mixture": mixture_posterior,
    "fbs": fbs_posterior,
    "fbp": fbp_posterior,
    "normal": normal_posterior,
    "poisson": count_posterior,
    "negative_binomial": count_posterior,
}


def lower(matrix):
    return matrix[np.tril_indices(matrix.shape[0], -1)]


def direct(case, u):
    """Log posterior by SciPy at u, plus the log Jacobian by finite differences."""

    def coordinates(point):
        theta = oracles.constrain(case.model, point, case.shape)
        value, parts = POSTERIOR[case.model.name](case, theta)
        return value, np.concatenate([np.ravel(part) for part in parts])

    h = 1e-5
    columns = [
        (coordinates(u + h * e)[1] - coordinates(u - h * e)[1]) / (2 * h) for e in np.eye(u.size)
    ]
    return coordinates(u)[0] + np.linalg.slogdet(np.array(columns))[1]


CASES = [*itertools.product(SAMPLED, WEIGHTINGS), *((each, "random") for each in SHRUNKEN)]


@pytest.mark.parametrize(("model", "weighting"), CASES)
def test_equals_scipy_record_by_record(model, weighting):
    name, q = model
    case = make_case(name, q, weighting=weighting, n=60, priors=OPTIONS[name])
    points = case.points(3, np.random.default_rng(3))
    expected = [direct(case, u) for u in points]
    value = oracles.log_density(case.model, points, case.stats)[0]
    np.testing.assert_allclose(value, expected, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "k"), [*itertools.product(SAMPLED, [1, 4]), *((each, 4) for each in SHRUNKEN)]
)
def test_gradient_equals_central_differences(model, k):
    name, q = model
    case = make_case(name, q, k=k, n=50)
    points, h = case.points(10, np.random.default_rng(4)), 1e-5
    value, gradient = oracles.log_density(case.model, points, case.stats)
    steps = h * np.eye(case.size)[:, None]
    above = oracles.log_density(case.model, points + steps, case.stats)[0]
    below = oracles.log_density(case.model, points - steps, case.stats)[0]
    difference = ((above - below) / (2 * h)).T
    scale = np.abs(value)[:, None] + np.abs(gradient).max(1, keepdims=True)
    assert np.abs(difference - gradient).max() < np.inf
    np.testing.assert_array_less(np.abs(difference - gradient) / scale, 1e-7)


GRADIENTS = [
    *itertools.product(SAMPLED, ["ones", "zeros"]), *((each, "zeros") for each in SHRUNKEN)
]  # fmt: skip


@pytest.mark.parametrize(("model", "weighting"), GRADIENTS)
def test_draws_have_a_gradient_of_mean_zero(model, weighting):
    """E grad log p(u) = 0 over the posterior: sampler and density are of one distribution."""
    name, q = model
    case = make_case(name, q, weighting=weighting)
    draws = case.draw(SamplingPlan(4, 200, 400), np.random.default_rng(8))
    u = oracles.unconstrain(case.model, draws)
    gradient = oracles.log_density(case.model, u, case.stats)[1]
    flat = gradient.reshape(-1, case.size)
    error = flat.std(axis=0) / np.sqrt(effective_sample_size(gradient))
    assert np.abs(flat.mean(axis=0) / error).max() < 4.5


@pytest.mark.parametrize(("d", "eta"), [(2, 1.0), (2, 6.0), (3, 2.5), (4, 1.0), (5, 6.0)])
def test_lkj_density_is_that_of_the_matrix_times_the_jacobian(d, eta):
    u = np.random.default_rng(9).standard_normal(d * (d - 1) // 2)
    root = CorrelationRoot.from_unconstrained(u, d)
    matrix = root.root @ root.root.T
    np.testing.assert_allclose(np.diag(matrix), 1, rtol=1e-14)
    # |d Omega / d L| is the product of L_jj^(d - j).
    expected = lkj(matrix, eta) + (root.log_diagonal * np.arange(d - 1, -1, -1)).sum()
    np.testing.assert_allclose(lkj_log_density(root, eta)[0], expected, rtol=1e-12)
