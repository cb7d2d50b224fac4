"""Distributions of a count given its mean exp(eta): Poisson and negative binomial (methods 3).

Their weighted log-likelihoods depend on the data through sums by cell of X and, for the negative
binomial, the weight of each distinct count: a gradient costs the same at any number of records.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, psi

from surveysynth._types import FloatArray

#: From here on Stirling's series is exact to a double's last digits, where differences of log
#: gamma functions lose theirs.
_LARGE = 1e4
#: Means and counts above this are reported as infinite: they are no counts any more.
LARGEST_MEAN = 1e15


@dataclass(frozen=True, repr=False)
class CountSums:
    """Weighted data of one database, over G cells of X with weight and D distinct counts.

    x (G, K); mass (G,) sum of alpha and sums (G,) of alpha y by cell; values (D,) and
    value_mass (D,) the sum of alpha of each; log_factorials: sum of alpha log y!.
    """

    x: FloatArray
    mass: FloatArray
    sums: FloatArray
    values: FloatArray
    value_mass: FloatArray
    log_factorials: float


@dataclass(frozen=True)
class CountFamily:
    """A distribution of counts; ``overdispersed``: with a parameter phi, variance mu + mu^2/phi.

    log_likelihood(sums, beta (..., K), log_phi (..., 1 or 0)): value (...), gradients (..., K) and
    (..., 1 or 0). log_mass(y (P,), eta (S, P), log_phi (S, 1 or 0)): (S, P).
    curvature(mu (G,), sums, log_phi (1 or 0,)): (G,), minus the expected second derivative in eta.
    draw(mu (n,), log_phi (1 or 0,), rng): counts (n,).
    """

    overdispersed: bool
    log_likelihood: Callable[
        [CountSums, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]
    ]
    log_mass: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    curvature: Callable[[FloatArray, CountSums, FloatArray], FloatArray]
    draw: Callable[[FloatArray, FloatArray, np.random.Generator], FloatArray]


def _poisson_log_likelihood(
    sums: CountSums, beta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    eta = beta @ sums.x.T
    mean = np.exp(eta) * sums.mass
    value = eta @ sums.sums - mean.sum(-1) - sums.log_factorials
    return value, (sums.sums - mean) @ sums.x, np.zeros_like(log_phi)


def _poisson_log_mass(y: FloatArray, eta: FloatArray, log_phi: FloatArray) -> FloatArray:
    result: FloatArray = y * eta - np.exp(eta) - gammaln(y + 1.0)
    return result


def _poisson_curvature(mu: FloatArray, sums: CountSums, log_phi: FloatArray) -> FloatArray:
    return mu * sums.mass


def _poisson_draw(mu: FloatArray, log_phi: FloatArray, rng: np.random.Generator) -> FloatArray:
    drawn = rng.poisson(np.where(mu < LARGEST_MEAN, mu, 0.0)).astype(np.float64)
    return np.where(mu < LARGEST_MEAN, drawn, np.inf)


def log_rising(phi: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log Gamma(phi + y) - log Gamma(phi) and its slope in phi, elementwise, y >= 0."""
    large = phi > _LARGE
    value = gammaln(phi + y) - gammaln(phi)
    slope = psi(phi + y) - psi(phi)
    if np.any(large):
        ratio, end = np.log1p(y / phi), 1.0 / (phi + y)
        series = (phi + y - 0.5) * ratio + y * np.log(phi) - y + (end - 1.0 / phi) / 12.0
        difference = ratio + 0.5 * (1.0 / phi - end) + (1.0 / phi**2 - end**2) / 12.0
        value, slope = np.where(large, series, value), np.where(large, difference, slope)
    return value, slope


def _negative_binomial_log_likelihood(
    sums: CountSums, beta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    phi, eta = np.exp(log_phi), beta @ sums.x.T
    # log(1 + mu/phi) and mu/(mu + phi), free of overflow.
    log_odds = eta - log_phi
    log_rest = np.logaddexp(0.0, log_odds)
    share = np.exp(log_odds - log_rest)
    rising, slope = log_rising(phi, sums.values)
    total = sums.mass * phi
    value = (log_odds - log_rest) @ sums.sums - (total * log_rest).sum(-1)
    value = value + rising @ sums.value_mass - sums.log_factorials
    by_beta = (sums.sums - (sums.sums + total) * share) @ sums.x
    by_phi = (-sums.sums * np.exp(-log_rest) / phi - sums.mass * (log_rest - share)).sum(-1)
    by_log_phi = phi[..., 0] * (by_phi + slope @ sums.value_mass)
    return value, by_beta, by_log_phi[..., None]


def _negative_binomial_log_mass(
    y: FloatArray, eta: FloatArray, log_phi: FloatArray
) -> FloatArray:
    log_odds = eta - log_phi
    log_rest = np.logaddexp(0.0, log_odds)
    values, code = np.unique(y, return_inverse=True)
    phi = np.exp(log_phi)
    constant = log_rising(phi, values)[0] - gammaln(values + 1.0)
    result: FloatArray = y * (log_odds - log_rest) - phi * log_rest + constant[:, code]
    return result


def _negative_binomial_curvature(
    mu: FloatArray, sums: CountSums, log_phi: FloatArray
) -> FloatArray:
    return sums.mass * mu / (1.0 + mu * np.exp(-log_phi))


def _negative_binomial_draw(
    mu: FloatArray, log_phi: FloatArray, rng: np.random.Generator
) -> FloatArray:
    phi = np.exp(log_phi)
    # A gamma variable of mean one; its shape is cut where it is a constant to a double's digits.
    shape = np.minimum(phi, LARGEST_MEAN)
    factor = rng.standard_gamma(np.broadcast_to(shape, mu.shape)) / shape
    return _poisson_draw(mu * factor, log_phi, rng)


POISSON = CountFamily(
    overdispersed=False,
    log_likelihood=_poisson_log_likelihood,
    log_mass=_poisson_log_mass,
    curvature=_poisson_curvature,
    draw=_poisson_draw,
)

NEGATIVE_BINOMIAL = CountFamily(
    overdispersed=True,
    log_likelihood=_negative_binomial_log_likelihood,
    log_mass=_negative_binomial_log_mass,
    curvature=_negative_binomial_curvature,
    draw=_negative_binomial_draw,
)
