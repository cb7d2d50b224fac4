"""The count models as densities on Stan's unconstrained scale, as in ``poisson.stan`` and
``negative_binomial.stan``.

Order of u: beta (K), log phi (if any), log coefficient scales (K), coefficient correlation
(K (K - 1) / 2) and, with a weight, delta, gamma (K) and log s.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.counts.family import CountFamily
from surveysynth.models.counts.mode import overdispersion_log_prior
from surveysynth.models.counts.stats import CountStats
from surveysynth.models.parts import survey_weight
from surveysynth.models.parts.coefficient_prior import coefficient_log_prior
from surveysynth.sampling import unconstrained
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.sampling.unconstrained import CorrelationRoot


def _split(family: CountFamily, u: FloatArray, shape: tuple[int, int]) -> list[FloatArray]:
    k, q = shape
    weight = k + 2 if q > 1 else 0
    extra = int(family.overdispersed)
    return unconstrained.split(u, (k, extra, k, unconstrained.correlation_size(k), weight))


def log_density(
    family: CountFamily, u: FloatArray, stats: CountStats, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Weighted log posterior of methods 3 and its gradient: u (..., d) to (...) and (..., d).

    All constants and Jacobians are in it.
    """
    flat = u.reshape(-1, u.shape[-1])
    beta, log_phi, log_scale, correlation, weight = _split(family, flat, stats.shape)
    value, by_beta, by_log_phi = (
        part[0] for part in family.log_likelihood(stats.counts, beta[None], log_phi[None])
    )
    prior = coefficient_log_prior(
        beta[:, :, None], log_scale[:, :, None], correlation,
        priors["coefficient_scale"], priors["lkj"],
    )  # fmt: skip
    value = value + prior.value
    if family.overdispersed:
        phi_prior, slope = overdispersion_log_prior(log_phi, priors["overdispersion_scale"])
        value, by_log_phi = value + phi_prior[:, 0], by_log_phi + slope
    gradients = [
        by_beta + prior.beta[:, :, 0],
        by_log_phi,
        prior.log_scale[:, :, 0],
        prior.correlation,
    ]
    if stats.weight is not None:
        weight_value, weight_gradient = survey_weight.log_density(weight, stats.weight, priors)
        value = value + weight_value
        gradients.append(weight_gradient)
    return value.reshape(u.shape[:-1]), np.concatenate(gradients, axis=-1).reshape(u.shape)


def constrain(family: CountFamily, u: FloatArray, shape: tuple[int, int]) -> Theta:
    """u (..., d) to the parameters; ``shape`` (K, q), q = 2 with a weight."""
    beta, log_phi, log_scale, correlation, weight = _split(family, u, shape)
    root = CorrelationRoot.from_unconstrained(correlation, shape[0]).root
    theta = {"beta": beta}
    if family.overdispersed:
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


def _data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """What the Stan programs of both models take of one database, JSON-ready."""
    counts, k = stats.counts, stats.shape[0]
    inside = counts.mass[0] > 0
    return {
        "K": k,
        "G": int(inside.sum()),
        "x": counts.x[0, inside].tolist(),
        "mass": counts.mass[0, inside].tolist(),
        "sums": counts.sums[0, inside].tolist(),
        "log_factorials": float(counts.log_factorials[0]),
        "coefficient_scale_prior": priors["coefficient_scale"],
        "lkj": priors["lkj"],
        **survey_weight.stan_data(stats.weight, k, priors),
    }


def _overdispersed_data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    values, mass = stats.counts.values[0], stats.counts.value_mass[0]
    return {
        **_data(stats, priors),
        "D": values.size,
        "values": values.tolist(),
        "value_mass": mass.tolist(),
        "overdispersion_scale": priors["overdispersion_scale"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    """Stan's draws by name as Theta."""
    theta = {"beta": draws["beta"]}
    if "overdispersion" in draws:
        theta["overdispersion"] = draws["overdispersion"]
    root = draws["coefficient_root"]
    theta["coefficient_scale"] = draws["coefficient_scale"]
    theta["coefficient_correlation"] = root @ root.swapaxes(-1, -2)
    return {**theta, **survey_weight.stan_theta(draws)}


POISSON = StanProgramSpec("poisson.stan", _data, _theta)
NEGATIVE_BINOMIAL = StanProgramSpec("negative_binomial.stan", _overdispersed_data, _theta)
