"""Sums of squared deviations of PSUs from their stratum's mean, for all rows of a table at once.

The rows of a margin set are disjoint, so a record (or PSU) has a linearised value of its own in
few rows, mostly one: these (PSU, row) pairs are handled one by one, and the PSUs without a record
in a row by sums over their stratum. No records-by-rows matrix is made; work and memory grow with
the number of records. Squares are taken around stratum means found beforehand, so that a variance
is never the small difference of two large sums.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.sample_design import SampleDesign


@dataclass(frozen=True)
class Pairs:
    """The (PSU, row) and (stratum, row) pairs with records, for the rows of one margin set.

    P pairs of a PSU and a row lie in G groups of a stratum and a row.
    """

    n_rows: int
    record: IntArray | None  # (n,) pair of each record; None: each record is a pair of its own
    psu: IntArray  # (P,)
    row: IntArray  # (P,)
    group: IntArray  # (P,)
    group_stratum: IntArray  # (G,)
    group_row: IntArray  # (G,)

    @classmethod
    def of(cls, rows: IntArray, n_rows: int, design: SampleDesign) -> "Pairs":
        """Find the pairs by hashing, which unlike sorting or a full table is linear in n."""
        record: IntArray | None = None
        psu, row = np.arange(len(rows)), rows
        if design.psu is not None:
            record, keys = pd.factorize(design.psu * n_rows + rows)
            psu, row = np.divmod(keys, n_rows)
        group, keys = pd.factorize(design.psu_strata[psu] * n_rows + row)
        group_stratum, group_row = np.divmod(keys, n_rows)
        return cls(n_rows, record, psu, row, group, group_stratum, group_row)

    def by_pair(self, values: FloatArray) -> FloatArray:
        """Sum records (n,) within pairs (P,)."""
        return values if self.record is None else _sums(self.record, values)

    def by_group(self, values: FloatArray) -> FloatArray:
        """Sum pairs (P,) within groups (G,)."""
        return _sums(self.group, values)

    def by_row(self, values: FloatArray) -> FloatArray:
        """Sum groups (G,) within the rows of the table (D,)."""
        return _sums(self.group_row, values, self.n_rows)


@dataclass(frozen=True)
class Outside:
    """The part of a calibrated count or total from records outside a row: centre per unit weight.

    The weights of PSUs are kept as deviations from their stratum's mean, so that the squares of
    the PSUs that have no record in a row can be summed without looking at them.
    """

    centre: FloatArray  # (D,) N_d / N or t_d / N
    weight: FloatArray  # (n,) of records
    psu_weight: FloatArray  # (C,)
    psu_deviation: FloatArray  # (C,) from the stratum's mean
    stratum_weight: FloatArray  # (H,)
    stratum_mean: FloatArray  # (H,) mean weight of a PSU; 0 in a stratum of one PSU
    stratum_squares: FloatArray  # (H,) sum of squared deviations

    @classmethod
    def of(cls, weight: FloatArray, centre: FloatArray, design: SampleDesign) -> "Outside":
        """Sum the weights (n,) for centres (D,)."""
        psu_weight = weight if design.psu is None else _sums(design.psu, weight)
        stratum_weight = _sums(design.psu_strata, psu_weight)
        single = design.psus_in_stratum == 1
        mean = np.where(single, 0.0, stratum_weight / design.psus_in_stratum)
        deviation = psu_weight - mean[design.psu_strata]
        squares = _sums(design.psu_strata, deviation**2)
        return cls(centre, weight, psu_weight, deviation, stratum_weight, mean, squares)


def squares_by_row(
    pairs: Pairs, design: SampleDesign, linearised: FloatArray, outside: Outside | None
) -> FloatArray:
    """Sum over strata of multiplier times squared deviations of PSUs from the stratum's mean.

    ``linearised`` (n,) holds the values of the records in their own row; the result is (D,), zero
    for rows of other margin sets.
    """
    n_psus = design.psus_in_stratum[pairs.group_stratum]
    n_without = n_psus - np.bincount(pairs.group)  # PSUs of the stratum with no record in the row
    value = pairs.by_pair(linearised)
    if outside is not None and pairs.record is not None:  # a record alone has all its weight there
        rest = outside.psu_weight[pairs.psu] - pairs.by_pair(outside.weight)
        value = value - outside.centre[pairs.row] * rest
    mean = pairs.by_group(value)
    if outside is not None:
        rest = outside.stratum_weight[pairs.group_stratum]
        rest = rest - pairs.by_group(outside.psu_weight[pairs.psu])
        # Where all PSUs have records the rest is rounding: nothing.
        mean -= outside.centre[pairs.group_row] * np.where(n_without > 0, rest, 0.0)
    # A single PSU is taken around zero; the multiplier says whether it counts at all.
    mean = np.where(n_psus > 1, mean / n_psus, 0.0)
    squares = pairs.by_group((value - mean[pairs.group]) ** 2)
    if outside is None:
        squares += n_without * mean**2
    else:
        squares += _squares_without(pairs, outside, mean, n_without)
    result = pairs.by_row(design.multiplier[pairs.group_stratum] * squares)
    if outside is not None:
        result += _squares_of_other_strata(pairs, design, outside)
    return result


def _squares_without(
    pairs: Pairs, outside: Outside, mean: FloatArray, n_without: IntArray
) -> FloatArray:
    """Squares of the PSUs that have no record in a row, in strata that have some, shape (G,).

    Such a PSU deviates by -(centre * its weight + mean) = -(centre * deviation + level); over the
    stratum the deviations add up to zero, hence over these PSUs to minus the sum of the others.
    """
    centre = outside.centre[pairs.group_row]
    deviation = outside.psu_deviation[pairs.psu]
    level = mean + centre * outside.stratum_mean[pairs.group_stratum]
    squared = outside.stratum_squares[pairs.group_stratum] - pairs.by_group(deviation**2)
    crossed = -pairs.by_group(deviation)
    squares = centre**2 * squared + 2.0 * centre * level * crossed + n_without * level**2
    return np.where(n_without > 0, np.maximum(squares, 0.0), 0.0)


def _squares_of_other_strata(pairs: Pairs, design: SampleDesign, outside: Outside) -> FloatArray:
    """Squares from strata that have no record at all in a row, shape (D,)."""
    by_stratum = design.multiplier * outside.stratum_squares
    n_with = np.bincount(pairs.group_row, minlength=pairs.n_rows)
    rest = by_stratum.sum() - pairs.by_row(by_stratum[pairs.group_stratum])
    in_set_and_partial = (n_with > 0) & (n_with < design.n_strata)
    return np.where(in_set_and_partial, outside.centre**2 * np.maximum(rest, 0.0), 0.0)


def averaging(pairs: Pairs, design: SampleDesign, *, every_stratum: bool) -> FloatArray:
    """Factor H / H_ok of lonely "average", shape (D,); infinite where H_ok is 0, which makes NaN.

    R counts the strata of the data that an estimate is made from. Without calibration these are
    the row's own records; calibrated weights carry the whole sample, so all strata count.
    """
    if every_stratum:
        n_ok = np.float64(design.n_strata - int(design.lonely.sum()))
        return np.full(pairs.n_rows, design.n_strata / n_ok)
    ok = np.where(design.lonely[pairs.group_stratum], 0.0, 1.0)
    n_with = np.bincount(pairs.group_row, minlength=pairs.n_rows)
    return np.where(n_with > 0, n_with / pairs.by_row(ok), 0.0)


def _sums(codes: IntArray, values: FloatArray, length: int = 0) -> FloatArray:
    """Sum of the values of each code 0, 1, .., up to the largest code or to a length."""
    return np.bincount(codes, values, minlength=length).astype(np.float64, copy=False)
