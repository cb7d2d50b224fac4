"""Distributions of a count given its mean exp(eta): Poisson and negative binomial (methods 3).

Their weighted log-likelihoods depend on the data through ``CountSums`` alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, psi

from surveysynth._support.types import FloatArray
from surveysynth.models.counts.stats import CountSums

#: From here on Stirling's series is exact to a double's last digits, where differences of log
#: gamma functions lose theirs.
_LARGE = 1e4
#: Means and counts above this are reported as infinite: they are no counts any more.
LARGEST_MEAN = 1e15
#: A mean of exp of this is as impossible as a larger one, and its sums do not overflow.
_LARGEST_ETA = 600.0


@dataclass(frozen=True)
class CountFamily:
    """A distribution of counts; ``overdispersed``: with a parameter phi, variance mu + mu^2/phi.

    log_likelihood(sums, beta (B, S, K), log_phi (B, S, 1 or 0)): value (B, S), gradients
    (B, S, K) and (B, S, 1 or 0). Of its value, without log y!, kernel(sums, eta (B, S, G), log_phi)
    is the part of the means and rising(sums, log_phi) the rest, (B, S) each. slopes(sums, eta,
    log_phi): slope and minus the second derivative of the kernel in eta, (B, S, G), never negative.
    log_mass(y (P,), eta (S, P), log_phi (S, 1 or 0)): (S, P).
    draw(mu (n,), log_phi (1 or 0,), rng): counts (n,).
    """

    overdispersed: bool
    log_likelihood: Callable[
        [CountSums, FloatArray, FloatArray], tuple[FloatArray, FloatArray, FloatArray]
    ]
    kernel: Callable[[CountSums, FloatArray, FloatArray], FloatArray]
    rising: Callable[[CountSums, FloatArray], FloatArray]
    slopes: Callable[[CountSums, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
    log_mass: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    draw: Callable[[FloatArray, FloatArray, np.random.Generator], FloatArray]


def _by_cell(values: FloatArray, by_cell: FloatArray) -> FloatArray:
    """Sums over cells, or distinct counts, of values (B, S, G) times by_cell (B, G): (B, S)."""
    return np.asarray((values @ by_cell[:, :, None])[..., 0], dtype=np.float64)


def _poisson_log_likelihood(
    sums: CountSums, beta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    eta = sums.eta(beta)
    mean = np.exp(eta) * sums.mass[:, None]
    value = _by_cell(eta, sums.sums) - mean.sum(-1) - sums.log_factorials[:, None]
    return value, (sums.sums[:, None] - mean) @ sums.x, np.zeros_like(log_phi)


def _poisson_kernel(sums: CountSums, eta: FloatArray, log_phi: FloatArray) -> FloatArray:
    mean = np.exp(np.minimum(eta, _LARGEST_ETA))
    return _by_cell(eta, sums.sums) - _by_cell(mean, sums.mass)


def _poisson_rising(sums: CountSums, log_phi: FloatArray) -> FloatArray:
    return np.zeros(log_phi.shape[:2])


def _poisson_slopes(
    sums: CountSums, eta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    mean = np.exp(np.minimum(eta, _LARGEST_ETA)) * sums.mass[:, None]
    return sums.sums[:, None] - mean, mean


def _poisson_log_mass(y: FloatArray, eta: FloatArray, log_phi: FloatArray) -> FloatArray:
    result: FloatArray = y * eta - np.exp(eta) - gammaln(y + 1.0)
    return result


def _poisson_draw(mu: FloatArray, log_phi: FloatArray, rng: np.random.Generator) -> FloatArray:
    drawn = rng.poisson(np.where(mu < LARGEST_MEAN, mu, 0.0)).astype(np.float64)
    return np.where(mu < LARGEST_MEAN, drawn, np.inf)


def log_rising_value(phi: FloatArray, y: FloatArray) -> FloatArray:
    """log Gamma(phi + y) - log Gamma(phi), elementwise, y >= 0."""
    value = gammaln(phi + y) - gammaln(phi)
    large = phi > _LARGE
    if np.any(large):
        ratio, end = np.log1p(y / phi), 1.0 / (phi + y)
        series = (phi + y - 0.5) * ratio + y * np.log(phi) - y + (end - 1.0 / phi) / 12.0
        value = np.where(large, series, value)
    return np.asarray(value, dtype=np.float64)


def log_rising(phi: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``log_rising_value`` and its slope in phi."""
    slope = psi(phi + y) - psi(phi)
    large = phi > _LARGE
    if np.any(large):
        ratio, end = np.log1p(y / phi), 1.0 / (phi + y)
        difference = ratio + 0.5 * (1.0 / phi - end) + (1.0 / phi**2 - end**2) / 12.0
        slope = np.where(large, difference, slope)
    return log_rising_value(phi, y), slope


def _odds(eta: FloatArray, log_phi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log(mu/phi) and log(1 + mu/phi), free of overflow."""
    log_odds = eta - log_phi
    return log_odds, np.logaddexp(0.0, log_odds)


def _negative_binomial_log_likelihood(
    sums: CountSums, beta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    phi = np.exp(log_phi)
    log_odds, log_rest = _odds(sums.eta(beta), log_phi)
    share = np.exp(log_odds - log_rest)
    rising, slope = log_rising(phi, sums.values[:, None])
    counted, mass = sums.sums[:, None], sums.mass[:, None]
    total = mass * phi
    value = _by_cell(log_odds - log_rest, sums.sums) - (total * log_rest).sum(-1)
    value = value + _by_cell(rising, sums.value_mass) - sums.log_factorials[:, None]
    by_beta = (counted - (counted + total) * share) @ sums.x
    by_phi = (-counted * np.exp(-log_rest) / phi - mass * (log_rest - share)).sum(-1)
    by_log_phi = phi[..., 0] * (by_phi + _by_cell(slope, sums.value_mass))
    return value, by_beta, by_log_phi[..., None]


def _negative_binomial_kernel(
    sums: CountSums, eta: FloatArray, log_phi: FloatArray
) -> FloatArray:
    log_odds, log_rest = _odds(eta, log_phi)
    spread = np.exp(log_phi[..., 0]) * _by_cell(log_rest, sums.mass)
    return _by_cell(log_odds - log_rest, sums.sums) - spread


def _negative_binomial_rising(sums: CountSums, log_phi: FloatArray) -> FloatArray:
    rising = log_rising_value(np.exp(log_phi), sums.values[:, None])
    return _by_cell(rising, sums.value_mass)


def _negative_binomial_slopes(
    sums: CountSums, eta: FloatArray, log_phi: FloatArray
) -> tuple[FloatArray, FloatArray]:
    log_odds, log_rest = _odds(eta, log_phi)
    share = np.exp(log_odds - log_rest)
    moved = (sums.sums[:, None] + sums.mass[:, None] * np.exp(log_phi)) * share
    return sums.sums[:, None] - moved, moved * np.exp(-log_rest)


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
    kernel=_poisson_kernel,
    rising=_poisson_rising,
    slopes=_poisson_slopes,
    log_mass=_poisson_log_mass,
    draw=_poisson_draw,
)

NEGATIVE_BINOMIAL = CountFamily(
    overdispersed=True,
    log_likelihood=_negative_binomial_log_likelihood,
    kernel=_negative_binomial_kernel,
    rising=_negative_binomial_rising,
    slopes=_negative_binomial_slopes,
    log_mass=_negative_binomial_log_mass,
    draw=_negative_binomial_draw,
)
