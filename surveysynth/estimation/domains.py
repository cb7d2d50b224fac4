"""The rows of a table: every cell of the by variables and every margin, and who is in them.

By variables are public columns, or outcomes with levels: then every dataset has its own records in
a row, and the confidential sample's number of records there is not used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Protocol, TypeAlias

import numpy as np
import pandas as pd

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.outcome import Outcome

DEFAULT_MARGIN_LABEL = "All"


@dataclass(frozen=True)
class RowLabels:
    """The labels of a by variable.

    margin, levels: its label and those of the L levels in table order.
    """

    margin: str
    levels: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All labels in table order: the margin, then the levels."""
        return (self.margin, *self.levels)

    @cached_property
    def member(self) -> BoolArray:
        """Flags (names, L) of the levels in each label: all in the margin, each by itself."""
        count = len(self.levels)
        return np.vstack([np.ones((1, count), dtype=bool), np.eye(count, dtype=bool)])


def margin_sets(labels: Sequence[RowLabels]) -> Iterator[tuple[bool, ...]]:
    """Yield for each margin set whether each by variable keeps its levels: the whole first."""
    return product((False, True), repeat=len(labels))


class Classes(Protocol):
    """Classes that divide the records of each dataset, such as the levels of an outcome."""

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        ...

    def of(self, outcomes: FloatArray) -> IntArray:
        """Return the class (n,) of each record, from the outcomes (n, p) of a dataset."""
        ...


@dataclass(frozen=True)
class ByOutcome:
    """An outcome whose levels make rows; ``column`` is its place among the outcomes."""

    column: int
    outcome: Outcome

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its levels."""
        return self.outcome.category_names

    def of(self, outcomes: FloatArray) -> IntArray:
        """Return the level (n,) of each record."""
        return self.outcome.category(outcomes[:, self.column])


@dataclass(frozen=True, eq=False)
class Ways:
    """The rows that outcomes may put a record in, by margin set.

    public: rows (S, n) of the records where outcomes are summed over; steps: from there to all rows
    that outcomes lead to, in rising order; n_public: records (D,) that could be in a row by their
    public columns; outcomes: the by variables that are outcomes.
    """

    public: IntArray
    steps: tuple[IntArray, ...]
    n_public: IntArray
    outcomes: frozenset[str]


@dataclass(frozen=True)
class Domains:
    """The D rows of a table over k by variables, D = prod(number of labels)."""

    by: tuple[str, ...]  # the by variables, in the order of the table's columns
    labels: tuple[RowLabels, ...]  # the labels of each: its margin and its levels
    #: D rows: a text column per by variable (one of its labels) and ``is_margin``, true where at
    #: least one by variable is summed over. Of each variable the margin comes first, then the
    #: levels in their order; row 0 is the whole, the last variable runs fastest.
    table: pd.DataFrame
    #: Unweighted number of records of each row, shape (D,). Public, where all by variables are.
    n: IntArray
    #: For each of the S = 2**k margin sets (which variables keep their levels) the table row that a
    #: record belongs to, shape (S, n records). Set 0 is the whole, the last set the interior cells.
    #: Within one set the rows are disjoint and cover all records, so that one pass over the records
    #: serves all of the set's rows.
    codes: IntArray
    ways: Ways | None = None  # of one dataset among many, where by variables are outcomes; or None
    #: What variances keep of designs and margin sets (``taylor.Pairs``).
    pairs: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def n_rows(self) -> int:
        """Number of rows of the table, D."""
        return len(self.table)

    @property
    def by_dataset(self) -> BoolArray:
        """Rows (D,) whose records differ between datasets."""
        return np.zeros(self.n_rows, dtype=bool)

    @property
    def n_public(self) -> IntArray:
        """Records (D,) that could be in a row by their public columns: n where all are public."""
        return self.n if self.ways is None else self.ways.n_public

    def of(self, outcomes: FloatArray) -> "Domains":
        """Return these rows, the same for every dataset because the by variables are public."""
        return self

    def shares(self, record: BoolArray) -> FloatArray:
        """Return the share (D,) of each row's records that ``record`` (n,) names."""
        return _sizes(self.codes[:, record], self.n_rows) / np.maximum(self.n, 1)

    def choices(self, margin_set: int) -> tuple[IntArray, IntArray]:
        """Return rows (n,) summed over outcomes, and steps (C,) to the rows that outcomes allow.

        The steps lead from there to every row of the margin set.
        """
        if self.ways is None:
            return self.codes[margin_set], np.zeros(1, dtype=np.int64)
        return self.ways.public[margin_set], self.ways.steps[margin_set]


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
        The label for "summed over", by variable; "All" where none is given.

    Returns
    -------
    Domains
        ``table`` with one row per cell or margin, and ``n``, the records in each.

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
    made = build_rows(frame, by, levels, {}, margin_labels)
    assert isinstance(made, Domains)  # no outcome makes rows
    return made


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

    def of(self, outcomes: FloatArray) -> Domains:
        """Return the rows with the records of a dataset, given its outcomes (n, p)."""
        codes = self.public.copy()
        for name, (by, stride) in self.outcomes.items():
            _step(codes, self.labels, self.by.index(name), stride, by.of(outcomes))
        n = _sizes(codes, len(self.table))
        return Domains(self.by, self.labels, self.table, n, codes, self._ways)

    @cached_property
    def _ways(self) -> Ways:
        return Ways(self.public, self._steps, self.n_public, frozenset(self.outcomes))

    @cached_property
    def _steps(self) -> tuple[IntArray, ...]:
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
        return self._numbers(np.ones(self.public.shape[1], dtype=bool))

    def shares(self, record: BoolArray) -> FloatArray:
        """Return the share (D,) of ``n_public`` of the records that ``record`` (n,) names."""
        return self._numbers(record) / np.maximum(self.n_public, 1)

    def _numbers(self, record: BoolArray) -> IntArray:
        n = np.zeros(len(self.table), dtype=np.int64)
        for rows, steps in zip(self.public[:, record], self._steps, strict=True):
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


TableRows: TypeAlias = Domains | RowsByOutcome
"""The rows of a table, known before the records that are in them."""


def build_rows(
    frame: pd.DataFrame,
    by: Sequence[str],
    levels: Mapping[str, Sequence[str]],
    outcomes: Mapping[str, Classes],
    margin_labels: Mapping[str, str] | None = None,
) -> TableRows:
    """Build rows as ``build_domains`` does, where by variables may be ``outcomes`` by name.

    Raises ``InputError`` as it does. ``frame`` has the other by columns, one row per record.
    """
    by, margins = tuple(by), margin_labels or {}
    if len(set(by)) < len(by):
        raise InputError(f"A by variable may be named only once, but by is {', '.join(by)}.")
    record_levels = {
        name: _level_codes(frame, name, levels) for name in by if name not in outcomes
    }
    named = {**levels, **{name: each.names for name, each in outcomes.items()}}
    labels = tuple(
        RowLabels(margins.get(name, DEFAULT_MARGIN_LABEL), tuple(named[name])) for name in by
    )
    for name, each in zip(by, labels, strict=True):
        if each.margin in each.levels:
            raise InputError(
                f"The margin of '{name}' is labeled '{each.margin}', which is also one of its "
                "levels; choose another label for the margin."
            )
    sizes = [len(each.names) for each in labels]
    strides = {name: int(np.prod(sizes[i + 1 :], dtype=np.int64)) for i, name in enumerate(by)}

    rows = list(product(*(each.names for each in labels)))
    table = pd.DataFrame(rows, columns=pd.Index(by, dtype=str), dtype=str)
    in_level = product(*([False] + [True] * len(each.levels) for each in labels))
    table["is_margin"] = [not by or not all(row) for row in in_level]

    codes = np.zeros((2 ** len(by), len(frame)), dtype=np.int64)
    for name, level in record_levels.items():
        _step(codes, labels, by.index(name), strides[name], level)
    if not outcomes:
        return Domains(by, labels, table, _sizes(codes, len(table)), codes)
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
    """Return the number of records (D,) of each row."""
    return np.asarray(_by_row(codes, n_rows), dtype=np.int64)


def _by_row(
    codes: IntArray, n_rows: int, values: FloatArray | None = None
) -> "np.ndarray[Any, Any]":
    """Add up values (n,), or count records, by row; a row is of exactly one margin set."""
    return np.asarray(sum(np.bincount(rows, values, minlength=n_rows) for rows in codes))


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


@lru_cache(maxsize=16)
def margin_set_of_row(labels: tuple[RowLabels, ...]) -> IntArray:
    """Position in ``Domains.codes`` of the margin set that each row belongs to, shape (D,)."""
    sets = np.zeros(1, dtype=np.int64)
    for each in labels:
        sets = (2 * sets[:, None] + (np.arange(len(each.names)) > 0)).ravel()
    sets.setflags(write=False)  # shared by all callers
    return sets


def sums_by_row(domains: Domains, values: FloatArray) -> FloatArray:
    """Sum the values (n,) of the records of each row of the table: (D,)."""
    if domains.ways is not None:
        # Not by cells, which differ between datasets: sums by public columns alone must not.
        return np.asarray(_by_row(domains.codes, domains.n_rows, values), dtype=np.float64)
    inside = np.bincount(domains.codes[-1], values, minlength=domains.n_rows)
    return with_margins(domains.labels, inside.astype(np.float64, copy=False))


def with_margins(
    labels: Sequence[RowLabels], values: FloatArray, reduce: np.ufunc = np.add
) -> FloatArray:
    """Return values of rows (D, ..), known in interior cells, with those of margins: (D, ..).

    reduce: how cells make a margin, by default as their sum.
    """
    names = tuple(len(each.names) for each in labels)
    made = values.reshape(names + values.shape[1:]).copy()
    for axis in range(len(labels)):
        along = np.moveaxis(made, axis, 0)
        along[0] = reduce.reduce(along[1:], axis=0)
    return made.reshape(values.shape)
