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

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.sample_design import LonelyPsu, SampleDesign
from surveysynth.estimation.statistics import (
    STATISTICS,
    Linearised,
    Statistic,
    statistic_of,
    values_of,
)

__all__ = [
    "DomainEstimates",
    "Linearisation",
    "LinearisedTable",
    "LonelyPsu",
    "SampleDesign",
    "check_arguments",
    "estimate_domains",
    "linearise_domains",
    "linearised_variance",
]

Linearisation: TypeAlias = Literal["ratio", "plain"]


@dataclass(frozen=True)
class DomainEstimates:
    """Estimates of the D rows of a table and their Taylor variances, each of shape (D,).

    A row without records has neither (NaN), a mean of one record has no variance (NaN).
    """

    estimate: FloatArray
    variance: FloatArray


@dataclass(frozen=True, eq=False)
class LinearisedTable:
    """One statistic of one dataset for all D rows of a table, before its variance is taken.

    weight: (n,), scaled to the population size under "ratio"; calibrated: whether it is.
    """

    statistic: Statistic
    domains: Domains
    weight: FloatArray
    linearised: Linearised
    calibrated: bool

    @property
    def estimate(self) -> FloatArray:
        """Of each row, (D,); NaN without records. A count or total of a row that is empty in one
        dataset alone is zero."""
        known = records_of(self.statistic, self.domains) > 0
        return np.where(known, self.linearised.estimate, np.nan)

    def variance(self, sample_design: SampleDesign) -> FloatArray:
        """Taylor variances under a design of the same records, (D,)."""
        return linearised_variance(
            self.statistic,
            self.domains,
            sample_design,
            lambda margin_set: self.linearised.inside(self.domains.codes[margin_set]),
            weight=self.weight,
            outside=self.linearised.outside,
            calibrated=self.calibrated,
        )


def linearised_variance(
    statistic: Statistic,
    domains: Domains,
    sample_design: SampleDesign,
    inside: Callable[[int], FloatArray],
    *,
    weight: FloatArray,
    outside: FloatArray | None,
    calibrated: bool,
) -> FloatArray:
    """Taylor variances (D,) of a linearised variable.

    inside: from a margin set to u (n,) of records in the rows that they are in there; outside (D,):
    a record that is not in a row has u = -outside times its weight (n,), or zero for None;
    calibrated: whether weights are scaled to a known sum.
    """
    design_effect = sample_design.design_effect
    if design_effect is not None:
        sample_design = sample_design.one_stage
    variance = np.zeros(domains.n_rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = None if outside is None else _Outside.of(weight, outside, sample_design)
        for margin_set, rows in enumerate(domains.codes):
            pairs = _Pairs.of(rows, domains.n_rows, sample_design)
            squares = _squares(pairs, sample_design, inside(margin_set), rest)
            if sample_design.lonely_psu == "average":
                squares *= _averaging(pairs, sample_design, every_stratum=calibrated)
            variance += squares
    variance *= 1.0 if design_effect is None else design_effect
    variance[records_of(statistic, domains) < statistic.least_for_se] = np.nan
    return variance


def records_of(statistic: Statistic, domains: Domains) -> IntArray:
    """Records (D,) that decide whether a row has an estimate and an error: those that it has, or
    for sums, which an empty row has too, those that it could have."""
    return domains.n_public if statistic.additive else domains.n


def estimate_domains(
    domains: Domains,
    sample_design: SampleDesign,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
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
        A name of ``STATISTICS``. A proportion is the mean of an outcome that is 0 or 1 in the
        survey; synthetic values of it may lie between, so that is not checked here. A share is the
        mean of the indicator of one level.
    linearisation
        "plain" for weights as they stand; "ratio" for weights scaled to a known population size,
        whose sum does not vary from sample to sample. They differ for counts and totals.
    population_size
        Under "ratio" the weights are scaled to it (they stay as they are if they sum to it
        already); None takes their sum as it. Not used under "plain".

    Returns
    -------
    DomainEstimates
        Estimates and variances (D,).

    Raises
    ------
    InputError
        If shapes disagree, an outcome is missing or a word is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> frame = pd.DataFrame({"sex": ["F", "M", "F", "M"]})
    >>> rows = ss.build_domains(frame, ["sex"], {"sex": ("F", "M")})
    >>> made = ss.estimate_domains(
    ...     rows, ss.SampleDesign(np.zeros(4, int)),
    ...     weight=np.array([1.0, 2.0, 3.0, 2.0]), outcome=np.array([5.0, 6.0, 9.0, 8.0]),
    ...     statistic="mean", linearisation="plain",
    ... )
    >>> made.estimate
    array([7.5, 8. , 7. ])
    """
    check_arguments(sample_design.n, domains, weight, outcome, statistic, linearisation)
    table = linearise_domains(
        domains,
        weight=weight,
        outcome=outcome,
        statistic=statistic,
        linearisation=linearisation,
        population_size=population_size,
    )
    return DomainEstimates(table.estimate, table.variance(sample_design))


def linearise_domains(
    domains: Domains,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: Linearisation,
    population_size: float | None = None,
) -> LinearisedTable:
    """The first half of ``estimate_domains``: estimates and linearised variables, no variance.

    Raises ``InputError`` as it does.
    """
    check_arguments(weight.size, domains, weight, outcome, statistic, linearisation)
    kind, calibrated = statistic_of(statistic), linearisation == "ratio"
    if calibrated and population_size is not None:
        weight = weight * (population_size / weight.sum())
    value = values_of(kind, outcome, weight.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        linearised = kind.linearise(domains, weight, value, calibrated=calibrated)
    return LinearisedTable(kind, domains, weight, linearised, calibrated)


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
class _Outside:
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
    def of(cls, weight: FloatArray, centre: FloatArray, design: SampleDesign) -> "_Outside":
        psu_weight = weight if design.psu is None else _sums(design.psu, weight)
        stratum_weight = _sums(design.psu_strata, psu_weight)
        single = design.psus_in_stratum == 1
        mean = np.where(single, 0.0, stratum_weight / design.psus_in_stratum)
        deviation = psu_weight - mean[design.psu_strata]
        squares = _sums(design.psu_strata, deviation**2)
        return cls(centre, weight, psu_weight, deviation, stratum_weight, mean, squares)


def _squares(
    pairs: _Pairs, design: SampleDesign, linearised: FloatArray, outside: _Outside | None
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
    pairs: _Pairs, outside: _Outside, mean: FloatArray, n_without: IntArray
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


def _squares_of_other_strata(pairs: _Pairs, design: SampleDesign, outside: _Outside) -> FloatArray:
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


def check_arguments(
    n: int,
    domains: Domains,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: str,
) -> None:
    """Raise InputError unless the arguments of an estimate of n records fit together."""
    kind = statistic_of(statistic)
    words = get_args(Linearisation)
    if linearisation not in words:
        raise InputError(
            f"The linearisation must be one of {', '.join(words)}, but got '{linearisation}'."
        )
    if outcome is None and kind.needs_outcome:
        without = [each.plural for each in STATISTICS.values() if not each.needs_outcome]
        raise InputError(
            f"A {statistic} needs an outcome; only {' and '.join(without)} do without."
        )
    shapes = {"weight": weight.shape, "domains": domains.codes.shape[1:]}
    if outcome is not None:
        shapes["outcome"] = outcome.shape
    for name, shape in shapes.items():
        if shape != (n,):
            raise InputError(
                f"The sample design has {n} records, but the {name} came with shape {shape}."
            )
