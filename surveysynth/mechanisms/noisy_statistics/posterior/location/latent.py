"""Exchanges of latent counts of categories given their noisy values, exactly, between pairs.

    n_c. ~ Multinomial(n_c, p_c.),   n~_cd = n_cd + discrete Gaussian noise

n_c is public. Two combinations d, d' of a cell share s = n_cd + n_cd' records: given s, n_cd is
binomial times the noise, on whole numbers from 0 to s, and is drawn from that by inversion. Rounds
of a tournament bring every pair together.
"""

from typing import Any

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import FloatArray, IntArray

#: Half of the window that is looked at, in SDs and whole numbers: what lies outside weighs less
#: than rounding does.
WINDOW_SDS = 9.0
WINDOW_LEAST = 12


def tournament(players: int) -> list[tuple[IntArray, IntArray]]:
    """Return rounds of disjoint pairs in which all players meet once (the circle method)."""
    seats = list(range(players + players % 2))
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        own = [pair for pair in pairs if max(pair) < players]
        if own:
            sides = np.array(own, dtype=np.int64).T
            rounds.append((sides[0], sides[1]))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def exchanged(
    counts: IntArray,
    log_p: FloatArray,
    noisy: FloatArray,
    sd: float,
    pairs: tuple[IntArray, IntArray],
    uniforms: FloatArray,
) -> IntArray:
    """Return counts (B, C, D) with those of the pairs, P each, drawn anew.

    log_p and noisy (B, C, D), uniforms (B, C, P)."""
    first, second = pairs
    total = counts[..., first] + counts[..., second]
    log_odds = log_p[..., first] - log_p[..., second]
    # -(k - y)^2 / 2v - (s - k - y')^2 / 2v is -(k - centre)^2 / v up to a constant.
    centre = 0.5 * (noisy[..., first] + total - noisy[..., second])
    drawn = _drawn(total, log_odds, centre, sd, uniforms)
    result = counts.copy()
    result[..., first], result[..., second] = drawn, total - drawn
    return result


def _drawn(
    total: IntArray, log_odds: FloatArray, centre: FloatArray, sd: float, uniforms: FloatArray
) -> IntArray:
    """Draw k from 0 to s, p(k) ~ C(s, k) exp(k log_odds - ((k - c)/sd)^2)."""
    own = 2.0 / (sd * sd)
    middle = _mode(total, log_odds, centre, own)
    curvature = 1.0 / (middle + 1.0) + 1.0 / (total - middle + 1.0) + own
    half = np.ceil(WINDOW_SDS / np.sqrt(curvature)) + WINDOW_LEAST
    low = np.clip(np.floor(middle - half), 0.0, total).astype(np.int64)
    size = np.clip(np.ceil(middle + half), 0.0, total).astype(np.int64) - low + 1
    # All that may be, pair after pair: most pairs share few records.
    ends = np.cumsum(size).reshape(size.shape)
    first, sizes = ends - size, size.ravel()

    def each(values: FloatArray | IntArray) -> Any:
        return np.repeat(values, sizes)

    k = np.arange(int(ends[..., -1:].max(initial=0))) - each(first - low)
    log_factorial = gammaln(np.arange(int(total.max(initial=0)) + 1) + 1.0)
    log_mass = k * each(log_odds) - ((k - each(centre)) / sd) ** 2
    log_mass -= log_factorial[k] + log_factorial[each(total) - k]
    log_mass -= each(np.maximum.reduceat(log_mass, first.ravel()))
    mass = np.concatenate([[0.0], np.cumsum(np.exp(log_mass))])
    level = mass[first] + uniforms * (mass[ends] - mass[first])
    position = np.searchsorted(mass[1:], level) - first
    return np.asarray(low + np.clip(position, 0, size - 1), dtype=np.int64)


def _mode(total: IntArray, log_odds: FloatArray, centre: FloatArray, own: float) -> FloatArray:
    """Return about the largest term, by halving: logs of terms are concave.

    Binomial and noise may be far apart; the largest term is then where neither a normal about
    the one nor about both would look."""
    low, high = np.zeros(total.shape), total.astype(np.float64)
    for _ in range(int(total.max(initial=0)).bit_length()):
        k = 0.5 * (low + high)
        rises = np.log((total - k + 0.5) / (k + 0.5)) + log_odds > own * (k - centre)
        low, high = np.where(rises, k, low), np.where(rises, high, k)
    return np.asarray(0.5 * (low + high))


def start_counts(noisy: FloatArray, sizes: IntArray, sd: float) -> IntArray:
    """Return whole numbers (B, C, D) near noisy ones that add up to the sizes (C,).

    Shares of what is above zero, rounded by largest remainders; sd: of the noise, which may hide a
    record where none is seen."""
    positive = np.maximum(noisy, 0.0) + min(0.5, sd)
    ideal = positive / positive.sum(axis=-1, keepdims=True) * sizes[:, None]
    result = np.floor(ideal).astype(np.int64)
    left = sizes - result.sum(axis=-1)
    order = np.argsort(np.argsort(-(ideal - result), axis=-1, kind="stable"), axis=-1)
    return np.asarray(result + (order < left[..., None]), dtype=np.int64)
