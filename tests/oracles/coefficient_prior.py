"""Density of the hierarchical prior of regression coefficients (methods 3), for FBS and normal.

    b_j ~ N(0, D_j Omega D_j), j = 1..q;  D_j = diag(sigma_j), sigma_jk ~ half-t3;  Omega ~ LKJ
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.gaussian.blocks import HALF_T_DF
from tests.oracles import unconstrained
from tests.oracles.unconstrained import CorrelationRoot


@dataclass(frozen=True)
class PriorTerm:
    """Value (S,) and gradients of the log prior: beta (S, K, q), log scales (S, K, q), the
    unconstrained Omega (S, K (K - 1) / 2)."""

    value: FloatArray
    beta: FloatArray
    log_scale: FloatArray
    correlation: FloatArray


def coefficient_log_prior(
    beta: FloatArray, log_scale: FloatArray, u: FloatArray, prior_scale: float, lkj: float
) -> PriorTerm:
    """log p(beta, scales, Omega) with all Jacobians and constants.

    beta and log_scale (S, K, q), u (S, K (K - 1) / 2) of Omega.
    """
    k, q = beta.shape[-2:]
    omega = CorrelationRoot.from_unconstrained(u, k)
    standardized = beta * np.exp(-log_scale)
    white = np.linalg.solve(omega.root, standardized)
    precise = np.linalg.solve(omega.root.swapaxes(-1, -2), white)
    scales, scale_slope = unconstrained.half_t_log_density(log_scale, HALF_T_DF, prior_scale)
    lkj_value, lkj_weight = unconstrained.lkj_log_density(omega, lkj)
    value = (
        -0.5 * k * q * unconstrained.LOG_2PI
        - q * omega.log_diagonal.sum(-1)
        - log_scale.sum((-2, -1))
        - 0.5 * (white * white).sum((-2, -1))
        + scales.sum((-2, -1))
        + lkj_value
        + omega.log_jacobian
    )
    return PriorTerm(
        value=value,
        beta=-precise * np.exp(-log_scale),
        log_scale=standardized * precise - 1.0 + scale_slope,
        correlation=omega.gradient(precise @ white.swapaxes(-1, -2), lkj_weight - q),
    )
