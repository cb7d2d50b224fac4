"""Where the posterior of a mixture is, about: expectation-maximisation over numbers of components.

The start of the chains and the scale of their moves, nothing more: the density that is sampled does
not depend on it.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._types import FloatArray
from surveysynth.models._mixture_likelihood import MixtureSums, responsibilities
from surveysynth.models._whitened import Expansion

STEPS = 40
#: Of more pairs than this a part, evenly spaced, is enough to start from.
ENOUGH = 4000


@dataclass(frozen=True, repr=False)
class MixtureMode:
    """Components, the largest first: share (A,), beta (A, K), sd (A,), mass (A,) of A <= H, and
    the expansion of the log-likelihood in the coefficients of all H."""

    share: FloatArray
    beta: FloatArray
    sd: FloatArray
    mass: FloatArray
    expansion: Expansion


@dataclass(frozen=True, repr=False)
class _Fitted:
    log_pi: FloatArray
    beta: FloatArray
    sd: FloatArray
    mass: FloatArray
    log_lik: float


def find_mode(
    sums: MixtureSums, components: int, least_sd: float, ridge: float
) -> MixtureMode:
    """The number of components with the least Bayesian information criterion, up to ``components``;
    ``ridge``: prior precision of a coefficient; ``least_sd``: SDs stay above it."""
    part = _part(sums)
    columns = sums.x.shape[1]
    best, least = None, np.inf
    for fitted in _candidates(part, components, least_sd, ridge):
        parameters = fitted.sd.size * (columns + 2) - 1
        criterion = -2.0 * fitted.log_lik + parameters * np.log(max(part.total, 2.0))
        if criterion < least:
            best, least = fitted, criterion
    if best is None:  # no weight at all: the prior
        fitted = _Fitted(np.zeros(1), np.zeros((1, columns)), np.ones(1), np.zeros(1), 0.0)
        return _mode(sums, fitted, components)
    best = _maximise(sums, best, least_sd, ridge, 5)
    return _mode(sums, best, components)


def _part(sums: MixtureSums) -> MixtureSums:
    step = -(-sums.y.size // ENOUGH)
    if step <= 1:
        return sums
    cell, y, mass = sums.cell[::step], sums.y[::step], sums.mass[::step]
    cells, cell = np.unique(cell, return_inverse=True)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    return MixtureSums(sums.x[cells], cell, starts, y, mass)


def _candidates(
    sums: MixtureSums, components: int, least_sd: float, ridge: float
) -> list[_Fitted]:
    """One to ``components`` components, begun by cutting the residuals, or their sizes, of a
    regression into groups of equal weight."""
    if not sums.total > 0:
        return []
    one = _weighted(sums, np.ones((1, sums.y.size)), least_sd, ridge)
    found = [_maximise(sums, one, least_sd, ridge, 1)]
    residual = sums.y - (one.beta @ sums.x.T)[0, sums.cell]
    for count in range(2, components + 1):
        for score in (residual, np.abs(residual)):
            begun = _weighted(sums, _groups(score, sums.mass, count), least_sd, ridge)
            found.append(_maximise(sums, begun, least_sd, ridge, STEPS))
    return found


def _groups(score: FloatArray, mass: FloatArray, count: int) -> FloatArray:
    """Shares (count, P): 1 in the own group by rank of the score, but for a little elsewhere."""
    order = np.argsort(score, kind="stable")
    rank = np.empty(score.size)
    rank[order] = np.cumsum(mass[order]) - 0.5 * mass[order]
    group = np.minimum((count * rank / mass.sum()).astype(np.int64), count - 1)
    share = np.full((count, score.size), 0.05 / count)
    share[group, np.arange(score.size)] += 0.95
    return share


def _maximise(
    sums: MixtureSums, fitted: _Fitted, least_sd: float, ridge: float, steps: int
) -> _Fitted:
    for _ in range(steps):
        share, _, log_lik = responsibilities(sums, fitted.log_pi, fitted.beta, fitted.sd)
        old, fitted = fitted.log_lik, _weighted(sums, share, least_sd, ridge)
        fitted = _Fitted(
            fitted.log_pi, fitted.beta, fitted.sd, fitted.mass, float(sums.mass @ log_lik)
        )
        if abs(fitted.log_lik - old) < 1e-3:
            break
    return fitted


def _weighted(
    sums: MixtureSums, share: FloatArray, least_sd: float, ridge: float
) -> _Fitted:
    """Weighted regressions, one a component, given its shares (H, P) of the pairs."""
    weight = share * sums.mass
    of_cell, of_y = sums.by_cell(weight), sums.by_cell(weight * sums.y)
    mass = of_cell.sum(axis=1)
    gram = np.einsum("hg,gk,gl->hkl", of_cell, sums.x, sums.x, optimize=True)
    gram += ridge * np.eye(sums.x.shape[1])
    beta = np.linalg.solve(gram, (of_y @ sums.x)[..., None])[..., 0]
    residual = sums.y - np.take(beta @ sums.x.T, sums.cell, axis=1)
    squares = np.einsum("hp,hp->h", weight, residual * residual)
    sd = np.sqrt(squares / np.maximum(mass, 1e-12) + (1.2 * least_sd) ** 2)
    log_pi = np.log((mass + 1e-6) / (mass.sum() + 1e-6 * mass.size))
    return _Fitted(log_pi, beta, sd, mass, -np.inf)


def _mode(sums: MixtureSums, fitted: _Fitted, components: int) -> MixtureMode:
    order = np.argsort(-fitted.mass, kind="stable")
    beta, sd, mass = fitted.beta[order], fitted.sd[order], fitted.mass[order]
    columns = sums.x.shape[1]
    hessian = np.zeros((components, columns, columns))
    linear = np.zeros((components, columns))
    if sums.total > 0:
        share = responsibilities(sums, fitted.log_pi[order], beta, sd)[0] * sums.mass
        precision = 1.0 / (sd * sd)
        of_cell = sums.by_cell(share) * precision[:, None]
        of_y = sums.by_cell(share * sums.y) * precision[:, None]
        hessian[: sd.size] = np.einsum("hg,gk,gl->hkl", of_cell, sums.x, sums.x, optimize=True)
        linear[: sd.size] = of_y @ sums.x
    share = np.exp(fitted.log_pi[order])
    return MixtureMode(share, beta, sd, mass, Expansion(hessian, linear))
