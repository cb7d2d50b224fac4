"""Stan's own log density, gradient and draws against the embedded ones, model by model.

The truth is Stan, compiled from ``stan/`` by PyStan, and a plain program a model that adds one
density a record (``*_records.stan``, here).
"""

import warnings
from pathlib import Path

import numpy as np
import pytest
from model_cases import MODELS, WEIGHTINGS, make_case

from surveysynth.resources import stan_directory
from surveysynth.sampling.diagnostics import effective_sample_size
from surveysynth.sampling.pystan_worker import _compile as compile_program
from surveysynth.sampling.stan_backends import PyStanBackend
from surveysynth.sampling.stan_source import StanSource, flattened_source

pytestmark = [
    pytest.mark.pystan,
    # PyStan is of an older style than the libraries that it calls.
    pytest.mark.filterwarnings("ignore:It is recommended to use web.AppKey"),
    pytest.mark.filterwarnings(r"ignore:\w+ is deprecated\. Use files\(\) instead"),
]

HERE = Path(__file__).parent
PROGRAMS = stan_directory()
POINTS = 50


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


def assert_same_density(case, built, points):
    value, gradient = case.model.log_density(points, case.stats)
    stan_value, stan_gradient = stan_density(built, points)
    np.testing.assert_allclose(value, stan_value, rtol=1e-8)
    # Relative to the size of a point's gradient: single elements pass through zero.
    scale = np.abs(stan_gradient).max(axis=1, keepdims=True)
    np.testing.assert_array_less(np.abs(gradient - stan_gradient) / scale, 1e-8)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("name", "q"), MODELS)
def test_density_and_gradient_equal_stans(name, q, weighting):
    case = make_case(name, q, weighting=weighting)
    assert_same_density(case, program(case), case.points(POINTS, np.random.default_rng(1)))


@pytest.mark.parametrize(("name", "q"), MODELS)
def test_densities_agree_with_one_column_of_x_and_other_priors(name, q):
    own = {"fbp": {"residual_scale": 0.7, "coefficient_sd": 3.0}}
    hierarchical = {"lkj": 1.0, "coefficient_scale": 3.0}
    own |= {model: {**hierarchical, "residual_scale": 0.7} for model in ("fbs", "normal")}
    own["normal_mixture"] = {**hierarchical, "least_sd": 0.3, "concentration_rate": 2.0}
    own["negative_binomial"] = {**hierarchical, "overdispersion_scale": 0.3}
    priors = own.get(name, hierarchical)
    case = make_case(name, q, k=1, priors=priors)
    assert_same_density(case, program(case), case.points(5, np.random.default_rng(2)))


def records_data(case):
    data = {"n": case.records.n, "K": case.shape[0], "x": case.x.tolist()}
    if case.model.name == "fbs":
        data |= {"q": case.shape[1], "z": case.z.tolist()}
        scales = ("coefficient_scale", "residual_scale")
        data |= {f"{scale}_prior": case.model.priors[scale] for scale in scales}
        data["lkj"] = case.model.priors["lkj"]
    else:
        data |= {"y": case.z[:, 0].tolist(), "log_pi": case.z[:, 1].tolist(), **case.model.priors}
    return data | {"alpha": case.alpha.tolist()}


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("name", "q"), [("fbs", 2), ("fbs", 3), ("fbp", 2)])
def test_records_and_sufficient_statistics_give_one_density(name, q, weighting):
    case = make_case(name, q, weighting=weighting)
    built = build(HERE / f"{name}_records.stan", records_data(case))
    assert_same_density(case, built, case.points(10, np.random.default_rng(3)))


def stan_draws(case, chains=4, draws=1000):
    """Scalars of draws (chains, draws, d) of Stan's NUTS, through the model's own Theta.

    In a process of its own: PyStan forks to sample, which a process that has run JAX must not.
    """
    spec = case.model.stan
    source = StanSource.read(PROGRAMS / spec.program)
    run = PyStanBackend().run(
        source,
        spec.data(case.stats, case.model.priors),
        chains=chains,
        warmup=500,
        draws=draws,
        seed=1,
        adapt_delta=0.99,
    )
    divergent = np.mean(run.divergent)
    assert divergent < 0.05, f"{divergent:.1%} of the draws diverged"
    by_draw = {name: v.reshape(chains * draws, *v.shape[2:]) for name, v in run.draws.items()}
    return scalars(case, spec.theta(by_draw)).reshape(chains, draws, -1)


def scalars(case, theta):
    """Unconstrained parameters (..., d); of a model whose labels switch, what is free of them."""
    if case.model.identified:
        return case.model.unconstrain(theta)
    return np.concatenate(list(case.model.monitored(theta).values()), axis=-1)


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


# Stan's own coordinates make a mixture with an empty component slow: minutes.
@pytest.mark.parametrize(
    ("name", "q"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case[0] == "normal_mixture" else ())
        for case in MODELS
    ],
)
def test_nuts_and_gibbs_draw_from_one_posterior(name, q):
    case = make_case(name, q, seed=2)
    nuts, nuts_error = moments(stan_draws(case))
    draws = case.draw(case.plan(4, 300, 3000), np.random.default_rng(4))
    u = scalars(case, draws)
    gibbs, gibbs_error = moments(u)
    z = (nuts - gibbs) / np.sqrt(nuts_error + gibbs_error)
    # Monte Carlo errors of a variance are themselves estimates, and log scales have long tails.
    assert np.abs(z).max() < 5.0, f"largest |z|: {np.abs(z).max(axis=1)}"
