"""Sigma with B and the standardised residuals of T and W fixed, by slices.

A slice of each log SD, then of each canonical partial correlation (``unconstrained``); residuals go
with g = L_new L_old^-1, L the Cholesky factor of Sigma.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Protocol

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.slices import Chains, slice_step
from surveysynth.mechanisms.noisy_statistics.posterior.wishart import noise_log_density
from surveysynth.sampling.partial_correlations import (
    CorrelationRoot,
    correlation_of,
    unconstrained_correlation,
)

#: Log prior (b, t) of Sigma, up to a constant, given B (b, t, p, q) and the rest of theta of these
#: chains, for roots (b, t, q, q) of Sigma; axes t may be one.
LogCovariancePrior = Callable[[Chains, FloatArray, FloatArray], FloatArray]


class NoisyTarget(Protocol):
    """What is read of ``augmentation.NoisyTarget``."""

    @property
    def lam(self) -> FloatArray:
        """(B, r)."""

    @property
    def cross(self) -> FloatArray:
        """(B, r, q)."""

    @property
    def cross_sd(self) -> FloatArray:
        """(q,)."""

    @property
    def squares(self) -> FloatArray:
        """(B, q, q)."""

    @property
    def squares_sd(self) -> FloatArray:
        """(q, q)."""

    def explained(self, cross: FloatArray) -> FloatArray:
        """T'G^-1 T (B, q, q)."""


class RescaledNoise:
    """Density of the noise when the residuals of T and the root of W are multiplied by g.

    mean and residual (B, r, q) of T, scatter (B, q, q).
    """

    def __init__(
        self, target: NoisyTarget, mean: FloatArray, residual: FloatArray, scatter: FloatArray
    ) -> None:
        self.residual, self.squares_sd = residual, target.squares_sd
        q = mean.shape[2]
        precision = target.cross_sd**-2
        gap = target.cross - mean
        # All products with the residuals at once: (B, q, 4q).
        others = np.concatenate([gap * precision, residual, mean, residual], axis=2)
        others[:, :, 2 * q :] /= target.lam[:, :, None]
        products = residual.swapaxes(-1, -2) @ others
        with_gap, own, with_mean, explained = (
            products[:, None, :, j * q : (j + 1) * q] for j in range(4)
        )
        self.with_gap, self.own = with_gap.swapaxes(-1, -2), own
        self.with_mean, self.total = with_mean, scatter[:, None] + explained
        self.precision = precision[:, None]
        self.rest = (target.squares - target.explained(mean))[:, None]

    def log_density(self, which: Chains, g: FloatArray) -> FloatArray:
        """At g (b, t, q, q): (b, t)."""
        of_cross = g * (self.with_gap[which] - 0.5 * self.precision * (g @ self.own[which]))
        mixed = g @ (self.with_mean[which] + 0.5 * self.total[which] @ g.swapaxes(-1, -2))
        gap = self.rest[which] - mixed - mixed.swapaxes(-1, -2)
        noise = noise_log_density(gap, self.squares_sd)
        return np.asarray(of_cross.sum((-1, -2)) + noise, dtype=np.float64)


def rescaled_covariance(
    coefficients: FloatArray,
    covariance: FloatArray,
    log_prior: LogCovariancePrior,
    noise: RescaledNoise,
    level: FloatArray,
    shifts: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """New Sigma and g, both (B, q, q), from uniform levels (half, B) and tries (half, B, t) of the
    half = q(q+1)/2 coordinates in turn."""
    q = covariance.shape[-1]
    sd, correlation_root = correlation_of(covariance)
    inverse = np.linalg.inv(sd[:, :, None] * correlation_root)[:, None]
    log_sd, partial = np.log(sd), unconstrained_correlation(correlation_root)

    def log_density(
        which: Chains, log_sd: FloatArray, correlation: CorrelationRoot
    ) -> FloatArray:
        """At (b, t, q) and as many correlations, or one for all tries."""
        log_jacobian = (q + 1.0) * log_sd.sum(-1) + correlation.log_jacobian
        log_jacobian = log_jacobian + correlation.log_diagonal @ np.arange(q - 1.0, -1.0, -1.0)
        root = np.exp(log_sd)[..., None] * correlation.root
        result = log_prior(which, coefficients[which][:, None], root) + log_jacobian
        result = result + noise.log_density(which, root @ inverse[which])
        return np.where(np.isfinite(result), result, -np.inf)

    correlation = CorrelationRoot.from_unconstrained(partial[:, None], q)
    for j in range(len(level)):

        def at(which: Chains, shift: FloatArray, j: int = j) -> FloatArray:
            of_sd, k = j < q, j if j < q else j - q
            moved = (log_sd if of_sd else partial)[which][:, None]
            moved = np.repeat(moved, shift.shape[1], axis=1)
            moved[:, :, k] += shift
            if of_sd:
                return log_density(which, moved, _chains_of(correlation, which))
            return log_density(
                which, log_sd[which][:, None], CorrelationRoot.from_unconstrained(moved, q)
            )

        with np.errstate(all="ignore"):
            step = slice_step(at, level[j], shifts[j])
        if j < q:
            log_sd[:, j] += step
        else:
            partial[:, j - q] += step
    correlation = CorrelationRoot.from_unconstrained(partial, q)
    new = np.exp(log_sd)[:, :, None] * correlation.root
    return new @ new.swapaxes(-1, -2), new @ inverse[:, 0]


def _chains_of(correlation: CorrelationRoot, which: Chains) -> CorrelationRoot:
    names = [each.name for each in fields(correlation)]
    return CorrelationRoot(*(getattr(correlation, name)[which] for name in names))
