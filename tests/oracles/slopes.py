"""Gradients of the sums of squares of weighted statistics, one database."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.gaussian.model import GaussianStats


def outcome_slope(stats: GaussianStats, beta: FloatArray) -> FloatArray:
    """Gradient (B, K) of ``stats.outcome_squares`` at beta (B, K)."""
    return 2.0 * _product(stats.gram, beta - stats.fit[:, :, 0])


def conditional_slope(stats: GaussianStats, selection: FloatArray) -> FloatArray:
    """Gradient (B, 1 + K) of ``stats.conditional_squares``."""
    slope = selection[:, 0]
    shift = selection[:, 1:] - stats.fit[:, :, 1] + slope[:, None] * stats.fit[:, :, 0]
    by_x = _product(stats.gram, shift)
    by_y = slope * stats.residual[:, 0, 0] - stats.residual[:, 0, 1]
    by_y = by_y + (stats.fit[:, :, 0] * by_x).sum(-1)
    return 2.0 * np.concatenate([by_y[:, None], by_x], axis=1)


def _product(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    return (matrix @ vector[..., None])[..., 0]
