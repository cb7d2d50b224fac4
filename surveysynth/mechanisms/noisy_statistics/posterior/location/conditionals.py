"""Draws of what groups have in common, given the parameters of groups: no noisy number is needed.

    b | b + d, t, c           normal
    t | d                     scale with a half-t prior
    tau | c                   slice
    s_0 | s, nu, c, b         slice
    nu | s, s_0               slice
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import (
    Parameters,
    Point,
    log_scale,
)
from surveysynth.models.general_location.scales import BRACKET, LOG_NU
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: Tries of a slice, which is given up where they run out.
SHRINKS = 32
#: Log tau is looked for so far from where its coefficients, or it itself, are.
WIDE = 12.0
_TAU, _T, _POOLED, _NU = range(4)


class Conditionals:
    """Draws of b and of all scales given the rest of a point."""

    def __init__(self, parameters: Parameters, rng: Streams, batch: int) -> None:
        self.parameters, self.rng, self.batch = parameters, rng, batch

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c rounds."""
        q, b, rng = self.parameters.q, self.batch, self.rng
        self.u = rng.random((c, 4, 1 + SHRINKS, q, b), 4)
        self.normals = rng.standard_normal((c, q, b, q), 2)

    def draw(self, i: int, point: Point) -> Point:
        """Draw them all once."""
        parameters = self.parameters
        if parameters.grouped and parameters.slope.any():
            point = self._draw_t(i, self._draw_core(i, point))
        point = self._draw_tau(i, point)
        return self._draw_pooled(i, point) if parameters.grouped else point

    def _draw_t(self, i: int, point: Point) -> Point:
        """Draw t of the columns that have slopes."""
        parameters, u = self.parameters, self.u[i, _T]
        squares = (point.slopes**2).sum((1, 3))
        count = np.broadcast_to(parameters.earlier * float(parameters.groups), squares.shape)
        variance = primitives.slice_variances(
            np.exp(2.0 * point.log_t), count, np.zeros_like(squares), squares,
            parameters.priors["slope_scale"], u[0], u[1:], df=HALF_T_DF,
        )  # fmt: skip
        return replace(point, log_t=np.where(count > 0, 0.5 * np.log(variance), point.log_t))

    def _draw_tau(self, i: int, point: Point) -> Point:
        """Draw tau, which has a lower end."""
        parameters, now = self.parameters, point.log_tau
        squares = parameters.squares(point)
        with np.errstate(divide="ignore"):
            near = 0.5 * np.log(squares / parameters.count)
        low = np.maximum(np.minimum(near, now) - WIDE, parameters.floor)
        high = np.maximum(near, now) + WIDE

        def log_density(log_tau: FloatArray) -> FloatArray:
            return parameters.log_prior_tau(log_tau, squares)

        return replace(point, log_tau=self._slice(i, _TAU, log_density, now, low, high))

    def _draw_core(self, i: int, point: Point) -> Point:
        """Draw b, every b + d as it is."""
        parameters = self.parameters
        total = point.core[..., None] + point.slopes
        core = point.core.copy()
        scaled = point.means[parameters.ridged] / parameters.priors["interaction_scale"]
        groups = parameters.groups
        for j in range(parameters.q):
            earlier = np.flatnonzero(parameters.slope[j])
            if not earlier.size:
                continue
            each, ridge = np.exp(-2.0 * point.log_t[j]), np.exp(-2.0 * point.log_s[j])
            own = np.moveaxis(scaled[earlier], -1, 0)
            precision = ridge[:, None, None] * (own @ own.swapaxes(-1, -2))
            prior = groups * each[:, None] + parameters.core_precision[parameters.row == j]
            precision = precision + prior[..., None] * np.eye(earlier.size)
            pulled = np.einsum("blk,kb->bl", own, scaled[j]) * ridge[:, None]
            linear = pulled + (each * total[j, earlier].sum(-1)).T
            normals = self.normals[i, j, :, earlier].T
            core[j, earlier] = primitives.normal_from_precision(precision, linear, normals).T
        slopes = np.where(parameters.slope[..., None, None], total - core[..., None], 0.0)
        return replace(point, core=core, slopes=slopes)

    def _draw_pooled(self, i: int, point: Point) -> Point:
        """Draw s_0, then nu."""
        parameters, priors = self.parameters, self.parameters.priors
        size, ridge = parameters.ridged.shape[1], parameters.ridge(point)
        groups, log_nu, variance = parameters.groups, point.log_nu, point.log_variance
        # Sums of exp(-log v) about the smallest, so that nothing overflows.
        least = variance.min(-1)
        inverse = np.exp(least[..., None] - variance).sum(-1)

        def of_scale(log_s: FloatArray) -> FloatArray:
            nu = np.exp(log_nu)
            own = nu * (groups * log_s - 0.5 * np.exp(2.0 * log_s - least) * inverse)
            own = own - size * log_s - 0.5 * ridge * np.exp(-2.0 * log_s)
            return np.asarray(own + log_scale(log_s, priors["residual_scale"]))

        centre = np.log(priors["residual_scale"])
        with np.errstate(divide="ignore"):
            of_ridge = 0.5 * np.log(ridge / max(size, 1))
        near = np.log(groups / inverse) * 0.5 + 0.5 * least
        ends = [near] if not size else [near, of_ridge]
        rate = np.exp(log_nu) * groups + size
        width = 10.0 / np.sqrt(rate) + 60.0 / (rate + 1.0) + 1.0
        low = np.maximum(np.min(ends, axis=0) - width, centre - BRACKET)
        high = np.minimum(np.max(ends, axis=0) + width, centre + BRACKET)
        log_s = self._slice(i, _POOLED, of_scale, point.log_s, low, high)
        log_ratio = 2.0 * log_s[..., None] - variance
        told = (log_ratio - np.expm1(log_ratio) - 1.0).sum(-1)

        def of_df(log_nu: FloatArray) -> FloatArray:
            half = 0.5 * np.exp(log_nu)
            own = groups * (half * np.log(half) - gammaln(half)) + half * told
            return np.asarray(own + log_scale(log_nu, priors["pooling_df"], 1.0))

        low, high = (np.full(log_nu.shape, end) for end in LOG_NU)
        return replace(
            point, log_s=log_s, log_nu=self._slice(i, _NU, of_df, log_nu, low, high)
        )

    def _slice(
        self,
        i: int,
        which: int,
        log_density: Callable[[FloatArray], FloatArray],
        now: FloatArray,
        low: FloatArray,
        high: FloatArray,
    ) -> FloatArray:
        """Draw log scales (q, B) by a slice between two ends."""
        u = self.u[i, which]
        low, high = np.minimum(low, now - 0.01), np.maximum(high, now + 0.01)
        return primitives.slice_sample(log_density, now, low, high, u[0], u[1:])
