"""Distributions of a count given its mean exp(eta): Poisson and negative binomial (methods 3).

Their weighted log-likelihoods depend on the data through ``CountSums`` alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import FloatArray
from surveysynth.models.counts.stats import CountSums

#: From here on Stirling's series is exact to a double's last digits, where differences of log
#: gamma functions lose theirs.
_LARGE = 1e4
#: Means and counts above this are reported as infinite.
LARGEST_MEAN = 1e15
#: Larger log means are cut here, so that sums do not overflow; all are equally impossible.
_LARGEST_ETA = 600.0


@dataclass(frozen=True)
class CountFamily:
    """A distribution of counts; ``overdispersed``: with a parameter phi, variance mu + mu^2/phi.

    The weighted log-likelihood, without log y!, has two parts, (B, S) each: kernel(sums, eta (B, S,
    G), log_phi (B, S, 1 or 0)) holds the means, rising(sums, log_phi) the rest. slopes(sums, eta,
    log_phi): slope and minus the second derivative of the kernel in eta, (B, S, G), never negative.
    log_mass(y (P,), eta (S, P), log_phi (S, 1 or 0)): (S, P). draw(mu (n,), log_phi (1 or 0,),
    rng): counts (n,).
    """

    overdispersed: bool
    kernel: Callable[[CountSums, FloatArray, FloatArray], FloatArray]
    rising: Callable[[CountSums, FloatArray], FloatArray]
    slopes: Callable[[CountSums, FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
    log_mass: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    draw: Callable[[FloatArray, FloatArray, np.random.Generator], FloatArray]


def _by_cell(values: FloatArray, by_cell: FloatArray) -> FloatArray:
    """Sum over cells, or distinct counts, values (B, S, G) times by_cell (B, G): (B, S)."""
    return np.asarray((values @ by_cell[:, :, None])[..., 0], dtype=np.float64)


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
    """Return log Gamma(phi + y) - log Gamma(phi), elementwise, y >= 0."""
    value = gammaln(phi + y) - gammaln(phi)
    large = phi > _LARGE
    if np.any(large):
        ratio, end = np.log1p(y / phi), 1.0 / (phi + y)
        series = (phi + y - 0.5) * ratio + y * np.log(phi) - y + (end - 1.0 / phi) / 12.0
        value = np.where(large, series, value)
    return np.asarray(value, dtype=np.float64)


def _odds(eta: FloatArray, log_phi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log(mu/phi) and log(1 + mu/phi) without overflow."""
    log_odds = eta - log_phi
    return log_odds, np.logaddexp(0.0, log_odds)


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
    constant = log_rising_value(phi, values) - gammaln(values + 1.0)
    result: FloatArray = y * (log_odds - log_rest) - phi * log_rest + constant[:, code]
    return result


def _negative_binomial_draw(
    mu: FloatArray, log_phi: FloatArray, rng: np.random.Generator
) -> FloatArray:
    phi = np.exp(log_phi)
    # A gamma variable of mean one; its shape is cut where the variable is constant to a double.
    shape = np.minimum(phi, LARGEST_MEAN)
    factor = rng.standard_gamma(np.broadcast_to(shape, mu.shape)) / shape
    return _poisson_draw(mu * factor, log_phi, rng)


POISSON = CountFamily(
    overdispersed=False,
    kernel=_poisson_kernel,
    rising=_poisson_rising,
    slopes=_poisson_slopes,
    log_mass=_poisson_log_mass,
    draw=_poisson_draw,
)

NEGATIVE_BINOMIAL = CountFamily(
    overdispersed=True,
    kernel=_negative_binomial_kernel,
    rising=_negative_binomial_rising,
    slopes=_negative_binomial_slopes,
    log_mass=_negative_binomial_log_mass,
    draw=_negative_binomial_draw,
)
