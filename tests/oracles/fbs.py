"""FBS as a density on Stan's unconstrained scale, and as the Stan program ``fbs.stan``.

Order of u: beta by column, log residual scales, residual correlation, log coefficient scales by
column, coefficient correlation; K q + q + q (q - 1)/2 + K q + K (K - 1)/2 values.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.gaussian.blocks import HALF_T_DF
from surveysynth.models.gaussian.model import GaussianStats
from tests.oracles import unconstrained
from tests.oracles.coefficient_prior import coefficient_log_prior
from tests.oracles.unconstrained import CorrelationRoot, Shape


@dataclass(frozen=True)
class _Parts:
    """u taken apart: beta, log_scale (..., K, q), log_residual (..., q), correlations flat."""

    beta: FloatArray
    log_residual: FloatArray
    residual_u: FloatArray
    log_scale: FloatArray
    coefficient_u: FloatArray


def _parts(u: FloatArray, shape: Shape) -> _Parts:
    k, q, free = unconstrained.shape_of(shape)
    pairs = unconstrained.correlation_size
    sizes = (k * q, q, pairs(q), free * q, pairs(free))
    beta, log_residual, residual_u, log_scale, coefficient_u = unconstrained.split(u, sizes)
    lead = u.shape[:-1]
    return _Parts(
        beta.reshape(*lead, q, k).swapaxes(-1, -2),
        log_residual,
        residual_u,
        log_scale.reshape(*lead, q, free).swapaxes(-1, -2),
        coefficient_u,
    )


def _joined(parts: _Parts) -> FloatArray:
    lead = parts.log_residual.shape[:-1]
    by_column = [
        matrix.swapaxes(-1, -2).reshape(*lead, -1) for matrix in (parts.beta, parts.log_scale)
    ]
    joined = [by_column[0], parts.log_residual, parts.residual_u, by_column[1], parts.coefficient_u]
    return np.concatenate(joined, axis=-1)


def log_density(
    u: FloatArray, stats: GaussianStats, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Weighted log posterior of methods 3 and its gradient: u (..., d) to (...) and (..., d).

    ``stats`` of one database. All constants and Jacobians are in it.
    """
    k, q = stats.fit.shape[-2:]
    free = k - stats.ridges
    p = _parts(u, (k, q, free))
    total, shift = stats.count[0], p.beta - stats.fit[0]
    correlation = CorrelationRoot.from_unconstrained(p.residual_u, q)
    scale = np.exp(p.log_residual)[..., :, None]
    root = scale * correlation.root
    gram_shift = stats.gram[0] @ shift
    squares = stats.residual[0] + shift.swapaxes(-1, -2) @ gram_shift
    # tr(Sigma^-1 S) by the factor T of Sigma; its derivative in T is -2 Sigma^-1 S T^-T.
    inverse = np.linalg.inv(root)
    inner = inverse @ squares @ inverse.swapaxes(-1, -2)
    slope = inverse.swapaxes(-1, -2) @ inner
    log_det = p.log_residual.sum(-1) + correlation.log_diagonal.sum(-1)
    log_likelihood = -total * (0.5 * q * unconstrained.LOG_2PI + log_det)
    log_likelihood -= 0.5 * np.einsum("...ii->...", inner)

    prior = coefficient_log_prior(
        p.beta[..., :free, :], p.log_scale, p.coefficient_u,
        priors["coefficient_scale"], priors["lkj"],
    )  # fmt: skip
    half_t, half_t_slope = unconstrained.half_t_log_density(
        p.log_residual, HALF_T_DF, priors["residual_scale"]
    )
    lkj, lkj_weight = unconstrained.lkj_log_density(correlation, priors["lkj"])
    value = log_likelihood + prior.value + half_t.sum(-1) + lkj + correlation.log_jacobian
    precision = inverse.swapaxes(-1, -2) @ inverse
    gradient = _Parts(
        beta=unconstrained.padded(prior.beta, k, axis=-2) - gram_shift @ precision,
        log_residual=(np.tril(slope) * root).sum(-1) - total + half_t_slope,
        residual_u=correlation.gradient(scale * slope, lkj_weight - total),
        log_scale=prior.log_scale,
        coefficient_u=prior.correlation,
    )
    return value, _joined(gradient)


def constrain(u: FloatArray, shape: Shape) -> Theta:
    """u (..., d) to FBS's parameters; ``shape`` (K, q), or (K, q, columns without a ridge)."""
    p = _parts(u, shape)
    residual = CorrelationRoot.from_unconstrained(p.residual_u, shape[1]).root
    residual = np.exp(p.log_residual)[..., :, None] * residual
    free = unconstrained.shape_of(shape)[2]
    coefficient = CorrelationRoot.from_unconstrained(p.coefficient_u, free).root
    return {
        "beta": p.beta,
        "covariance": residual @ residual.swapaxes(-1, -2),
        "coefficient_scale": np.exp(p.log_scale).swapaxes(-1, -2),
        "coefficient_correlation": coefficient @ coefficient.swapaxes(-1, -2),
    }


def unconstrain(theta: Theta) -> FloatArray:
    """Inverse of ``constrain``."""
    residual_scale, residual_root = unconstrained.correlation_of(theta["covariance"])
    coefficient_root = unconstrained.correlation_of(theta["coefficient_correlation"])[1]
    return _joined(
        _Parts(
            theta["beta"],
            np.log(residual_scale),
            unconstrained.unconstrained_correlation(residual_root),
            np.log(theta["coefficient_scale"]).swapaxes(-1, -2),
            unconstrained.unconstrained_correlation(coefficient_root),
        )
    )
