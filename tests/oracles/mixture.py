"""The mixture as a density on Stan's unconstrained scale, as in ``normal_mixture.stan``.

Order of u: logits of the components but the first (H - 1), log a, beta (column by column of K x H),
log(s_h - least_sd) (H), log coefficient scales (K), coefficient correlation (K (K - 1) / 2) and,
with a weight, delta, gamma (K) and log s.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.gaussian.blocks import HALF_T_DF
from surveysynth.models.mixture import MixtureStats, log_shares
from tests.oracles import survey_weight, unconstrained
from tests.oracles.coefficient_prior import shared_scale_log_prior
from tests.oracles.unconstrained import CorrelationRoot


class SharesTerm(NamedTuple):
    """Log prior of logits and log a, with its gradients; log shares (H,)."""

    value: float
    by_logits: FloatArray
    by_log_a: float
    log_pi: FloatArray
    pi: FloatArray


#: Exponents below this add nothing to the digits of a sum.
_SMALLEST = -300.0


def _by_cell(values: FloatArray, sums: MixtureStats) -> FloatArray:
    """Values (H, P) summed by cell, (H, G)."""
    return np.stack([np.bincount(sums.cell, own, len(sums.x)) for own in values])


def responsibilities(
    sums: MixtureStats, log_pi: FloatArray, beta: FloatArray, sd: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute shares, standardized residuals and log-likelihoods of pairs.

    Shares (H, P) of the components in each pair, residuals (H, P), and the log-likelihood (P,) of a
    pair without its constant.
    """
    inverse = 1.0 / sd
    # ``take`` keeps the numbers of a component contiguous; an index would not.
    residual = sums.y - np.take(beta @ sums.x.T, sums.cell, axis=1)
    residual *= inverse[:, None]
    exponent = residual * residual
    exponent *= -0.5
    exponent += (log_pi + np.log(inverse))[:, None]
    largest = exponent.max(axis=0)
    exponent -= largest
    # Subnormal numbers slow every sum down; these add nothing to its digits.
    np.maximum(exponent, _SMALLEST, out=exponent)
    share = np.exp(exponent)
    total = share.sum(axis=0)
    share /= total
    return share, residual, largest + np.log(total)


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
    found = log_likelihood(stats, shares.log_pi, beta, priors["least_sd"] + above)
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


class MixtureValue(NamedTuple):
    """Weighted log-likelihood; weight by component (H,), which is its gradient in log pi_h as if
    these were free; gradients in beta (H, K) and in the SDs (H,)."""

    value: float
    mass: FloatArray
    by_beta: FloatArray
    by_sd: FloatArray


def log_likelihood(
    sums: MixtureStats, log_pi: FloatArray, beta: FloatArray, sd: FloatArray
) -> MixtureValue:
    """At log_pi (H,), beta (H, K), sd (H,)."""
    share, residual, log_lik = responsibilities(sums, log_pi, beta, sd)
    share *= sums.mass
    value = float(sums.mass @ log_lik) - 0.5 * unconstrained.LOG_2PI * sums.mass.sum()
    mass = share.sum(axis=1)
    share *= residual
    by_beta = _by_cell(share, sums) @ sums.x / sd[:, None]
    by_sd = (np.einsum("hp,hp->h", share, residual) - mass) / sd
    return MixtureValue(value, mass, by_beta, by_sd)
