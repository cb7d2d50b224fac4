"""Residual covariances of the columns of z that a record has."""

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, Theta
from surveysynth.models.general_location.layout import RegressionPart


def covariances(
    theta: Theta, regressions: tuple[RegressionPart, ...], there: BoolArray
) -> FloatArray:
    """Return the covariance (groups, q, q) of the columns of z that are ``there`` (q,)."""
    q = len(regressions)
    groups = theta[f"variance_{regressions[0].name}"].size if q else 1
    slopes, variance = np.zeros((groups, q, q)), np.zeros((groups, q))
    for part in regressions:
        own = theta[f"coefficients_{part.name}"][part.columns.size :]
        slopes[:, part.position, part.earlier] = own + theta.get(f"slopes_{part.name}", 0.0)
        variance[:, part.position] = theta[f"variance_{part.name}"]
    both = np.outer(there, there)
    inverse = np.linalg.inv(np.eye(q) - slopes * both)
    scaled = inverse * (variance * there)[:, None]
    return np.asarray(scaled @ inverse.swapaxes(-1, -2), dtype=np.float64)
