"""Estimates of all table rows with Taylor-linearized variances (methods 5).

Agrees with R's survey package: ``svyby`` with ``svytotal`` and ``svymean`` under the plain
linearisation, the same after ``calibrate(~1, N)`` under the ratio linearisation, and after
``calibrate`` with further variables under calibration.

The rows of a margin set are disjoint, so a record (or PSU) has a linearized value of its own in few
rows, mostly one: these (PSU, row) pairs are handled one by one, and the PSUs without a record in a
row by sums over their stratum. No records-by-rows matrix is made; work and memory grow with the
number of records. Squares are taken around stratum means found beforehand, so that a variance is
never the small difference of two large sums.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, cast, get_args

import numpy as np
import pandas as pd

from surveysynth._support.numeric import blocks
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.linearised import (
    Deviations,
    Linearised,
    RowDistributions,
    Weighted,
    contrasted,
    distribution,
    woodruff_se,
)
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import STATISTICS, Statistic, statistic_of, values_of


@dataclass(frozen=True)
class Pairs:
    """The (PSU, row) and (stratum, row) pairs with records, for the rows of one margin set.

    P pairs of a PSU and a row are in G groups of a stratum and a row.
    """

    n_rows: int
    record: IntArray | None  # (n,) pair of each record; None: each record is a pair of its own
    psu: IntArray | slice  # (P,); all of them, where each record is a PSU
    row: IntArray  # (P,)
    group: IntArray  # (P,)
    group_stratum: IntArray  # (G,)
    group_row: IntArray  # (G,)
    group_size: IntArray  # (G,) PSUs

    @classmethod
    def of(cls, domains: Domains, margin_set: int, design: SampleDesign) -> "Pairs":
        """Return the pairs of a margin set, found once for all tables and datasets of its rows."""
        key = (margin_set, id(design.psu), id(design.strata))
        if key not in domains.pairs:
            found = cls._found(domains.codes[margin_set], domains.n_rows, design)
            domains.pairs[key] = (found, design.psu, design.strata)  # these are not forgotten
        return cast(Pairs, domains.pairs[key][0])

    @classmethod
    def _found(cls, rows: IntArray, n_rows: int, design: SampleDesign) -> "Pairs":
        """Find the pairs by hashing, which unlike sorting or a full table is linear in n."""
        record: IntArray | None = None
        psu: IntArray | slice = slice(None)
        row = rows
        if design.psu is not None:
            record, keys = pd.factorize(design.psu * n_rows + rows)
            psu, row = np.divmod(keys, n_rows)
        group, keys = pd.factorize(design.psu_strata[psu] * n_rows + row)
        group_stratum, group_row = np.divmod(keys, n_rows)
        size = np.bincount(group)
        return cls(n_rows, record, psu, row, group, group_stratum, group_row, size)

    @cached_property
    def member(self) -> IntArray:
        """A pair (G,) of each group."""
        result = np.empty(self.group_size.size, dtype=np.int64)
        result[self.group] = np.arange(self.group.size)
        return result

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
    """The part of a calibrated count or total from records outside a row: center per unit weight.

    The squares of the PSUs that have no record in a row are summed without visiting them.
    """

    centre: FloatArray  # (D,) N_d / N or t_d / N
    weight: FloatArray  # (n,) of records
    psu_weight: FloatArray  # (C,)
    stratum_weight: FloatArray  # (H,)
    stratum_mean: FloatArray  # (H,) mean weight of a PSU; 0 in a stratum of one PSU
    stratum_squares: FloatArray  # (H,) sum of squared deviations from it

    @classmethod
    def of(cls, weight: FloatArray, centre: FloatArray, design: SampleDesign) -> "Outside":
        """Sum the weights (n,) for centers (D,)."""
        psu_weight = weight if design.psu is None else _sums(design.psu, weight)
        stratum_weight = _sums(design.psu_strata, psu_weight)
        single = design.psus_in_stratum == 1
        mean = np.where(single, 0.0, stratum_weight / design.psus_in_stratum)
        squares = _sums(design.psu_strata, (psu_weight - mean[design.psu_strata]) ** 2)
        return cls(centre, weight, psu_weight, stratum_weight, mean, squares)


@dataclass(frozen=True, eq=False)
class OfPairs:
    """Values (P,) one by one."""

    pairs: Pairs
    values: FloatArray

    @property
    def sums(self) -> FloatArray:
        """Their sums (G,)."""
        return self.pairs.by_group(self.values)

    def squares(self, centre: FloatArray) -> FloatArray:
        """Return sums (G,) of squared deviations from centers (G,)."""
        result = np.empty(self.values.size)
        for block in blocks(result.size):
            result[block] = (self.values[block] - centre[self.pairs.group[block]]) ** 2
        return self.pairs.by_group(result)


@dataclass(frozen=True, eq=False)
class OfCells:
    """Values of records by means and squares about them (F,) of finer groups.

    number: of records (F,); group: the group (F,) among G that each is part of.
    """

    number: FloatArray
    mean: FloatArray
    about_mean: FloatArray
    group: IntArray

    @property
    def sums(self) -> FloatArray:
        """Their sums (G,)."""
        return _sums(self.group, self.number * self.mean)

    def squares(self, centre: FloatArray) -> FloatArray:
        """Return sums (G,) of squared deviations from centers (G,)."""
        apart = self.mean - centre[self.group]
        return _sums(self.group, self.about_mean + self.number * apart**2)


Grouped: TypeAlias = OfPairs | OfCells
"""Values of the PSUs that have records in a row, by group of a stratum and a row."""


class Moments:
    """Means and products of w and w (y - level) in the F groups of a stratum and an interior cell.

    Where records are PSUs, variances of counts and means of all rows follow from them: with the
    weighted mean of a group as its level, w (y - level) adds up to zero there, and elsewhere
    w (y - c) = w (y - level) + (level - c) w. Products are taken about means. One pass over the
    records serves all margin sets.
    """

    def __init__(self, cells: Pairs, form: Deviations) -> None:
        self._cells, self._form, group = cells, form, cells.group
        weight, values = form.weight, form.values
        self._number = cells.group_size.astype(np.float64)
        total = _sums(group, weight)
        # Without weight there is nothing to be level.
        self._level = _sums(group, weight * values) / np.where(total == 0.0, 1.0, total)
        self._weight = total / self._number
        self._of_rest, self._mixed, self._of_weight = np.zeros((3, total.size))
        for block in blocks(weight.size):
            own = group[block]
            rest = weight[block] * (values[block] - self._level[own])
            apart = weight[block] - self._weight[own]
            self._of_rest += _sums(own, rest * rest, total.size)
            self._mixed += _sums(own, rest * apart, total.size)
            self._of_weight += _sums(own, apart * apart, total.size)

    def of(self, pairs: Pairs) -> tuple[OfCells, OfCells]:
        """Return u and the weights by group of a margin set."""
        part_of = pairs.group[self._cells.member]
        row = pairs.group_row[part_of]
        scale, away = self._form.scale[row], self._level - self._form.centre[row]
        squares = self._of_rest + 2.0 * away * self._mixed + away**2 * self._of_weight
        return (
            OfCells(self._number, scale * away * self._weight, scale**2 * squares, part_of),
            OfCells(self._number, self._weight, self._of_weight, part_of),
        )


def squares_of_pairs(
    pairs: Pairs, design: SampleDesign, linearised: FloatArray, outside: Outside | None
) -> FloatArray:
    """As ``squares_by_row``, of u (n,) of the records in their own row."""
    value = pairs.by_pair(linearised)
    if outside is None:
        return squares_by_row(pairs, design, OfPairs(pairs, value), None, None)
    psu_weight = outside.psu_weight[pairs.psu]
    if pairs.record is not None:  # a record alone has all its weight there
        value = value - outside.centre[pairs.row] * (psu_weight - pairs.by_pair(outside.weight))
    weight = OfPairs(pairs, psu_weight)
    return squares_by_row(pairs, design, OfPairs(pairs, value), weight, outside)


def squares_by_row(
    pairs: Pairs,
    design: SampleDesign,
    value: Grouped,
    weight: Grouped | None,
    outside: Outside | None,
) -> FloatArray:
    """Sum over strata of multiplier times squared deviations of PSUs from the stratum's mean.

    value: of the PSUs in their own row; weight: theirs, where there is something outside. The
    result is (D,), zero for rows of other margin sets.
    """
    n_psus = design.psus_in_stratum[pairs.group_stratum]
    n_without = n_psus - pairs.group_size  # PSUs of the stratum with no record in the row
    mean = value.sums
    if outside is not None and weight is not None:
        rest = outside.stratum_weight[pairs.group_stratum] - weight.sums
        # Where all PSUs have records the rest is rounding: nothing.
        mean = mean - outside.centre[pairs.group_row] * np.where(n_without > 0, rest, 0.0)
    # A single PSU is taken around zero; the multiplier says whether it counts at all.
    mean = np.where(n_psus > 1, mean / n_psus, 0.0)
    squares = value.squares(mean)
    if outside is None or weight is None:
        squares = squares + n_without * mean**2
    else:
        squares = squares + _squares_without(pairs, outside, weight, mean, n_without)
    result = pairs.by_row(design.multiplier[pairs.group_stratum] * squares)
    if outside is not None:  # strata that have no record at all in a row
        by_stratum = design.multiplier * outside.stratum_squares
        n_with = np.bincount(pairs.group_row, minlength=pairs.n_rows)
        rest = by_stratum.sum() - pairs.by_row(by_stratum[pairs.group_stratum])
        partial = (n_with > 0) & (n_with < design.n_strata)
        result += np.where(partial, outside.centre**2 * np.maximum(rest, 0.0), 0.0)
    return result


def _squares_without(
    pairs: Pairs, outside: Outside, weight: Grouped, mean: FloatArray, n_without: IntArray
) -> FloatArray:
    """Squares (G,) of the PSUs without records in a row, in strata that have records there.

    Such a PSU deviates by -(center * its weight + mean) = -(center * deviation + level); over the
    stratum the deviations add up to zero, hence over these PSUs to minus the sum of the others.
    """
    centre, of_stratum = outside.centre[pairs.group_row], outside.stratum_mean[pairs.group_stratum]
    level = mean + centre * of_stratum
    squared = outside.stratum_squares[pairs.group_stratum] - weight.squares(of_stratum)
    crossed = pairs.group_size * of_stratum - weight.sums
    squares = centre**2 * squared + 2.0 * centre * level * crossed + n_without * level**2
    return np.where(n_without > 0, np.maximum(squares, 0.0), 0.0)


def _sums(codes: IntArray, values: FloatArray, length: int = 0) -> FloatArray:
    """Sum of the values of each code 0, 1, .., up to the largest code or to a length."""
    return np.bincount(codes, values, minlength=length).astype(np.float64, copy=False)


#: A weight below this share of its base weight is zero.
_VANISHED = 1e-200
#: Rows that keep less than this share of the first term have their residuals written out.
_LITTLE = 1e-4


@dataclass(frozen=True, eq=False)
class Regression:
    """The part of a linearized variable that calibration explains.

    weighted: w x (n, p); coefficient: B of each row (D, p).
    """

    weighted: FloatArray
    coefficient: FloatArray

    @classmethod
    def of(
        cls,
        calibrated: CalibratedWeights,
        domains: Domains,
        inside: Callable[[int], FloatArray],
    ) -> "Regression":
        """Regress u (n,) of the records in each row, given by margin set, on x."""
        ratio = calibrated.ratio
        vanished = np.abs(ratio) < _VANISHED  # such a record has no u, whose z is unknown
        per_unit = np.where(vanished, 0.0, 1.0 / np.where(vanished, 1.0, ratio))
        explained = calibrated.x @ calibrated.projection * per_unit[:, None]
        sums = np.zeros((domains.n_rows, explained.shape[1]))
        for margin_set, rows in enumerate(domains.codes):
            _add_by_row(sums, rows, explained, inside(margin_set))
        weighted = calibrated.weight[:, None] * calibrated.x
        return cls(weighted, sums @ calibrated.projection.T)


def residual_squares(
    regression: Regression,
    domains: Domains,
    design: SampleDesign,
    inside: Callable[[int], FloatArray],
) -> FloatArray:
    """Return sums over strata of squared deviations of the residuals of PSUs, (D,).

    With z = u / w the linearized variable of a row per unit of weight, the residual is w (z - x'B),
    B = (sum d x x')^-1 sum d x z, whatever the method that made the weights w from d (Deville and
    Sarndal 1992). Every record has one in every row. With S the sum over strata of squared
    deviations of PSUs, and W the sums of w x,

        S(u - W B) = S(u, u) - 2 B'S(W, u) + B'S(W, W) B

    where the first term has records inside a row alone. Where little is left of it, as in rows
    whose count is a calibration total, the residuals are written out. inside: from a margin set to
    u (n,) of records in the rows that they are in there.
    """
    centred = _centred(_by_psu(regression.weighted, design), design)
    factor = design.multiplier[design.psu_strata][:, None]
    of_x = centred.T @ (factor * centred)
    of_record = factor * centred
    if design.psu is not None:
        of_record = of_record[design.psu]
    squares, crossed = np.zeros(domains.n_rows), np.zeros(regression.coefficient.shape)
    for margin_set, rows in enumerate(domains.codes):
        pairs, values = Pairs.of(domains, margin_set, design), inside(margin_set)
        squares += squares_of_pairs(pairs, design, values, None)
        _add_by_row(crossed, rows, of_record, values)
    b = regression.coefficient
    result = squares - 2.0 * (b * crossed).sum(axis=1) + np.einsum("dp,pq,dq->d", b, of_x, b)
    little = ~(result > _LITTLE * squares) & np.isfinite(squares)
    for margin_set, rows in enumerate(domains.codes):
        for row in np.unique(rows[little[rows]]):
            whole = (rows == row) * inside(margin_set) - regression.weighted @ b[row]
            of_psu = _centred(_by_psu(whole[:, None], design), design)
            result[row] = float((factor * of_psu**2).sum())
    return np.asarray(result)


def _add_by_row(
    sums: FloatArray, rows: IntArray, columns: FloatArray, values: FloatArray
) -> None:
    """Add to sums (D, p) the columns (n, p) times values (n,) of the records of each row."""
    for column in range(columns.shape[1]):
        sums[:, column] += np.bincount(rows, columns[:, column] * values, minlength=len(sums))


def _by_psu(values: FloatArray, design: SampleDesign) -> FloatArray:
    """Sum records (n, p) within PSUs (C, p)."""
    if design.psu is None:
        return values
    sums = [np.bincount(design.psu, column) for column in values.T]
    return np.stack(sums, axis=1)


def _centred(values: FloatArray, design: SampleDesign) -> FloatArray:
    """Take PSUs (C, p) around the mean of their stratum, a single one around zero."""
    size = design.psus_in_stratum
    means = [np.bincount(design.psu_strata, column) / size for column in values.T]
    mean = np.where((size > 1)[:, None], np.stack(means, axis=1), 0.0)
    return np.asarray(values - mean[design.psu_strata])


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

    weight: (n,), scaled to the population size under "ratio"; calibrated: whether it is;
    calibration: weights calibrated to further totals, which ``weight`` then is, or None; again: the
    estimates (D,) under other weights (n,), such as those of a replicate.
    """

    statistic: Statistic
    domains: Domains
    weight: FloatArray
    linearised: Linearised
    calibrated: bool
    calibration: CalibratedWeights | None
    again: Callable[[FloatArray], FloatArray]

    @property
    def estimate(self) -> FloatArray:
        """The estimate of each row, (D,); NaN without records.

        A count or total of a row that is empty in one dataset alone is zero.
        """
        known = records_of(self.statistic, self.domains) > 0
        return np.where(known, self.linearised.estimate, np.nan)

    def variance(
        self, sample_design: SampleDesign, inside: Callable[[int], FloatArray] | None = None
    ) -> FloatArray:
        """Taylor variances (D,) under a design of the same records.

        inside: the table's own, where what it returns is kept.
        """
        return linearised_variance(
            self.statistic, self.domains, sample_design, inside or self.inside, weight=self.weight,
            outside=self.linearised.outside, calibrated=self.calibrated, regression=self.regression,
            form=self.linearised.deviations,
        )  # fmt: skip

    @cached_property
    def regression(self) -> Regression | None:
        """The regression on the calibration variables; None without calibration."""
        if self.calibration is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            return Regression.of(self.calibration, self.domains, self.inside)

    def inside(self, margin_set: int) -> FloatArray:
        """Return u (n,) of the records in the rows that they are in there."""
        return self.linearised.inside(self.domains.codes[margin_set])


def linearised_variance(
    statistic: Statistic,
    domains: Domains,
    sample_design: SampleDesign,
    inside: Callable[[int], FloatArray],
    *,
    weight: FloatArray,
    outside: FloatArray | None,
    calibrated: bool,
    regression: Regression | None = None,
    form: Deviations | None = None,
) -> FloatArray:
    """Taylor variances (D,) of a linearized variable.

    inside: from a margin set to u (n,) of records in the rows that they are in there; outside (D,):
    a record that is not in a row has u = -outside times its weight (n,), or zero for None;
    calibrated: whether weights are scaled to a known sum; regression: taken off u, where weights
    are calibrated to further totals; form: of u, where it has that of ``Deviations``.
    """
    design_effect = sample_design.design_effect
    if design_effect is not None:
        sample_design = sample_design.one_stage
    average = sample_design.lonely_psu == "average"
    variance = np.zeros(domains.n_rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = int(sample_design.lonely.sum()) if average else 0
        whole = sample_design.n_strata / np.float64(sample_design.n_strata - alone)
        if regression is not None:
            variance += residual_squares(regression, domains, sample_design, inside)
            variance *= whole
        rest = None if outside is None else Outside.of(weight, outside, sample_design)
        moments = None
        if form is not None and sample_design.psu is None and regression is None:
            cells = Pairs.of(domains, len(domains.codes) - 1, sample_design)
            moments = Moments(cells, form)
        for margin_set in range(len(domains.codes) if regression is None else 0):
            pairs = Pairs.of(domains, margin_set, sample_design)
            if moments is None:
                squares = squares_of_pairs(pairs, sample_design, inside(margin_set), rest)
            else:
                squares = squares_by_row(pairs, sample_design, *moments.of(pairs), rest)
            if average:  # H / H_ok, infinite where H_ok is 0, which makes NaN
                # R counts the strata of the data that an estimate is made from. Without calibration
                # these are the row's own records; calibrated weights carry the whole sample.
                ok = np.where(sample_design.lonely[pairs.group_stratum], 0.0, 1.0)
                n_with = np.bincount(pairs.group_row, minlength=pairs.n_rows)
                own = np.where(n_with > 0, n_with / pairs.by_row(ok), 0.0)
                squares *= whole if calibrated else own
            variance += squares
    variance *= 1.0 if design_effect is None else design_effect
    variance[records_of(statistic, domains) < statistic.least_for_se] = np.nan
    return variance


def records_of(statistic: Statistic, domains: Domains) -> IntArray:
    """Return the number of records (D,) that decides whether a row has an estimate and an error.

    These are the row's records; for sums, which an empty row has too, the records that it could
    have.
    """
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
    calibration: CalibratedWeights | None = None,
) -> DomainEstimates:
    """Estimate one statistic and its variance for all D cells and margins (methods 5).

    Parameters
    ----------
    domains, sample_design
        The table's rows and the design, of the same n records.
    weight
        Survey weights, shape (n,).
    outcome
        Outcome in original units, shape (n,); for counts it is not used and may be None.
    statistic
        A name of ``STATISTICS``. A proportion is the mean of an outcome that is 0 or 1 in the
        survey; synthetic values of it may lie between, so that is not checked here. A share is the
        mean of the indicator of one level.
    linearisation
        "plain" for unchanged weights; "ratio" for weights scaled to a known population size,
        whose sum does not vary from sample to sample. They differ for counts and totals.
    population_size
        Under "ratio" the weights are scaled to it (they stay as they are if they sum to it
        already); None takes their sum as it. Not used under "plain".
    calibration
        Weights calibrated to known totals, from ``calibrate``: ``weight`` is then their calibrated
        weight, and variances are of the residuals of the calibration regression, whatever the
        linearisation.

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
    kind, n = statistic_of(statistic), sample_design.n
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
        if shape != ((n, len(kind.of)) if kind.of and name == "outcome" else (n,)):
            raise InputError(
                f"The sample design has {n} records, but the {name} came with shape {shape}."
            )
    table = linearise_domains(
        domains, weight=weight, outcome=outcome, statistic=statistic, linearisation=linearisation,
        population_size=population_size, calibration=calibration,
    )  # fmt: skip
    if table.statistic.share_below is not None and outcome is not None:
        return DomainEstimates(table.estimate, _of_quantiles(table, sample_design, outcome))
    return DomainEstimates(table.estimate, table.variance(sample_design))


def _of_quantiles(
    table: LinearisedTable, sample_design: SampleDesign, outcome: FloatArray
) -> FloatArray:
    """Return variances (D,) of quantiles by Woodruff's interval, with the design's df."""
    domains, at = table.domains, table.estimate
    with np.errstate(divide="ignore", invalid="ignore"):
        made = distribution(domains, table.weight, outcome, at)
    variance = replace(table, linearised=made).variance(sample_design)
    rows = RowDistributions([Weighted(domains, outcome, table.weight)])
    df = np.full(domains.n_rows, float(sample_design.degrees_of_freedom))
    se = woodruff_se(rows, at, made.estimate, np.sqrt(variance), df)
    return np.asarray(np.where(np.isfinite(variance), se**2, np.nan))


def linearise_domains(
    domains: Domains,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: Linearisation,
    population_size: float | None = None,
    calibration: CalibratedWeights | None = None,
) -> LinearisedTable:
    """Compute estimates and linearized variables, without variances, as ``estimate_domains``."""
    kind = statistic_of(statistic)
    # Calibration knows the population size, where it is known.
    calibrated = linearisation == "ratio" and calibration is None

    def again(weight: FloatArray) -> FloatArray:
        return linearise_domains(
            domains, weight=weight, outcome=outcome, statistic=statistic,
            linearisation="ratio" if calibrated else "plain", population_size=population_size,
        ).estimate  # fmt: skip

    if calibrated and population_size is not None:
        weight = weight * (population_size / weight.sum())
    value = values_of(kind, outcome, weight.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        linearised = kind.linearise(domains, weight, value, calibrated=calibrated)
        rows = domains
        if kind.contrast is not None:
            rows, linearised = contrasted(kind.contrast, domains, weight, linearised)
    return LinearisedTable(kind, rows, weight, linearised, calibrated, calibration, again)
