"""The overdispersion phi of the negative binomial: its prior, and proposals for log phi.

log phi is all but independent of the coefficients: the conditional at the mode of these, on a grid,
proposes for a whole fit, and Metropolis-Hastings makes up for the difference.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.sampling import unconstrained

#: Where log phi is looked for, and steps to its mode: a coarse one, then a fine one about it.
_COARSE = np.arange(-15.0, 25.0, 0.5)
_FINE = np.arange(-0.6, 0.601, 0.05)
#: Knots of the proposal, in SDs about the mode: dense in the middle, out to where nothing is left.
_KNOTS = np.sinh(np.linspace(-5.5, 5.5, 120))
_LARGEST_SD = 2.0
#: The proposal is the density to this power, for tails that cover those of other coefficients.
_TEMPER = 0.85

#: log phi (B, 1) to its log density (B, 1).
LogDensity = Callable[[FloatArray], FloatArray]


def overdispersion_log_prior(log_phi: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    """Log density of log phi, elementwise, and its slope: 1/phi ~ half-Cauchy(0, scale)."""
    value, slope = unconstrained.half_t_log_density(-log_phi, 1.0, scale)
    return value, -slope


def find_mode(log_density: LogDensity, databases: int) -> tuple[FloatArray, FloatArray]:
    """Mode of log phi and an SD from the curvature there, (B, 1) each."""
    coarse = _evaluated(log_density, np.broadcast_to(_COARSE, (databases, _COARSE.size)))
    middle = _COARSE[coarse.argmax(axis=1)][:, None]
    values = _evaluated(log_density, middle + _FINE)
    best = np.clip(values.argmax(axis=1), 1, _FINE.size - 2)[:, None]
    left, here, right = (
        np.take_along_axis(values, best + shift, axis=1) for shift in (-1, 0, 1)
    )
    step = _FINE[1] - _FINE[0]
    bend = np.maximum(2.0 * here - left - right, (step / _LARGEST_SD) ** 2)
    offset = np.clip(0.5 * (right - left) / bend, -1.0, 1.0)
    return middle + _FINE[best] + offset * step, step / np.sqrt(bend)


def _evaluated(log_density: LogDensity, points: FloatArray) -> FloatArray:
    """Point by point, since a density over many cells of X is large: points (B, J) to (B, J)."""
    columns = (points[:, j : j + 1] for j in range(points.shape[1]))
    return np.concatenate([log_density(column) for column in columns], axis=1)


@dataclass(frozen=True, repr=False)
class GridProposal:
    """A density of B databases that is log-linear between knots (B, J).

    values (B, J): its log at the knots, up to a constant a database; mass (B, J - 1): cumulated.
    """

    knots: FloatArray
    values: FloatArray
    mass: FloatArray

    @classmethod
    def about(cls, log_density: LogDensity, mode: FloatArray, sd: FloatArray) -> "GridProposal":
        """A flatter version of ``log_density``, whose mode and SD (B, 1) are about known."""
        knots = mode + sd * _KNOTS
        values = _TEMPER * _evaluated(log_density, knots)
        values = np.maximum(values - values.max(axis=1, keepdims=True), -700.0)
        # The tiny ramp keeps equal neighbours (a clipped tail) from dividing zero by zero.
        values += 1e-9 * np.arange(_KNOTS.size)
        mass = np.diff(knots, axis=1) * np.diff(np.exp(values), axis=1) / np.diff(values, axis=1)
        return cls(knots, values, np.cumsum(mass, axis=1))

    def draw(self, uniforms: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points (B, C) by inversion of uniforms (B, C), and the log density there."""
        wanted = uniforms * self.mass[:, -1:]
        segment = (self.mass[:, None, :] < wanted[:, :, None]).sum(axis=2)
        segment = np.minimum(segment, self.mass.shape[1] - 1)
        left, rise, width = self._segment(segment)
        first = np.take_along_axis(self.mass, np.maximum(segment - 1, 0), axis=1)
        inside = (wanted - np.where(segment > 0, first, 0.0)) / width
        part = np.log1p(np.maximum(inside * rise * np.exp(-left), -1.0 + 1e-15)) / rise
        part = np.clip(part, 0.0, 1.0)
        knots = np.take_along_axis(self.knots, segment, axis=1)
        return knots + part * width, left + part * rise

    def log_density(self, points: FloatArray) -> FloatArray:
        """At points (B, C); minus infinity beyond the knots."""
        segment = (self.knots[:, None, :] <= points[:, :, None]).sum(axis=2) - 1
        inside = (segment >= 0) & (segment < self.mass.shape[1])
        segment = np.clip(segment, 0, self.mass.shape[1] - 1)
        left, rise, width = self._segment(segment)
        part = (points - np.take_along_axis(self.knots, segment, axis=1)) / width
        return np.where(inside, left + part * rise, -np.inf)

    def _segment(self, segment: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log density at the left end of segments (B, C), its rise over them, and their widths."""
        left, right = (
            np.take_along_axis(self.values, segment + shift, axis=1) for shift in (0, 1)
        )
        low, high = (
            np.take_along_axis(self.knots, segment + shift, axis=1) for shift in (0, 1)
        )
        return left, right - left, high - low
