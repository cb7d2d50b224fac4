"""What moves with xi and eta held: the parameters of all regressions, and their prior."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.sampling import primitives


@dataclass(frozen=True, repr=False)
class Point:
    """The parameters that move.

    core (B, C) and slopes (B, G, k) by regression, variance (J, B, G), s_0, nu and t (J, B)."""

    core: tuple[FloatArray, ...]
    slopes: tuple[FloatArray, ...]
    variance: FloatArray
    s_0: FloatArray
    nu: FloatArray
    t: FloatArray

    @classmethod
    def of(cls, regressions: Regressions) -> "Point":
        """Read the state of the regressions."""
        scales, parts = regressions.scales, regressions.parts
        return cls(
            tuple(part.core for part in parts), tuple(part.slopes for part in parts),
            scales.variance, scales.s_0, scales.nu, scales.t,
        )  # fmt: skip

    def assign(self, regressions: Regressions) -> None:
        """Write the state of the regressions, whose arrays are replaced and never written into."""
        for part, core, slopes in zip(regressions.parts, self.core, self.slopes, strict=True):
            part.core, part.slopes = core, slopes
        scales = regressions.scales
        scales.variance, scales.s_0, scales.nu, scales.t = self.variance, self.s_0, self.nu, self.t

    def chosen(self, accept: BoolArray, other: "Point") -> "Point":
        """Return the other point for the chains (B, 1) or groups (B, G) that accept it."""

        def of(mask: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
            return old if new is old else np.where(mask, new, old)

        chain = accept[:, 0]
        return Point(
            tuple(of(accept[:, :1], *pair) for pair in zip(other.core, self.core, strict=True)),
            tuple(
                of(accept[..., None], *pair)
                for pair in zip(other.slopes, self.slopes, strict=True)
            ),
            of(accept, other.variance, self.variance),
            of(chain, other.s_0, self.s_0),
            of(chain, other.nu, self.nu),
            of(chain, other.t, self.t),
        )


def log_prior(regressions: Regressions) -> tuple[FloatArray, FloatArray]:
    """Return log priors on the scales of the moves, of groups (B, G) and of the rest (B,).

    Log variances and slopes given s_0, nu, t; then core coefficients, log s_0, log nu, log t."""
    scales, priors = regressions.scales, regressions.scales.priors
    low, high = scales.limits
    inside = ((scales.variance > low) & (scales.variance < high)).all(0)
    variance = np.clip(scales.variance, low, high)  # what lies outside is refused
    of_group = np.where(inside, 0.0, -np.inf)
    rest = np.zeros(scales.batch)
    for j, part in enumerate(regressions.parts):
        precision = regressions.prior_precision(j)
        rest += 0.5 * (np.log(precision) - precision * part.core**2).sum(1)
    if not scales.grouped:
        rest += _log_scale(np.sqrt(scales.variance[..., 0]), priors["residual_scale"]).sum(0)
        return of_group, rest
    half = 0.5 * scales.nu
    log_ratio = np.log(scales.s_0**2)[..., None] - np.log(variance)
    norm = half * np.log(half) - half - gammaln(half)
    of_group += (norm[..., None] + half[..., None] * (log_ratio - np.expm1(log_ratio))).sum(0)
    rest += _log_scale(scales.s_0, priors["residual_scale"]).sum(0)
    rest += _log_scale(scales.nu, priors["pooling_df"], 1.0).sum(0)
    for j, part in enumerate(regressions.parts):
        if part.k:
            t = scales.t[j]
            of_group -= 0.5 * ((part.slopes / t[:, None, None]) ** 2).sum(-1)
            of_group -= part.k * np.log(t)[:, None]
            rest += _log_scale(t, priors["slope_scale"])
    return of_group, rest


def _log_scale(scale: FloatArray, prior_scale: float, df: float = HALF_T_DF) -> FloatArray:
    """Return the log density of the logarithm of a scale with a half-t prior."""
    return primitives.half_t_log_density(scale, df, prior_scale) + np.log(scale)
