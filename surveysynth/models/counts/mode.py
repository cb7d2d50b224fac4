"""Where the posterior of a count regression is, about: the point that its sampler expands at."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.counts import overdispersion
from surveysynth.models.counts.family import CountFamily
from surveysynth.models.counts.overdispersion import GridProposal, LogDensity
from surveysynth.models.counts.stats import CountSums

#: The mode serves as a point of expansion alone: a few rounds and a wide normal prior will do.
_STEPS = 30
_HALVINGS = 20
_ROUNDS = 3
_WIDE = 3.0
#: Newton stops where a step promises less than this of the log density.
_CLOSE = 1e-10


@dataclass(frozen=True, repr=False)
class Mode:
    """beta (B, K) and, of a model with phi, log_phi and log_phi_sd (B, 1) with proposals for it.

    ridge: the precision of the normal prior of the coefficients that stood in for theirs.
    """

    beta: FloatArray
    log_phi: FloatArray
    log_phi_sd: FloatArray
    proposal: GridProposal | None
    ridge: float


def find_mode(family: CountFamily, sums: CountSums, priors: Mapping[str, float]) -> Mode:
    """Newton steps for beta and, in turn, a search on a grid for log phi; no database depends on
    others in the batch."""
    ridge = (_WIDE * priors["coefficient_scale"]) ** -2
    beta = _start(sums, ridge)
    databases = beta.shape[0]
    log_phi = np.zeros((databases, int(family.overdispersed)))
    if not family.overdispersed:
        beta = _newton(family, sums, beta, log_phi, ridge)
        return Mode(beta, log_phi, log_phi, None, ridge)
    scale = priors["overdispersion_scale"]
    for _ in range(_ROUNDS):
        log_phi, sd = overdispersion.find_mode(
            _log_phi_density(family, sums, beta, scale), databases
        )
        beta = _newton(family, sums, beta, log_phi, ridge)
    density = _log_phi_density(family, sums, beta, scale)
    return Mode(beta, log_phi, sd, GridProposal.about(density, log_phi, sd), ridge)


def _log_phi_density(
    family: CountFamily, sums: CountSums, beta: FloatArray, scale: float
) -> LogDensity:
    """Log density of log phi (B, 1) at beta (B, K), up to a constant."""
    eta = sums.eta(beta[:, None])

    def log_density(log_phi: FloatArray) -> FloatArray:
        at = log_phi[:, :, None]
        value = family.kernel(sums, eta, at) + family.rising(sums, at)
        return value + overdispersion.overdispersion_log_prior(log_phi, scale)[0]

    return log_density


def _start(sums: CountSums, ridge: float) -> FloatArray:
    """Least squares of the log of the cells' means, (B, K)."""
    target = np.log((sums.sums + 0.1) / (sums.mass + 0.1))
    gram = sums.gram(sums.mass[:, None])[:, 0] + ridge * np.eye(sums.x.shape[-1])
    cross = (sums.mass * target)[:, None] @ sums.x
    return np.asarray(np.linalg.solve(gram, cross.swapaxes(-1, -2))[..., 0], dtype=np.float64)


def _newton(
    family: CountFamily, sums: CountSums, beta: FloatArray, log_phi: FloatArray, ridge: float
) -> FloatArray:
    """Newton steps, halved until they climb, under beta ~ N(0, 1 / ridge)."""
    at = log_phi[:, None]
    identity = ridge * np.eye(beta.shape[1])

    def penalised(beta: FloatArray) -> FloatArray:
        value = family.kernel(sums, sums.eta(beta[:, None]), at)[:, 0]
        return np.asarray(value - 0.5 * ridge * (beta * beta).sum(-1), dtype=np.float64)

    value = penalised(beta)
    for _ in range(_STEPS):
        slope, curvature = family.slopes(sums, sums.eta(beta[:, None]), at)
        gradient = (slope @ sums.x)[:, 0] - ridge * beta
        hessian = sums.gram(curvature)[:, 0] + identity
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
