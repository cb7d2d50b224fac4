"""Draws of what groups have in common, given the parameters of groups: no noisy number is needed.

    b, v | b + d, t, c        normal
    t | d, v                  scale with a half-t prior
    tau | c                   slice
    u | s, s_0, nu            slice about a normal
    s_0 | s, u, nu, c, b      slice
    nu | s, u, s_0            slice
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import elliptical
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
#: Tries of a slice about a normal near the law.
TRIES = 5
_TAU, _T, _POOLED, _NU = range(4)


class Conditionals:
    """Draws of b and of all scales given the rest of a point."""

    def __init__(self, parameters: Parameters, rng: Streams, batch: int) -> None:
        self.parameters, self.rng, self.batch = parameters, rng, batch

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c rounds."""
        q, b, rng = self.parameters.q, self.batch, self.rng
        self.u = rng.random((c, 4, 1 + SHRINKS, q, b), 4)
        levels = len(self.parameters.levels)
        self.u_level = rng.random((c, 1 + TRIES, q, b), 3)
        self.n_level = rng.standard_normal((c, levels, q, b), 3)
        self.n_effects = rng.standard_normal((c, self.parameters.row.size, b, levels), 2)
        self.normals = rng.standard_normal((c, q, b, q), 2)

    def draw(self, i: int, point: Point) -> Point:
        """Draw them all once."""
        parameters = self.parameters
        if parameters.grouped and parameters.slope.any():
            point = self._draw_t(i, self._draw_core(i, point))
        point = self._draw_tau(i, point)
        if not parameters.grouped:
            return point
        return self._draw_pooled(i, self._draw_levels(i, point))

    def _draw_t(self, i: int, point: Point) -> Point:
        """Draw t of the columns that have slopes."""
        parameters, u = self.parameters, self.u[i, _T]
        off = (parameters.of_groups(point) - parameters.about(point))[parameters.q :]
        squares = np.zeros_like(point.log_t)
        np.add.at(squares, parameters.row, (off * off).sum(-1))
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
        """Draw b with v summed out, then v, every b + d as it is.

        In axes of groups and of effects in which neither a small t nor columns that say the same
        make anything inexact."""
        parameters, q = self.parameters, self.parameters.q
        places = parameters.row, parameters.column
        core, slopes, level = point.core.copy(), point.slopes.copy(), point.level.copy()
        total, axes = parameters.of_groups(point)[q:], parameters.group_axes
        of_t = np.exp(2.0 * point.log_t)[parameters.row][..., None]
        size, of_v = parameters.level_sizes, 1.0 / parameters.level_precision[q:, None, None]
        precision = 1.0 / (of_t + of_v * padded(size**2, parameters.groups))
        one = axes.sum(0)
        told = (precision * one**2).sum(-1) + parameters.core_precision[:, None]
        pull = ((total @ axes) * precision) @ one
        scaled = point.means[parameters.ridged] / parameters.priors["interaction_scale"]
        for j in range(q):
            own, earlier = parameters.row == j, np.flatnonzero(parameters.slope[j])
            if not earlier.size:
                continue
            ridge = np.exp(-2.0 * point.log_s[j])[:, None]
            left = np.moveaxis(scaled[earlier], -1, 0)
            matrix = ridge[..., None] * (left @ left.swapaxes(-1, -2))
            matrix = matrix + told[own].T[..., None] * np.eye(earlier.size)
            linear = pull[own].T + ridge * np.einsum("blk,kb->bl", left, scaled[j])
            normals = self.normals[i, j, :, earlier].T
            core[j, earlier] = primitives.normal_from_precision(matrix, linear, normals).T
        slopes[places] = total - core[places][..., None]
        if level.size:
            size, count = padded(size, len(level[0])), len(level[0])
            precision = size**2 / of_t + 1.0 / of_v
            linear = size / of_t * padded(slopes[places] @ axes, count)
            drawn = linear / precision + self.n_effects[i] / np.sqrt(precision)
            level[q:] = (drawn @ parameters.level_axes.T).swapaxes(1, 2)
        return replace(point, core=core, slopes=slopes, level=level)

    def _draw_levels(self, i: int, point: Point) -> Point:
        """Draw u of each column by an elliptical slice about a normal near its law."""
        parameters, q, axes = self.parameters, self.parameters.q, self.parameters.level_axes
        if not axes.size:
            return point
        # In axes in which the groups tell of each effect by itself.
        levels = axes.T @ parameters.levels
        half, prior = 0.5 * np.exp(point.log_nu)[:, None], parameters.level_precision[0]
        rest = (point.log_variance - 2.0 * point.log_s[..., None]).swapaxes(1, 2)
        told = half / (1.0 + 1.0 / half)
        precision = told * (levels**2).sum(1)[:, None] + prior
        mean = told * (levels @ (rest - 1.0 / (half + 0.5))) / precision
        root = np.sqrt(precision)

        def log_density(white: FloatArray) -> FloatArray:
            level = mean + white.swapaxes(0, 1) / root
            ratio = levels.T @ level - rest
            told = half * (ratio - np.expm1(ratio))
            squares = prior * level**2 - white.swapaxes(0, 1) ** 2
            return np.asarray(told.sum(1) - 0.5 * squares.sum(1))

        now = (root * (axes.T @ point.level[:q] - mean)).swapaxes(0, 1)
        u = self.u_level[i]
        white, _ = elliptical(now, self.n_level[i], log_density, log_density(now), u[0], u[1:])
        level = point.level.copy()
        level[:q] = axes @ (mean + white.swapaxes(0, 1) / root)
        return replace(point, level=level)

    def _draw_pooled(self, i: int, point: Point) -> Point:
        """Draw s_0, then nu."""
        parameters, priors = self.parameters, self.parameters.priors
        size, ridge = parameters.ridged.shape[1], parameters.ridge(point)
        groups, log_nu, q = parameters.groups, point.log_nu, parameters.q
        # About what levels have in common.
        variance = point.log_variance - point.level[:q].swapaxes(1, 2) @ parameters.levels
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


def padded(values: FloatArray, size: int) -> FloatArray:
    """Return values (..., k) cut to a size, or with zeros up to it."""
    result = np.zeros((*values.shape[:-1], size))
    result[..., : values.shape[-1]] = values[..., :size]
    return result
