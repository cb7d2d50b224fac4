"""How far one record moves the statistics, and the noise that a budget asks for: the proof.

**What is released.** A record i has a public row a_i of A with |a_i|^2 <= h <= 1 and a confidential
u_i with |u_i| <= R, both in whole numbers (of 2^-30, and of a step of the grid; ``design``). The
sums T = sum_i a_i u_i' and Q = sum_i u_i u_i' are whole numbers too, computed without rounding. A
discrete Gaussian number of variance s^2 is added to every entry of T, of variance 2 R^2 s^2 to the
diagonal of Q and of R^2 s^2 to each entry above it, all independent (each in the units of its own
entry); what is below the diagonal of Q is a copy. All else is a function of these noisy numbers.

**One record.** Neighbours differ in one u: u becomes v, a stays. T changes by a (v - u)', whose
squared length is |a|^2 |u - v|^2; Q by the symmetric D = vv' - uu'. Independent discrete Gaussian
noise on whole numbers is rho-zCDP with rho = sum_j change_j^2 / (2 variance_j), whatever the
variances (Canonne, Kamath & Steinke 2020, the multivariate case). The entries of Q give

    sum_j D_jj^2 / (4 R^2 s^2) + sum_{j<k} D_jk^2 / (2 R^2 s^2) = |D|_F^2 / (4 R^2 s^2),

so rho = d^2 / (2 s^2) with the distance d^2 = |a|^2 |u - v|^2 + |D|_F^2 / (2 R^2).

**Claim:** d <= R (1 + h). Write c = u'v, so that |u - v|^2 = |u|^2 + |v|^2 - 2c and
|D|_F^2 = |u|^4 + |v|^4 - 2c^2. With |a|^2 = h' <= h,

    d^2 = h' (|u|^2 + |v|^2) + (|u|^4 + |v|^4)/(2 R^2) + [h'^2 R^2 - (c/R + h' R)^2],

and the last bracket is at most h'^2 R^2, the others at most 2 h' R^2 and R^2. Hence
d^2 <= R^2 (1 + 2 h' + h'^2) = R^2 (1 + h')^2. It is attained: |u| = |v| = R, u'v = -h' R^2. For
h = 1: d <= 2R, at v = -u: second moments cost nothing beside first moments. (The square is not
convex in |u| for h < 1, so that an argument by extreme points would not do.)

**Units of k records.** If all k records of a unit may change, the triangle inequality for the
length whose square is |.|^2 on T plus |.|_F^2 / (2 R^2) on Q gives d <= k R (1 + h): in the same
units of noise, attained by k records of one cell. Unit sizes and who belongs to one are public and
the same in a neighbour; k is the largest size.

**Rounding.** None is left in the proof: a and u are whole numbers before anything is added up,
|a| <= 1 and |u| <= R are exact in them, and variances are rounded up to whole numbers. A second
rounding of T, and the (sqrt(dimension) + 1) steps by which it would lengthen d, are not needed.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.noise_design import ROW_BITS, Clipping


@dataclass(frozen=True)
class NoiseVariances:
    """Parameters sigma^2 of the discrete Gaussians, in whole numbers.

    cross: of the entries of A'U, in (2^-30 step)^2; diagonal and off_diagonal: of U'U, in step^4.
    """

    cross: int
    diagonal: int
    off_diagonal: int

    def cross_sd(self, clipping: Clipping) -> float:
        """The sd sigma of noise on A'U, u in spreads."""
        return math.sqrt(self.cross) * 2.0**-ROW_BITS * clipping.step

    def squares_sd(self, clipping: Clipping) -> FloatArray:
        """The sd (q, q) of noise on U'U, u in spreads."""
        off, diagonal = (
            math.sqrt(each) * clipping.step**2 for each in (self.off_diagonal, self.diagonal)
        )
        sd = np.full((clipping.q, clipping.q), off)
        np.fill_diagonal(sd, diagonal)
        return sd


def sensitivity(radius: float, *, leverage: float = 1.0, records: int = 1) -> float:
    """The largest distance d of neighbours, k R (1 + h), in units of the noise on A'U."""
    return records * radius * (1.0 + leverage)


def noise_variances(clipping: Clipping, rho: float, records: int = 1) -> NoiseVariances:
    """The noise that makes the statistics rho-zCDP for units of up to ``records`` records.

    Exact: fractions of the double rho, rounded up. Raises ``InputError`` for a rho that is not
    above 0 or a unit without records.
    """
    if not (math.isfinite(rho) and rho > 0) or records < 1:
        raise InputError(
            "Noise needs a finite rho above 0 and units of at least one record, but got "
            f"{rho} and {records}."
        )
    squared = Fraction(clipping.steps) ** 2
    variance = 4 * squared * records**2 / (2 * Fraction(rho))
    return NoiseVariances(
        math.ceil(variance * 4**ROW_BITS),
        math.ceil(2 * squared * variance),
        math.ceil(squared * variance),
    )


def rho_spent(variances: NoiseVariances, clipping: Clipping, records: int = 1) -> Fraction:
    """The rho that these variances guarantee, as an exact fraction: a check of the above."""
    squared = Fraction(clipping.steps) ** 2
    per_step = min(
        Fraction(variances.cross, 4**ROW_BITS),
        Fraction(variances.diagonal) / (2 * squared),
        Fraction(variances.off_diagonal) / squared,
    )
    return 4 * squared * records**2 / (2 * per_step)
