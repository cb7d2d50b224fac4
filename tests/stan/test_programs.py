"""Stan's own log density, gradient and draws against the embedded ones, model by model.

The truth is Stan, compiled from ``stan/`` by PyStan; of the mixture, whose only sampler is Stan's,
SciPy's densities record by record.
"""

import warnings

import numpy as np
import pytest
from scipy.linalg import block_diag

from surveysynth._support.resources import stan_directory
from surveysynth.sampling.convergence import effective_sample_size
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import PyStanBackend
from surveysynth.sampling.stan.pystan import compile_program
from surveysynth.sampling.stan.source import StanSource, flattened_source
from tests import oracles
from tests.models.model_cases import (
    GAUSSIAN,
    MODELS,
    SAMPLED,
    SHRUNKEN,
    WEIGHTINGS,
    make_case,
)
from tests.models.test_density import direct

pytestmark = [
    pytest.mark.pystan,
    # PyStan is of an older style than the libraries that it calls.
    pytest.mark.filterwarnings("ignore:It is recommended to use web.AppKey"),
    pytest.mark.filterwarnings(r"ignore:\w+ is deprecated\. Use files\(\) instead"),
]

PROGRAMS = stan_directory()
POINTS = 50
#: A step whose square is lost beside 1: imaginary parts are derivatives to rounding.
STEP = 1e-30j


def program_of(case):
    """The program of a case."""
    return case[0].removesuffix(" shrunken")


def grouped(cases):
    """Cases marked so that the tests of one program run in one worker: another would wait for its
    compilation."""
    return [
        pytest.param(*case, marks=pytest.mark.xdist_group(f"stan {program_of(case)}"))
        for case in cases
    ]


def build(path, data, seed=1):
    code = flattened_source(path)
    with warnings.catch_warnings():
        # PyStan's way to its compiler is a local web server of an older style.
        warnings.simplefilter("ignore")
        pytest.importorskip("httpstan", reason="PyStan is not installed")
        import stan

        compile_program(code)
        return stan.build(code, data=data, random_seed=seed)


def program(case):
    spec = case.model.stan
    return build(PROGRAMS / spec.program, spec.data(case.stats, case.model.priors))


def stan_density(built, points):
    value = [built.log_prob(list(point), adjust_transform=True) for point in points]
    gradient = [built.grad_log_prob(list(point)) for point in points]
    return np.array(value), np.array(gradient)


def unwhitened(case, u):
    """The embedded u (d,) of the u of ``fbs.stan``, and log |d beta / d white|: beta given all else
    is normal, with mean and precision by record-free generalized least squares, and white are its
    standard normal coordinates by the precision's Cholesky factor. Analytic, so that complex steps
    give its derivatives."""
    k, q = case.shape[:2]
    free = k - case.shrunken  # the others have their prior in the statistics
    pairs, corr = q * (q - 1) // 2, free * (free - 1) // 2
    sizes = np.cumsum([k * q, q, pairs, free * q, corr])
    white, log_sd, cor_u, log_scale, omega_u, _ = np.split(u, sizes)
    residual = np.exp(log_sd)[:, None] * correlation_root(cor_u, q)
    precision = np.linalg.inv(residual @ residual.T)
    omega = correlation_root(omega_u, free)
    prior = [
        np.pad(np.linalg.inv(np.outer(scale, scale) * (omega @ omega.T)), (0, k - free))
        for scale in np.exp(log_scale).reshape(q, free)
    ]
    gram, cross = case.stats.gram[0], case.stats.gram[0] @ case.stats.fit[0]
    whole = np.kron(precision, gram) + block_diag(*prior)
    root = cholesky(whole)
    mean = np.linalg.solve(whole, (cross @ precision).T.reshape(-1))
    beta = mean + np.linalg.solve(root.T, white)
    return np.concatenate([beta, u[k * q :]]), -np.log(np.diag(root)).sum()


def cholesky(matrix):
    """The lower factor without conjugates: NumPy's is not analytic."""
    root = np.zeros_like(matrix)
    for j in range(len(matrix)):
        left = matrix[j:, j] - root[j:, :j] @ root[j, :j]
        root[j:, j] = left / np.sqrt(left[0])
    return root


def correlation_root(u, size):
    """Stan's Cholesky factor of a correlation matrix, row by row from tanh (its manual, 10.12)."""
    root, position = np.zeros((size, size), dtype=u.dtype), 0
    for i in range(size):
        left = 1.0
        for j in range(i):
            root[i, j] = np.tanh(u[position]) * np.sqrt(left)
            left, position = left - root[i, j] ** 2, position + 1
        root[i, i] = np.sqrt(left)
    return root


def embedded_density(case, points):
    """Value and gradient of the model's density in the coordinates of its program."""
    if case.model.name != "fbs":
        return oracles.log_density(case.model, points, case.stats)
    values, gradients = [], []
    for point in points:
        u, volume = unwhitened(case, point)
        value, gradient = oracles.log_density(case.model, u, case.stats)
        steps = [unwhitened(case, point + STEP * each) for each in np.eye(point.size)]
        values.append(value + volume)
        gradients.append([(gradient @ x.imag + v.imag) / STEP.imag for x, v in steps])
    return np.array(values), np.array(gradients)


def assert_same_density(case, built, points):
    if case.model.name == "normal_mixture":
        found = [built.log_prob(list(point), adjust_transform=True) for point in points[:5]]
        expected = [direct(case, point) for point in points[:5]]
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-6)
        return
    value, gradient = embedded_density(case, points)
    assert_same(value, gradient, *stan_density(built, points))


def assert_same(value, gradient, stan_value, stan_gradient):
    np.testing.assert_allclose(value, stan_value, rtol=1e-8)
    # Relative to the size of a point's gradient: single elements pass through zero.
    scale = np.abs(stan_gradient).max(axis=1, keepdims=True)
    np.testing.assert_array_less(np.abs(gradient - stan_gradient) / scale, 1e-8)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("name", "q"), grouped(MODELS))
def test_density_and_gradient_equal_stans(name, q, weighting):
    case = make_case(name, q, weighting=weighting)
    assert_same_density(case, program(case), case.points(POINTS, np.random.default_rng(1)))


@pytest.mark.parametrize(("name", "q"), grouped(SHRUNKEN))
def test_density_and_gradient_equal_stans_with_a_ridge(name, q):
    case = make_case(name, q, priors={"interaction_scale": 0.4})
    assert_same_density(case, program(case), case.points(POINTS, np.random.default_rng(1)))


@pytest.mark.parametrize(("name", "q"), grouped(MODELS))
def test_densities_agree_with_one_column_of_x_and_other_priors(name, q):
    own = {"fbp": {"residual_scale": 0.7, "coefficient_sd": 3.0}}
    hierarchical = {"lkj": 1.0, "coefficient_scale": 3.0}
    own |= {model: {**hierarchical, "residual_scale": 0.7} for model in ("fbs", "normal")}
    own["normal_mixture"] = {**hierarchical, "least_sd": 0.3, "concentration_rate": 2.0}
    own["negative_binomial"] = {**hierarchical, "overdispersion_scale": 0.3}
    priors = own.get(name, hierarchical)
    case = make_case(name, q, k=1, priors=priors)
    assert_same_density(case, program(case), case.points(5, np.random.default_rng(2)))


def stan_draws(case, chains=4, draws=1000):
    """Scalars of draws (chains, draws, d) of Stan's NUTS, through the model's own Theta."""
    spec = case.model.stan
    source = StanSource.read(PROGRAMS / spec.program)
    run = PyStanBackend().run(
        source,
        spec.data(case.stats, case.model.priors),
        SamplingPlan(chains, 500, draws),
        seed=1,
        adapt_delta=0.99,
    )
    divergent = np.mean(run.divergent)
    assert divergent < 0.05, f"{divergent:.1%} of the draws diverged"
    by_draw = {name: v.reshape(chains * draws, *v.shape[2:]) for name, v in run.draws.items()}
    return oracles.unconstrain(case.model, spec.theta(by_draw)).reshape(chains, draws, -1)


def moments(u):
    """Means and variances by coordinate, each with its Monte Carlo variance."""
    flat = u.reshape(-1, u.shape[-1])
    mean, variance = flat.mean(axis=0), flat.var(axis=0)
    squares = (u - mean) ** 2
    errors = np.stack(
        [
            variance / effective_sample_size(u),
            squares.reshape(flat.shape).var(axis=0) / effective_sample_size(squares),
        ]
    )
    return np.stack([mean, variance]), errors


def within_tails(u):
    """What takes coordinates (.., d) into three SDs about the middle of the draws ``u``, and leaves
    what lies well inside. The log of a scale that may be next to nothing has an exponential tail: a
    variance then rests on rare excursions, and so does the estimate of its Monte Carlo error."""
    low, middle, high = np.quantile(u.reshape(-1, u.shape[-1]), [0.16, 0.5, 0.84], axis=0)
    reach = 1.5 * (high - low)
    return lambda draws: middle + reach * np.tanh((draws - middle) / reach)


def largest_difference(one, two):
    """The largest |z| between means and variances of two samplers."""
    (first, first_error), (second, second_error) = one, two
    return np.abs((first - second) / np.sqrt(first_error + second_error)).max()


def wrong_scalars(case, draws):
    """What a wrong sampler would draw: residual scales 10% too large; of other than Gaussian
    models, everything spread 1.5 times as far."""
    if (case.model.name, case.shape[1]) not in GAUSSIAN:
        u = oracles.unconstrain(case.model, draws)
        mean = u.mean(axis=(0, 1))
        return mean + 1.5 * (u - mean)
    log_scales = case.model.log_scales(draws)
    wider = case.model.with_log_scales(draws, log_scales + np.log(1.1))
    return oracles.unconstrain(case.model, wider)


@pytest.mark.parametrize(("name", "q"), grouped(SAMPLED))
def test_nuts_and_gibbs_draw_from_one_posterior(name, q):
    case = make_case(name, q, seed=2)
    draws = case.draw(SamplingPlan(4, 300, 3000), np.random.default_rng(4))
    gibbs, nuts = oracles.unconstrain(case.model, draws), stan_draws(case)
    bounded = within_tails(gibbs)
    largest = largest_difference(moments(bounded(nuts)), moments(bounded(gibbs)))
    assert largest < 5.0
    wrong = moments(bounded(wrong_scalars(case, draws)))
    assert largest_difference(moments(bounded(nuts)), wrong) > 10.0
