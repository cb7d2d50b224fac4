"""Spreads of the weight by level, given noisy squares by level and a draw of all else.

Strict 9, "Spreads by level": the residual variance of the weight is s_g^2 exp(h'e - c_g) in group g
and combination of levels e, and h is drawn from the normal distribution at its mode."""

from math import comb

import numpy as np
from scipy.special import ndtr

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.category_law import CategoryLaw
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters
from surveysynth.mechanisms.noisy_statistics.release.level_squares import LevelSquares
from surveysynth.models.general_location.layout import LEVEL_MEANS, LEVEL_SPREADS

#: Prior SD of log variances by level.
PRIOR = 0.3
#: SD of the factor that all squares have in common.
COMMON = 0.3
STEPS, LONGEST = 12, 0.5


def level_spreads(
    parameters: Parameters, points: FloatArray, levels: LevelSquares, rng: np.random.Generator
) -> Theta:
    """Return h (s, E) and c (s, G) at points (s, D), as the model's simulation reads them."""
    assert isinstance(parameters.law, CategoryLaw)  # where there are levels
    point, table = parameters.point(points), parameters.table
    _, counts = parameters.law.counts.moments(parameters.log_p(point)[0])
    mean = parameters.means(point)[..., -1]
    residual = np.exp(point.log_variance[:, -1]) / parameters.spread[-1] ** 2  # (s, G)
    explained = np.zeros_like(mean)
    for pattern, (root, _, _) in zip(table.patterns, parameters.roots_of(point), strict=True):
        whole = (root[..., -1, :] ** 2).sum(-1)
        explained[..., pattern.combinations] = (whole - residual)[:, parameters.group, None]
    found = [
        spreads_given(levels, table.shape.flags, parameters.group, *each, rng)
        for each in zip(counts.likely, counts.variance, mean, explained, residual, strict=True)
    ]
    return {LEVEL_SPREADS: np.stack([h for h, _ in found]),
            LEVEL_MEANS: np.stack([c for _, c in found])}  # fmt: skip


def spreads_given(
    levels: LevelSquares,
    of: FloatArray,
    group: IntArray,
    likely: FloatArray,
    unsure: FloatArray,
    mean: FloatArray,
    explained: FloatArray,
    residual: FloatArray,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Return h (E,) and c (G,) at one draw.

    of (D, E); group (C,); likely and unsure (C, D): numbers of records and their variances; mean
    and explained (C, D) of u without its residual, whose variance is residual (G,)."""
    size, groups = of.shape[1], residual.size
    by_group = np.zeros((groups, len(of)))
    np.add.at(by_group, group, likely)
    total = by_group.sum(1, keepdims=True)

    def at(h: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return c, the means of squares, their slopes (E, E) on h, and variances (E,)."""
        factor = np.exp(of @ h)
        share = by_group * factor / (by_group @ factor)[:, None]
        c = np.log((by_group @ factor) / total[:, 0])
        own = residual[group, None] * factor * np.exp(-c)[group, None]
        square, slope, variance = cut_square(mean, explained + own, levels.radius)
        along = likely * slope * own
        slopes = of.T @ (along.sum(0)[:, None] * of)
        centre = np.zeros((groups, len(of)))
        np.add.at(centre, group, along)
        slopes -= of.T @ centre.T @ (share @ of)
        noise = (likely * variance + unsure * square**2).sum(0) @ of + levels.sd**2
        return c, (likely * square).sum(0) @ of, slopes, noise

    h = np.zeros(size)
    for _ in range(STEPS):
        _, expected, slopes, noise = at(h)
        covariance = np.diag(noise) + COMMON**2 * np.outer(expected, expected)
        pulled = np.linalg.solve(covariance, slopes)
        precision = slopes.T @ pulled + np.eye(size) / PRIOR**2
        step = np.linalg.solve(precision, pulled.T @ (levels.squares - expected) - h / PRIOR**2)
        h = h + step * min(1.0, LONGEST / max(float(np.abs(step).max()), 1e-300))
        if np.abs(step).max() < 1e-6:
            break
    root = np.linalg.cholesky(np.linalg.inv(precision))
    h = h + root @ rng.standard_normal(size)
    return h, at(h)[0]


def cut_square(
    mean: FloatArray, variance: FloatArray, radius: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return E min(u^2, R^2) of u ~ N(mean, variance), its slope on the variance, and its variance.

    By the moments of x = (u - mean)/sd between its ends, each from those two orders lower.
    """
    sd = np.sqrt(variance)
    low, high = (-radius - mean) / sd, (radius - mean) / sd
    at_low, at_high = (np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi) for x in (low, high))
    moments = [ndtr(high) - ndtr(low), at_low - at_high]
    for k in (1, 2, 3):
        ends = low**k * at_low - high**k * at_high
        moments.append(k * moments[k - 1] + ends)
    square, fourth = (
        sum(comb(k, i) * mean ** (k - i) * sd**i * moments[i] for i in range(k + 1))
        + radius**k * (1.0 - moments[0])
        for k in (2, 4)
    )
    slope = (mean * moments[1] + sd * moments[2]) / sd
    return square, slope, fourth - square**2
