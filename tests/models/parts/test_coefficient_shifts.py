"""Coefficients that move with the scales of their prior. Truth: draws of both from their posterior
by rejection from the prior, which a move must leave; wrong ratios are rejected. Directions from a
covariance matrix written out."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.models.parts import coefficient_shifts
from surveysynth.models.parts.coefficient_shifts import CoefficientShifts
from surveysynth.models.parts.coefficients import CoefficientBlocks
from surveysynth.sampling.sweeps import Streams

#: Two outcomes and three columns, the last with a ridge in the likelihood.
Q, K, FREE, SCALE = 2, 3, 2, 0.7
OMEGA = np.array([[1.0, 0.6], [0.6, 1.0]])
MEAN = np.array([0.5, -0.3, 0.2, 0.1, 0.4, -0.6])
ROOT = np.random.default_rng(3).normal(size=(Q * K, Q * K)) + 2.0 * np.eye(Q * K)
PRECISION = ROOT @ ROOT.T / 4.0
LEVEL = 1e-4


def posterior(draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """beta (draws, K, Q) and scale (draws, Q, FREE), by rejection. The ridge is the likelihood's:
    its coefficients are drawn from the likelihood given the others."""
    root, free = np.linalg.cholesky(OMEGA), np.array([0, 1, 3, 4])
    ridged = np.array([2, 5])
    covariance = np.linalg.inv(PRECISION)
    own = covariance[np.ix_(free, free)]
    gain = covariance[np.ix_(ridged, free)] @ np.linalg.inv(own)
    left = covariance[np.ix_(ridged, ridged)] - gain @ covariance[np.ix_(free, ridged)]
    betas, scales = list[FloatArray](), list[FloatArray]()
    while sum(map(len, betas)) < draws:
        scale = SCALE * np.abs(rng.standard_t(3, (200_000, Q, FREE)))
        values = (scale * (rng.standard_normal(scale.shape) @ root.T)).reshape(-1, 4)
        off = values - MEAN[free]
        squares = (off @ np.linalg.inv(own) * off).sum(1)
        taken = rng.random(len(off)) < np.exp(-0.5 * squares)
        others = MEAN[ridged] + off[taken] @ gain.T
        others += rng.standard_normal(others.shape) @ np.linalg.cholesky(left).T
        beta = np.empty((taken.sum(), Q, K))
        beta[:, :, :FREE], beta[:, :, FREE] = values[taken].reshape(-1, Q, FREE), others
        betas.append(beta.swapaxes(1, 2))
        scales.append(scale[taken])
    return np.concatenate(betas)[:draws], np.concatenate(scales)[:draws]


def shifts_of(draws: int, variance: float = 1e-3) -> CoefficientShifts:
    precision = np.broadcast_to(PRECISION.reshape(Q, K, Q, K), (draws, Q, K, Q, K))
    rng = Streams.of(np.random.default_rng(5), 1, draws)
    return CoefficientShifts(precision.copy(), np.full((draws, Q), variance), FREE, rng)


def moved(draws: int = 20_000) -> tuple[FloatArray, FloatArray]:
    """Draws of the posterior after a move, (draws, Q FREE) each."""
    beta, scale = posterior(draws, np.random.default_rng(4))
    block: Any = SimpleNamespace(
        beta=beta, scale=scale, prior=(3.0, SCALE),
        inverse_correlation=np.broadcast_to(np.linalg.inv(OMEGA), (draws, FREE, FREE)),
    )  # fmt: skip
    block.half_t = lambda s: CoefficientBlocks.half_t(block, s)
    block.log_normal = lambda b: CoefficientBlocks.log_normal(block, b)
    shifts = shifts_of(draws)
    assert shifts.directions.shape == (draws, Q, FREE, K)
    shifts.draw_random_numbers(1)
    precision = np.broadcast_to(PRECISION.reshape(Q, K, Q, K), (draws, Q, K, Q, K))
    linear = np.broadcast_to((PRECISION @ MEAN).reshape(Q, K), (draws, Q, K))
    shifts.move(0, block, precision, linear)
    assert 0.2 < np.mean(block.beta != beta) < 0.99
    return block.beta, block.scale


def smallest_p(draws: int = 20_000) -> float:
    """Of comparisons with other draws of the posterior: single ones, and what hangs together."""
    found = []
    for beta, scale in (moved(draws), posterior(draws, np.random.default_rng(6))):
        logs, flat = np.log(scale).reshape(-1, Q * FREE), beta.reshape(-1, K * Q)
        ties = [flat[:, 0] * flat[:, 3], logs[:, 0] - np.log(np.abs(beta[:, 0, 0])),
                np.sign(beta[:, 0, 0] * beta[:, 1, 0]) * scale[:, 0, 0]]  # fmt: skip
        found.append(np.column_stack([flat, logs, *ties]))
    return min(stats.ks_2samp(a, b).pvalue for a, b in zip(*(x.T for x in found), strict=True))


def test_a_move_leaves_the_posterior() -> None:
    assert smallest_p() > LEVEL


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("half_t", lambda block, s: np.zeros_like(s)),
        ("half_t", lambda block, s: -np.log(s)),
        ("log_normal", lambda block, b: np.zeros(len(b))),
    ],
    ids=["no prior of scales", "another Jacobian", "signs turn for nothing"],
)
def test_wrong_ratios_are_rejected(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoefficientBlocks, name, wrong)
    assert smallest_p() < LEVEL / 100


def test_directions_are_of_coefficients_that_the_likelihood_hardly_tells() -> None:
    """Columns of the covariance, widest first, one in their own coordinate; known ones none."""
    covariance = np.linalg.inv(PRECISION)
    shifts = shifts_of(1)
    for j in range(Q):
        own = covariance[j * K : (j + 1) * K, j * K : (j + 1) * K]
        order = np.argsort(-np.diag(own)[:FREE])
        expected = own[order] / np.diag(own)[order, None]
        np.testing.assert_allclose(shifts.directions[0, j], expected, rtol=1e-5)
    known = coefficient_shifts.FEW_RECORDS * np.diag(covariance)[[0, 1, 3, 4]].max()
    assert shifts_of(1, 1.01 * known).directions.shape[2] == 0
    assert shifts_of(1, 0.9 * known).directions.shape[2] == 1
    precision = np.repeat(PRECISION.reshape(1, Q, K, Q, K), 2, axis=0)
    variance = np.repeat([[1e-3], [1.01 * known]], Q, axis=1)
    rng = Streams.of(np.random.default_rng(5), 1, 2)
    both = CoefficientShifts(precision, variance, FREE, rng)  # each chain for itself
    np.testing.assert_allclose(both.directions[0], shifts.directions[0])
    assert not both.directions[1].any()
