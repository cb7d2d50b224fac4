"""The rows of a table: every cell of the by variables and every margin, and who is in them.

By variables are public columns, or outcomes with levels: then every dataset has its own records in
a row, and how many the confidential sample has there is not looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Protocol

import numpy as np
import pandas as pd

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.classes import Classes
from surveysynth.estimation.row_labels import (
    DEFAULT_MARGIN_LABEL,
    RowLabels,
    margin_sets,
    row_labels,
)


class TableRows(Protocol):
    """The rows of a table, known before the records that are in them."""

    @property
    def by(self) -> tuple[str, ...]:
        """The by variables."""
        ...

    @property
    def labels(self) -> tuple[RowLabels, ...]:
        """The labels of each by variable; rows run through all combinations."""
        ...

    @property
    def table(self) -> pd.DataFrame:
        """D rows, as ``Domains`` has them."""
        ...

    @property
    def n_records(self) -> int:
        """Number of records of a dataset."""
        ...

    @property
    def by_dataset(self) -> BoolArray:
        """Rows (D,) whose records are another dataset's in every dataset."""
        ...

    @property
    def n_public(self) -> IntArray:
        """Records (D,) that could be in a row by their public columns."""
        ...

    def of(self, outcomes: FloatArray) -> "Domains":
        """Return the rows with the records of a dataset, given its outcomes (n, p)."""
        ...

    def shares(self, record: BoolArray) -> FloatArray:
        """Return the share (D,) of the records in each row that ``record`` (n,) names.

        The denominator counts the records that public columns allow in the row; 0 without any.
        """
        ...


class OutcomeRows(Protocol):
    """Facts about rows by outcomes beyond the rows of one dataset."""

    @property
    def public(self) -> IntArray:
        """Rows (S, n) of the records where outcomes are summed over, by margin set."""
        ...

    @property
    def steps(self) -> tuple[IntArray, ...]:
        """The steps from each margin set to all rows that outcomes lead to, in rising order."""
        ...

    @property
    def outcomes(self) -> Mapping[str, object]:
        """The by variables that are outcomes, by name."""
        ...

    @property
    def n_public(self) -> IntArray:
        """Records (D,) that could be in a row by their public columns."""
        ...

    @property
    def by_dataset(self) -> BoolArray:
        """Rows (D,) that an outcome leads to."""
        ...

    def shares(self, record: BoolArray) -> FloatArray:
        """Return the share (D,) of ``n_public`` of the records that ``record`` (n,) names."""
        ...


@dataclass(frozen=True)
class Domains:
    """The D rows of a table over k by variables, D = prod(number of labels).

    Attributes
    ----------
    by
        The by variables, in the order of the table's columns.
    labels
        The labels of each: its margin and its levels.
    table
        D rows: a text column per by variable (one of its labels) and ``is_margin``, true where at
        least one by variable is summed over. Of each variable the margin comes first, then the
        levels in their order; row 0 is the whole, the last variable runs fastest.
    n
        Unweighted number of records of each row, shape (D,). Public, where all by variables are.
    codes
        For each of the S = 2**k margin sets (which variables keep their levels) the table row that
        a record belongs to, shape (S, n records). Set 0 is the whole, the last set the interior
        cells. Within one set the rows are disjoint and
        cover all records, so that one pass over the records serves all of the set's rows.
    rows
        Of one dataset among many, where by variables are outcomes: the rows of all; or None.
    """

    by: tuple[str, ...]
    labels: tuple[RowLabels, ...]
    table: pd.DataFrame
    n: IntArray
    codes: IntArray
    rows: OutcomeRows | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows of the table, D."""
        return len(self.table)

    @property
    def n_records(self) -> int:
        """Number of records."""
        return int(self.codes.shape[1])

    @property
    def by_dataset(self) -> BoolArray:
        """Rows (D,) whose records are another dataset's in every dataset."""
        return np.zeros(self.n_rows, dtype=bool) if self.rows is None else self.rows.by_dataset

    @property
    def n_public(self) -> IntArray:
        """Records (D,) that could be in a row by their public columns: n where all are public."""
        return self.n if self.rows is None else self.rows.n_public

    def of(self, outcomes: FloatArray) -> "Domains":
        """Return these rows, the same for every dataset, since public by variables make them."""
        return self

    def shares(self, record: BoolArray) -> FloatArray:
        """Return the share (D,) of each row's records that ``record`` (n,) names."""
        if self.rows is not None:
            return self.rows.shares(record)
        return _sizes(self.codes[:, record], self.n_rows) / np.maximum(self.n, 1)

    def choices(self, margin_set: int) -> tuple[IntArray, IntArray]:
        """Return rows (n,) summed over outcomes, and steps (C,) to the rows that outcomes allow.

        The steps lead from there to every row of the margin set.
        """
        if self.rows is None:
            return self.codes[margin_set], np.zeros(1, dtype=np.int64)
        return self.rows.public[margin_set], self.rows.steps[margin_set]


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
    made = _rows(frame, by, levels, {}, margin_labels)
    n = _sizes(made.public, len(made.table))
    return Domains(made.by, made.labels, made.table, n, made.public)


@dataclass(frozen=True, eq=False)
class RowsByOutcome:
    """The rows of a table where some by variables are outcomes.

    by, labels, table: as in ``Domains``; public: rows (S, n) of the records in the margins of the
    outcomes; outcomes: by name, with the step from one level to the next.
    """

    by: tuple[str, ...]
    labels: tuple[RowLabels, ...]
    table: pd.DataFrame
    public: IntArray
    outcomes: Mapping[str, tuple[Classes, int]]

    @property
    def n_rows(self) -> int:
        """Number of rows of the table, D."""
        return len(self.table)

    @property
    def n_records(self) -> int:
        """Number of records of a dataset."""
        return int(self.public.shape[1])

    def of(self, outcomes: FloatArray) -> Domains:
        """Return the rows with the records of a dataset, given its outcomes (n, p)."""
        codes = self.public.copy()
        for name, (by, stride) in self.outcomes.items():
            _step(codes, self.labels, self.by.index(name), stride, by.of(outcomes))
        n = _sizes(codes, len(self.table))
        return Domains(self.by, self.labels, self.table, n, codes, self)

    @cached_property
    def steps(self) -> tuple[IntArray, ...]:
        """Return, by margin set, rising steps from a row of ``public`` to rows by outcome."""
        found = []
        for chosen in margin_sets(self.labels):
            steps = np.zeros(1, dtype=np.int64)
            for name, (_, stride) in self.outcomes.items():
                place = self.by.index(name)
                count = len(self.labels[place].levels)
                labels = 1 + np.arange(count) if chosen[place] else np.zeros(1, dtype=np.int64)
                steps = (steps[:, None] + stride * labels).ravel()
            found.append(np.sort(steps))
        return tuple(found)

    @cached_property
    def n_public(self) -> IntArray:
        """Records (D,) that could be in a row by their public columns."""
        return self._numbers(np.ones(self.n_records, dtype=bool))

    def shares(self, record: BoolArray) -> FloatArray:
        """Return the share (D,) of ``n_public`` of the records that ``record`` (n,) names."""
        return self._numbers(record) / np.maximum(self.n_public, 1)

    def _numbers(self, record: BoolArray) -> IntArray:
        n = np.zeros(len(self.table), dtype=np.int64)
        for rows, steps in zip(self.public[:, record], self.steps, strict=True):
            counts = np.bincount(rows, minlength=len(self.table))
            found = np.flatnonzero(counts)
            for step in steps:
                n[found + step] += counts[found]
        return n

    @cached_property
    def by_dataset(self) -> BoolArray:
        """Rows (D,) that an outcome leads to: all but the margins over outcomes."""
        margin = {name: self.table[name].iloc[0] for name in self.outcomes}
        inside = [(self.table[name] != label).to_numpy() for name, label in margin.items()]
        return np.asarray(np.any(inside, axis=0), dtype=bool)


def build_rows(
    frame: pd.DataFrame,
    by: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    outcomes: Mapping[str, Classes],
    margin_labels: Mapping[str, str] | None = None,
) -> Domains | RowsByOutcome:
    """Build rows as ``build_domains`` does, where by variables may be ``outcomes`` by name.

    Raises ``InputError`` as it does. ``frame`` has the other by columns, one row a record.
    """
    if not outcomes:
        return build_domains(frame, by, levels, margin_labels)
    return _rows(frame, by, levels, outcomes, margin_labels)


def _rows(
    frame: pd.DataFrame,
    by: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    outcomes: Mapping[str, Classes],
    margin_labels: Mapping[str, str] | None,
) -> RowsByOutcome:
    by, margins = tuple(by), margin_labels or {}
    if len(set(by)) < len(by):
        raise InputError(f"A by variable may be named only once, but by is {', '.join(by)}.")
    record_levels = {
        name: _level_codes(frame, name, levels) for name in by if name not in outcomes
    }
    named = {**levels, **{name: each.names for name, each in outcomes.items()}}
    labels = tuple(
        row_labels(name, named[name], margins.get(name, DEFAULT_MARGIN_LABEL)) for name in by
    )
    sizes = [len(each.names) for each in labels]
    strides = {name: int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i, name in enumerate(by)}

    rows = list(product(*(each.names for each in labels)))
    table = pd.DataFrame(rows, columns=pd.Index(by, dtype=str), dtype=str)
    in_level = product(*([False] + [True] * len(each.levels) for each in labels))
    table["is_margin"] = [not by or not all(row) for row in in_level]

    codes = np.zeros((len(list(margin_sets(labels))), len(frame)), dtype=np.int64)
    for name, level in record_levels.items():
        _step(codes, labels, by.index(name), strides[name], level)
    found = {name: (each, strides[name]) for name, each in outcomes.items() if name in by}
    return RowsByOutcome(by, labels, table, codes, found)


def _step(
    codes: IntArray, labels: Sequence[RowLabels], place: int, stride: int, level: IntArray
) -> None:
    """Move records (n,) of these levels of a by variable to its labels, in all sets (S, n)."""
    for index, chosen in enumerate(margin_sets(labels)):
        if chosen[place]:
            codes[index] += stride * (1 + level)


def _sizes(codes: IntArray, n_rows: int) -> IntArray:
    """Return the number of records (D,) of each row; a row belongs to exactly one margin set."""
    sizes = np.zeros(n_rows, dtype=np.int64)
    for rows in codes:
        sizes += np.bincount(rows, minlength=n_rows)
    return sizes


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
