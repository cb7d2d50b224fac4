"""The ball that records are clipped to where cells have spreads of their own: noise against bias.

A cell of n records tells its mean and its variance. The noise on its sum grows with the radius R,
that on its sum of squares with R^2, and clipping moves both by what is known for a normal law. In
units of the declared spread over the true one, f, with records at the distance d from the declared
centre, the ball that is taken has the smallest mean over cases (d, f) of

    (sd_T / (f n))^2 + (sd_Q / (f^2 n))^2 + B (mean' - d)^2 + B (variance' - 1)^2,

mean' and variance' those of u min(1, f R / |u|), u ~ N(d e_1, I), of balls that hold a share
``INSIDE`` of normal records: by public numbers alone. A learned amount is about standard normal, so
d = 0, f = 1 and B = 1. Declared centres and spreads are guesses, and cells differ. How far tails
are from normal is not known, and no interval shows a bias, so that B = 4.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from surveysynth._support.distributions import chi_square_quantile
from surveysynth.mechanisms.noisy_statistics.release.clipped_normal import clipped_normal
from surveysynth.mechanisms.noisy_statistics.release.noise_design import INSIDE as LARGEST
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import group_variances

#: Shares of normal records that a ball may hold.
INSIDE = (0.95, 0.98, 0.99, LARGEST)


@dataclass(frozen=True)
class Cases:
    """Cases (d, f), and how much a squared bias counts, B."""

    distance_and_factor: tuple[tuple[float, float], ...]
    bias: float


LEARNED = Cases(((0.0, 1.0),), 1.0)
#: Cells at the centre and a spread off it; a declared spread that is right or a fifth too small.
GUESSED = Cases(((0.0, 1.0), (1.0, 1.0), (0.0, 0.8), (1.0, 0.8)), 4.0)


@lru_cache(maxsize=64)
def ball_radius(
    columns: int,
    records: float,
    rho: float,
    unit: int = 1,
    cases: Cases = LEARNED,
) -> float:
    """Return the radius, in spreads, for the columns of z that a record has at once.

    records: of an average cell; rho: of all sums; unit: records of the largest unit of protection.
    """
    one = Clipping(np.zeros(1), np.ones(1), 1.0)
    noise = group_variances(one, rho, unit)
    sums, squares = noise.cross_sd(one) / records, float(noise.squares_sd(one)[0, 0]) / records

    def squared_error(radius: float) -> float:
        total = 0.0
        for distance, factor in cases.distance_and_factor:
            clipped = clipped_normal(factor * radius, columns, distance)
            bias = (clipped.mean - distance) ** 2 + (clipped.variance - 1.0) ** 2
            total += (sums * radius / factor) ** 2 + (squares * (radius / factor) ** 2) ** 2
            total += cases.bias * bias
        return total

    radii = [math.sqrt(chi_square_quantile(share, columns)) for share in INSIDE]
    return min(radii, key=squared_error)
