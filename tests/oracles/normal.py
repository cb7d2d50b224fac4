"""The normal regression as a density on Stan's unconstrained scale, and as ``normal.stan``.

Order of u: beta (K), log sigma, log coefficient scales (K), coefficient correlation
(K (K - 1) / 2) and, with a weight, delta, gamma (K) and log s.
"""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.gaussian.blocks import HALF_T_DF
from surveysynth.models.gaussian.model import GaussianStats
from tests.oracles import slopes, survey_weight, unconstrained
from tests.oracles.coefficient_prior import coefficient_log_prior
from tests.oracles.unconstrained import CorrelationRoot, Shape


def _split(u: FloatArray, shape: Shape) -> list[FloatArray]:
    k, q, free = unconstrained.shape_of(shape)
    weight = k + 2 if q > 1 else 0
    return unconstrained.split(u, (k, 1, free, unconstrained.correlation_size(free), weight))


def log_density(
    u: FloatArray, stats: GaussianStats, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Weighted log posterior of methods 3 and its gradient: u (..., d) to (...) and (..., d).

    ``stats`` of one database. All constants and Jacobians are in it.
    """
    flat = u.reshape(-1, u.shape[-1])
    k, q = stats.fit.shape[-2:]
    free = k - stats.ridges
    beta, log_sd, log_scale, correlation, weight = _split(flat, (k, q, free))
    precision = np.exp(-2.0 * log_sd)
    squares = stats.outcome_squares(beta)[:, None] * precision
    prior = coefficient_log_prior(
        beta[:, :free, None], log_scale[:, :, None], correlation,
        priors["coefficient_scale"], priors["lkj"],
    )  # fmt: skip
    half_t, half_t_slope = unconstrained.half_t_log_density(
        log_sd, HALF_T_DF, priors["residual_scale"]
    )
    total = stats.count[0]
    value = half_t - total * (0.5 * unconstrained.LOG_2PI + log_sd) - 0.5 * squares
    value = value[:, 0] + prior.value
    slope = 0.5 * slopes.outcome_slope(stats, beta) * precision
    gradients = [
        unconstrained.padded(prior.beta[:, :, 0], k) - slope,
        squares - total + half_t_slope,
        prior.log_scale[:, :, 0],
        prior.correlation,
    ]
    if weight.shape[-1]:
        weight_value, weight_gradient = survey_weight.log_density(weight, stats, priors)
        value = value + weight_value
        gradients.append(weight_gradient)
    return value.reshape(u.shape[:-1]), np.concatenate(gradients, axis=-1).reshape(u.shape)


def constrain(u: FloatArray, shape: Shape) -> Theta:
    """u (..., d) to the parameters; ``shape`` (K, q), q = 2 with a weight, as for FBS."""
    beta, log_sd, log_scale, correlation, weight = _split(u, shape)
    root = CorrelationRoot.from_unconstrained(correlation, log_scale.shape[-1]).root
    theta = {
        "beta": beta,
        "variance": np.exp(2.0 * log_sd),
        "coefficient_scale": np.exp(log_scale),
        "coefficient_correlation": root @ root.swapaxes(-1, -2),
    }
    if weight.shape[-1]:
        theta["weight_coefficients"] = weight[..., :-1]
        both = np.concatenate([log_sd, weight[..., -1:]], axis=-1)
        theta["variance"] = np.exp(2.0 * both)
    return theta


def unconstrain(theta: Theta) -> FloatArray:
    """Inverse of ``constrain``."""
    root = unconstrained.correlation_of(theta["coefficient_correlation"])[1]
    log_sd = 0.5 * np.log(theta["variance"])
    parts = [
        theta["beta"],
        log_sd[..., :1],
        np.log(theta["coefficient_scale"]),
        unconstrained.unconstrained_correlation(root),
    ]
    if "weight_coefficients" in theta:
        parts += [theta["weight_coefficients"], log_sd[..., 1:]]
    return np.concatenate(parts, axis=-1)
