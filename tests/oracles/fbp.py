"""FBP as a density on Stan's unconstrained scale, and as the Stan program ``fbp.stan``.

Order of u: beta (K), selection (1 + K), log s_y and log s_pi. With effects of PSUs theirs follow
(``parts.psu_density``); those of the sampled ones are N(T b, T), b = (k_y, 1)'.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.parts.gaussian import GaussianStats
from tests.oracles import psu_effects, slopes, unconstrained
from tests.oracles.psu_effects import PsuParts, psu_log_prior, split_psu_parts


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
    u, psu = split_psu_parts(u, 2 * k + 3, 2)
    beta, selection, log_sd = unconstrained.split(u, (k, k + 1, 2))
    k_y, k_x = selection[..., 0], selection[..., 1:]
    total, count, x_sum = stats.total[0], stats.count[0], stats.x_sum[0]
    free = k - stats.ridges
    squares_y = stats.outcome_squares(beta)
    squares_pi = stats.conditional_squares(selection)
    of_effects = None
    if psu is not None and stats.psu is not None:
        of_effects = _OfEffects.at(stats, beta, selection, np.exp(2.0 * log_sd), psu, priors)
        squares_y, squares_pi = squares_y + of_effects.squares_y, squares_pi + of_effects.squares_pi
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
    if of_effects is not None:
        value = value + of_effects.value
        gradient = [beta_gradient + of_effects.beta, selection_gradient + of_effects.selection]
        gradient += [log_sd_gradient, of_effects.psu.joined()]
    return value, np.concatenate(gradient, axis=-1)


@dataclass(frozen=True)
class _OfEffects:
    """What effects of PSUs add: to both sums of squares (S,), to the value (S,) otherwise, and to
    the gradients in beta (S, K) and selection (S, 1 + K); their own gradient."""

    squares_y: FloatArray
    squares_pi: FloatArray
    value: FloatArray
    beta: FloatArray
    selection: FloatArray
    psu: PsuParts

    @classmethod
    def at(
        cls,
        stats: GaussianStats,
        beta: FloatArray,
        selection: FloatArray,
        variance: FloatArray,
        parts: PsuParts,
        priors: Mapping[str, float],
    ) -> "_OfEffects":
        """Effects a_c = (a_c1, a_c2) on y and on log pi given y: variance (S, 2) = (s_y², s_pi²).

        Besides the squares, E(pi | x, a) has a factor exp(a_c2 + k_y a_c1)."""
        assert stats.psu is not None  # whose effects these are
        psu, k_y = stats.psu, selection[:, 0, None]
        total, x_sum = psu.total[0], psu.x_sum[0]
        of_y, of_v = psu.residual[0].T
        a_y, a_v = parts.effects[..., 0], parts.effects[..., 1]
        fit_y, fit_v = stats.fit[0].T
        # Weighted sums of y - x beta and of log pi - k_y y - x k_x, and what is left after effects.
        r_y = of_y - (beta - fit_y) @ x_sum.T
        y_sum = of_y + x_sum @ fit_y
        r_v = of_v + x_sum @ fit_v - k_y * y_sum - selection[:, 1:] @ x_sum.T
        left_y, left_v = r_y - total * a_y, r_v - total * a_v
        white_y, white_v = a_y / variance[:, :1], a_v / variance[:, 1:]
        tilt = np.concatenate([k_y, np.ones_like(k_y)], axis=1)
        prior = psu_log_prior(parts, priors["psu_scale"], priors["lkj"], tilt)
        by_k_y = prior.tilt[:, 0] - white_v @ y_sum - a_y @ total
        by_effect = np.stack(
            [left_y / variance[:, :1] - k_y * total, left_v / variance[:, 1:] - total], axis=-1
        )
        return cls(
            squares_y=-((r_y + left_y) * a_y).sum(-1),
            squares_pi=-((r_v + left_v) * a_v).sum(-1),
            value=prior.value - (a_v + k_y * a_y) @ total,
            beta=-white_y @ x_sum,
            selection=np.concatenate([by_k_y[:, None], -white_v @ x_sum], axis=1),
            psu=replace(prior.gradient, effects=prior.gradient.effects + by_effect),
        )


def constrain(u: FloatArray, shape: tuple[int, ...]) -> Theta:
    """u (..., d), d = 2 K + 3 without effects, to FBP's parameters; ``shape`` (K, 2)."""
    k = shape[0]
    u, psu = split_psu_parts(u, 2 * k + 3, 2)
    beta, selection, log_sd = unconstrained.split(u, (k, k + 1, 2))
    theta = {"beta": beta, "selection": selection, "variance": np.exp(2.0 * log_sd)}
    return {**theta, **psu_effects.constrained(psu)}


def unconstrain(theta: Theta) -> FloatArray:
    """Inverse of ``constrain``."""
    log_sd = 0.5 * np.log(theta["variance"])
    psu = psu_effects.unconstrained_of(theta)
    last = [log_sd] if psu is None else [log_sd, psu]
    return np.concatenate([theta["beta"], theta["selection"], *last], axis=-1)
