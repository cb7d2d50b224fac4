"""Quantiles of weighted values: inverses of the weighted distribution function, pure arrays."""

import numpy as np

from surveysynth._support.types import FloatArray

#: Sums of weights are rounded: a share that is reached but for this is reached.
ROUNDING = 1e-12


def weighted_quantiles(values: FloatArray, weights: FloatArray, shares: FloatArray) -> FloatArray:
    """For each share in (0, 1] the smallest value with at least that share of the weight up to it.

    values, weights (n,), weights not all zero; shares (k,) -> (k,).
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    wanted = np.asarray(shares, dtype=np.float64) * reached[-1] * (1.0 - ROUNDING)
    return np.asarray(values[order][np.searchsorted(reached, wanted)])
