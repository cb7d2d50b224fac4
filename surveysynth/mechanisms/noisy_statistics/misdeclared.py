"""What too large or too small a declared spread would do, from public inputs alone (strict 5).

Let the true spreads be those declared, or c times smaller or larger ones. On the true scale a ball
of radius R declared spreads is one of radius c R, and the noise is that of this ball: c times as
large on sums, c^2 times on sums of squares and products. What lies outside the ball is drawn to
its surface, along the line to the centre. For records u ~ N(offset e_1, I) of q columns this moves
the mean of the first column and shrinks its variance, and with them means of outcomes:

    E[y]' - E[y] = slope (mean' - offset) + curvature (variance' - 1),

slope and curvature as in ``expected_se``; those of a cell at the centre for every cell.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from surveysynth.mechanisms.noisy_statistics.expected_se import OutcomeMoments

#: Nodes along the first column and of the distance from its axis.
_ALONG, _ASIDE = 1601, 400
_FAR = 9.0


@dataclass(frozen=True)
class ClippedNormal:
    """Mean and variance of the first of q columns after clipping to the ball."""

    mean: float
    variance: float


def share_outside(radius: float, q: int) -> float:
    """The probability that a normal record of q columns at the centre lies outside the ball."""
    return float(stats.chi2.sf(radius**2, q))


def clipped_normal(radius: float, q: int, offset: float = 0.0) -> ClippedNormal:
    """Moments of the first column of u min(1, radius/|u|), u ~ N(offset e_1, I_q)."""
    z = np.linspace(-_FAR, _FAR, _ALONG)
    chance = stats.norm.pdf(z)
    along = (z + offset)[:, None]
    aside = np.zeros((1, 1))
    if q > 1:
        aside = stats.chi2.ppf((np.arange(_ASIDE) + 0.5) / _ASIDE, q - 1)[None]  # squared
    shrunk = along * np.minimum(1.0, radius / np.maximum(np.sqrt(along**2 + aside), 1e-300))
    weight = chance / chance.sum() / aside.shape[1]
    mean = float(weight @ shrunk.sum(axis=1))
    return ClippedNormal(mean, float(weight @ ((shrunk - mean) ** 2).sum(axis=1)))


def clipping_bias(outcome: OutcomeMoments, radius: float, q: int, offset: float = 0.0) -> float:
    """Bias of the mean of y in a row whose records lie ``offset`` spreads from the centre."""
    moved = clipped_normal(radius, q, offset).mean - offset
    # One residual variance serves all rows; most lie near the centre.
    shrunk = clipped_normal(radius, q).variance - 1.0
    return outcome.slope * moved + outcome.curvature * shrunk


def sample_error(outcome: OutcomeMoments, records: float) -> float:
    """The sample's own SE of the mean of a row with so many records."""
    return math.sqrt(outcome.weighted / records)
