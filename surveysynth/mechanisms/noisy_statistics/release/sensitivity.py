"""Sensitivity of the statistics to one record, and the noise for a budget: the proofs.

**What is released.** A record i has a public row a_i of A with |a_i|^2 <= h <= 1 and a confidential
u_i with |u_i| <= R, both in whole numbers (of 2^-30, and of a step of the grid; ``noise_design``).
The sums T = sum_i a_i u_i' and Q = sum_i u_i u_i' are whole numbers too, computed without rounding.
A discrete Gaussian number of variance s^2 is added to every entry of T, of variance 2 R^2 s^2 to
the diagonal of Q and of R^2 s^2 to each entry above it, all independent (each in the units of its
own entry); what is below the diagonal of Q is a copy. All else is a function of these noisy
numbers.

**One record.** Neighbors differ in one u: u becomes v, a stays. T changes by a (v - u)', whose
squared length is |a|^2 |u - v|^2; Q by the symmetric D = vv' - uu'. Independent discrete Gaussian
noise on whole numbers is rho-zCDP with rho = sum_j change_j^2 / (2 variance_j), whatever the
variances (Canonne, Kamath & Steinke 2020, the multivariate case). The entries of Q give

    sum_j D_jj^2 / (4 R^2 s^2) + sum_{j<k} D_jk^2 / (2 R^2 s^2) = |D|_F^2 / (4 R^2 s^2),

so rho = d^2 / (2 s^2) with the distance d^2 = |a|^2 |u - v|^2 + |D|_F^2 / (2 R^2).

**Claim:** d <= R (1 + h). Write c = u'v, so that |u - v|^2 = |u|^2 + |v|^2 - 2c and
|D|_F^2 = |u|^4 + |v|^4 - 2c^2. With |a|^2 = h' <= h,

    d^2 = h' (|u|^2 + |v|^2) + (|u|^4 + |v|^4)/(2 R^2) + [h'^2 R^2 - (c/R + h' R)^2],

and the last bracket is at most h'^2 R^2, the others at most 2 h' R^2 and R^2. Hence d^2 <= R^2 (1 +
2 h' + h'^2) = R^2 (1 + h')^2. It is attained: |u| = |v| = R, u'v = -h' R^2. For h = 1: d <= 2R, at
v = -u: second moments cost nothing beside first moments. (The square is not convex in |u| for h <
1, so an argument by extreme points fails.)

**Several blocks and counts.** With outcomes of several kinds every record is in one of several
blocks b (``location_table``), whose T_b and Q_b are of the columns of u that its records have. The
squares of a small block determine the spread of its amounts, which tolerates less noise than means:
noise on Q_b has 1/t of the variances above, t >= 1 (``SQUARES``), and |D|_F^2 counts t times. The
count n_cd of every row (c, d) is released too, with noise of variance s^2 / k^2, k^2 = share R^2.
Now d^2 is the sum over blocks, and k^2 times the squared change of the counts. The record's x
stays; u and d become v and d'.

- d' = d: as for one block, 2 h' R^2 and t R^2 and what is left of -2 h' c - t c^2/R^2, which is
  largest at c = -h' R^2/t: d^2 <= R^2 (2 h' + t + h'^2/t) <= R^2 (2 + t + 1/t). For t = 1 this is
  4 R^2.
- d' is another combination of the same block, a becomes a', s = a'a: the change of T has the
  squared length |a|^2 |u|^2 + |a'|^2 |v|^2 - 2 s c, c = u'v, and Q adds t (|u|^4 + |v|^4 -
  2 c^2)/(2 R^2). With |a|, |a'| <= 1 and |u|, |v| <= R the sum is at most (2 + t) R^2 - 2 s c -
  t c^2/R^2, which is largest at c = -s R^2/t: d^2 <= R^2 (2 + t + s^2/t) + 2 k^2.
- d' is in another block: T and Q lose |a|^2 |u|^2 + t |u|^4/(2 R^2) <= (1 + t/2) R^2 in one and
  gain as much in the other, whatever columns they have: d^2 <= (2 + t) R^2 + 2 k^2, the line above
  with s = 0.

Hence d^2 <= R^2 max(2 + t + 1/t, 2 + t + s^2/t + 2 share) with the largest s^2 <= 1 over pairs of
rows of one cell and pattern, both public and finite. Without discrete parts no d changes: the first
alone.

**Units of k records.** If all k records of a unit may change, the triangle inequality for the
length whose square is |.|^2 on T plus t |.|_F^2 / (2 R^2) on Q, and k^2 |.|^2 on counts, gives k
times d, in the same units of noise; it is attained by k records of one cell. Unit sizes and who
belongs to one are public and the same in a neighbor; k is the largest size.

**Rounding.** None is left in the proof: a and u are whole numbers before anything is added up,
|a| <= 1 and |u| <= R are exact in them, and variances are rounded up to whole numbers. A second
rounding of T, and the (sqrt(dimension) + 1) steps by which it would lengthen d, are not needed.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.noise_design import ROW_BITS, Clipping

#: (d/R)^2 of neighbors where no record can change its row.
ONE_BLOCK = Fraction(4)
#: How much more precise squares of blocks are than those of one block, in variance. Small blocks
#: need it: on real populations means and medians of 4 had smaller errors than of 1 and 2.
SQUARES = 4
#: Variances of counts are whole multiples of 2^-20.
COUNT_BITS = 20
#: Rows whose products with all others of their cell are looked at together.
AT_ONCE = 512


@dataclass(frozen=True)
class NoiseVariances:
    """Parameters sigma^2 of the discrete Gaussians, in whole numbers but for counts.

    cross: of the entries of A'U, in (2^-30 step)^2; diagonal and off_diagonal: of U'U, in step^4;
    count: of the counts, 0 where none are released.
    """

    cross: int
    diagonal: int
    off_diagonal: int
    count: Fraction = Fraction(0)

    def cross_sd(self, clipping: Clipping) -> float:
        """Return the SD sigma of noise on A'U, u in spreads."""
        return math.sqrt(self.cross) * 2.0**-ROW_BITS * clipping.step

    def squares_sd(self, clipping: Clipping) -> FloatArray:
        """Return the SD (q, q) of noise on U'U, u in spreads."""
        off, diagonal = (
            math.sqrt(each) * clipping.step**2 for each in (self.off_diagonal, self.diagonal)
        )
        sd = np.full((clipping.q, clipping.q), off)
        np.fill_diagonal(sd, diagonal)
        return sd


def largest_product(rows: IntArray, cell: IntArray) -> Fraction:
    """Return the largest s^2 of two different rows of one cell of a block, exactly.

    rows (rows, r) in steps of 2^-30, cell (rows,)."""
    largest, order = 0, np.argsort(cell, kind="stable")
    # |a| <= 1 and |a'| <= 1: no product of theirs, nor a part of one, passes 2^60.
    for own in np.split(rows[order], np.flatnonzero(np.diff(cell[order])) + 1):
        for start in range(0, len(own), AT_ONCE):
            products = np.abs(own[start : start + AT_ONCE] @ own.T)
            products[np.arange(len(products)), start + np.arange(len(products))] = 0
            largest = max(largest, int(products.max(initial=0)))
    return Fraction(largest, 4**ROW_BITS) ** 2


def squared_sensitivity(
    product: Fraction, share: float, *, discrete: bool, squares: int = SQUARES
) -> Fraction:
    """Return (d/R)^2 of neighbors with blocks; ``product``: the largest s^2 over all of them."""
    same = 2 + squares + Fraction(1, squares)
    return max(same, 2 + squares + product / squares + 2 * _exact(share)) if discrete else same


def noise_variances(
    clipping: Clipping,
    rho: float,
    records: int = 1,
    *,
    distance: Fraction = ONE_BLOCK,
    share: float | None = None,
    squares: int = 1,
) -> NoiseVariances:
    """Return the noise that makes the statistics rho-zCDP for units of up to ``records`` records.

    distance: (d/R)^2 of neighbors; share: of counts, where they are released; squares: t. Exact:
    fractions of the double rho, rounded up. Raises ``InputError`` for a rho or share that is not
    above 0 and a unit without records.
    """
    if not (math.isfinite(rho) and rho > 0) or records < 1:
        raise InputError(
            f"Noise needs a finite rho above 0 and units of at least one record, got {rho} and "
            f"{records}."
        )
    squared = Fraction(clipping.steps) ** 2
    variance = distance * squared * records**2 / (2 * Fraction(rho))
    count = Fraction(0) if share is None else variance / (_exact(share) * squared)
    return NoiseVariances(
        math.ceil(variance * 4**ROW_BITS),
        math.ceil(2 * squared * variance / squares),
        math.ceil(squared * variance / squares),
        Fraction(math.ceil(count * 2**COUNT_BITS), 2**COUNT_BITS),
    )


def group_variances(clipping: Clipping, rho: float, records: int = 1) -> NoiseVariances:
    """Return the noise of statistics by group of cells, where no outcome has a discrete part."""
    distance = squared_sensitivity(Fraction(0), 1.0, discrete=False)
    return noise_variances(clipping, rho, records, distance=distance, squares=SQUARES)


def rho_spent(
    variances: NoiseVariances,
    clipping: Clipping,
    records: int = 1,
    *,
    distance: Fraction = ONE_BLOCK,
    share: float | None = None,
    squares: int = 1,
) -> Fraction:
    """Return the rho that these variances guarantee, as an exact fraction: a check of the above."""
    squared = Fraction(clipping.steps) ** 2
    per_step = min(
        Fraction(variances.cross, 4**ROW_BITS),
        squares * Fraction(variances.diagonal) / (2 * squared),
        squares * Fraction(variances.off_diagonal) / squared,
        *(() if share is None else (variances.count * _exact(share) * squared,)),
    )
    return distance * squared * records**2 / (2 * per_step)


def _exact(share: float) -> Fraction:
    if not (math.isfinite(share) and share > 0):
        raise InputError(f"The share of counts must be a finite number above 0, got {share}.")
    return Fraction(share)
