"""The count models as densities on Stan's unconstrained scale, as in ``poisson.stan`` and
``negative_binomial.stan``.

Order of u: beta (K), log phi (if any), log coefficient scales (K), coefficient correlation
(K (K - 1) / 2) and, with a weight, delta, gamma (K) and log s.
"""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.counts import CountStats, log_rising
from tests.oracles import survey_weight, unconstrained
from tests.oracles.coefficient_prior import coefficient_log_prior
from tests.oracles.unconstrained import CorrelationRoot, Shape


def _split(overdispersed: bool, u: FloatArray, shape: Shape) -> list[FloatArray]:
    k, q, free = unconstrained.shape_of(shape)
    weight = k + 2 if q > 1 else 0
    extra = int(overdispersed)
    return unconstrained.split(u, (k, extra, free, unconstrained.correlation_size(free), weight))


def log_density(
    overdispersed: bool, u: FloatArray, stats: CountStats, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Weighted log posterior of methods 3 and its gradient: u (..., d) to (...) and (..., d).

    All constants and Jacobians are in it.
    """
    flat = u.reshape(-1, u.shape[-1])
    k, q = stats.x.shape[-1], 1 if stats.weight is None else 2
    free = k - stats.shrunken
    beta, log_phi, log_scale, correlation, weight = _split(overdispersed, flat, (k, q, free))
    value, by_beta, by_log_phi = (
        part[0] for part in log_likelihood(overdispersed, stats, beta[None], log_phi[None])
    )
    prior = coefficient_log_prior(
        beta[:, :free, None], log_scale[:, :, None], correlation,
        priors["coefficient_scale"], priors["lkj"],
    )  # fmt: skip
    ridge, ridge_slope = unconstrained.normal_log_density(
        beta[:, free:], priors["interaction_scale"]
    )
    value = value + prior.value + ridge
    if overdispersed:
        phi_prior, slope = overdispersion_log_prior(log_phi, priors["overdispersion_scale"])
        value, by_log_phi = value + phi_prior[:, 0], by_log_phi + slope
    gradients = [
        by_beta + np.concatenate([prior.beta[:, :, 0], ridge_slope], axis=1),
        by_log_phi,
        prior.log_scale[:, :, 0],
        prior.correlation,
    ]
    if stats.weight is not None:
        weight_value, weight_gradient = survey_weight.log_density(weight, stats.weight, priors)
        value = value + weight_value
        gradients.append(weight_gradient)
    return value.reshape(u.shape[:-1]), np.concatenate(gradients, axis=-1).reshape(u.shape)


def constrain(overdispersed: bool, u: FloatArray, shape: Shape) -> Theta:
    """u (..., d) to the parameters; ``shape`` (K, q), q = 2 with a weight, as for FBS."""
    beta, log_phi, log_scale, correlation, weight = _split(overdispersed, u, shape)
    root = CorrelationRoot.from_unconstrained(correlation, log_scale.shape[-1]).root
    theta = {"beta": beta}
    if overdispersed:
        theta["overdispersion"] = np.exp(log_phi)
    theta["coefficient_scale"] = np.exp(log_scale)
    theta["coefficient_correlation"] = root @ root.swapaxes(-1, -2)
    if weight.shape[-1]:
        theta["weight_coefficients"] = weight[..., :-1]
        theta["weight_variance"] = np.exp(2.0 * weight[..., -1:])
    return theta


def unconstrain(theta: Theta) -> FloatArray:
    """Inverse of ``constrain``."""
    root = unconstrained.correlation_of(theta["coefficient_correlation"])[1]
    parts = [theta["beta"]]
    if "overdispersion" in theta:
        parts.append(np.log(theta["overdispersion"]))
    parts += [np.log(theta["coefficient_scale"]), unconstrained.unconstrained_correlation(root)]
    if "weight_coefficients" in theta:
        parts += [theta["weight_coefficients"], 0.5 * np.log(theta["weight_variance"])]
    return np.concatenate(parts, axis=-1)


def _poisson_log_likelihood(
    sums: CountStats, beta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    eta = beta @ sums.x.swapaxes(-1, -2)
    mean = np.exp(eta) * sums.mass[:, None]
    value = _by_cell(eta, sums.sums) - mean.sum(-1) - sums.log_factorials
    return value, (sums.sums[:, None] - mean) @ sums.x, np.zeros_like(log_phi)


def _negative_binomial_log_likelihood(
    sums: CountStats, beta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    phi = np.exp(log_phi)
    log_odds, log_rest = _odds(beta @ sums.x.swapaxes(-1, -2), log_phi)
    share = np.exp(log_odds - log_rest)
    rising, slope = log_rising(phi, sums.values[:, None])
    counted, mass = sums.sums[:, None], sums.mass[:, None]
    total = mass * phi
    value = _by_cell(log_odds - log_rest, sums.sums) - (total * log_rest).sum(-1)
    value = value + _by_cell(rising, sums.value_mass) - sums.log_factorials
    by_beta = (counted - (counted + total) * share) @ sums.x
    by_phi = (-counted * np.exp(-log_rest) / phi - mass * (log_rest - share)).sum(-1)
    by_log_phi = phi[..., 0] * (by_phi + _by_cell(slope, sums.value_mass))
    return value, by_beta, by_log_phi[..., None]


def overdispersion_log_prior(log_phi: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    """Log density of log phi, elementwise, and its slope: 1/phi ~ half-Cauchy(0, scale)."""
    value, slope = unconstrained.half_t_log_density(-log_phi, 1.0, scale)
    return value, -slope


def log_likelihood(
    overdispersed: bool, sums: CountStats, beta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Value (B, S) and gradients (B, S, K), (B, S, 1 or 0) at beta (B, S, K), log_phi."""
    of = _negative_binomial_log_likelihood if overdispersed else _poisson_log_likelihood
    return of(sums, beta, log_phi)


def _by_cell(values: FloatArray, by_cell: FloatArray) -> FloatArray:
    return np.asarray((values @ by_cell[:, :, None])[..., 0], dtype=np.float64)


def _odds(eta: FloatArray, log_phi: FloatArray) -> tuple[FloatArray, FloatArray]:
    log_odds = eta - log_phi
    return log_odds, np.logaddexp(0.0, log_odds)
