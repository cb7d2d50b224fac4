"""Estimates of all table rows with Taylor-linearised variances (methods 5).

Agrees with R's survey package: ``svyby`` with ``svytotal`` and ``svymean`` under the plain
linearisation, the same after ``calibrate(~1, N)`` under the ratio linearisation.

The rows of a margin set are disjoint, so a record (or PSU) has a linearised value of its own in
few rows, mostly one: these (PSU, row) pairs are handled one by one, and the PSUs without a record
in a row by sums over their stratum. No records-by-rows matrix is made; work and memory grow with
the number of records. Squares are taken around stratum means found beforehand, so that a variance
is never the small difference of two large sums.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from surveysynth._types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.sample_design import LonelyPsu, SampleDesign

__all__ = [
    "DomainEstimates",
    "Linearisation",
    "LonelyPsu",
    "Outside",
    "SampleDesign",
    "Statistic",
    "check_arguments",
    "estimate_domains",
    "linearised_variance",
]

Statistic: TypeAlias = Literal["count", "total", "mean", "proportion"]
Linearisation: TypeAlias = Literal["ratio", "plain"]


@dataclass(frozen=True)
class DomainEstimates:
    """Estimates of the D rows of a table and their Taylor variances, each of shape (D,).

    A row without records has neither (NaN), a mean of one record has no variance (NaN).
    """

    estimate: FloatArray
    variance: FloatArray


def estimate_domains(
    domains: Domains,
    sample_design: SampleDesign,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: Statistic,
    linearisation: Linearisation,
    population_size: float | None = None,
) -> DomainEstimates:
    """Estimate one statistic and its variance for all D cells and margins (methods 5).

    Parameters
    ----------
    domains, sample_design
        The table's rows and the design, of the same n records.
    weight
        Survey weights, shape (n,).
    outcome
        Outcome in original units, shape (n,); for counts it is not looked at and may be None.
    statistic
        "count", "total", "mean" or "proportion". A proportion is the mean of an outcome that is 0
        or 1 in the survey; synthetic values of it may lie between, so that is not checked here.
    linearisation
        "plain" for weights as they stand; "ratio" for weights scaled to a known population size,
        whose sum does not vary from sample to sample. They differ for counts and totals.
    population_size
        Under "ratio" the weights are scaled to it (they stay as they are if they sum to it
        already); None takes their sum as it. Not used under "plain".

    Raises
    ------
    InputError
        If shapes disagree, an outcome is missing or a word is unknown.
    """
    check_arguments(sample_design.n, domains, weight, outcome, statistic, linearisation)
    design_effect = sample_design.design_effect
    if design_effect is not None:
        sample_design = sample_design.one_stage
    is_mean = statistic in ("mean", "proportion")
    is_ratio = linearisation == "ratio"
    if is_ratio and population_size is not None:
        weight = weight * (population_size / weight.sum())
    value = np.ones(sample_design.n) if statistic == "count" or outcome is None else outcome
    size = _sums_by_row(domains, weight)
    total = _sums_by_row(domains, weight * value)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = total / size if is_mean else total
        # A record's linearised value is weight * (value - centre) * scale in a row it belongs to,
        # and weight * (0 - centre) in the others where a calibrated count or total is concerned.
        calibrated = is_ratio and not is_mean
        centre = estimate if is_mean else total / size[0] if calibrated else np.zeros_like(total)
        scale = 1.0 / size if is_mean else np.ones_like(size)
        outside = Outside.of(weight, centre, sample_design) if calibrated else None

        def inside(margin_set: int) -> FloatArray:
            rows = domains.codes[margin_set]
            return np.asarray(weight * (value - centre[rows]) * scale[rows], dtype=np.float64)

        variance = linearised_variance(
            domains, sample_design, inside, outside, every_stratum=is_ratio
        )
    variance *= 1.0 if design_effect is None else design_effect
    variance[domains.n < (2 if is_mean else 1)] = np.nan
    return DomainEstimates(np.where(domains.n > 0, estimate, np.nan), variance)


def linearised_variance(
    domains: Domains,
    sample_design: SampleDesign,
    inside: Callable[[int], FloatArray],
    outside: "Outside | None",
    *,
    every_stratum: bool,
) -> FloatArray:
    """Variances (D,) of sums of a linearised variable, one for each row of the table.

    ``inside(s)``: the values (n,) of the records in the row of margin set s that each belongs to;
    ``outside``: what records have in all other rows, None for nothing. ``every_stratum``: whether
    under lonely "average" all strata count, or those with records in a row.
    """
    variance = np.zeros(domains.n_rows)
    for margin_set, rows in enumerate(domains.codes):
        pairs = _Pairs.of(rows, domains.n_rows, sample_design)
        squares = _squares(pairs, sample_design, inside(margin_set), outside)
        if sample_design.lonely_psu == "average":
            squares *= _averaging(pairs, sample_design, every_stratum=every_stratum)
        variance += squares
    return variance


@dataclass(frozen=True)
class _Pairs:
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
    def of(cls, rows: IntArray, n_rows: int, design: SampleDesign) -> "_Pairs":
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
    """What records outside a row take from a calibrated count or total: centre per unit weight.

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
        """Of weights (n,) and the centres (D,)."""
        psu_weight = weight if design.psu is None else _sums(design.psu, weight)
        stratum_weight = _sums(design.psu_strata, psu_weight)
        single = design.psus_in_stratum == 1
        mean = np.where(single, 0.0, stratum_weight / design.psus_in_stratum)
        deviation = psu_weight - mean[design.psu_strata]
        squares = _sums(design.psu_strata, deviation**2)
        return cls(centre, weight, psu_weight, deviation, stratum_weight, mean, squares)


def _squares(
    pairs: _Pairs, design: SampleDesign, linearised: FloatArray, outside: Outside | None
) -> FloatArray:
    """Sum over strata of multiplier times squared deviations of PSUs from the stratum's mean.

    ``linearised`` (n,) holds the values of the records in their own row; the result is (D,), zero
    for rows of other margin sets.
    """
    n_psus = design.psus_in_stratum[pairs.group_stratum]
    n_without = n_psus - np.bincount(pairs.group)  # PSUs of the stratum with no record in the row
    value = pairs.by_pair(linearised)
    if outside is not None:
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
    pairs: _Pairs, outside: Outside, mean: FloatArray, n_without: IntArray
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


def _squares_of_other_strata(pairs: _Pairs, design: SampleDesign, outside: Outside) -> FloatArray:
    """Squares from strata that have no record at all in a row, shape (D,)."""
    by_stratum = design.multiplier * outside.stratum_squares
    n_with = np.bincount(pairs.group_row, minlength=pairs.n_rows)
    rest = by_stratum.sum() - pairs.by_row(by_stratum[pairs.group_stratum])
    in_set_and_partial = (n_with > 0) & (n_with < design.n_strata)
    return np.where(in_set_and_partial, outside.centre**2 * np.maximum(rest, 0.0), 0.0)


def _averaging(pairs: _Pairs, design: SampleDesign, *, every_stratum: bool) -> FloatArray:
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


def _sums_by_row(domains: Domains, values: FloatArray) -> FloatArray:
    """Sum of the records of each row of the table, shape (D,)."""
    sums = np.zeros(domains.n_rows)
    for rows in domains.codes:
        sums += _sums(rows, values, domains.n_rows)
    return sums


def check_arguments(
    n: int,
    domains: Domains,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: str,
) -> None:
    """Raise InputError unless the arguments of an estimate of n records fit together."""
    for name, word, words in (
        ("statistic", statistic, get_args(Statistic)),
        ("linearisation", linearisation, get_args(Linearisation)),
    ):
        if word not in words:
            raise InputError(f"The {name} must be one of {', '.join(words)}, but got '{word}'.")
    if outcome is None and statistic != "count":
        raise InputError(f"A {statistic} needs an outcome; only counts do without.")
    shapes = {"weight": weight.shape, "domains": domains.codes.shape[1:]}
    if outcome is not None:
        shapes["outcome"] = outcome.shape
    for name, shape in shapes.items():
        if shape != (n,):
            raise InputError(
                f"The sample design has {n} records, but the {name} came with shape {shape}."
            )
