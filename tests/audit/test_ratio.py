"""Log ratios of two weighted posteriors against closed forms and quadrature."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from surveysynth.models import get_model
from surveysynth.models.base import Simulated
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from tests.audit.posterior import (
    Side,
    log_constant,
    log_ratios,
    marginal_log_lik,
    weighted_log_lik,
)
from tests.surveys import clustered_survey, make_survey


@dataclass(frozen=True)
class Mean:
    """y_i ~ N(mu, 1), mu ~ N(0, 4): its posterior under risk weights is normal."""

    def log_lik_blocks(self, theta, records):
        half = len(records) // 2
        for rows in (np.arange(half), np.arange(half, len(records))):
            yield rows, stats.norm.logpdf(records[rows], theta["mu"][:, None])

    def posterior(self, y, alpha):
        precision = 0.25 + alpha.sum()
        return stats.norm((alpha @ y) / precision, precision**-0.5)


@pytest.fixture(scope="module")
def pair():
    rng = np.random.default_rng(4)
    y = rng.normal(1.0, 1.0, 40)
    moved = y.copy()
    moved[7] += 5.0
    return [(y, rng.uniform(0.3, 1.0, 40)), (moved, rng.uniform(0.3, 1.0, 40))]


def sides(pair, size=8_000):
    rng = np.random.default_rng(8)
    model = Mean()
    return [
        Side(y, alpha, {"mu": model.posterior(y, alpha).rvs(size, rng).reshape(4, -1)})
        for y, alpha in pair
    ]


def truth(pair, mu):
    one, other = (Mean().posterior(y, alpha) for y, alpha in pair)
    return one.logpdf(mu) - other.logpdf(mu)


def test_log_ratios_are_those_of_the_normalised_posteriors(pair):
    one, other = sides(pair)
    found = log_ratios(Mean(), one, other)
    for ratios, side in ((found.at_first, one), (found.at_second, other)):
        error = ratios - truth(pair, side.theta["mu"].ravel())
        # One constant for all draws, of which the bridge knows two digits.
        assert np.ptp(error) < 1e-9
        assert abs(error.mean()) < 0.04
    both = np.concatenate([truth(pair, side.theta["mu"].ravel()) for side in (one, other)])
    assert found.largest == pytest.approx(np.abs(both).max(), abs=0.04)


def test_unnormalised_or_differently_weighted_ratios_are_rejected(pair):
    one, other = sides(pair)
    mu = one.theta["mu"].ravel()
    raw = weighted_log_lik(Mean(), one.flat, *pair[0]) - weighted_log_lik(
        Mean(), one.flat, *pair[1]
    )
    assert abs((raw - truth(pair, mu)).mean()) > 0.3
    unweighted = [Side(side.records, np.ones(40), side.theta) for side in (one, other)]
    found = log_ratios(Mean(), *unweighted).at_first
    assert np.ptp(found - truth(pair, mu)) > 0.3


def test_the_same_posterior_twice_has_no_ratio(pair):
    one, _ = sides(pair)
    assert log_ratios(Mean(), one, one).largest == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("sizes", [(4000, 4000), (9000, 1000)])
def test_the_constant_of_two_normals(sizes):
    # log N(x; 0, 1) + 3 against log N(x; 1, 2^2): the constant is 3, whatever the numbers of draws.
    rng = np.random.default_rng(2)
    draws = rng.normal(0.0, 1.0, sizes[0]), rng.normal(1.0, 2.0, sizes[1])
    ratios = [3.0 + stats.norm.logpdf(x) - stats.norm.logpdf(x, 1.0, 2.0) for x in draws]
    assert log_constant(*ratios) == pytest.approx(3.0, abs=0.06)
    # The mean of the ratio over one side's draws is no such thing.
    assert abs(np.mean(ratios[0]) - 3.0) > 0.3


def test_the_share_of_sums_beyond_epsilon(pair):
    one, other = sides(pair)
    found = log_ratios(Mean(), one, other)
    rng = np.random.default_rng(3)
    m, epsilon = 3, 1.0
    own = [Mean().posterior(*side) for side in pair]
    beyond = []
    for side, sign in ((0, 1.0), (1, -1.0)):
        mu = own[side].rvs((50_000, m), random_state=rng)
        beyond.append(np.mean((sign * truth(pair, mu)).sum(axis=1) > epsilon))
    assert found.share_above(epsilon, m, rng) == pytest.approx(max(beyond), abs=0.02)
    assert max(beyond) > 0.1


def clustered_case(name):
    survey = make_survey(
        clustered_survey(), psu="school", lonely_psu="adjust", population_size=9000
    )
    model = get_model(name)
    rng = np.random.default_rng(6)
    design = survey.design
    records = model.records_from_simulated(design, Simulated(rng.normal(0.2, 0.6, (design.n, 2))))
    k, draws, psus = design.matrix.n_columns, 2, int(design.psu.max()) + 1
    root = 0.3 * rng.standard_normal((draws, 2, 2)) + 0.4 * np.eye(2)
    theta = {
        PSU_COVARIANCE: root @ root.swapaxes(1, 2),
        PSU_EFFECT: 0.3 * rng.standard_normal((draws, psus, 2)),
    }
    if name == "fbs":
        root = 0.2 * rng.standard_normal((draws, 2, 2)) + 0.6 * np.eye(2)
        theta |= {"beta": 0.2 * rng.standard_normal((draws, k, 2)),
                  "covariance": root @ root.swapaxes(1, 2)}  # fmt: skip
    else:
        theta |= {"beta": 0.2 * rng.standard_normal((draws, k)),
                  "selection": 0.2 * rng.standard_normal((draws, 1 + k)),
                  "variance": rng.uniform(0.2, 0.6, (draws, 2))}  # fmt: skip
    return model, records, theta, rng.uniform(0.0, 0.05, design.n)


@pytest.mark.parametrize("name", ["fbs", "fbp"])
def test_effects_are_integrated_out(name):
    """Gauss-Hermite quadrature over the effects of each PSU, from the likelihood given effects."""
    model, records, theta, alpha = clustered_case(name)
    found = marginal_log_lik(model, theta, records, alpha)
    nodes, mass = np.polynomial.hermite_e.hermegauss(20)
    grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    log_mass = np.log(np.outer(mass, mass).ravel() / (2 * np.pi))
    draws, psus = theta[PSU_EFFECT].shape[:2]
    by_node = np.zeros((len(grid), draws, psus))
    for g, point in enumerate(grid):
        effect = np.linalg.cholesky(theta[PSU_COVARIANCE]) @ point
        moved = {**theta, PSU_EFFECT: np.repeat(effect[:, None], psus, axis=1)}
        for rows, log_lik in model.log_lik_blocks(moved, records):
            np.add.at(by_node[g].T, records.psu[rows], (alpha[rows] * log_lik).T)
    expected = np.logaddexp.reduce(by_node + log_mass[:, None, None], axis=0).sum(axis=1)
    assert found == pytest.approx(expected, abs=1e-6)
    given = weighted_log_lik(model, theta, records, alpha)
    assert np.abs(given - expected).min() > 0.1
