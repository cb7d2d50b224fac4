"""Gibbs blocks on their own by Geweke's joint test: parameters from the prior of methods 3 (drawn
by other means), a handful of records from the parameters, some updates: the parameters are still
distributed as the prior, jointly with the data. Thousands of small databases tell apart an exponent
that is off by one half, which full fits on many records cannot.
"""

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.gaussian.blocks import CoefficientBlocks, CovarianceBlock
from surveysynth.sampling.plan import Streams
from tests.long_runs import sbc

DATABASES = 4000
LEVEL = 1e-4
PRIORS = {"coefficient_scale": 10.0, "residual_scale": 10.0, "lkj": 6.0}


def prior(outcomes: int, seed: int) -> Theta:
    case = sbc.Case("fbs", outcomes=outcomes)
    return sbc.fbs_prior(case, DATABASES, np.random.default_rng(seed))


def smallest_p(ours: dict[str, FloatArray], truth: dict[str, FloatArray]) -> float:
    return min(float(stats.ks_2samp(ours[name], truth[name]).pvalue) for name in truth)


def covariance_summaries(covariance: FloatArray, squares: FloatArray) -> dict[str, FloatArray]:
    """Margins, and how the parameters go with the data."""
    sd = np.sqrt(np.einsum("bkk->bk", covariance))
    correlation = covariance / (sd[:, :, None] * sd[:, None, :])
    result = {f"sd {j}": sd[:, j] for j in range(sd.shape[1])}
    result["determinant"] = np.linalg.det(correlation)
    result["first correlation"] = correlation[:, 1, 0]
    result["last correlation"] = correlation[:, -1, 0]
    result["fit"] = np.trace(np.linalg.solve(covariance, squares), axis1=1, axis2=2)
    return result


def covariance_after(
    outcomes: int, records: int, ways: tuple[bool, bool], power: float = 0.0
) -> float:
    """Smallest p-value after a few updates; ``power`` is added to that of |Omega|."""
    covariance = prior(outcomes, 100)["covariance"]
    rng = np.random.default_rng(101)
    noise = rng.standard_normal((DATABASES, outcomes + 1, records))
    data = np.linalg.cholesky(covariance) @ noise
    squares = data @ data.swapaxes(-1, -2)
    total = np.full(DATABASES, float(records))
    block = CovarianceBlock(covariance, total, 10.0, 6.0, Streams((rng,), DATABASES))
    block.by_slice, block.by_proposal = ways
    block.power += power
    # Alone, with so few records, the proposal is accepted one time in seven: more updates.
    steps = 6 if block.by_slice else 25
    block.draw_random_numbers(steps)
    for i in range(steps):
        block.update(i, squares)
    assert np.mean(block.covariance[:, 0, 0] != covariance[:, 0, 0]) > 0.3
    # Of an independent sample of the same joint distribution.
    other = prior(outcomes, 102)["covariance"]
    data = np.linalg.cholesky(other) @ rng.standard_normal(noise.shape)
    truth = covariance_summaries(other, data @ data.swapaxes(-1, -2))
    return smallest_p(covariance_summaries(block.covariance, squares), truth)


@pytest.mark.parametrize(
    ("outcomes", "records", "ways"),
    [
        (1, 2, (True, False)),
        (1, 9, (True, False)),
        (2, 4, (True, False)),
        (1, 9, (False, True)),
        (2, 14, (False, True)),
        (1, 200, (False, True)),
        (2, 14, (True, True)),
    ],
)
def test_covariance_keeps_the_joint_distribution(
    outcomes: int, records: int, ways: tuple[bool, bool]
) -> None:
    assert covariance_after(outcomes, records, ways) > LEVEL


def test_a_forgotten_jacobian_of_the_covariance_is_rejected() -> None:
    assert covariance_after(2, 14, (False, True), power=-1.5) < 1e-6
    assert covariance_after(3, 16, (False, True), power=-2.0) < 1e-6


def coefficients_after(q: int, wrong_copies: int = 0) -> float:
    """Smallest p-value after some updates of beta, D and Omega; with ``wrong_copies`` the block
    believes that this many more coefficient vectors share Omega."""
    theta = prior(q - 1, 103)
    truth = prior(q - 1, 104)
    rng = np.random.default_rng(105)
    k = theta["beta"].shape[1]
    x = sbc.design_rows(sbc.Case("fbs", n=4, columns=k))
    gram = np.broadcast_to(x.T @ x + 0.1 * np.eye(k), (DATABASES, k, k))
    inverse = np.linalg.inv(theta["covariance"])
    # A least-squares fit of these precisions about the true coefficients.
    root = np.linalg.cholesky(np.linalg.inv(gram))
    noise = root @ rng.standard_normal(theta["beta"].shape)
    fit = theta["beta"] + noise @ np.linalg.cholesky(theta["covariance"]).swapaxes(-1, -2)
    block = CoefficientBlocks(
        gram, fit, theta["covariance"], PRIORS, Streams((rng,), DATABASES)
    )
    block.beta, block.scale = theta["beta"].copy(), theta["coefficient_scale"].copy()
    correlation = theta["coefficient_correlation"]
    block.root = np.zeros_like(block.root)
    chi = np.sqrt(rng.chisquare(block.columns, (DATABASES, k)))
    block.root[:, :, :k] = chi[:, :, None] * np.linalg.cholesky(correlation)
    block._set_correlation()
    block.draw_random_numbers(32)
    for i in range(32):
        if wrong_copies and i % 4 == 0:
            block.q += wrong_copies
            block._correlation(i // 4)
            block.q -= wrong_copies
        else:
            block.update(i, inverse)

    def summaries(beta: FloatArray, scale: FloatArray, omega: FloatArray) -> dict[str, FloatArray]:
        result = {f"beta {j}": beta[:, j, 0] for j in range(k)}
        result |= {f"scale {j}": scale[:, -1, j] for j in range(k)}
        result |= {f"standardised {j}": beta[:, j, -1] / scale[:, -1, j] for j in range(k)}
        result["determinant"] = np.linalg.det(omega)
        below = sbc.below_diagonal(omega).T
        return result | {f"correlation {j}": values for j, values in enumerate(below)}

    return smallest_p(
        summaries(block.beta, block.scale, block.correlation),
        summaries(truth["beta"], truth["coefficient_scale"], truth["coefficient_correlation"]),
    )


@pytest.mark.parametrize("q", [2, 3])
def test_coefficients_keep_the_joint_distribution(q: int) -> None:
    assert coefficients_after(q) > LEVEL


def test_a_wrong_count_of_coefficient_vectors_is_rejected() -> None:
    assert coefficients_after(2, wrong_copies=2) < 1e-6
