"""One estimate, variance and interval out of several synthetic datasets (methods 5).

The rules combine the estimates of datasets, linearized if they are ratios (``Stack``).

Partial synthesis after Reiter (2003): the total variance is u + b/m. Rubin's rule for missing data,
u + (1 + 1/m) b, would count the variance between draws once too often here: the synthetic values
replace observed ones, and every dataset's u already includes the full sampling variance.

A quantile q is the inverse at p of the distribution function F of all datasets, stacked. Each
dataset's F(q) is a mean of an indicator, at one q for all, so that both combining rules hold for it
as for any mean. Its interval F(q) ± t SE goes through the inverse of F. For a contrast of quantiles
F(q) is divided by minus its density, which makes it linear in them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
from scipy import special

from surveysynth._support.numeric import beta_quantile, t_quantile
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.linearised import (
    Linearised,
    Pairs,
    RowDistributions,
    Weighted,
    contrasted,
    distribution,
    slopes,
    woodruff,
    woodruff_se,
)
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import Statistic
from surveysynth.estimation.taylor import LinearisedTable, records_of

#: Standard deviations below this share of the estimate are rounding, not synthesis: a count that is
#: scaled to the public N in every dataset must keep the design's df and SE.
ROUNDING = 1e-12


class Stack:
    """Numerators and denominators of one table in m x r datasets, as they stream by (methods 5.6).

    The estimate of a row is R = sum A / sum N of numerators and denominators: that of the datasets
    stacked in one file. Linearized at R, a dataset's estimate is R + (A - R N) / mean N. Its mean
    over datasets is R, and its variance between draws is that of R times the number of draws. A
    dataset without records in the row counts as 0 and 0; a sum needs no linearization.
    """

    def __init__(self, draws: int, replicates: int) -> None:
        self._shape = (draws, replicates)
        self._table: LinearisedTable | None = None
        self._parts = np.zeros(0)
        self._known: BoolArray = np.zeros(0, dtype=bool)

    def add(self, draw: int, replicate: int, table: LinearisedTable) -> None:
        """Add one dataset."""
        made = table.linearised.rows or table.linearised
        known = records_of(table.statistic, table.domains) > 0
        if self._table is None:
            self._parts = np.full((2, *self._shape, known.size), np.nan)
            self._table, self._known = table, known
        parts = (made.estimate, 1.0) if made.parts is None else made.parts
        self._parts[0, draw - 1, replicate - 1], self._parts[1, draw - 1, replicate - 1] = parts
        self._known = self._known | known

    @property
    def values(self) -> FloatArray:
        """The linearized estimates e (m, r, D), NaN in rows without records in any dataset."""
        assert self._table is not None  # there is a dataset
        contrast, made = self._table.statistic.contrast, linearised_at_ratio(*self._parts)
        if contrast is not None and self._table.linearised.rows is not None:
            pairs = Pairs.of(contrast, self._table.domains)
            made = contrast.linear(made, made[..., pairs.second])
        return np.where(self._known, made, np.nan)


def linearised_at_ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return e of numerators and denominators (m, r, D) of as many datasets: (m, r, D).

    Where all denominators are 1 these are the numerators; datasets that agree do so exactly.
    """
    size = denominator.mean(axis=(0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = numerator.mean(axis=(0, 1)) / size
        left = numerator - ratio * denominator
        left[np.abs(left) <= ROUNDING * np.abs(numerator)] = 0.0
        return np.where((denominator == 1.0).all(axis=(0, 1)), numerator, ratio + left / size)


@dataclass(frozen=True)
class Combined:
    """Combined estimates of D table rows; NaN where a row has none.

    ``within`` is u (mean Taylor variance), ``between`` is b (variance of the draws' estimates,
    NaN with a single draw, whose synthesis variance is unknown), ``standard_error`` is
    sqrt(u + b/m), ``df`` its degrees of freedom, never above ``df_design``. All arrays (D,).
    """

    estimate: FloatArray
    standard_error: FloatArray
    df: FloatArray
    df_design: float
    between: FloatArray
    within: FloatArray


@dataclass(frozen=True)
class Inverted(Combined):
    """Combined quantiles.

    ``of_share``: the distribution function at them, on whose scale the interval is made; ``rows``:
    the distribution functions that are inverted.
    """

    of_share: Combined
    rows: RowDistributions


class Collected(Protocol):
    """Sums that a combining rule keeps of one table while datasets arrive one by one."""

    def add(
        self, draw: int, replicate: int, table: LinearisedTable, pair: LinearisedTable
    ) -> None:
        """Add one dataset: its estimates, and the table that gives its variance."""
        ...

    def combined(self) -> Combined:
        """Return one estimate, variance and interval of all datasets."""
        ...


class CombiningRule(Protocol):
    """A rule that combines datasets into one table; the right one depends on the release."""

    def collect(self, draws: int, replicates: int, sample_design: SampleDesign) -> Collected:
        """Begin a table of ``draws`` x ``replicates`` datasets."""
        ...

    def of_quantile(self, p: float) -> "CombiningRule":
        """Return the rule for the share p of values up to their quantile: by default the same."""
        return self


@dataclass(frozen=True)
class PartialSynthesis(CombiningRule):
    """The rule of this module: draws of a fit to the confidential data."""

    def collect(self, draws: int, replicates: int, sample_design: SampleDesign) -> Collected:
        """Begin a table of ``draws`` x ``replicates`` datasets."""
        return _Moments(draws, replicates, sample_design)


class _Moments:
    """Estimates and Taylor variances of every dataset, (m, r, D)."""

    def __init__(self, draws: int, replicates: int, sample_design: SampleDesign) -> None:
        self._design, self._stack = sample_design, Stack(draws, replicates)
        self._variances = np.full((draws, replicates, 0), np.nan)

    def add(
        self, draw: int, replicate: int, table: LinearisedTable, pair: LinearisedTable
    ) -> None:
        self._stack.add(draw, replicate, table)
        variance = pair.variance(self._design)
        if not self._variances.size:
            self._variances = np.full((*self._variances.shape[:2], variance.size), np.nan)
        self._variances[draw - 1, replicate - 1] = variance

    def combined(self) -> Combined:
        df = float(self._design.degrees_of_freedom)
        return combine(self._stack.values, self._variances, df)


def combine(estimates: FloatArray, variances: FloatArray, df_design: float) -> Combined:
    """Combine m draws with r replicate datasets each.

    Replicates of one draw are averaged first: they are post-processing of the same draw, and only
    draws are independent of each other given the confidential data.

    Parameters
    ----------
    estimates, variances
        Shape (m, r, D); variances are NaN in datasets without enough records of a row.
    df_design
        Number of PSUs less number of strata.

    Returns
    -------
    Combined
        Estimate, standard error and degrees of freedom of D rows.

    Raises
    ------
    InputError
        If the arrays are not of one shape (m, r, D) with m >= 1 and r >= 1.

    References
    ----------
    Reiter (2003), Inference for partially synthetic, public use microdata sets.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> estimates = np.array([[[10.0]], [[11.0]], [[12.0]]])  # three draws of one dataset
    >>> combined = ss.combine(estimates, np.ones((3, 1, 1)), df_design=100)
    >>> combined.estimate, combined.standard_error.round(3)
    (array([11.]), array([1.155]))
    """
    if estimates.ndim != 3 or estimates.shape != variances.shape or 0 in estimates.shape[:2]:
        raise InputError(
            "Combining needs estimates and variances of one shape (draws, replicates, rows) with "
            f"at least one draw and replicate, but got {estimates.shape} and {variances.shape}."
        )
    m = estimates.shape[0]
    by_draw = estimates.mean(axis=1)
    estimate = mean_estimate(estimates)
    within = mean_known(variances)
    if m == 1:
        between = np.full_like(estimate, np.nan)
        synthesis = np.zeros_like(estimate)
    else:
        between = by_draw.var(axis=0, ddof=1)
        between[between <= (ROUNDING * estimate) ** 2] = 0.0
        synthesis = between / m
    total = without_rounding(within + synthesis, estimate)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reiter = (m - 1) * (1.0 + within / synthesis) ** 2
    # Without variance between draws nothing but the design limits the degrees of freedom.
    df = np.where((synthesis > 0) & (total > 0), np.minimum(reiter, df_design), float(df_design))
    return Combined(
        estimate=estimate, standard_error=np.sqrt(total), df=np.where(np.isnan(total), np.nan, df),
        df_design=float(df_design), between=between, within=within,
    )  # fmt: skip


def mean_estimate(estimates: FloatArray) -> FloatArray:
    """Average estimates (m, r, D) over datasets, then over draws: (D,).

    Where all datasets agree, as for counts by public weights, the result is exactly their value.
    """
    first = estimates[0, 0]
    mean = estimates.mean(axis=1).mean(axis=0)
    return np.asarray(np.where((estimates == first).all(axis=(0, 1)), first, mean))


def mean_known(variances: FloatArray) -> FloatArray:
    """Average variances (m, r, D) over the datasets that have one: (D,)."""
    known = ~np.isnan(variances)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.where(known, variances, 0.0).sum(axis=(0, 1)) / known.sum(axis=(0, 1))
        )


def without_rounding(variance: FloatArray, estimate: FloatArray) -> FloatArray:
    """Set variances (D,) to zero where they are only the rounding error of the estimates.

    This concerns counts that the design fixes, such as a stratum's under public weights.
    """
    return np.where(variance <= (ROUNDING * estimate) ** 2, 0.0, variance)


def t_interval(combined: Combined, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return the t interval of each row.

    Parameters
    ----------
    combined
        The result of ``combine``.
    level
        Strictly between 0 and 1.

    Returns
    -------
    tuple of arrays (D,)
        Lower and upper ends; NaN where there is no standard error or no degree of freedom.

    Raises
    ------
    InputError
        If the level is not strictly between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> combined = ss.combine(np.full((3, 1, 1), 11.0), np.ones((3, 1, 1)), df_design=100)
    >>> lower, upper = ss.t_interval(combined)
    >>> lower.round(3), upper.round(3)
    (array([9.016]), array([12.984]))
    """
    half = _half_width(combined, level)
    return combined.estimate - half, combined.estimate + half


def logit_interval(combined: Combined, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return the interval of a share on the logit scale, which stays between 0 and 1.

    expit(logit p ± t SE / (p (1 - p))), as R's ``svyciprop(method = "xlogit")``.

    Parameters
    ----------
    combined
        The result of ``combine``.
    level
        Strictly between 0 and 1.

    Returns
    -------
    tuple of arrays (D,)
        Lower and upper ends; NaN where there is no standard error, and at 0 and 1, where records
        that are all alike say nothing about how far the share may be from there.

    Raises
    ------
    InputError
        If the level is not strictly between 0 and 1.

    References
    ----------
    Korn and Graubard (1998), Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> share = ss.combine(np.full((3, 1, 1), 0.02), np.full((3, 1, 1), 0.0001), df_design=100)
    >>> lower, upper = ss.logit_interval(share)
    >>> lower.round(3), upper.round(3)
    (array([0.007]), array([0.053]))
    """
    p = combined.estimate
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        half = _half_width(combined, level) / (p * (1.0 - p))
        centre = special.logit(np.where((p > 0.0) & (p < 1.0), p, np.nan))
    return special.expit(centre - half), special.expit(centre + half)


def interval_of(
    statistic: Statistic, combined: Combined, level: float
) -> tuple[FloatArray, FloatArray]:
    """Return the interval (D,) that tables of a statistic show."""
    if isinstance(combined, Inverted):  # Woodruff's, through the distribution functions
        share = combined.of_share
        return woodruff(combined.rows, share.estimate, share.standard_error, combined.df, level)
    made = {"t": t_interval, "logit": logit_interval, "positive": positive_interval}
    return made[statistic.interval](combined, level)


#: Largest half width of an interval on the log scale: a factor of 55.
MOST_LOG = 4.0


def positive_interval(combined: Combined, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
    """Return the interval (D,) of a number that cannot be negative.

    It is the t interval. Where that reaches below 0, as for counts of few records, it is exp(log
    estimate ± t SE / estimate). An error far larger than the number says little on the log scale:
    the half width is at most ``MOST_LOG``, and the upper end at least that of the t interval.

    Raises ``InputError`` if the level is not strictly between 0 and 1.
    """
    lower, upper = t_interval(combined, level)
    below = (lower < 0.0) & (combined.estimate > 0.0)
    # Far below 0 the factor vanishes, and is not taken.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = np.exp(np.clip(upper / combined.estimate - 1.0, None, MOST_LOG))
        return (
            np.where(below, combined.estimate / factor, lower),
            np.where(below, np.maximum(combined.estimate * factor, upper), upper),
        )


def _half_width(combined: Combined, level: float) -> FloatArray:
    """Return half the width (D,) of the t interval; raise ``InputError`` for an invalid level."""
    if not 0.0 < level < 1.0:
        raise InputError(f"The level of an interval must lie between 0 and 1, but got {level}.")
    quantile = t_quantile(0.5 * (1.0 + level), combined.df)
    return np.asarray(quantile * combined.standard_error)


def korn_graubard(
    p: FloatArray, effective: FloatArray, n: FloatArray, df: FloatArray, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Limits (D,) of the Clopper-Pearson interval at an effective sample size.

    Korn and Graubard (1998): the effective sample size p(1 - p)/se^2 times
    (t_(n-1) / t_df)^2, at most n, replaces n. NaN where p is outside 0..1. R's ``svyciprop(method =
    "beta")`` is the same except for the limit n.
    """
    tail = 0.5 + level / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (t_quantile(tail, n - 1) / t_quantile(tail, df)) ** 2
        size = np.minimum(effective * ratio, n)
        x = size * p
        lower = np.where(p == 0, 0.0, beta_quantile(1 - tail, x, size - x + 1))
        upper = np.where(p == 1, 1.0, beta_quantile(tail, x + 1, size - x))
    return lower, upper


def korn_graubard_interval(
    combined: Combined, n: IntArray, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Return limits (D,) of combined proportions of n (D,) records.

    At 0 and 1, where there is no variance, the records count as independent.
    """
    p, records = combined.estimate, n.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = p * (1 - p) / combined.standard_error**2
    effective = np.where((p == 0) | (p == 1), records, effective)
    return korn_graubard(p, effective, records, combined.df, level)


_Made: TypeAlias = tuple[Domains, Linearised]


class Quantiles:
    """Collect the datasets of one table of quantiles as they stream by."""

    def __init__(
        self,
        kind: Statistic,
        rule: CombiningRule,
        sample_design: SampleDesign,
        *,
        calibrated: bool,
    ) -> None:
        self._kind, self._rule, self._design = kind, rule, sample_design
        self._calibrated = calibrated
        self._kept: list[tuple[int, int, Weighted, Weighted]] = []

    def add(self, draw: int, replicate: int, dataset: Weighted, pair: Weighted) -> None:
        """Add one dataset, with the table that gives its variance."""
        self._kept.append((draw, replicate, dataset, pair))

    def combined(self) -> Combined:
        """Return the quantiles of the mean distribution function."""
        p = self._kind.share
        assert p is not None  # such a statistic alone is collected here
        data = [dataset for _, _, dataset, _ in self._kept]
        rows = RowDistributions(data)
        at = rows.inverse(np.full((1, data[0].domains.n_rows), p))[0]
        if self._kind.contrast is not None:
            return self._contrast(at, rows, data, p)
        share = self._combined(lambda each: (each.domains, _function(each, at)))
        se = woodruff_se(rows, at, share.estimate, share.standard_error, share.df)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(share.standard_error > 0, se / share.standard_error, 0.0) ** 2
        known = np.isfinite(share.estimate)
        return Inverted(
            estimate=np.where(known, at, np.nan),
            standard_error=np.where(np.isfinite(share.standard_error), se, np.nan),
            df=share.df,
            df_design=share.df_design,
            between=share.between * scale,
            within=share.within * scale,
            of_share=share,
            rows=rows,
        )

    def _contrast(
        self, at: FloatArray, rows: RowDistributions, data: Sequence[Weighted], p: float
    ) -> Combined:
        """Combine the contrasts of quantiles (D,), linear in F at them."""
        contrast = self._kind.contrast
        assert contrast is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = slopes(rows, data, p)
            parts = np.array([_function(each, at).parts for each in data]).sum(axis=0)
            reached = parts[0] / parts[1]

        def table(each: Weighted) -> _Made:
            made = _function(each, at)
            assert made.parts is not None
            below, size = made.parts
            with np.errstate(divide="ignore", invalid="ignore"):
                linear = Linearised(
                    at + slope * (made.estimate - reached),
                    lambda codes: made.inside(codes) * slope[codes],
                    parts=(at * size + slope * (below - reached * size), size),
                )
                return contrasted(contrast, each.domains, each.weight, linear)

        return self._combined(table)

    def _combined(self, made: Callable[[Weighted], _Made]) -> Combined:
        """Combine the estimates of all datasets."""
        draws = max(draw for draw, *_ in self._kept)
        replicates = max(replicate for _, replicate, *_ in self._kept)
        collected = self._rule.collect(draws, replicates, self._design)
        for draw, replicate, dataset, pair in self._kept:
            table = self._table(dataset, made)
            spread = table if pair is dataset else self._table(pair, made)
            collected.add(draw, replicate, table, spread)
        return collected.combined()

    def _table(self, data: Weighted, made: Callable[[Weighted], _Made]) -> LinearisedTable:
        domains, linearised = made(data)
        calibrated = self._calibrated and data.calibration is None

        def again(weight: FloatArray) -> FloatArray:
            return made(replace(data, weight=weight))[1].estimate

        return LinearisedTable(
            self._kind, domains, data.weight, linearised, calibrated, data.calibration, again
        )


def _function(data: Weighted, at: FloatArray) -> Linearised:
    """Return the distribution functions of one dataset at values (D,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return distribution(data.domains, data.weight, data.values, at)
