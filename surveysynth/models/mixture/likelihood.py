"""Weighted log-likelihood of a finite mixture of normal regressions, with its gradient.

    log p(y | x) = log sum_h pi_h N(y | x beta_h, s_h^2),   h = 1..H
"""

from typing import NamedTuple

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.mixture.stats import MixtureSums
from surveysynth.sampling.unconstrained import LOG_2PI

_SMALLEST = -300.0


class MixtureValue(NamedTuple):
    """Weighted log-likelihood; weight by component (H,), which is its gradient in log pi_h as if
    these were free; gradients in beta (H, K) and in the SDs (H,)."""

    value: float
    mass: FloatArray
    by_beta: FloatArray
    by_sd: FloatArray


def responsibilities(
    sums: MixtureSums, log_pi: FloatArray, beta: FloatArray, sd: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares (H, P) of the components in each pair, standardised residuals (H, P), and the
    log-likelihood (P,) of a pair but for its constant."""
    inverse = 1.0 / sd
    # ``take`` keeps components in rows of neighbouring numbers, an index would not.
    residual = sums.y - np.take(beta @ sums.x.T, sums.cell, axis=1)
    residual *= inverse[:, None]
    exponent = residual * residual
    exponent *= -0.5
    exponent += (log_pi + np.log(inverse))[:, None]
    largest = exponent.max(axis=0)
    exponent -= largest
    # Numbers below the normal range slow every sum down; these add nothing to the digits of one.
    np.maximum(exponent, _SMALLEST, out=exponent)
    share = np.exp(exponent)
    total = share.sum(axis=0)
    share /= total
    return share, residual, largest + np.log(total)


def log_likelihood(
    sums: MixtureSums, log_pi: FloatArray, beta: FloatArray, sd: FloatArray
) -> MixtureValue:
    """At log_pi (H,), beta (H, K), sd (H,)."""
    share, residual, log_lik = responsibilities(sums, log_pi, beta, sd)
    share *= sums.mass
    value = float(sums.mass @ log_lik) - 0.5 * LOG_2PI * sums.total
    mass = share.sum(axis=1)
    share *= residual
    by_beta = sums.by_cell(share) @ sums.x / sd[:, None]
    by_sd = (np.einsum("hp,hp->h", share, residual) - mass) / sd
    return MixtureValue(value, mass, by_beta, by_sd)


def log_mass(
    y: FloatArray, x: FloatArray, log_pi: FloatArray, beta: FloatArray, sd: FloatArray
) -> FloatArray:
    """Log-likelihoods (S, P) of pairs y (P,), x (P, K) under S draws: log_pi (S, H),
    beta (S, H, K), sd (S, H)."""
    constant = log_pi - np.log(sd) - 0.5 * LOG_2PI
    result = np.full((beta.shape[0], y.size), -np.inf)
    for h in range(beta.shape[1]):
        residual = (y - beta[:, h] @ x.T) / sd[:, h, None]
        result = np.logaddexp(result, constant[:, h, None] - 0.5 * residual * residual)
    return result
