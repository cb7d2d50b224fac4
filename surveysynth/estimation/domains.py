"""The rows of a table: every cell of the by variables and every margin, and who is in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import pandas as pd

from surveysynth._support.types import IntArray
from surveysynth.errors import InputError

DEFAULT_MARGIN_LABEL = "All"


@dataclass(frozen=True)
class Domains:
    """The D rows of a table over k by variables, D = prod(1 + number of levels).

    Attributes
    ----------
    by
        The by variables, in the order of the table's columns.
    table
        D rows: a text column per by variable (a level or the margin's label) and ``is_margin``,
        true where at least one by variable is summed over. Of each variable the margin comes
        first, then the levels in their order; row 0 is the whole, the last variable runs fastest.
    n
        Unweighted number of records of each row, shape (D,). Public.
    codes
        For each of the 2**k margin sets (which variables are summed over) the table row that a
        record belongs to, shape (2**k, n records). Set 0 is the whole, the last set the interior
        cells. Within one set the rows are disjoint and cover all records, so that one pass over
        the records serves all of the set's rows.
    """

    by: tuple[str, ...]
    table: pd.DataFrame
    n: IntArray
    codes: IntArray

    @property
    def n_rows(self) -> int:
        """Number of rows of the table, D."""
        return len(self.table)

    @cached_property
    def level_counts(self) -> tuple[int, ...]:
        """Number of levels of each by variable, margins apart."""
        return tuple(int(self.table[name].nunique()) - 1 for name in self.by)


def build_domains(
    frame: pd.DataFrame,
    by: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    margin_labels: Mapping[str, str] | None = None,
) -> Domains:
    """Lay out all cells and margins of any number of by variables (methods 5).

    Parameters
    ----------
    frame
        One row per record, with the by columns.
    by
        Names of the by variables; none gives a table with the whole alone.
    levels
        The levels of each by variable in table order. A level without records keeps its rows.
    margin_labels
        What stands for "summed over", by variable; "All" where none is given.

    Returns
    -------
    Domains
        ``table`` with a row a cell or margin, ``n`` records of each.

    Raises
    ------
    InputError
        If a by column is missing or named twice, if a margin's label is also a level, or if
        records have a value that is not among the levels.

    Examples
    --------
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> frame = pd.DataFrame({"sex": ["F", "M", "F"]})
    >>> domains = ss.build_domains(frame, ["sex"], {"sex": ("F", "M")})
    >>> domains.table.assign(n=domains.n)
       sex  is_margin  n
    0  All       True  3
    1    F      False  2
    2    M      False  1
    """
    by = tuple(by)
    if len(set(by)) < len(by):
        raise InputError(f"A by variable may be named only once, but by is {', '.join(by)}.")
    record_codes = [_level_codes(frame, name, levels) for name in by]
    labels = [_row_labels(name, levels[name], margin_labels or {}) for name in by]
    sizes = [len(each) for each in labels]
    strides = [int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i in range(len(by))]

    table = pd.DataFrame(list(product(*labels)), columns=pd.Index(by, dtype=str), dtype=str)
    in_level = np.array(list(product(*(range(size) for size in sizes)))) > 0
    table["is_margin"] = [not by or not all(row) for row in in_level.tolist()]

    codes = np.zeros((2 ** len(by), len(frame)), dtype=np.int64)
    for index, kept in enumerate(product((False, True), repeat=len(by))):
        for keep, level, stride in zip(kept, record_codes, strides, strict=True):
            if keep:
                codes[index] += (1 + level) * stride
    sizes_of_rows = np.zeros(len(table), dtype=np.int64)
    for rows in codes:  # every row of the table belongs to exactly one margin set
        sizes_of_rows += np.bincount(rows, minlength=len(table))
    return Domains(by=by, table=table, n=sizes_of_rows, codes=codes)


def _level_codes(frame: pd.DataFrame, name: str, levels: Mapping[str, Sequence[str]]) -> IntArray:
    """Position of each record's value among the levels of a by variable, shape (n,)."""
    if name not in frame.columns:
        raise InputError(
            f"The by variable '{name}' is not a column of the data, which has: "
            f"{', '.join(map(str, frame.columns))}."
        )
    codes = pd.Index(levels[name], dtype=str).get_indexer(pd.Index(frame[name].astype(str)))
    unknown = int((codes < 0).sum())
    if unknown:
        raise InputError(
            f"Every record needs one of the {len(levels[name])} levels of '{name}', but {unknown} "
            f"of {len(frame)} have another value or none; add the level or drop these records."
        )
    return codes.astype(np.int64)


def _row_labels(
    name: str, levels: Sequence[str], margin_labels: Mapping[str, str]
) -> tuple[str, ...]:
    """Labels of one by column: the margin's, then the levels."""
    margin = margin_labels.get(name, DEFAULT_MARGIN_LABEL)
    if margin in levels:
        raise InputError(
            f"The margin of '{name}' is labelled '{margin}', which is also one of its levels; "
            f"choose another label for the margin."
        )
    return (margin, *levels)
