"""How far one record moves counts and moments by block, and the noise for a budget: the proof.

**What is released.** With the whole numbers of ``noisy_statistics.sensitivity``, |a| <= 1 and
|u| <= R, and blocks that every record is in one of (``shape``): for each block b

    T_b = sum of a u',  Q_b = sum of u u'  over its records, of the columns of u that it has,

and the count n_cd of every row (c, d). Entries of T get discrete Gaussian noise of variance s^2,
the diagonal of Q 2 R^2 s^2, what is above it R^2 s^2, counts s^2 / k^2 with k^2 = share R^2. So
rho = d^2 / (2 s^2) with d^2 the sum over blocks of |change of T|^2 + |change of Q|_F^2 / (2 R^2),
and k^2 times the squared change of the counts.

**One record.** Its x stays; u and d become v and d'.

- d' = d: d^2 <= 4 R^2, as for one block.
- d' is another combination of the same block, a becomes a', s = a'a: the change of T has the
  squared length |a|^2 |u|^2 + |a'|^2 |v|^2 - 2 s c, c = u'v, and Q adds (|u|^4 + |v|^4 -
  2 c^2)/(2 R^2). With |a|, |a'| <= 1 and |u|, |v| <= R the sum is at most 3 R^2 - 2 s c - c^2/R^2,
  which is largest at c = -s R^2: d^2 <= R^2 (3 + s^2) + 2 k^2.
- d' lies in another block: T and Q lose |a|^2 |u|^2 + |u|^4/(2 R^2) <= 3 R^2/2 in one and gain as
  much in the other, whatever columns they have: d^2 <= 3 R^2 + 2 k^2, the line above with s = 0.

Hence d^2 <= R^2 max(4, 3 + s^2 + 2 share) with the largest s^2 <= 1 over pairs of rows of one cell
and pattern, both public and finite. Units of k records: k times d, by the triangle inequality.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from surveysynth._support.types import IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.noise_design import ROW_BITS
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import NoiseVariances

#: Variances of counts are whole multiples of 2^-20.
COUNT_BITS = 20
#: Rows whose products with all others of their cell are looked at together.
AT_ONCE = 512


@dataclass(frozen=True)
class LocationVariances:
    """Parameters sigma^2 of the discrete Gaussians: of moments, and of counts."""

    moments: NoiseVariances
    count: Fraction


def largest_product(rows: IntArray, cell: IntArray) -> Fraction:
    """The largest s^2 of two different rows of one cell of a block, exactly; rows (rows, r) in
    steps of 2^-30, cell (rows,)."""
    largest, order = 0, np.argsort(cell, kind="stable")
    # |a| <= 1 and |a'| <= 1: no product of theirs, nor a part of one, passes 2^60.
    for own in np.split(rows[order], np.flatnonzero(np.diff(cell[order])) + 1):
        for start in range(0, len(own), AT_ONCE):
            products = np.abs(own[start : start + AT_ONCE] @ own.T)
            products[np.arange(len(products)), start + np.arange(len(products))] = 0
            largest = max(largest, int(products.max(initial=0)))
    return Fraction(largest, 4**ROW_BITS) ** 2


def squared_sensitivity(product: Fraction, share: Fraction, *, discrete: bool) -> Fraction:
    """(d/R)^2 of neighbours; ``product``: the largest s^2 over all blocks."""
    return max(Fraction(4), 3 + product + 2 * share) if discrete else Fraction(4)


def location_variances(
    steps: int, rho: float, product: Fraction, share: float, records: int, *, discrete: bool
) -> LocationVariances:
    """The noise that makes the statistics rho-zCDP for units of up to ``records`` records.

    steps: R in steps of the grid. Raises ``InputError`` for a rho or share that is not above 0.
    """
    if not (math.isfinite(rho) and rho > 0 and math.isfinite(share) and share > 0) or records < 1:
        raise InputError(
            "Noise needs a finite rho and a share of counts above 0 and units of at least one "
            f"record, but got {rho}, {share} and {records}."
        )
    of_counts, squared = Fraction(share), Fraction(steps) ** 2
    largest = squared_sensitivity(product, of_counts, discrete=discrete)
    variance = largest * squared * records**2 / (2 * Fraction(rho))
    moments = NoiseVariances(
        math.ceil(variance * 4**ROW_BITS),
        math.ceil(2 * squared * variance),
        math.ceil(squared * variance),
    )
    count = variance / (of_counts * squared)
    return LocationVariances(moments, Fraction(math.ceil(count * 2**COUNT_BITS), 2**COUNT_BITS))


def rho_spent(
    variances: LocationVariances, steps: int, product: Fraction, share: float, records: int = 1
) -> Fraction:
    """The rho that these variances guarantee, exactly: a check of the above."""
    squared, of_counts = Fraction(steps) ** 2, Fraction(share)
    per_step = min(
        Fraction(variances.moments.cross, 4**ROW_BITS),
        Fraction(variances.moments.diagonal) / (2 * squared),
        Fraction(variances.moments.off_diagonal) / squared,
        variances.count * of_counts * squared,
    )
    largest = squared_sensitivity(product, of_counts, discrete=True)
    return largest * squared * records**2 / (2 * per_step)
