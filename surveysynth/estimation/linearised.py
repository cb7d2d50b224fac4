"""Array functions of statistics: estimates of rows, and the linearized variable of records.

A contrast is of two rows, one less the other or over it. A record has one linearized variable for
it, u_1 - u_2 or (u_1 - rho u_2) / t_2, and one row that it belongs to, so everything that works for
the rows of a table (Taylor variances, both combining rules) works for contrasts, and covariances
need no matrix.

Quantiles are inverses of the weighted distribution function. Woodruff (1952): the interval of one
is that of the distribution function at it, inverted, as R's ``svyquantile(interval.type = "mean",
qrule = "math")`` has it.

Sensitivities, how far one record changes a number of a table (methods 6, [T] 2.4), are read from
the values themselves, which are confidential for a sample: results must not be released.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import numpy as np

from surveysynth._support.numeric import Places, blocks, t_quantile
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.domains import (
    Domains,
    RowLabels,
    TableRows,
    Ways,
    margin_sets,
    sums_by_row,
    with_margins,
)


@dataclass(frozen=True, eq=False)
class Deviations:
    """A linearized variable u = w (y - centre_d) scale_d of the records of a row d.

    weight, values: w and y (n,); centre, scale (D,).
    """

    weight: FloatArray
    values: FloatArray
    centre: FloatArray
    scale: FloatArray

    def inside(self, rows: IntArray) -> FloatArray:
        """Return u (n,) of records in the rows (n,)."""
        return np.asarray(self.weight * (self.values - self.centre[rows]) * self.scale[rows])


@dataclass(frozen=True, eq=False)
class Linearised:
    """Estimates of D rows and the linearized variable u of n records."""

    estimate: FloatArray  # of each row, (D,); NaN where it has none
    #: From the row that each record is in, (n,) for one margin set, to its u there, (n,).
    inside: Callable[[IntArray], FloatArray]
    #: Of each row, (D,): a record that is not in it has u = -outside times its weight. None where
    #: such a record has u = 0.
    outside: FloatArray | None = None
    #: Numerator and denominator (D,) of an estimate that is a ratio of sums; None for a sum.
    parts: tuple[FloatArray, FloatArray] | None = None
    rows: "Linearised | None" = None  # of a contrast, the rows that are compared
    deviations: Deviations | None = None  # where u has this form


class Linearise(Protocol):
    """The array function of a statistic.

    weight (n,); outcome (n,) in original units, ones for a statistic of no outcome, (n, k) for a
    statistic of k outcomes; calibrated: the weights are scaled to a known sum, and u allows for
    it. Rows without records may divide zero by zero.
    """

    def __call__(
        self, domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
    ) -> Linearised:
        """Return the estimates and the linearized variable."""
        ...


def expansion(
    domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
) -> Linearised:
    """Estimate counts (outcome 1) and totals: t_d = sum of w y, u = w y d, or w (y d - t_d / N)."""
    total = sums_by_row(domains, weight * outcome)
    # Row 0 is the whole.
    centre = total / sums_by_row(domains, weight)[0] if calibrated else np.zeros(total.size)
    form = Deviations(weight, outcome, centre, np.ones(total.size))
    return Linearised(total, form.inside, centre if calibrated else None, deviations=form)


def average(
    domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
) -> Linearised:
    """Estimate means and proportions: t_d / N_d, u = w d (y - mean) / N_d, calibrated or not."""
    total, size = sums_by_row(domains, weight * outcome), sums_by_row(domains, weight)
    form = Deviations(weight, outcome, total / size, 1.0 / size)
    return Linearised(form.centre, form.inside, parts=(total, size), deviations=form)


def quotient(
    domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
) -> Linearised:
    """Estimate ratios of two outcomes (n, 2): R = t_a / t_b, u = w d (a - R b) / t_b.

    Calibration does not change them.
    """
    numerator, denominator = outcome[:, 0], outcome[:, 1]
    total = sums_by_row(domains, weight * numerator)
    size = sums_by_row(domains, weight * denominator)
    ratio = total / size

    def inside(rows: IntArray) -> FloatArray:
        return weight * (numerator - ratio[rows] * denominator) / size[rows]

    return Linearised(ratio, inside, parts=(total, size))


ContrastKind: TypeAlias = Literal["difference", "ratio"]


@dataclass(frozen=True)
class Contrast:
    """Rows with one level of a by variable, compared with those of another level.

    The other by variables are the same in both rows. column: the by variable; first: the level of
    the row that shows the contrast, None for every level but the second; second: the level compared
    with, None for the margin.
    """

    kind: ContrastKind
    column: str
    first: str | None
    second: str | None

    def combine(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return the contrast of estimates of any shape."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return first - second if self.kind == "difference" else first / second

    def linear(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return what datasets (m, r, D) add to the contrast of their mean: linear in both."""
        if self.kind == "difference":
            return first - second
        below = second.mean(axis=(0, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = first.mean(axis=(0, 1)) / below
            return np.asarray(ratio + (first - ratio * second) / below)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The rows of a table that hold a contrast, and what they are compared with.

    labels: of the contrast's by variable; label: its position in every row (D,), 0 for the margin;
    against: of the second; stride: rows from a label to the next; holds: (D,); second: the row (D,)
    that a row is compared with, itself where it holds none.
    """

    contrast: Contrast
    labels: RowLabels
    label: IntArray
    against: int
    stride: int
    holds: BoolArray
    second: IntArray

    @classmethod
    def of(cls, contrast: Contrast, rows: TableRows) -> "Pairs":
        """Find the pairs of rows in a table.

        Raises ``InputError`` for a by variable or a level that the table does not have.
        """
        if contrast.column not in rows.by:
            raise InputError(
                f"A contrast is of levels of a by variable, but {contrast.column!r} is not one of "
                f"them: {', '.join(map(repr, rows.by)) or 'there are none'}."
            )
        place = rows.by.index(contrast.column)
        labels = rows.labels[place]
        for wanted in (contrast.first, contrast.second):
            if wanted is not None and wanted not in labels.levels:
                raise InputError(
                    f"A contrast needs levels of {contrast.column!r}, which are "
                    f"{', '.join(map(repr, labels.levels))}, but names {wanted!r}."
                )
        sizes = [len(each.names) for each in rows.labels]
        stride = int(np.prod(sizes[place + 1 :], dtype=np.int64))
        own = np.arange(len(rows.table))
        label = own // stride % sizes[place]
        against = 0 if contrast.second is None else 1 + labels.levels.index(contrast.second)
        holds = (label > 0) & (label != against)
        if contrast.first is not None:
            holds = label == 1 + labels.levels.index(contrast.first)
        second = np.where(holds, own + stride * (against - label), own)
        return cls(contrast, labels, label, against, stride, holds, second)

    def fewer(self, n: IntArray) -> IntArray:
        """Return the smaller number (D,) of records of both rows, 0 where there is no contrast."""
        return np.where(self.holds, np.minimum(n, n[self.second]), 0)

    def moved(self, codes: IntArray, first: int) -> IntArray:
        """Return rows (n,) of records in which both compared rows are merged.

        Records of neither row join the second label, which shows no contrast. ``codes`` are rows
        of levels.
        """
        label, member = self.label[codes], self.labels.member
        either = np.concatenate([[False], member[first] | member[self.against]])
        to = np.where(either[label], first, self.against)
        return np.asarray(codes + self.stride * (to - label), dtype=np.int64)

    def domains(self, domains: Domains) -> Domains:
        """Return the table with the records of both rows in the row that shows their contrast."""
        place = domains.by.index(self.contrast.column)
        sets = [index for index, kept in enumerate(margin_sets(domains.labels)) if kept[place]]
        # In each pass over a margin set and a label that is compared, records are in one row.
        firsts = np.unique(self.label[self.holds]).tolist()
        passes = [(index, first) for index in sets for first in firsts]
        codes = np.stack([self.moved(domains.codes[index], first) for index, first in passes])
        made = replace(domains, n=self.fewer(domains.n), codes=codes)
        if (ways := domains.ways) is None:
            return made
        public, steps = [], []
        for index, first in passes:
            rows, ahead = ways.public[index], ways.steps[index]
            if self.contrast.column in ways.outcomes:
                # From any record the ways are the same.
                ahead = np.unique(self.moved(rows[0] + ahead, first) - rows[0])
            else:
                rows = self.moved(rows, first)
            public.append(rows)
            steps.append(ahead)
        fewer = self.fewer(ways.n_public)
        return replace(made, ways=Ways(np.stack(public), tuple(steps), fewer, ways.outcomes))


def contrasted(
    contrast: Contrast, domains: Domains, weight: FloatArray, made: Linearised
) -> tuple[Domains, Linearised]:
    """Return the contrasts of linearized rows, and the rows that show them."""
    pairs = Pairs.of(contrast, domains)
    second = made.estimate[pairs.second]
    estimate = np.where(pairs.holds, contrast.combine(made.estimate, second), np.nan)
    if contrast.kind == "difference":
        factor, scale = np.ones(estimate.size), pairs.holds.astype(np.float64)
    else:
        factor = np.where(pairs.holds, estimate, 0.0)
        # Where a dataset has nothing to compare with, it has no linearized variable either.
        scale = np.where(pairs.holds & (second != 0.0), 1.0 / second, 0.0)
        factor = np.where(scale != 0.0, factor, 0.0)
    # In the last margin set every record has its level.
    record, member = pairs.label[domains.codes[-1]] - 1, pairs.labels.member

    def rest(rows: IntArray) -> FloatArray:
        """u (n,) of records that are not in the rows (n,)."""
        if made.outside is None:
            return np.zeros(rows.shape)
        return np.asarray(-made.outside[rows] * weight)

    def inside(rows: IntArray) -> FloatArray:
        other = pairs.second[rows]
        u = np.where(member[pairs.label[rows], record], made.inside(rows), rest(rows))
        in_second = member[pairs.against, record]
        u = u - factor[rows] * np.where(in_second, made.inside(other), rest(other))
        return np.asarray(np.where(pairs.holds[rows], u * scale[rows], 0.0))

    outside = None
    if made.outside is not None:
        outside = (made.outside - factor * made.outside[pairs.second]) * scale
    return pairs.domains(domains), Linearised(estimate, inside, outside, rows=made)


Rule: TypeAlias = Literal["paper", "honest"]


@dataclass(frozen=True)
class Ranges:
    """Largest and smallest value in each row of a table, for several sets of weights: (D, S)."""

    most: FloatArray
    least: FloatArray

    @property
    def width(self) -> FloatArray:
        """Largest less smallest, (D, S)."""
        return self.most - self.least


class RowExtremes:
    """Extremes and sums by interior cell, then by margin, for columns of values at once."""

    def __init__(self, domains: Domains) -> None:
        self._domains = domains
        cell = domains.codes[-1]
        self._order = np.argsort(cell, kind="stable")
        ordered = cell[self._order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self._cells = ordered[self._starts]

    def ranges(self, values: FloatArray) -> Ranges:
        """Largest and smallest of the values (n, S) in each row: (D, S), NaN without records."""
        inside = values[self._order]
        most = self._rows(np.maximum.reduceat(inside, self._starts), np.fmax, np.nan)
        least = self._rows(np.minimum.reduceat(inside, self._starts), np.fmin, np.nan)
        return Ranges(most, least)

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum the values (n, S) in each row: (D, S)."""
        return self._rows(np.add.reduceat(values[self._order], self._starts), np.add, 0.0)

    def _rows(self, by_cell: FloatArray, reduce: np.ufunc, empty: float) -> FloatArray:
        """Interior cells (I', S) to all rows of the table (D, S)."""
        made = np.full((self._domains.n_rows, by_cell.shape[1]), empty)
        made[self._cells] = by_cell
        return with_margins(self._domains.labels, made, reduce)


Sensitivity: TypeAlias = Callable[[RowExtremes, FloatArray, FloatArray, Rule], FloatArray]
"""How far one record can move each row: (D, S) from weights (n, S) and an outcome (n,). NaN in
rows without records; infinite where weights of zero leave nothing to divide by."""


def of_weights(
    rows: RowExtremes, weights: FloatArray, outcome: FloatArray, rule: Rule
) -> FloatArray:
    """Return D_c = max w - min w of the records of a row, for counts."""
    return rows.ranges(weights).width


def of_totals(
    rows: RowExtremes, weights: FloatArray, outcome: FloatArray, rule: Rule
) -> FloatArray:
    """Return the range of w y ("paper"), or of all products of a w and a y ("honest")."""
    if rule == "paper":
        return rows.ranges(weights * outcome[:, None]).width
    weight, y = rows.ranges(weights), rows.ranges(outcome[:, None])
    corners = np.stack([a * b for a in (weight.least, weight.most) for b in (y.least, y.most)])
    return np.asarray(corners.max(axis=0) - corners.min(axis=0))


def of_means(
    rows: RowExtremes, weights: FloatArray, outcome: FloatArray, rule: Rule
) -> FloatArray:
    """Return the bound on a record's effect on means.

    - "paper": D_a = (max wy - min wy) / (sum w - D_c), which is not a bound: replacing
      a record can change the mean by up to 2.4 D_a;
    - "honest": D_h = max w (max y - min y) / (sum w - D_c), which covers the change of the
      denominator too.
    """
    weight = rows.ranges(weights)
    rest = rows.sums(weights) - weight.width
    if rule == "paper":
        numerator = rows.ranges(weights * outcome[:, None]).width
    else:
        numerator = weight.most * rows.ranges(outcome[:, None]).width
    with np.errstate(divide="ignore", invalid="ignore"):
        nothing = np.where(numerator > 0, np.inf, 0.0 * numerator)  # NaN without records
        return np.where(rest > 0, numerator / rest, nothing)


#: Sums of weights are rounded: a share that is reached but for this is reached.
ROUNDING = 1e-12
#: Level of the interval from whose width a standard error is taken.
LEVEL_OF_SE = 0.95
#: How far the distribution function is followed to either side for the density at a quantile, in
#: standard errors of as many independent records as the weights are worth.
REACH = 1.96
#: Bins of values of each row, and numbers of all rows that are held at once.
FEWEST_BINS, MOST_BINS, LARGEST = 16, 2**12, 2**22


def weighted_quantiles(values: FloatArray, weights: FloatArray, shares: FloatArray) -> FloatArray:
    """Return, by share in (0, 1], the smallest value with that share of weight up to it.

    values, weights (n,), weights not all zero; shares (k,) -> (k,).
    """
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    wanted = np.asarray(shares, dtype=np.float64) * reached[-1] * (1.0 - ROUNDING)
    return np.asarray(values[order][np.searchsorted(reached, wanted)])


@dataclass(frozen=True, eq=False)
class Weighted:
    """Values and weights (n,) of one dataset, with the rows that its records are in.

    calibration: of the weights, where they are calibrated.
    """

    domains: Domains
    values: FloatArray
    weight: FloatArray
    calibration: CalibratedWeights | None = None


class RowDistributions:
    """Distribution functions of D rows of a table, of one dataset or several that are stacked.

    Weights are added up by row and bin of values, and records are sorted in the bins alone in which
    a wanted share is reached: time is that of a few sums, memory that of the datasets.
    """

    def __init__(self, datasets: Sequence[Weighted]) -> None:
        self._data, self._n_rows = datasets, datasets[0].domains.n_rows
        bins = min(max(LARGEST // self._n_rows, FEWEST_BINS), MOST_BINS)
        values = np.concatenate(
            [each.values[:: 1 + each.values.size // (2 * bins)] for each in datasets]
        )
        edges = np.unique(np.quantile(values, np.linspace(0, 1, bins), method="lower"))
        self._bins = edges.size + 1
        # Equal values are in one bin.
        small, places = np.min_scalar_type(self._bins), Places(edges)
        self._own = [
            np.concatenate([
                places.of(each.values[block]).astype(small) for block in blocks(each.values.size)
            ])
            for each in datasets
        ]  # fmt: skip
        mass = np.zeros(self._n_rows * self._bins)
        for each, own in zip(datasets, self._own, strict=True):
            place = each.domains.codes[-1] * self._bins + own
            mass += np.bincount(place, np.maximum(each.weight, 0.0), minlength=mass.size)
        by_bin = mass.reshape(self._n_rows, self._bins)
        #: Weight (D, B) up to the end of each bin.
        self._reached = np.cumsum(with_margins(datasets[0].domains.labels, by_bin), axis=1)

    def inverse(self, shares: FloatArray) -> FloatArray:
        """Return the smallest values that reach shares (K, D), shape (K, D).

        NaN for a share below 0 or above 1, and for rows without records.
        """
        whole = self._reached[:, -1]
        known = (shares >= 0.0) & (shares <= 1.0) & (whole > 0.0)
        row = np.nonzero(known)[1]
        wanted = shares[known] * whole[row] * (1.0 - ROUNDING)
        reached = self._reached[row]
        number = ((reached < wanted[:, None]) | (reached == 0.0)).sum(axis=1)
        before = np.where(number > 0, reached[np.arange(row.size), number - 1], 0.0)
        place = row * self._bins + number
        sought = np.zeros(self._reached.size, dtype=bool)
        sought[place] = True
        parts = list[tuple[IntArray, FloatArray, FloatArray]]()
        for own, values, weights in self._places():
            taken = np.flatnonzero(sought[own] & (weights > 0.0))
            parts.append((own[taken], values[taken], weights[taken]))
        places, values, weights = map(np.concatenate, zip(*parts, strict=True))
        order = np.lexsort((values, places))
        places, sums = places[order], np.concatenate([[0.0], np.cumsum(weights[order])])
        first, end = np.searchsorted(places, place), np.searchsorted(places, place, side="right")
        found = np.searchsorted(sums[1:], wanted - before + sums[first])
        result = np.full(shares.shape, np.nan)
        # Sums of a bin in another order may differ in the last digit.
        result[known] = values[order][np.clip(found, first, end - 1)]
        return result

    def _places(self) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
        """Yield rows with bins, values and weights of records, by dataset and margin set.

        A calibrated weight below zero counts as none: reached shares would fall.
        """
        for each, own in zip(self._data, self._own, strict=True):
            weights = np.maximum(each.weight, 0.0)
            for rows in each.domains.codes:
                yield rows * self._bins + own, each.values, weights


def distribution(
    domains: Domains, weight: FloatArray, outcome: FloatArray, at: FloatArray
) -> Linearised:
    """Estimate the distribution functions of the rows at values ``at`` (D,).

    They are means of the indicator y <= at, with u = w d (1(y <= at) - F) / N_d, calibrated or not.
    """
    size, under = sums_by_row(domains, weight), np.zeros(domains.n_rows)
    for rows in domains.codes:
        under += np.bincount(rows, weight * (outcome <= at[rows]), minlength=domains.n_rows)
    share = under / size

    def inside(rows: IntArray) -> FloatArray:
        result = np.empty(rows.size)
        for block in blocks(rows.size):
            row = rows[block]
            deviation = (outcome[block] <= at[row]) - share[row]
            result[block] = weight[block] * deviation / size[row]
        return result

    return Linearised(share, inside, parts=(under, size))


def quantile(p: float) -> Linearise:
    """Return the array function of a quantile: q = the inverse of F at p, u = -u of F(q) / f(q)."""

    def linearise(
        domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
    ) -> Linearised:
        data = [Weighted(domains, outcome, weight)]
        rows = RowDistributions(data)
        at = rows.inverse(np.full((1, domains.n_rows), p))[0]
        function, slope = distribution(domains, weight, outcome, at), slopes(rows, data, p)
        return Linearised(at, lambda codes: function.inside(codes) * slope[codes])

    return linearise


def slopes(rows: RowDistributions, data: Sequence[Weighted], p: float) -> FloatArray:
    """Return minus one over the density (D,) of stacked datasets at their quantile of share p.

    The density is the rise of F over its run between two quantiles: those ``REACH`` standard
    errors of F to either side, computed for Kish's effective number of records of one dataset.
    """
    size = sum(sums_by_row(each.domains, each.weight) for each in data)
    squares = sum(sums_by_row(each.domains, each.weight**2) for each in data)
    reach = REACH * np.sqrt(p * (1.0 - p) * squares * len(data)) / size
    low, high = np.clip([p - reach, p + reach], 0.0, 1.0)
    run = np.diff(rows.inverse(np.stack([low, high])), axis=0)[0]
    return np.asarray(-run / (high - low))


def woodruff(
    rows: RowDistributions, share: FloatArray, se: FloatArray, df: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (D,) of the interval of a quantile.

    They come from the distribution function at the quantile: its value ``share``, standard error
    and degrees of freedom (D,). NaN where an end of the interval share ± t SE is outside 0 to 1,
    because there are too few records.
    """
    half = t_quantile(0.5 * (1.0 + level), df) * se
    lower, upper = rows.inverse(np.stack([share - half, share + half]))
    return lower, upper


def woodruff_se(
    rows: RowDistributions,
    at: FloatArray,
    share: FloatArray,
    se: FloatArray,
    df: FloatArray,
) -> FloatArray:
    """Return standard errors (D,) of quantiles ``at``.

    They are the width of the 95% interval over 2 t, or one side over t where the other has no end.
    """
    lower, upper = woodruff(rows, share, se, df, LEVEL_OF_SE)
    t = t_quantile(0.5 * (1.0 + LEVEL_OF_SE), df)
    with np.errstate(invalid="ignore"):
        sides = np.stack([at - lower, upper - at])
        known = np.isfinite(sides)
        width = np.where(known, sides, 0.0).sum(axis=0)
        return np.asarray(np.where(known.any(axis=0), width / (known.sum(axis=0) * t), np.nan))
