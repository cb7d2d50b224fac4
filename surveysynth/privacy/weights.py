"""Risk weights alpha from risks, methods 2: pure arrays, one formula a function."""

import numpy as np

from surveysynth._types import FloatArray


def capped(lipschitz_by_record: FloatArray, cap: float) -> FloatArray:
    """min(1, c / f_i), (n,): the weights whose record bounds are min(f_i, c).

    A record with infinite f_i gets 0; one with f_i = 0 gets 1.
    """
    return np.asarray(cap / np.maximum(lipschitz_by_record, cap))


def damped(old: FloatArray, new: FloatArray) -> FloatArray:
    """Geometric mean of old and new weights, (n,): the damping of the fixed point."""
    return np.sqrt(old * new)


def linear(lipschitz_by_record: FloatArray, scale: float, shift: float) -> FloatArray:
    """clip(c (1 - f~) + g, 0, 1), f~ = (f - min f)/(max f - min f) ([R] Alg. 2), (n,).

    f~ is over the finite f; all equal: f~ = 0. A record with infinite f gets 0.
    """
    finite = np.isfinite(lipschitz_by_record)
    values = lipschitz_by_record[finite]
    result = np.zeros(lipschitz_by_record.shape)
    if values.size:
        low, high = values.min(), values.max()
        spread = high - low
        relative = (values - low) / spread if spread > 0 else np.zeros_like(values)
        result[finite] = np.clip(scale * (1.0 - relative) + shift, 0.0, 1.0)
    return result


def reweighted(
    risk_weights: FloatArray, bounds: FloatArray, target: float, factor: float
) -> FloatArray:
    """clip(k alpha_i Delta / L_i, 0, 1) ([R] Alg. 1, eq. 2.1), (n,); a weight of 0 stays 0.

    bounds L_i of the fit under ``risk_weights``; Delta = target; k = factor.
    """
    active = (risk_weights > 0) & (bounds > 0)
    ratio = np.divide(target, bounds, out=np.ones_like(bounds), where=active)
    return np.where(active, np.clip(factor * risk_weights * ratio, 0.0, 1.0), risk_weights)
