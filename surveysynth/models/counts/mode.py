"""Approximate posterior mode of a count regression, and proposals for its overdispersion phi.

The sampler expands the likelihood at the mode. log phi is nearly independent of the coefficients:
its conditional density at their mode, on a grid, serves as proposal for a whole fit, and
Metropolis-Hastings corrects the difference.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.base import INTERACTION_PRIOR
from surveysynth.models.counts.family import CountFamily
from surveysynth.models.counts.stats import CountSums

_LOG_2, _LOG_PI = float(np.log(2.0)), float(np.log(np.pi))
#: Grids on which the mode of log phi is searched: a coarse one, then a fine one about its best.
_COARSE = np.arange(-15.0, 25.0, 0.5)
_FINE = np.arange(-0.6, 0.601, 0.05)
#: Knots of the proposal in SDs about the mode, dense in the middle, out to negligible density.
_KNOTS = np.sinh(np.linspace(-5.5, 5.5, 120))
_LARGEST_SD = 2.0
#: The proposal is the density to this power: its tails cover those at other coefficients.
_TEMPER = 0.85

#: log phi (B, 1) to its log density (B, 1).
LogDensity = Callable[[FloatArray], FloatArray]


def overdispersion_log_prior(log_phi: FloatArray, scale: float) -> FloatArray:
    """Return the log density of log phi, elementwise: 1/phi ~ half-Cauchy(0, scale)."""
    ratio = np.exp(-2.0 * log_phi) / (scale * scale)
    constant = _LOG_2 - gammaln(0.5) - (0.5 * _LOG_PI + np.log(scale))
    return np.asarray(constant - np.log1p(ratio) - log_phi, dtype=np.float64)


def overdispersion_mode(log_density: LogDensity, databases: int) -> tuple[FloatArray, FloatArray]:
    """Find the mode of log phi and an SD from the curvature there, (B, 1) each."""
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
    """Evaluate point by point, (B, J) to (B, J): a density over many cells of X is large."""
    columns = (points[:, j : j + 1] for j in range(points.shape[1]))
    return np.concatenate([log_density(column) for column in columns], axis=1)


@dataclass(frozen=True, repr=False)
class GridProposal:
    """A density of B databases that is log-linear between knots (B, J).

    values (B, J): its log at the knots, up to a constant for each database; mass (B, J - 1):
    cumulated.
    """

    knots: FloatArray
    values: FloatArray
    mass: FloatArray

    @classmethod
    def about(cls, log_density: LogDensity, mode: FloatArray, sd: FloatArray) -> "GridProposal":
        """Make a flatter version of ``log_density`` about its approximate mode and SD (B, 1)."""
        knots = mode + sd * _KNOTS
        values = _TEMPER * _evaluated(log_density, knots)
        values = np.maximum(values - values.max(axis=1, keepdims=True), -700.0)
        # The tiny ramp keeps equal neighbors (a clipped tail) from dividing zero by zero.
        values += 1e-9 * np.arange(_KNOTS.size)
        mass = np.diff(knots, axis=1) * np.diff(np.exp(values), axis=1) / np.diff(values, axis=1)
        return cls(knots, values, np.cumsum(mass, axis=1))

    def draw(self, uniforms: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Draw points (B, C) by inversion of uniforms (B, C), with their log density."""
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
        """Return the log density at points (B, C); minus infinity beyond the knots."""
        segment = (self.knots[:, None, :] <= points[:, :, None]).sum(axis=2) - 1
        inside = (segment >= 0) & (segment < self.mass.shape[1])
        segment = np.clip(segment, 0, self.mass.shape[1] - 1)
        left, rise, width = self._segment(segment)
        part = (points - np.take_along_axis(self.knots, segment, axis=1)) / width
        return np.where(inside, left + part * rise, -np.inf)

    def _segment(self, segment: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the log density at the left end of segments (B, C), its rise, and their widths."""
        left, right = (
            np.take_along_axis(self.values, segment + shift, axis=1) for shift in (0, 1)
        )
        low, high = (
            np.take_along_axis(self.knots, segment + shift, axis=1) for shift in (0, 1)
        )
        return left, right - left, high - low


#: The mode is only a point of expansion: a few rounds and a wide normal prior suffice.
_STEPS = 30
_HALVINGS = 20
_ROUNDS = 3
_WIDE = 3.0
#: Newton stops where a step promises less than this of the log density.
_CLOSE = 1e-10


@dataclass(frozen=True, repr=False)
class Mode:
    """Posterior mode: beta (B, K) and, with phi, log_phi and log_phi_sd (B, 1) and proposals.

    ridge (K,): precisions of the normal prior that replaces the coefficients' own prior here, but
    that of shrunken columns, which is their own.
    """

    beta: FloatArray
    log_phi: FloatArray
    log_phi_sd: FloatArray
    proposal: GridProposal | None
    ridge: FloatArray


def find_mode(family: CountFamily, sums: CountSums, priors: Mapping[str, float]) -> Mode:
    """Find beta by Newton steps and log phi by search on a grid, in turn.

    Databases of a batch do not affect each other.
    """
    k = sums.x.shape[-1]
    wide, own = _WIDE * priors["coefficient_scale"], priors[INTERACTION_PRIOR]
    ridge = np.where(np.arange(k) < k - sums.shrunken, wide**-2, own**-2)
    beta = _start(sums, ridge)
    databases = beta.shape[0]
    log_phi = np.zeros((databases, int(family.overdispersed)))
    if not family.overdispersed:
        beta = _newton(family, sums, beta, log_phi, ridge)
        return Mode(beta, log_phi, log_phi, None, ridge)
    scale = priors["overdispersion_scale"]
    for _ in range(_ROUNDS):
        log_phi, sd = overdispersion_mode(
            _log_phi_density(family, sums, beta, scale), databases
        )
        beta = _newton(family, sums, beta, log_phi, ridge)
    density = _log_phi_density(family, sums, beta, scale)
    return Mode(beta, log_phi, sd, GridProposal.about(density, log_phi, sd), ridge)


def _log_phi_density(
    family: CountFamily, sums: CountSums, beta: FloatArray, scale: float
) -> LogDensity:
    """Return the log density of log phi (B, 1) at beta (B, K), up to a constant."""
    eta = sums.eta(beta[:, None])

    def log_density(log_phi: FloatArray) -> FloatArray:
        at = log_phi[:, :, None]
        value = family.kernel(sums, eta, at) + family.rising(sums, at)
        return value + overdispersion_log_prior(log_phi, scale)

    return log_density


def _start(sums: CountSums, ridge: FloatArray) -> FloatArray:
    """Fit the log of the cells' means by least squares, (B, K)."""
    target = np.log((sums.sums + 0.1) / (sums.mass + 0.1))
    gram = sums.gram(sums.mass[:, None])[:, 0] + np.diag(ridge)
    cross = (sums.mass * target)[:, None] @ sums.x
    return np.asarray(np.linalg.solve(gram, cross.swapaxes(-1, -2))[..., 0], dtype=np.float64)


def _newton(
    family: CountFamily, sums: CountSums, beta: FloatArray, log_phi: FloatArray, ridge: FloatArray
) -> FloatArray:
    """Take Newton steps, halved until they climb, under beta ~ N(0, 1 / ridge)."""
    at, diagonal = log_phi[:, None], np.diag(ridge)

    def penalised(beta: FloatArray) -> FloatArray:
        value = family.kernel(sums, sums.eta(beta[:, None]), at)[:, 0]
        return np.asarray(value - 0.5 * (ridge * beta * beta).sum(-1), dtype=np.float64)

    value = penalised(beta)
    for _ in range(_STEPS):
        slope, curvature = family.slopes(sums, sums.eta(beta[:, None]), at)
        gradient = (slope @ sums.x)[:, 0] - ridge * beta
        hessian = sums.gram(curvature)[:, 0] + diagonal
        step = np.linalg.solve(hessian, gradient[:, :, None])[..., 0]
        moving = (step * gradient).sum(-1) > _CLOSE
        if not moving.any():
            break
        length = np.ones(value.size)
        for _ in range(_HALVINGS):
            trial = beta + length[:, None] * step
            new = penalised(trial)
            lower = moving & ~(new >= value)
            if not lower.any():
                break
            length[lower] *= 0.5
        climbs = moving & (new >= value)
        beta = np.where(climbs[:, None], trial, beta)
        value = np.where(climbs, new, value)
    return beta
