"""The numbers of a published table, apart from how any format shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.statistics import statistic_of
from surveysynth.release.tables.flags import FlagPolicy, Published

if TYPE_CHECKING:
    import pandas as pd

SMALL_SAMPLE = 5
"""Cells with fewer sample records than this are flagged (methods 5)."""

NO_SAMPLE_FLAG = "no sample"
SMALL_SAMPLE_FLAG = f"n<{SMALL_SAMPLE}"

_NUMBERS = ("estimate", "se", "df", "df_design", "ci_lower", "ci_upper")
_WITHHELD = ("estimate", "se", "df", "ci_lower", "ci_upper")

FLAG_SEPARATOR = "; "
"""Between the flags of one row."""


@dataclass(frozen=True)
class TableNumbers:
    """What estimation and combining say about D domains; NaN where there is no number.

    estimate, se, df, ci_lower, ci_upper: (D,); df_design: the design's degrees of freedom, one
    number for the whole table; n: (D,) unweighted sample sizes, which are public.
    """

    estimate: FloatArray
    se: FloatArray
    df: FloatArray
    df_design: float
    ci_lower: FloatArray
    ci_upper: FloatArray
    n: IntArray


@dataclass(frozen=True)
class ReleaseTable:
    """One statistic, by name, of one outcome for every cell and margin.

    frame has D rows and the columns of the csv: the by-columns (codes, not labels), is_margin,
    estimate, se, df, df_design, ci_lower, ci_upper, n, flag. ``outcome`` is None for counts;
    ``level`` is the confidence level; ``notes`` are sentences that hold for the whole table;
    ``flag_codes`` are the codes of the reliability rules in force, whether they occur or not.
    """

    statistic: str
    outcome: str | None
    by: tuple[str, ...]
    frame: "pd.DataFrame"
    level: float
    notes: tuple[str, ...]
    flag_codes: tuple[str, ...] = ()


def make_table(
    statistic: str,
    outcome: str | None,
    cells: "pd.DataFrame",
    numbers: TableNumbers,
    *,
    level: float,
    notes: Sequence[str] = (),
    flags: FlagPolicy | None = None,
) -> ReleaseTable:
    """Assemble a table: ``cells`` has the by-columns and is_margin, one row a domain.

    A domain without sample records has no estimate; one with fewer than the statistic needs has
    no standard error: the linearised variable of the mean of a single record is zero whatever the
    record says (methods 5).
    ``flags`` adds its codes to the column ``flag`` and empties the numbers that it withholds.
    """
    by = tuple(str(column) for column in cells.columns if column != "is_margin")
    frame = cells.reset_index(drop=True).copy()
    for column in _NUMBERS:
        frame[column] = np.asarray(getattr(numbers, column), dtype=np.float64) + np.zeros(
            len(frame)
        )
    empty = numbers.n == 0
    frame.loc[empty, list(_NUMBERS)] = np.nan
    too_few = numbers.n < statistic_of(statistic).least_for_se
    frame.loc[too_few, ["se", "df", "ci_lower", "ci_upper"]] = np.nan
    frame["n"] = np.asarray(numbers.n, dtype=np.int64)
    codes = _codes(statistic, frame, policy := flags or FlagPolicy())
    frame["flag"] = [FLAG_SEPARATOR.join(row) for row in codes]
    withheld = [not policy.withholding.isdisjoint(row) for row in codes]
    frame.loc[withheld, list(_WITHHELD)] = np.nan
    return ReleaseTable(
        statistic,
        outcome,
        by,
        frame,
        level,
        (*notes, *policy.legend()),
        tuple(flag.code for flag in policy.rules.flags),
    )


def _codes(
    statistic: str, frame: "pd.DataFrame", policy: FlagPolicy
) -> list[tuple[str, ...]]:
    """The flags of each row: of its sample size first, then of the rules."""
    estimate, se, df, lower, upper = (
        frame[column].to_numpy(dtype=np.float64) for column in _WITHHELD
    )
    published = Published(
        statistic,
        estimate,
        se,
        df,
        width=upper - lower,
        n=frame["n"].to_numpy(dtype=np.int64),
    )
    of_size = np.select(
        [published.n == 0, published.n < SMALL_SAMPLE], [NO_SAMPLE_FLAG, SMALL_SAMPLE_FLAG], ""
    )
    return [
        (*([size] if size else []), *codes)
        for size, codes in zip(of_size.tolist(), policy.codes(published), strict=True)
    ]


def stacked_frame(tables: Sequence[ReleaseTable]) -> "pd.DataFrame":
    """Tables of one statistic as one frame; a leading ``outcome`` column when there are several."""
    import pandas as pd

    if len(tables) == 1:
        return tables[0].frame
    parts = []
    for table in tables:
        part = table.frame.copy()
        part.insert(0, "outcome", table.outcome)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
