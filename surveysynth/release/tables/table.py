"""The numbers of a published table, apart from how any format shows them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.estimation.statistics import LEVEL, statistic_of
from surveysynth.release.tables.flags import FlagPolicy, Published

if TYPE_CHECKING:
    import pandas as pd

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

    ``cells`` has the by-columns and is_margin, one row a domain. Numbers are of its rows, or with
    ``categories`` of all categories in the first row, then in the next.

    A domain without sample records has no estimate. A domain with fewer than the statistic needs
    has no standard error: the linearised variable of the mean of a single record is zero whatever
    the record says (methods 5). Where rows are by an outcome, some datasets may be empty.
    ``flags`` adds its codes to the column ``flag`` and empties the numbers that it withholds.
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
