"""Risk weights alpha from risks, methods 2: pure arrays, one formula a function."""

import numpy as np

from surveysynth._support.types import FloatArray


def capped(lipschitz_by_record: FloatArray, cap: float) -> FloatArray:
    """Return min(1, c / f_i), (n,): the weights whose record bounds are min(f_i, c).

    A record with infinite f_i gets 0; one with f_i = 0 gets 1.
    """
    return np.asarray(cap / np.maximum(lipschitz_by_record, cap))


def relative(lipschitz_by_record: FloatArray) -> FloatArray:
    """Return f~ = (f - min f)/(max f - min f) over the finite f ([R] Alg. 2), (n,), in [0, 1].

    All equal: 0. A record with infinite f keeps it.
    """
    finite = np.isfinite(lipschitz_by_record)
    values = lipschitz_by_record[finite]
    result = np.full(lipschitz_by_record.shape, np.inf)
    if values.size:
        low = values.min()
        spread = values.max() - low
        result[finite] = (values - low) / spread if spread > 0 else 0.0
    return result


def from_risks(risks: FloatArray, scale: float, shift: float) -> FloatArray:
    """Return clip(c (1 - risk) + g, 0, 1), (n,) ([R] Alg. 2 and 3); an infinite risk gets 0."""
    finite = np.isfinite(risks)
    kept = 1.0 - np.where(finite, risks, 1.0)
    return np.where(finite, np.clip(scale * kept + shift, 0.0, 1.0), 0.0)


def linear(lipschitz_by_record: FloatArray, scale: float, shift: float) -> FloatArray:
    """Return linear LW weights ([R] Alg. 2), (n,): ``from_risks`` of ``relative``."""
    return from_risks(relative(lipschitz_by_record), scale, shift)


def reweighted(
    risk_weights: FloatArray, bounds: FloatArray, target: float, factor: float
) -> FloatArray:
    """Return clip(k alpha_i Delta / L_i, 0, 1) ([R] Alg. 1, eq. 2.1), (n,); a weight of 0 stays 0.

    bounds L_i of the fit under ``risk_weights``; Delta = target; k = factor.
    """
    active = (risk_weights > 0) & (bounds > 0)
    ratio = np.divide(target, bounds, out=np.ones_like(bounds), where=active)
    return np.where(active, np.clip(factor * risk_weights * ratio, 0.0, 1.0), risk_weights)
