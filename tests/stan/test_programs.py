"""Stan's own log density, gradient and draws against the embedded ones, model by model.

The truth is Stan, compiled from ``stan/`` by PyStan; of the mixture, whose only sampler is Stan's,
SciPy's densities record by record. Tests that compile these programs are slow; the densities of
every program are compared with Stan's own, which were kept.
"""

import json

import numpy as np
import pytest

from surveysynth.sampling.convergence import effective_sample_size
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import PyStanBackend
from surveysynth.sampling.stan.source import StanSource
from tests import oracles
from tests.models.model_cases import GAUSSIAN, SAMPLED, make_case
from tests.stan.density_cases import (
    CASES,
    FEW,
    KEPT,
    PROGRAMS,
    assert_same,
    digest,
    stan_density,
)

#: PyStan is of an older style than the libraries that it calls.
pytestmark = [
    pytest.mark.filterwarnings("ignore:It is recommended to use web.AppKey"),
    pytest.mark.filterwarnings(r"ignore:\w+ is deprecated\. Use files\(\) instead"),
]


def compiled(program):
    """Marks of tests of one program: these run in one worker, another would wait for its
    compilation."""
    return [pytest.mark.pystan, pytest.mark.xdist_group(f"stan {program}"), pytest.mark.slow]


@pytest.mark.parametrize("name", CASES)
def test_density_and_gradient_equal_what_was_kept_of_stans(name):
    case, points = CASES[name].made()
    kept = json.loads(KEPT.read_text(encoding="utf-8"))[name]
    remedy = "the program has changed: run python -m tests.stan.density_cases"
    assert kept["program"] == digest(case), remedy
    value, gradient = np.array(kept["value"]), np.array(kept["gradient"])
    assert_same(case, points[:FEW], value, gradient)
    with pytest.raises(AssertionError):
        assert_same(case, points[:FEW] + 1e-4, value, gradient)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=compiled(each.program)) for name, each in CASES.items()]
)
def test_density_and_gradient_equal_stans(name):
    case, points = CASES[name].made()
    if case.model.name == "normal_mixture":
        points = points[:5]
    assert_same(case, points, *stan_density(case, points))


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


@pytest.mark.parametrize(
    ("name", "q"), [pytest.param(*each, marks=compiled(each[0])) for each in SAMPLED]
)
def test_nuts_and_gibbs_draw_from_one_posterior(name, q):
    case = make_case(name, q, seed=2)
    draws = case.draw(SamplingPlan(4, 300, 3000), np.random.default_rng(4))
    gibbs, nuts = oracles.unconstrain(case.model, draws), stan_draws(case)
    bounded = within_tails(gibbs)
    largest = largest_difference(moments(bounded(nuts)), moments(bounded(gibbs)))
    assert largest < 5.0
    wrong = moments(bounded(wrong_scalars(case, draws)))
    assert largest_difference(moments(bounded(nuts)), wrong) > 10.0
