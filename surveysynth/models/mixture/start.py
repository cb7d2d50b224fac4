"""Approximate posterior mode of a mixture by expectation-maximization, to start chains from.

The density that is sampled does not depend on it.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.mixture.stats import MixtureSums

STEPS = 40
#: With more pairs than this, an evenly spaced part of them suffices for a start.
ENOUGH = 4000
#: Least SD of a starting component, in units of the least allowed.
_ABOVE = 1.02
#: Least scale of a coefficient, in units of the widest. A regression of all records bounds how far
#: the coefficients of a small component can be from zero.
_SMALL = 0.03


@dataclass(frozen=True, repr=False)
class MixtureMode:
    """H components, the largest first: share (H,), beta (H, K), sd (H,), mass (H,)."""

    share: FloatArray
    beta: FloatArray
    sd: FloatArray
    mass: FloatArray


@dataclass(frozen=True, repr=False)
class _Fitted:
    log_pi: FloatArray
    beta: FloatArray
    sd: FloatArray
    mass: FloatArray
    log_lik: float


_SMALLEST = -300.0


def responsibilities(
    sums: MixtureSums, log_pi: FloatArray, beta: FloatArray, sd: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute shares, standardized residuals and log-likelihoods of pairs.

    Shares (H, P) of the components in each pair, residuals (H, P), and the log-likelihood (P,) of a
    pair without its constant.
    """
    inverse = 1.0 / sd
    # ``take`` keeps the numbers of a component contiguous; an index would not.
    residual = sums.y - np.take(beta @ sums.x.T, sums.cell, axis=1)
    residual *= inverse[:, None]
    exponent = residual * residual
    exponent *= -0.5
    exponent += (log_pi + np.log(inverse))[:, None]
    largest = exponent.max(axis=0)
    exponent -= largest
    # Subnormal numbers slow every sum down; these add nothing to its digits.
    np.maximum(exponent, _SMALLEST, out=exponent)
    share = np.exp(exponent)
    total = share.sum(axis=0)
    share /= total
    return share, residual, largest + np.log(total)


def find_mode(
    sums: MixtureSums, components: int, least_sd: float, ridge: float
) -> MixtureMode:
    """Find a mode that keeps all of ``components``, however little some hold.

    A chain soon empties a superfluous component and seldom fills an empty one. ``ridge``: prior
    precision of a coefficient; ``least_sd``: SDs stay above it.
    """
    part = _part(sums)
    columns = sums.x.shape[1]
    if not part.total > 0:  # no weight at all: the prior
        ones = np.ones(components)
        return MixtureMode(ones / components, np.zeros((components, columns)), ones, 0.0 * ones)
    ridges = np.full(columns, ridge)
    one = _weighted(part, np.ones((1, part.y.size)), least_sd, ridges).beta[0]
    ridges = 1.0 / (one * one + _SMALL * _SMALL / ridge)
    fitted = _fitted(part, components, least_sd, ridges)
    order = np.argsort(-fitted.mass, kind="stable")
    return MixtureMode(
        np.exp(fitted.log_pi[order]), fitted.beta[order], fitted.sd[order],
        fitted.mass[order] * (sums.total / part.total),
    )  # fmt: skip


def _part(sums: MixtureSums) -> MixtureSums:
    step = -(-sums.y.size // ENOUGH)
    if step <= 1:
        return sums
    cell, y, mass = sums.cell[::step], sums.y[::step], sums.mass[::step]
    cells, cell = np.unique(cell, return_inverse=True)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    return MixtureSums(sums.x[cells], cell, starts, y, mass)


def _fitted(
    sums: MixtureSums, components: int, least_sd: float, ridge: FloatArray
) -> _Fitted:
    """Return the best of several fits of ``components``.

    Two start from a regression whose residuals, or their sizes, are cut into groups of equal
    weight. The others add a component to the best fit of one fewer: for the records that it fits
    worst, or for those in its middle.
    """
    one = _weighted(sums, np.ones((1, sums.y.size)), least_sd, ridge)
    best = _maximise(sums, one, least_sd, ridge, 1)
    residual = sums.y - (one.beta @ sums.x.T)[0, sums.cell]
    for count in range(2, components + 1):
        shares = [_groups(score, sums.mass, count) for score in (residual, np.abs(residual))]
        shares += _split_off(sums, best)
        fits = [
            _maximise(sums, _weighted(sums, share, least_sd, ridge), least_sd, ridge, STEPS)
            for share in shares
        ]
        best = max(fits, key=lambda each: each.log_lik)
    return best


def _split_off(sums: MixtureSums, fitted: _Fitted) -> list[FloatArray]:
    """Return shares (1 + H, P) with one more component, in three ways.

    It takes the hundredth or the tenth of the weight that fits worst, or what lies about the center
    of the largest component.
    """
    share, residual, log_lik = responsibilities(sums, fitted.log_pi, fitted.beta, fitted.sd)
    largest = int(fitted.mass.argmax())
    order = np.argsort(log_lik, kind="stable")
    reached = np.cumsum(sums.mass[order]) / sums.total
    own = np.zeros((3, sums.y.size))  # of each pair, what moves over
    own[0, order[reached < 0.01]] = 0.9
    own[1, order[reached < 0.1]] = 0.9
    own[2] = 0.9 * share[largest] * (np.abs(residual[largest]) < 0.7)
    return [np.concatenate([share * (1.0 - each), each[None]]) for each in own]


def _groups(score: FloatArray, mass: FloatArray, count: int) -> FloatArray:
    """Return shares (count, P): nearly 1 in the own group by rank of the score."""
    order = np.argsort(score, kind="stable")
    rank = np.empty(score.size)
    rank[order] = np.cumsum(mass[order]) - 0.5 * mass[order]
    group = np.minimum((count * rank / mass.sum()).astype(np.int64), count - 1)
    share = np.full((count, score.size), 0.05 / count)
    share[group, np.arange(score.size)] += 0.95
    return share


def _maximise(
    sums: MixtureSums, fitted: _Fitted, least_sd: float, ridge: FloatArray, steps: int
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
    sums: MixtureSums, share: FloatArray, least_sd: float, ridge: FloatArray
) -> _Fitted:
    """Fit weighted regressions, one for each component, given its shares (H, P) of the pairs."""
    weight = share * sums.mass
    of_cell, of_y = sums.by_cell(weight), sums.by_cell(weight * sums.y)
    mass = of_cell.sum(axis=1)
    gram = np.einsum("hg,gk,gl->hkl", of_cell, sums.x, sums.x, optimize=True)
    gram += np.diag(ridge)
    beta = np.linalg.solve(gram, (of_y @ sums.x)[..., None])[..., 0]
    residual = sums.y - np.take(beta @ sums.x.T, sums.cell, axis=1)
    squares = np.einsum("hp,hp->h", weight, residual * residual)
    sd = np.sqrt(np.maximum(squares / np.maximum(mass, 1e-12), (_ABOVE * least_sd) ** 2))
    log_pi = np.log((mass + 1e-6) / (mass.sum() + 1e-6 * mass.size))
    return _Fitted(log_pi, beta, sd, mass, -np.inf)
