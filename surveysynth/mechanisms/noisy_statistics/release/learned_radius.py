"""The ball of learned amounts, and of groups about their own centres: noise against what it cuts.

A learned amount is about standard normal, so what a ball of radius R does to its variance is known:
a share 1 - v(R, q) of it is lost, with v = F_{q+2}(R^2) + (R^2/q) (1 - F_q(R^2)) and F_q the law of
chi-square with q degrees of freedom. The noise of a sum of squares grows with R^2. In a cell of n
records, whose variance is to be told, the two errors are equal in kind, and the ball that is taken
has the smallest

    (sd(R) / n)^2 + (1 - v(R, q))^2,

of those that hold a share ``INSIDE`` of normal records, by public numbers alone. Declared centres
of all records together are guesses, which need the larger ball of ``noise_design.inside``; groups
about centres of their own (``group_centres``) do not.
"""

import math

import numpy as np

from surveysynth._support.numeric import chi_square_quantile, chi_square_tail
from surveysynth.mechanisms.noisy_statistics.release.noise_design import INSIDE as DECLARED
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import group_variances

#: Shares of normal records that a ball may hold.
INSIDE = (0.95, 0.98, 0.99, DECLARED)


def learned_radius(columns: int, records: float, rho: float, unit: int = 1) -> float:
    """Return the radius, in spreads, for the columns of z that a record has at once.

    records: of an average cell; rho: of all sums; unit: records of the largest unit of protection.
    """
    one = Clipping(np.zeros(1), np.ones(1), 1.0)
    sd = float(group_variances(one, rho, unit).squares_sd(one)[0, 0])
    radii = [math.sqrt(chi_square_quantile(share, columns)) for share in INSIDE]
    return min(radii, key=lambda radius: _squared_error(radius, columns, sd / records))


def _squared_error(radius: float, columns: int, noise: float) -> float:
    return (noise * radius**2) ** 2 + (1.0 - clipped_variance(radius, columns)) ** 2


def clipped_variance(radius: float, columns: int) -> float:
    """Return v: E u_1^2 min(1, R^2/|u|^2) of a standard normal u of so many columns."""
    square = radius**2
    within = 1.0 - float(chi_square_tail(square, columns + 2))
    return within + square / columns * float(chi_square_tail(square, columns))
