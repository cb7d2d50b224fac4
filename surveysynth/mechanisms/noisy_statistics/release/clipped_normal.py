"""What a ball does to normal records: the moments of those that are clipped to it."""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.distributions import chi_square_quantile, chi_square_tail, normal_density

#: Nodes along the first column and of the distance from its axis.
_ALONG, _ASIDE = 1601, 400
_FAR = 9.0


@dataclass(frozen=True)
class ClippedNormal:
    """Mean and variance of the first of q columns after clipping to the ball."""

    mean: float
    variance: float


def share_outside(radius: float, q: int) -> float:
    """Return the probability of a normal record of q columns outside a ball at its centre."""
    return float(chi_square_tail(radius**2, q))


def clipped_normal(radius: float, q: int, offset: float = 0.0) -> ClippedNormal:
    """Return moments of the first column of u min(1, radius/|u|), u ~ N(offset e_1, I_q)."""
    z = np.linspace(-_FAR, _FAR, _ALONG)
    chance = normal_density(z)
    along = (z + offset)[:, None]
    aside = np.zeros((1, 1))
    if q > 1:
        aside = chi_square_quantile((np.arange(_ASIDE) + 0.5) / _ASIDE, q - 1)[None]  # squared
    shrunk = along * np.minimum(1.0, radius / np.maximum(np.sqrt(along**2 + aside), 1e-300))
    weight = chance / chance.sum() / aside.shape[1]
    mean = float(weight @ shrunk.sum(axis=1))
    return ClippedNormal(mean, float(weight @ ((shrunk - mean) ** 2).sum(axis=1)))
