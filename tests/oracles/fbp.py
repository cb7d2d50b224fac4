"""FBP as a density on Stan's unconstrained scale, and as the Stan program ``fbp.stan``.

Order of u: beta (K), selection (1 + K), log s_y and log s_pi.
"""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.gaussian.model import GaussianStats
from tests.oracles import slopes, unconstrained


def log_density(
    u: FloatArray, stats: GaussianStats, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Weighted log posterior of methods 3 and its gradient: u (..., d) to (...) and (..., d).

    ``stats`` of one database. All constants and Jacobians are in it.
    """
    value, gradient = _log_density(u.reshape(-1, u.shape[-1]), stats, priors)
    return value.reshape(u.shape[:-1]), gradient.reshape(u.shape)


def _log_density(
    u: FloatArray, stats: GaussianStats, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    k = stats.fit.shape[-2]
    beta, selection, log_sd = unconstrained.split(u, (k, k + 1, 2))
    k_y, k_x = selection[..., 0], selection[..., 1:]
    total, count, x_sum = stats.total[0], stats.count[0], stats.x_sum[0]
    free = k - stats.ridges
    squares_y = stats.outcome_squares(beta)
    squares_pi = stats.conditional_squares(selection)
    variance = np.exp(2.0 * log_sd)
    v_y, v_pi = variance[..., 0], variance[..., 1]
    mean_sum = beta @ x_sum
    tilt = k_x @ x_sum + k_y * mean_sum + 0.5 * total * (v_pi + k_y * k_y * v_y)
    value = -count * (unconstrained.LOG_2PI + log_sd.sum(-1)) - tilt
    value = value - 0.5 * (squares_y / v_y + squares_pi / v_pi)

    beta_prior, beta_gradient = unconstrained.normal_log_density(
        beta[..., :free], priors["coefficient_sd"]
    )
    selection_prior, selection_gradient = unconstrained.normal_log_density(
        selection[..., : free + 1], priors["selection_sd"]
    )
    beta_gradient = unconstrained.padded(beta_gradient, k)
    selection_gradient = unconstrained.padded(selection_gradient, k + 1)
    sd_prior, sd_slope = unconstrained.half_t_log_density(log_sd, 1.0, priors["residual_scale"])
    value = value + beta_prior + selection_prior + sd_prior.sum(-1)
    beta_gradient = beta_gradient - k_y[..., None] * x_sum
    beta_gradient = beta_gradient - 0.5 * slopes.outcome_slope(stats, beta) / v_y[..., None]
    selection_slope = slopes.conditional_slope(stats, selection)
    selection_gradient = selection_gradient - 0.5 * selection_slope / v_pi[..., None]
    selection_gradient[..., 0] -= mean_sum + total * k_y * v_y
    selection_gradient[..., 1:] -= x_sum
    residual_squares = np.stack([squares_y, squares_pi], axis=-1) / variance
    tilted = total * variance * np.stack([k_y * k_y, np.ones_like(k_y)], axis=-1)
    log_sd_gradient = sd_slope - count + residual_squares - tilted
    gradient = [beta_gradient, selection_gradient, log_sd_gradient]
    return value, np.concatenate(gradient, axis=-1)


def constrain(u: FloatArray, shape: tuple[int, ...]) -> Theta:
    """u (..., d), d = 2 K + 3, to FBP's parameters; ``shape`` (K, 2)."""
    k = shape[0]
    beta, selection, log_sd = unconstrained.split(u, (k, k + 1, 2))
    return {"beta": beta, "selection": selection, "variance": np.exp(2.0 * log_sd)}


def unconstrain(theta: Theta) -> FloatArray:
    """Inverse of ``constrain``."""
    log_sd = 0.5 * np.log(theta["variance"])
    return np.concatenate([theta["beta"], theta["selection"], log_sd], axis=-1)
