"""Effects of PSUs in a log density on Stan's unconstrained scale (methods 3, clusters).

    a_c ~ N(0, T), c = 1..C;  T = D Omega D, scales half-t3, Omega ~ LKJ

The order in u, after all other parameters: log scales of T, its correlation, effects by column.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.models.parts.gaussian import PsuStats
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from tests.oracles import unconstrained
from tests.oracles.unconstrained import CorrelationRoot


@dataclass(frozen=True)
class PsuParts:
    """The last part of u taken apart, or its gradient: log_scale (..., q), the correlation's
    partial ones (..., q (q - 1) / 2), effects (..., C, q)."""

    log_scale: FloatArray
    correlation: FloatArray
    effects: FloatArray

    def joined(self) -> FloatArray:
        """As they stand in u."""
        lead = self.log_scale.shape[:-1]
        by_column = self.effects.swapaxes(-1, -2).reshape(*lead, -1)
        return np.concatenate([self.log_scale, self.correlation, by_column], axis=-1)

    @property
    def root(self) -> FloatArray:
        """The Cholesky factor (..., q, q) of T."""
        q = self.log_scale.shape[-1]
        correlation = CorrelationRoot.from_unconstrained(self.correlation, q).root
        return np.asarray(np.exp(self.log_scale)[..., :, None] * correlation, dtype=np.float64)


def split_psu_parts(u: FloatArray, others: int, q: int) -> tuple[FloatArray, PsuParts | None]:
    """The first ``others`` parameters of u (..., d), and those of the effects if there are more.

    There are as many PSUs as fit; raises ``ValueError`` where something is left over.
    """
    own = u.shape[-1] - others
    if own <= 0:
        return u, None
    pairs = unconstrained.correlation_size(q)
    size = (own - q - pairs) // q
    first, log_scale, correlation, effects = unconstrained.split(
        u, (others, q, pairs, max(size, 0) * q)
    )
    by_column = effects.reshape(*u.shape[:-1], q, size)
    return first, PsuParts(log_scale, correlation, by_column.swapaxes(-1, -2))


def effect_squares(
    psu: PsuStats, effects: FloatArray, shift: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What effects (..., C, q) add to the weighted sum of squares (..., q, q) of z - x beta, and
    the weighted sums by PSU (..., C, q) of what remains; shift = beta - fit."""
    before = psu.residual[0] - psu.x_sum[0] @ shift
    after = before - psu.total[0][:, None] * effects
    # Both orders of the product: the sum is symmetric.
    added = -(before + after).swapaxes(-1, -2) @ effects
    return 0.5 * (added + added.swapaxes(-1, -2)), after


@dataclass(frozen=True)
class PsuTerm:
    """Value (...) of the log prior of T and the effects, its gradient in both and, if they are
    tilted, in the tilt (..., q)."""

    value: FloatArray
    gradient: PsuParts
    tilt: FloatArray


def psu_log_prior(
    parts: PsuParts, prior_scale: float, lkj: float, tilt: FloatArray | None = None
) -> PsuTerm:
    """log p(T, effects) with all constants and Jacobians.

    With a tilt b (..., q) the effects are N(T b, T): those of PSUs sampled with probability in
    proportion to exp(b'a).
    """
    size, q = parts.effects.shape[-2:]
    correlation = CorrelationRoot.from_unconstrained(parts.correlation, q)
    scale = np.exp(parts.log_scale)[..., :, None]
    root = scale * correlation.root
    inverse = np.linalg.inv(root)
    white = parts.effects @ inverse.swapaxes(-1, -2)
    precise = white @ inverse
    half_t, half_t_slope = unconstrained.half_t_log_density(
        parts.log_scale, HALF_T_DF, prior_scale
    )
    log_lkj, lkj_weight = unconstrained.lkj_log_density(correlation, lkj)
    log_det = parts.log_scale.sum(-1) + correlation.log_diagonal.sum(-1)
    value = -size * (0.5 * q * unconstrained.LOG_2PI + log_det)
    value = value - 0.5 * (white * white).sum((-2, -1)) + half_t.sum(-1) + log_lkj
    value = value + correlation.log_jacobian
    slope = precise.swapaxes(-1, -2) @ white
    by_effect = -precise
    by_tilt = np.zeros_like(parts.log_scale)
    if tilt is not None:
        sums, along = parts.effects.sum(-2), (tilt[..., None, :] @ root)[..., 0, :]
        value = value + (tilt * sums).sum(-1) - 0.5 * size * (along * along).sum(-1)
        slope = slope - size * tilt[..., :, None] * along[..., None, :]
        by_effect = by_effect + tilt[..., None, :]
        by_tilt = sums - size * (root @ along[..., None])[..., 0]
    gradient = PsuParts(
        (np.tril(slope) * root).sum(-1) - size + half_t_slope,
        correlation.gradient(scale * slope, lkj_weight - size),
        by_effect,
    )
    return PsuTerm(value, gradient, by_tilt)


def constrained(parts: PsuParts | None) -> Theta:
    """The entries of Theta; none without effects."""
    if parts is None:
        return {}
    root = parts.root
    return {PSU_COVARIANCE: root @ root.swapaxes(-1, -2), PSU_EFFECT: parts.effects}


def unconstrained_of(theta: Theta) -> FloatArray | None:
    """Inverse of ``constrained``, as in u: (..., d) or None without effects."""
    if PSU_COVARIANCE not in theta:
        return None
    scale, root = unconstrained.correlation_of(theta[PSU_COVARIANCE])
    correlation = unconstrained.unconstrained_correlation(root)
    return PsuParts(np.log(scale), correlation, theta[PSU_EFFECT]).joined()
