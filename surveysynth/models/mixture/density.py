"""The mixture as a density on Stan's unconstrained scale, as in ``normal_mixture.stan``.

Order of u: logits of the components but the first (H - 1), log a, beta (column by column of K x H),
log(s_h - least_sd) (H), log coefficient scales (K), coefficient correlation (K (K - 1) / 2) and,
with a weight, delta, gamma (K) and log s.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.mixture.likelihood import log_likelihood
from surveysynth.models.mixture.stats import MixtureStats
from surveysynth.models.parts import survey_weight
from surveysynth.models.parts.coefficient_prior import shared_scale_log_prior
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.sampling import unconstrained
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.sampling.unconstrained import CorrelationRoot


class SharesTerm(NamedTuple):
    """Log prior of logits and log a, with its gradients; log shares (H,)."""

    value: float
    by_logits: FloatArray
    by_log_a: float
    log_pi: FloatArray
    pi: FloatArray


def log_shares(logits: FloatArray) -> FloatArray:
    """log pi (..., H) of logits (..., H - 1); the first component's logit is zero."""
    full = np.concatenate([np.zeros((*logits.shape[:-1], 1)), logits], axis=-1)
    largest = full.max(axis=-1, keepdims=True)
    total = np.log(np.exp(full - largest).sum(axis=-1, keepdims=True))
    return np.asarray(full - largest - total, dtype=np.float64)


def shares_log_prior(
    logits: FloatArray, log_a: float, priors: Mapping[str, float]
) -> SharesTerm:
    """pi ~ Dirichlet(a/H), a ~ Gamma(shape, rate), as densities of logits (H - 1,) and log a."""
    log_pi = log_shares(logits)
    count, pi, a = log_pi.size, np.exp(log_pi), float(np.exp(log_a))
    shape, rate = priors["concentration_shape"], priors["concentration_rate"]
    each, total = a / count, float(log_pi.sum())
    # The Jacobian of the logits is the product of the shares.
    value = gammaln(a) - count * gammaln(each) + each * total
    value += shape * np.log(rate) - gammaln(shape) + shape * log_a - rate * a
    slope = a * (psi(a) - psi(each) + total / count) + shape - rate * a
    return SharesTerm(float(value), (each - a * pi)[1:], float(slope), log_pi, pi)


def scales_log_prior(
    log_scale: FloatArray, priors: Mapping[str, float]
) -> tuple[float, FloatArray]:
    """s_h - least_sd ~ half-t3, as a density of its logarithm (H,), with its slope."""
    value, slope = unconstrained.half_t_log_density(log_scale, HALF_T_DF, priors["residual_scale"])
    return float(value.sum()), slope


def split(u: FloatArray, shape: tuple[int, int], components: int) -> list[FloatArray]:
    """Parts of u (..., d) in their order; beta (..., H, K)."""
    k, q = shape
    weight = k + 2 if q > 1 else 0
    pairs = unconstrained.correlation_size(k)
    sizes = (components - 1, 1, components * k, components, k, pairs, weight)
    parts = unconstrained.split(u, sizes)
    parts[2] = parts[2].reshape(*u.shape[:-1], components, k)
    return parts


def log_density(
    u: FloatArray, stats: MixtureStats, components: int, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Weighted log posterior and its gradient: u (..., d) to (...) and (..., d).

    All constants and Jacobians are in it.
    """
    flat = u.reshape(-1, u.shape[-1])
    results = [_at_point(point, stats, components, priors) for point in flat]
    value = np.array([value for value, _ in results]).reshape(u.shape[:-1])
    return value, np.array([gradient for _, gradient in results]).reshape(u.shape)


def _at_point(
    u: FloatArray, stats: MixtureStats, components: int, priors: Mapping[str, float]
) -> tuple[float, FloatArray]:
    parts = split(u, stats.shape, components)
    logits, log_a, beta, log_sd, log_scale, correlation, weight = parts
    shares = shares_log_prior(logits, float(log_a[0]), priors)
    above = np.exp(log_sd)
    found = log_likelihood(stats.outcome, shares.log_pi, beta, priors["least_sd"] + above)
    scales, by_scales = scales_log_prior(log_sd, priors)
    prior = shared_scale_log_prior(
        beta.T[None], log_scale[None], correlation[None],
        priors["coefficient_scale"], priors["lkj"],
    )  # fmt: skip
    value = found.value + shares.value + scales + float(prior.value[0])
    by_logits = shares.by_logits + (found.mass - shares.pi * found.mass.sum())[1:]
    gradients = [
        by_logits,
        np.array([shares.by_log_a]),
        (found.by_beta + prior.beta[0].T).ravel(),
        found.by_sd * above + by_scales,
        prior.log_scale[0],
        prior.correlation[0],
    ]
    if stats.weight is not None:
        of_weight, by_weight = survey_weight.log_density(weight[None], stats.weight, priors)
        value += float(of_weight[0])
        gradients.append(by_weight[0])
    return value, np.concatenate(gradients)


def constrain(
    u: FloatArray, shape: tuple[int, int], components: int, least_sd: float
) -> Theta:
    """u (..., d) to the parameters; ``shape`` (K, q), q = 2 with a weight."""
    parts = split(u, shape, components)
    logits, log_a, beta, log_sd, log_scale, correlation, weight = parts
    root = CorrelationRoot.from_unconstrained(correlation, shape[0]).root
    theta = {
        "log_shares": log_shares(logits),
        "concentration": np.exp(log_a),
        "beta": beta,
        "residual_sd": least_sd + np.exp(log_sd),
        "coefficient_scale": np.exp(log_scale),
        "coefficient_correlation": root @ root.swapaxes(-1, -2),
    }
    if weight.shape[-1]:
        theta["weight_coefficients"] = weight[..., :-1]
        theta["weight_variance"] = np.exp(2.0 * weight[..., -1:])
    return theta


def unconstrain(theta: Theta, least_sd: float) -> FloatArray:
    """Inverse of ``constrain``."""
    root = unconstrained.correlation_of(theta["coefficient_correlation"])[1]
    beta = theta["beta"]
    parts = [
        theta["log_shares"][..., 1:] - theta["log_shares"][..., :1],
        np.log(theta["concentration"]),
        beta.reshape(*beta.shape[:-2], -1),
        np.log(theta["residual_sd"] - least_sd),
        np.log(theta["coefficient_scale"]),
        unconstrained.unconstrained_correlation(root),
    ]
    if "weight_coefficients" in theta:
        parts += [theta["weight_coefficients"], 0.5 * np.log(theta["weight_variance"])]
    return np.concatenate(parts, axis=-1)


def stan_program(components: int, least_sd: float) -> StanProgramSpec:
    """``normal_mixture.stan`` for a number of components."""

    def data(stats: MixtureStats, priors: Mapping[str, float]) -> dict[str, Any]:
        outcome, k = stats.outcome, stats.shape[0]
        own = ("least_sd", "lkj", "concentration_shape", "concentration_rate")
        return {
            "K": k,
            "H": components,
            "G": outcome.x.shape[0],
            "x": outcome.x.tolist(),
            "P": outcome.y.size,
            "cell": (outcome.cell + 1).tolist(),
            "y": outcome.y.tolist(),
            "mass": outcome.mass.tolist(),
            "coefficient_scale_prior": priors["coefficient_scale"],
            "residual_scale_prior": priors["residual_scale"],
            **{name: priors[name] for name in own},
            **survey_weight.stan_data(stats.weight, k, priors),
        }

    def theta(draws: Mapping[str, FloatArray]) -> Theta:
        root, sd = draws["coefficient_root"], draws["above_least_sd"]
        # One component has no logits, and some interfaces then leave them out.
        logits = draws.get("logits", np.empty((*sd.shape[:-1], 0)))
        return {
            "log_shares": log_shares(logits),
            "concentration": draws["concentration"],
            "beta": draws["beta"].swapaxes(-1, -2),
            "residual_sd": least_sd + sd,
            "coefficient_scale": draws["coefficient_scale"],
            "coefficient_correlation": root @ root.swapaxes(-1, -2),
            **survey_weight.stan_theta(draws),
        }

    return StanProgramSpec("normal_mixture.stan", data, theta)
