"""The mixture's parameters on Stan's unconstrained scale, as in ``normal_mixture.stan``.

Order of u: logits of the components but the first (H - 1), log a, beta (column by column of K x H),
log(s_h - least_sd) (H), log coefficient scales (K), coefficient correlation (K (K - 1) / 2) and,
with a weight, delta, gamma (K) and log s.
"""

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.mixture import log_shares
from tests.oracles import unconstrained
from tests.oracles.unconstrained import CorrelationRoot


def split(u: FloatArray, shape: tuple[int, int], components: int) -> list[FloatArray]:
    """Parts of u (..., d) in their order; beta (..., H, K)."""
    k, q = shape
    weight = k + 2 if q > 1 else 0
    pairs = unconstrained.correlation_size(k)
    sizes = (components - 1, 1, components * k, components, k, pairs, weight)
    parts = unconstrained.split(u, sizes)
    parts[2] = parts[2].reshape(*u.shape[:-1], components, k)
    return parts


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
