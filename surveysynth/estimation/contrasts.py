"""Contrasts of the rows of a table: a row less another, or over it; variances on the contrast.

A record has one linearised variable for the contrast, u_1 - u_2 or (u_1 - rho u_2) / t_2, and one
row that the contrast stands in, so that everything that is done with the rows of a table (Taylor
variances, both combining rules) is done with contrasts too, and covariances need no matrix.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains, OutcomeRows, TableRows
from surveysynth.estimation.linearised import Linearised
from surveysynth.estimation.row_labels import RowLabels, margin_sets

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

    def of_rows(self, rows: TableRows, estimates: FloatArray) -> FloatArray:
        """Contrasts (..., D) of estimates (..., D), NaN in rows that hold none."""
        pairs = Pairs.of(self, rows)
        made = self.combine(estimates, estimates[..., pairs.second])
        return np.where(pairs.holds, made, np.nan)


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

    @cached_property
    def firsts(self) -> tuple[int, ...]:
        """The labels that are compared with the second."""
        return tuple(int(each) for each in np.unique(self.label[self.holds]))

    def fewer(self, n: IntArray) -> IntArray:
        """Return the smaller number (D,) of records of both rows, 0 where there is no contrast."""
        return np.where(self.holds, np.minimum(n, n[self.second]), 0)

    def moved(self, codes: IntArray, first: int) -> IntArray:
        """Return rows (n,) of records in which both compared rows are one.

        Records of neither row join the second label, which shows no contrast. ``codes`` are rows
        of levels.
        """
        label, member = self.label[codes], self.labels.member
        either = np.concatenate([[False], member[first] | member[self.against]])
        to = np.where(either[label], first, self.against)
        return np.asarray(codes + self.stride * (to - label), dtype=np.int64)

    def passes(self, rows: TableRows) -> list[tuple[int, int]]:
        """Margin sets and first labels: in each pass records are in one row."""
        place = rows.by.index(self.contrast.column)
        sets = [index for index, kept in enumerate(margin_sets(rows.labels)) if kept[place]]
        return [(margin_set, first) for margin_set in sets for first in self.firsts]

    def domains(self, domains: Domains) -> Domains:
        """Return the table with the records of both rows in the row that shows their contrast."""
        passes = self.passes(domains)
        codes = np.stack([self.moved(domains.codes[index], first) for index, first in passes])
        rows = None
        if domains.rows is not None:
            rows = self._by_outcome(domains.rows, passes)
        return replace(domains, n=self.fewer(domains.n), codes=codes, rows=rows)

    def _by_outcome(self, rows: OutcomeRows, passes: list[tuple[int, int]]) -> OutcomeRows:
        """Return rows summed over by variables that are outcomes, and the steps from there."""
        public, steps = [], []
        for index, first in passes:
            ways = rows.steps[index]
            if self.contrast.column in rows.outcomes:
                public.append(rows.public[index])
                start = rows.public[index][0]  # from any record the ways are the same
                steps.append(np.unique(self.moved(start + ways, first) - start))
            else:
                public.append(self.moved(rows.public[index], first))
                steps.append(ways)
        return _Chosen(
            np.stack(public), tuple(steps), rows.outcomes, self.fewer(rows.n_public),
            rows.by_dataset, rows,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Rows by outcomes as ``OutcomeRows`` has them, with records moved."""

    public: IntArray
    steps: tuple[IntArray, ...]
    outcomes: Mapping[str, object]
    n_public: IntArray
    by_dataset: BoolArray
    source: OutcomeRows

    def shares(self, record: BoolArray) -> FloatArray:
        """Return the shares of the row that holds a contrast."""
        return self.source.shares(record)


def contrasted(
    contrast: Contrast, domains: Domains, weight: FloatArray, made: Linearised
) -> tuple[Domains, Linearised]:
    """Return the contrasts of linearised rows, and the rows that show them."""
    pairs = Pairs.of(contrast, domains)
    second = made.estimate[pairs.second]
    estimate = np.where(pairs.holds, contrast.combine(made.estimate, second), np.nan)
    if contrast.kind == "difference":
        factor, scale = np.ones(estimate.size), pairs.holds.astype(np.float64)
    else:
        factor = np.where(pairs.holds, estimate, 0.0)
        # Where a dataset has nothing to compare with, it has no linearised variable either.
        scale = np.where(pairs.holds & (second != 0.0), 1.0 / second, 0.0)
        factor = np.where(scale != 0.0, factor, 0.0)
    # In the last margin set every record has its level.
    record, member = pairs.label[domains.codes[-1]] - 1, pairs.labels.member
    rest = _outside(weight, made)

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


def _outside(weight: FloatArray, made: Linearised) -> Callable[[IntArray], FloatArray]:
    """u (n,) of records that are not in the rows (n,)."""
    centre = made.outside
    if centre is None:
        return lambda rows: np.zeros(rows.shape)
    return lambda rows: np.asarray(-centre[rows] * weight)
