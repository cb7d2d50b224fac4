"""The numbers of a published table, and its flags, apart from how any format shows them.

Flags are house rules for numbers that are too uncertain to be read without a warning. A rule sees
what is published anyway (estimate, standard error, degrees of freedom) and the public number of
sample records, nothing else: flags and suppression cost no privacy. Suppression here withholds what
is unreliable. It protects nobody, and a user can recompute the number from the microdata.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from surveysynth._support.numeric import t_quantile
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.estimation.combining import korn_graubard
from surveysynth.estimation.statistics import LEVEL, statistic_of

if TYPE_CHECKING:
    import pandas as pd


FlagAction = Literal["suppress", "mark"]


@dataclass(frozen=True)
class Published:
    """The published numbers that a rule may use, (D,) each; ``statistic`` is that of the table.

    estimate, se, df, width (of the interval) as published, NaN where there is none; n: unweighted
    sample records, or in rows by an outcome those of the synthetic dataset with the fewest.
    """

    statistic: str
    estimate: FloatArray
    se: FloatArray
    df: FloatArray
    width: FloatArray
    n: IntArray

    @property
    def rse(self) -> FloatArray:
        """The relative standard error (D,), infinite at zero; a difference has none."""
        return self._relative(self.se)

    @property
    def relative_width(self) -> FloatArray:
        """Width of the interval over the estimate (D,); infinite at zero."""
        return self._relative(self.width)

    def _relative(self, values: FloatArray) -> FloatArray:
        if statistic_of(self.statistic).signed:
            return np.where(np.isfinite(values), 0.0, np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = values / np.abs(self.estimate)
        return np.where((self.estimate == 0) & (values == 0), 0.0, ratio)


@dataclass(frozen=True)
class Flag:
    """A code beside a number, what it means, and whether the rule withholds such a number."""

    code: str
    meaning: str
    withholds: bool


@dataclass(frozen=True)
class StatcanRules:
    """Statistics Canada's release guidelines by coefficient of variation.

    As household surveys such as the Canadian Community Health Survey state them: up to 16.5%
    without restriction; from 16.6% to 33.3% with a warning, symbol E, "use with caution"; above
    33.3% not to be published, symbol F, "too unreliable to be published". A number without a
    standard error is F. The surveys' minimum numbers of respondents differ and are not included.
    """

    caution: float = 0.166
    unreliable: float = 0.333
    source: str = "Statistics Canada's guidelines on coefficients of variation (CV)"
    flags: tuple[Flag, ...] = (
        Flag("F", "too unreliable to be published (CV above 33.3%)", True),
        Flag("E", "use with caution (CV from 16.6% to 33.3%)", False),
    )

    def applies(self, table: Published) -> dict[str, BoolArray]:
        """Return the rows of E and F, which exclude each other."""
        unreliable = ~(table.rse <= self.unreliable)
        return {"F": unreliable, "E": ~unreliable & (table.rse >= self.caution)}


@dataclass(frozen=True)
class NchsRules:
    """The presentation standards of the National Center for Health Statistics (United States).

    Proportions (Parker and others 2017, Vital and Health Statistics, series 2, no. 175): withheld
    when the sample or the effective sample is below 30, when the absolute width of the 95%
    Korn-Graubard interval is 0.30 or more, or when it lies between 0.05 and 0.30 and is more than
    130% of the proportion; marked when that holds for the complement alone; reviewed with fewer
    than 8 degrees of freedom and at 0% or 100%.
    Counts (Parker and others 2023, series 2, no. 200, rates and counts): withheld when the sample
    is below 10 or the 95% interval (log scale, Student's t) is wider than 160% of the count;
    reviewed with fewer than 8 degrees of freedom.
    Means and totals: neither report covers them. The earlier rule of the Center's surveys, as for
    the National Home and Hospice Care Survey, applies: withheld below 30 sample records, marked
    below 60 or with a relative standard error of 30% or more. Few degrees of freedom make such an
    error worse than it looks, so that the relative width of the 95% interval counts too, as for
    counts: withheld above 160%, marked above 120% (a relative standard error of 30%).
    """

    source: str = "presentation standards of the National Center for Health Statistics"
    flags: tuple[Flag, ...] = (
        Flag("U", "does not meet the standards of reliability", True),
        Flag("C", "meets them with a caution: few records, a large standard error, or a "
             "complement that does not meet them", False),
        Flag("R", "to be reviewed: fewer than 8 degrees of freedom, or 0% or 100%", False),
    )  # fmt: skip

    def applies(self, table: Published) -> dict[str, BoolArray]:
        """Return the rows of U, which excludes C and R, and of these, which may go together."""
        rules = {"proportion": _nchs_proportion, "count": _nchs_count, "neither": _nchs_mean}
        unreliable, caution, review = rules[statistic_of(table.statistic).standard](table)
        review = review | ~(table.df >= 8)
        return {"U": unreliable, "C": ~unreliable & caution, "R": ~unreliable & review}


@dataclass(frozen=True)
class Limits:
    """Limits of the caller's own; None does not apply.

    rse, relative_width (of the published interval, over the estimate): flagged above;
    n, df: flagged below.
    """

    rse: float | None = None
    relative_width: float | None = None
    n: int | None = None
    df: float | None = None

    def exceeded(self, table: Published) -> BoolArray:
        """Return rows (D,) beyond some limit; a missing number exceeds every limit on it."""
        beyond = np.zeros(table.n.size, dtype=bool)
        above, below = ("rse", "relative_width"), ("n", "df")
        for name in (*above, *below):
            limit, value = getattr(self, name), getattr(table, name)
            if limit is not None:
                beyond |= ~(value <= limit if name in above else value >= limit)
        return beyond

    def describe(self) -> str:
        """Describe the limits in words."""
        parts = []
        if self.rse is not None:
            parts.append(f"relative standard error above {100 * self.rse:g}%")
        if self.relative_width is not None:
            parts.append(f"interval wider than {100 * self.relative_width:g}% of the estimate")
        if self.n is not None:
            parts.append(f"fewer than {self.n:,} sample records")
        if self.df is not None:
            parts.append(f"fewer than {self.df:g} degrees of freedom")
        return " or ".join(parts)


@dataclass(frozen=True)
class CustomRules:
    """The caller's thresholds: beyond ``mark`` a number has the flag M, beyond ``suppress`` S.

    Without either, only empty and very small cells have flags.
    """

    mark: Limits | None = None
    suppress: Limits | None = None
    source: str = "thresholds set for this release"

    @property
    def flags(self) -> tuple[Flag, ...]:
        """S and M, as far as they have limits."""
        severe = (Flag("S", self.suppress.describe(), True),) if self.suppress else ()
        return severe + ((Flag("M", self.mark.describe(), False),) if self.mark else ())

    def applies(self, table: Published) -> dict[str, BoolArray]:
        """Return the rows of S, which excludes M, and of M."""
        severe, mild = ((each or Limits()).exceeded(table) for each in (self.suppress, self.mark))
        return {"S": severe, "M": mild & ~severe}


FlagRules: TypeAlias = StatcanRules | NchsRules | CustomRules
"""Rules: their source in words, flags from the most severe on, rows (D,) that each applies to."""


@dataclass(frozen=True)
class FlagPolicy:
    """A rule set and the effect of its flags: ``suppress`` as the rules say, or ``mark`` only."""

    rules: FlagRules = field(default_factory=CustomRules)
    action: FlagAction = "suppress"

    def codes(
        self, table: Published, estimated: BoolArray | None = None
    ) -> tuple[tuple[str, ...], ...]:
        """Return the codes of each row.

        Rows without records have none (their own flag says so), unless there is an estimate of them
        (``estimated``, (D,)).
        """
        found = self.rules.applies(table)
        judged = (table.n > 0) if estimated is None else (table.n > 0) | estimated
        codes = [flag.code for flag in self.rules.flags]
        return tuple(
            tuple(code for code in codes if judged[row] and found[code][row])
            for row in range(table.n.size)
        )

    @property
    def withholding(self) -> frozenset[str]:
        """Codes whose numbers are withheld."""
        withheld = (flag.code for flag in self.rules.flags if flag.withholds)
        return frozenset(withheld if self.action == "suppress" else ())

    def legend(self, found: Collection[str]) -> tuple[str, ...]:
        """Explain the flags that a table has, for its notes; none without any."""
        meanings = [
            f"{flag.code} {flag.meaning}{', withheld' if flag.code in self.withholding else ''}"
            for flag in self.rules.flags
            if flag.code in found
        ]
        return (f"Flags by {self.rules.source}: {'; '.join(meanings)}.",) if meanings else ()


def _nchs_proportion(table: Published) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return unreliable, caution, review (D,)."""
    p, n = table.estimate, table.n.astype(np.float64)
    extreme = (p == 0) | (p == 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where(extreme, n, p * (1 - p) / table.se**2)
        lower, upper = korn_graubard(p, effective, n, table.df)
        width = np.where(extreme, 0.0, upper - lower)
        between = (width > 0.05) & (width < 0.30)
        relative, of_complement = width / p, width / (1 - p)
    measurable = (p >= 0) & (p <= 1) & np.isfinite(width)
    reliable = (
        measurable
        & (n >= 30)
        & (effective >= 30)
        & (width < 0.30)
        & ~(between & ~(relative <= 1.30))
    )
    return ~reliable, between & ~(of_complement <= 1.30), extreme


def _nchs_count(table: Published) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return unreliable, caution, review (D,); the interval is exp(log estimate ± t · RSE)."""
    with np.errstate(invalid="ignore", over="ignore"):
        width = 2 * np.sinh(t_quantile(0.975, table.df) * table.rse)
    none = np.zeros(table.n.size, dtype=bool)
    reliable = (table.estimate > 0) & (table.n >= 10) & (width <= 1.60)
    # A count that is known (calibrated to the public size) has no error, whatever its df.
    reliable |= (table.se == 0) & (table.n >= 10)
    return ~reliable, none, none


def _nchs_mean(table: Published) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return unreliable, caution, review (D,) of means and totals."""
    with np.errstate(invalid="ignore"):
        width = 2 * t_quantile(0.975, table.df) * table.rse
    unreliable = (table.n < 30) | ~np.isfinite(table.se) | (width > 1.60)
    caution = (table.n < 60) | ~(table.rse < 0.30) | (width > 1.20)
    return unreliable, caution, np.zeros(table.n.size, dtype=bool)


def policy_of(flags: Any) -> FlagPolicy:
    """Return the policy that a specification asks for.

    ``flags``: ``none``, ``statcan``, ``nchs``, the latter also with ``_marked``, or a mapping with
    ``mark`` and ``suppress``, whose values are mappings of limits (names of ``Limits``).
    """
    if isinstance(flags, Mapping):
        limits = {key: Limits(**given) for key, given in flags.items()}
        return FlagPolicy(CustomRules(limits.get("mark"), limits.get("suppress")))
    rules: dict[str, FlagRules] = {
        "none": CustomRules(), "statcan": StatcanRules(), "nchs": NchsRules(),
    }  # fmt: skip
    name, _, marked = flags.partition("_")
    return FlagPolicy(rules[name], "mark" if marked else "suppress")


SMALL_SAMPLE = 5
"""Cells with fewer sample records than this are flagged (methods 5)."""

NO_SAMPLE_FLAG = "no sample"
SMALL_SAMPLE_FLAG = f"n<{SMALL_SAMPLE}"
EMPTY_DATASET_FLAG = "synthetic n=0"
SMALL_DATASET_FLAG = f"synthetic n<{SMALL_SAMPLE}"
"""The same of rows by an outcome, in the dataset that has fewest records there."""

POOLED_FLAG = "pooled"
"""At least half of the sample records are of levels that the model pools (methods 2.10)."""

SIZE_FLAGS = (NO_SAMPLE_FLAG, SMALL_SAMPLE_FLAG, EMPTY_DATASET_FLAG, SMALL_DATASET_FLAG)

_NUMBERS = ("estimate", "se", "df", "df_design", "ci_lower", "ci_upper")
_WITHHELD = ("estimate", "se", "df", "ci_lower", "ci_upper")

FLAG_SEPARATOR = "; "
"""Between the flags of one row."""


@dataclass(frozen=True)
class TableNumbers:
    """Results of estimation and combining for D domains; NaN where there is no number.

    estimate, se, df, ci_lower, ci_upper: (D,); df_design: the design's degrees of freedom, one
    number for the whole table; n: (D,) unweighted sample sizes, which are public. by_dataset: rows
    (D,) by an outcome, None for none. Their n is that of the dataset with the fewest records; flags
    depend on it, and it is not shown. pooled: rows (D,) that mostly hold records of levels without
    coefficients of their own, None for none.
    """

    estimate: FloatArray
    se: FloatArray
    df: FloatArray
    df_design: float
    ci_lower: FloatArray
    ci_upper: FloatArray
    n: IntArray
    by_dataset: BoolArray | None = None
    pooled: BoolArray | None = None


@dataclass(frozen=True)
class ReleaseTable:
    """One statistic, by name, of one outcome for every cell and margin.

    frame has D rows and the columns of the csv: the by-columns (codes, not labels), is_margin,
    estimate, se, df, df_design, ci_lower, ci_upper, n, flag. ``outcome`` is None for counts;
    ``level`` is the confidence level; ``notes`` are sentences that hold for the whole table;
    ``flags`` are the reliability rules in force.
    ``categories``: of a statistic by level, the levels of the outcome; frame then has a line for
    each in every row, and before the by-columns a column ``level``. method: how they were made.
    """

    statistic: str
    outcome: str | None
    by: tuple[str, ...]
    frame: "pd.DataFrame"
    level: float
    notes: tuple[str, ...]
    flags: FlagPolicy = field(default_factory=FlagPolicy)
    categories: tuple[str, ...] = ()
    method: str = ""

    @property
    def flag_codes(self) -> tuple[str, ...]:
        """The codes of the reliability rules in force, whether they occur or not."""
        return tuple(flag.code for flag in self.flags.rules.flags)

    @property
    def interval_words(self) -> str:
        """The name of its intervals, with their level."""
        return f"{100 * self.level:.4g}% confidence interval"

    @property
    def rows(self) -> int:
        """The number of cells and margins, which have one line each, or one a level."""
        return len(self.frame) // max(len(self.categories), 1)


def make_table(
    statistic: str,
    outcome: str | None,
    cells: "pd.DataFrame",
    numbers: TableNumbers,
    *,
    level: float,
    notes: Sequence[str] = (),
    flags: FlagPolicy | None = None,
    categories: Sequence[str] = (),
    method: str = "",
) -> ReleaseTable:
    """Assemble a table from its cells, numbers and flags.

    ``cells`` has the by-columns and is_margin, one row per domain. Numbers are of its rows, or with
    ``categories`` of all categories in the first row, then in the next.

    A domain without sample records has no estimate. A domain with fewer than the statistic needs
    has no standard error: the linearized variable of the mean of a single record is zero whatever
    its value (methods 5). Where rows are by an outcome, some datasets may be empty. ``flags`` adds
    its codes to the column ``flag`` and empties the numbers that it withholds.
    """
    import pandas as pd

    by = tuple(str(column) for column in cells.columns if column != "is_margin")
    numbers, frame = _lines(numbers, cells, categories)
    varying = np.zeros(len(frame), bool) if numbers.by_dataset is None else numbers.by_dataset
    for column in _NUMBERS:
        frame[column] = np.zeros(len(frame)) + getattr(numbers, column)
    empty = (numbers.n == 0) & ~varying
    frame.loc[empty, list(_NUMBERS)] = np.nan
    too_few = (numbers.n < statistic_of(statistic).least_for_se) & ~varying
    # Zero in every dataset says nothing of how far it may be from there.
    too_few |= varying & (frame["estimate"] == 0).to_numpy() & (frame["se"] == 0).to_numpy()
    frame.loc[too_few, ["se", "df", "ci_lower", "ci_upper"]] = np.nan
    codes = _codes(statistic, frame, numbers, varying, policy := flags or FlagPolicy())
    # Not of rows whose records differ between datasets.
    n = np.asarray(numbers.n, dtype=np.int64)
    frame["n"] = pd.Series(n, dtype="Int64").mask(varying) if varying.any() else n
    frame["flag"] = [FLAG_SEPARATOR.join(row) for row in codes]
    withheld = [not policy.withholding.isdisjoint(row) for row in codes]
    frame.loc[withheld, list(_WITHHELD)] = np.nan
    return ReleaseTable(
        statistic, outcome, by, frame, level, tuple(notes), policy, tuple(categories), method
    )


def _lines(
    numbers: TableNumbers, cells: "pd.DataFrame", categories: Sequence[str]
) -> "tuple[TableNumbers, pd.DataFrame]":
    """Repeat each row for every category, and n with it."""
    frame = cells.reset_index(drop=True).copy()
    if not categories:
        return numbers, frame
    position = np.repeat(np.arange(len(frame)), len(categories))
    frame = frame.iloc[position].reset_index(drop=True)
    frame.insert(0, LEVEL, np.tile(np.array(categories, dtype=object), len(cells)))
    varying, pooled = (
        None if each is None else each[position] for each in (numbers.by_dataset, numbers.pooled)
    )
    return replace(numbers, n=numbers.n[position], by_dataset=varying, pooled=pooled), frame


def well_filled(frame: "pd.DataFrame") -> BoolArray:
    """Return rows of a table's frame with enough records to have no flag of their size."""
    found = [set(flag.split(FLAG_SEPARATOR)) for flag in frame["flag"]]
    return np.array([each.isdisjoint(SIZE_FLAGS) for each in found], dtype=bool)


def _codes(
    statistic: str,
    frame: "pd.DataFrame",
    numbers: TableNumbers,
    varying: BoolArray,
    policy: FlagPolicy,
) -> list[tuple[str, ...]]:
    """Return the flags of each row: of its sample size, of the model, then of the rules."""
    n = numbers.n
    pooled = np.zeros(len(frame), bool) if numbers.pooled is None else numbers.pooled & (n > 0)
    estimate, se, df, lower, upper = (
        frame[column].to_numpy(dtype=np.float64) for column in _WITHHELD
    )
    published = Published(statistic, estimate, se, df, upper - lower, np.asarray(n, np.int64))
    none, few = n == 0, n < SMALL_SAMPLE
    estimated = varying & np.isfinite(estimate)  # a sum may be empty in one dataset alone
    of_size = np.select(
        [none & varying, few & varying, none, few],
        [EMPTY_DATASET_FLAG, SMALL_DATASET_FLAG, NO_SAMPLE_FLAG, SMALL_SAMPLE_FLAG],
        "",
    )
    of_model, of_rules = np.where(pooled, POOLED_FLAG, ""), policy.codes(published, estimated)
    return [
        tuple(filter(None, (size, alike, *codes)))
        for size, alike, codes in zip(of_size.tolist(), of_model.tolist(), of_rules, strict=True)
    ]


def stacked_frame(tables: Sequence[ReleaseTable]) -> "pd.DataFrame":
    """Stack tables of one statistic; a leading ``outcome`` column when there are several."""
    import pandas as pd

    if len(tables) == 1:
        return tables[0].frame
    parts = []
    for table in tables:
        part = table.frame.copy()
        part.insert(0, "outcome", table.outcome)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
