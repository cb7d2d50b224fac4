"""With every record's weight at zero each parameter follows its prior of methods 3, as scipy has
it: half-t, LKJ, half-Cauchy and normal, none of them flattened.

Many databases with one chain each give independent draws, so that the KS test is exact.
"""

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models import get_model
from surveysynth.models.gaussian.statistics import GaussianStats
from surveysynth.sampling.plan import SamplingPlan
from tests.models.model_designs import group_design, records_of

DATABASES = 1500
#: Of covariances of three columns, which take longest.
FEWER = 600
K = 3
LEVEL = 1e-4


def empty_stats(q: int, databases: int) -> GaussianStats:
    """Statistics of databases whose records all have weight zero, as compress gives them."""
    design = group_design(40, K)
    z = np.random.default_rng(30).normal(size=(40, q))
    stats_ = get_model("fbs").compress(records_of(design, z), np.zeros(40))
    assert stats_.total == 0.0
    return stats_.repeated(databases)


def prior_draws(name: str, q: int, **priors: float) -> Theta:
    model = get_model(name, priors=priors)
    plan = SamplingPlan(chains=1, warmup=100, draws=4)
    stats_ = empty_stats(q, FEWER if q > 2 else DATABASES)
    theta = model.sample(stats_, plan, np.random.default_rng(31))
    return {key: values[:, 0, -1] for key, values in theta.items()}


def correlation_of(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    sd = np.sqrt(np.einsum("bkk->bk", covariance))
    return sd, covariance / (sd[:, :, None] * sd[:, None, :])



def pvalue_half_t(values: FloatArray, scale: float) -> float:
    """values > 0 of half-t3: a random sign makes them t3."""
    sign = np.random.default_rng(32).choice([-1.0, 1.0], values.shape)
    return float(stats.kstest(values * sign, stats.t(3, scale=scale).cdf).pvalue)


def pvalue_lkj(values: FloatArray, dimension: int, eta: float) -> float:
    shape = eta - 1.0 + 0.5 * dimension
    return float(stats.kstest(values, stats.beta(shape, shape, loc=-1, scale=2).cdf).pvalue)


@pytest.mark.parametrize("q", [2, 3])
def test_fbs_follows_its_prior(q: int) -> None:
    theta = prior_draws("fbs", q)
    sd, correlation = correlation_of(theta["covariance"])
    scale, omega, beta = theta["coefficient_scale"], theta["coefficient_correlation"], theta["beta"]
    assert theta.keys() == {
        "beta", "covariance", "coefficient_scale", "coefficient_correlation"
    }  # fmt: skip
    standardised = beta.swapaxes(-1, -2) / scale
    for j in range(q):
        assert pvalue_half_t(sd[:, j], 10.0) > LEVEL
        for k in range(K):
            assert pvalue_half_t(scale[:, j, k], 10.0) > LEVEL
            assert stats.kstest(standardised[:, j, k], "norm").pvalue > LEVEL
    for i, j in zip(*np.tril_indices(q, -1), strict=True):
        assert pvalue_lkj(correlation[:, i, j], q, 6.0) > LEVEL
    for i, j in zip(*np.tril_indices(K, -1), strict=True):
        assert pvalue_lkj(omega[:, i, j], K, 6.0) > LEVEL
    # The whole vector is N(0, D Omega D), one Omega for all outcomes: whitened, it is standard.
    white = np.linalg.solve(np.linalg.cholesky(omega), standardised.swapaxes(-1, -2))
    square = (white**2).sum((1, 2))
    assert stats.kstest(square, stats.chi2(K * q).cdf).pvalue > LEVEL
    # Scales and correlations are independent a priori.
    for values in (scale[:, 0, 0], sd[:, 0]):
        assert stats.spearmanr(values, omega[:, 1, 0] ** 2).pvalue > LEVEL


def test_fbs_follows_declared_priors_and_no_others() -> None:
    theta = prior_draws("fbs", 2, coefficient_scale=0.7, residual_scale=2.0, lkj=1.5)
    sd, correlation = correlation_of(theta["covariance"])
    assert pvalue_half_t(sd[:, 0], 2.0) > LEVEL
    assert pvalue_half_t(theta["coefficient_scale"][:, 1, 0], 0.7) > LEVEL
    assert pvalue_lkj(correlation[:, 1, 0], 2, 1.5) > LEVEL
    assert pvalue_lkj(theta["coefficient_correlation"][:, 1, 0], K, 1.5) > LEVEL
    assert pvalue_half_t(sd[:, 0], 2.0 * 1.6) < 1e-6
    assert pvalue_lkj(correlation[:, 1, 0], 2, 2.5) < 0.1 * LEVEL


def test_fbp_follows_its_prior() -> None:
    theta = prior_draws("fbp", 2)
    assert theta.keys() == {"beta", "selection", "variance"}
    sd = np.sqrt(theta["variance"])
    for j in range(2):
        assert stats.kstest(sd[:, j], stats.halfcauchy.cdf).pvalue > LEVEL
        assert stats.kstest(sd[:, j], stats.halfcauchy(scale=1.5).cdf).pvalue < 1e-6
    coefficients = np.concatenate([theta["beta"], theta["selection"]], axis=1)
    for values in coefficients.T:
        assert stats.kstest(values, stats.norm(scale=10.0).cdf).pvalue > LEVEL
    square = (coefficients**2).sum(1) / 100.0
    assert stats.kstest(square, stats.chi2(2 * K + 1).cdf).pvalue > LEVEL


def test_fbp_follows_declared_priors() -> None:
    theta = prior_draws("fbp", 2, coefficient_sd=2.0, selection_sd=0.5, residual_scale=3.0)
    assert stats.kstest(theta["beta"][:, 1], stats.norm(scale=2.0).cdf).pvalue > LEVEL
    assert stats.kstest(theta["selection"][:, 0], stats.norm(scale=0.5).cdf).pvalue > LEVEL
    for j in range(2):
        sd = np.sqrt(theta["variance"][:, j])
        assert stats.kstest(sd, stats.halfcauchy(scale=3.0).cdf).pvalue > LEVEL
