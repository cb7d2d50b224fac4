"""Log ratios of two weighted posteriors against closed forms and quadrature."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from tests.audit.posterior import (
    Side,
    log_constant,
    log_ratios,
    weighted_log_lik,
)


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
