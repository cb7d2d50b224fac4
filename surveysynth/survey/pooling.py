"""Pool small levels for a model, by a rule on public columns alone (methods 2.10).

A row x of X rests on 1 / h records, where h = x'(X'X)^-1 x is its leverage. Where that is fewer
than required, one record changes the fit at its own row, which makes protecting it expensive. So
coefficients of small levels and cells are removed until every row rests on enough records. Nothing
depends on the order of records or levels, on labels, or on how levels are coded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.messages import records
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.survey.design_matrix import (
    Cells,
    DesignMatrix,
    base_rows,
    check_rank,
    distinct_rows,
    evaluate,
    independent_columns,
    interaction_columns,
    predicted,
    records_per_coefficient,
)
from surveysynth.survey.formula import (
    ParsedFormula,
    interactions,
    parse_formula,
    shrunken_terms,
    without_term,
    without_terms,
)

#: Relative tolerance for rounding: the leverage of a cell is one over the number of its records.
ROUNDING = 1e-9
#: A level or a cell with more than this many times the required records is not small.
NEAR = 2.0
#: Pooled levels of a column that a sentence names, and their least number of records: a level with
#: fewer may be a value that slipped in.
SHOWN, RARE = 12, 3


@dataclass(frozen=True)
class Pooling:
    """The parts that a model pools so that every row of X rests on ``least`` records.

    levels: those without coefficients of their own, by column, with the number of their records;
    interactions: the terms that were removed from the formula; cells: the numbers of small cells
    and of their records, by interaction that was kept; record: (n,) True for a record with a pooled
    level or in a small cell.
    """

    least: float
    levels: Mapping[str, Mapping[str, int]]
    interactions: tuple[str, ...]
    cells: Mapping[str, tuple[int, int]]
    record: BoolArray

    @property
    def words(self) -> str:
        """The pooled parts in a sentence: "A (5 records), B (7 records) of field; ..."."""
        parts = []
        for name, small in self.levels.items():
            shown = [f"{level} ({records(n)})" for level, n in small.items() if n >= RARE][:SHOWN]
            if others := len(small) - len(shown):
                shown.append(f"{others:,} {'other ' if shown else ''}level{'s'[:others - 1]}")
            parts.append(f"{', '.join(shown)} of {name}")
        if self.interactions:
            plural = "s" if len(self.interactions) > 1 else ""
            parts.append(f"the interaction{plural} {', '.join(self.interactions)}")
        for term, (cells, n) in self.cells.items():
            many = f"{cells:,} cells" if cells > 1 else "one cell"
            parts.append(f"{many} ({records(n)}) of {term}, modeled by the terms within it")
        return "; ".join(parts)

    @property
    def means(self) -> str:
        """The consequences for records, in sentences."""
        of_levels = (
            "Records of a pooled level are modeled as the average of the other levels, and those "
            "of a pooled cell by the terms within its interaction, so what is published about them "
            "shows nothing specific to them."
        )
        left_out = "An interaction that is removed completely is modeled by the terms within it."
        return " ".join([of_levels] * bool(self.levels or self.cells)
                        + [left_out] * bool(self.interactions))  # fmt: skip

    def as_dict(self) -> dict[str, object]:
        """Return the entry of privacy.json."""
        return {
            "levels": {name: dict(small) for name, small in self.levels.items()},
            "interactions": list(self.interactions),
            "cells": {
                term: {"cells": cells, "records": n} for term, (cells, n) in self.cells.items()
            },
        }


def pool(
    frame: pd.DataFrame, matrix: DesignMatrix, design_columns: Sequence[str], least: float
) -> tuple[DesignMatrix, Pooling | None]:
    """Pool as little as brings every row of X up to ``least`` records; None if nothing is pooled.

    ``frame``: n records, public columns; ``design_columns``: by and strata, which are categorical.
    If a pooled level determines the level of another of these columns (a state its region), it is
    modeled by the other levels there. Cells of X stay separate even if their rows become equal.

    Raises ``RefusedError`` if no pooling is enough.
    """
    if not _short(matrix, least).any():
        return matrix, None
    pooling = _Pool(frame, matrix, design_columns, least)
    return pooling.matrix, pooling.made()


def _short(matrix: DesignMatrix, least: float) -> BoolArray:
    """Return which rows (G,) of X rest on fewer than ``least`` records."""
    return records_per_coefficient(matrix) < least * (1.0 - ROUNDING)


class _Pool:
    """The formula on the distinct combinations of its columns, and the parts pooled so far."""

    def __init__(
        self, frame: pd.DataFrame, matrix: DesignMatrix, design: Sequence[str], least: float
    ) -> None:
        self.frame, self.plain, self.least = frame, matrix, least
        self.least_cell = least - matrix.interaction_scale**-2
        self.parsed = parse_formula(matrix.formula)
        self.base, self.index = base_rows(frame, self.parsed, design)
        self.count = np.bincount(self.index, minlength=len(self.base))
        self.cell = np.zeros(len(self.base), dtype=np.int64)
        self.cell[self.index] = matrix.cell
        coded = {names for term in self.parsed.terms for names, is_coded in term if is_coded}
        self.factors = {
            name: _Factor(self.base[name], self.count)
            for name in self.parsed.variables
            if (name,) in coded or isinstance(self.base[name].dtype, pd.CategoricalDtype)
        }
        self.groups = {name: self._groups(name, design) for name in self.factors}
        self.left_out: list[str] = []
        self.small_cells: Mapping[str, tuple[int, int]] = {}
        self.in_small_cell: BoolArray = np.zeros(len(self.base), dtype=bool)
        self.own_cells: dict[str, CellSizes] = {}
        self.given_up: dict[str, BoolArray] = {}
        for factor in self.factors.values():
            factor.small = factor.n < least
        everywhere = np.ones(len(self.base), dtype=bool)
        while alone := self._smallest_interaction(everywhere, least, alone=True):
            self._leave_out(alone)
        self.matrix = self._build()
        while (short := _short(self.matrix, least)).any():
            self._take_from(short)
            self.matrix = self._build()

    def _groups(self, name: str, design: Sequence[str]) -> IntArray:
        """Group levels, (levels,), by the design's columns that they determine."""
        factor, group = self.factors[name], np.zeros(self.factors[name].n.size, dtype=np.int64)
        code = factor.code[self.index]
        for other in design:
            other_code = pd.factorize(self.frame[other])[0]
            of_level = np.zeros(group.size, dtype=np.int64)
            of_level[code] = other_code
            if other != name and np.array_equal(of_level[code], other_code):
                pairs = group * (int(of_level.max()) + 1) + of_level
                group = np.unique(pairs, return_inverse=True)[1]
        return group

    def _smallest_interaction(self, rows: BoolArray, least: float, alone: bool = False) -> str:
        """Return the interaction of highest order with the smallest cell, or "" for none.

        Of those that are not shrunken. Only cells count with fewer records than ``least`` among
        base rows (B,), without pooled levels. ``alone``: only those without the terms within them.
        """
        found: list[tuple[int, int, str]] = []
        for term in interactions(self.parsed, self.factors):
            if (alone and term.has_all_within) or term.term in self.own_cells:
                continue
            own = ~np.any([self.factors[name].pooled_rows for name in term.names], axis=0)
            code = {name: self.factors[name].code for name in term.names}
            size = term.cell_sizes(code, np.where(own, self.count, 0), code)
            seen = size[own & rows]
            if seen.size and seen.min() < least:
                found.append((-len(term.names), int(seen.min()), term.text))
        return min(found)[2] if found else ""

    def _leave_out(self, text: str) -> None:
        """Replace an interaction by the terms of the next lower order."""
        self.left_out.append(text)
        self.parsed = parse_formula(without_term(self.parsed, text))

    def _take_from(self, short: BoolArray) -> None:
        """Pool the smallest interaction or level in which the short cells (G,) lie."""
        rows, most = short[self.cell], NEAR * self.least
        if self._take_cell(rows, most):
            return
        if interaction := self._smallest_interaction(rows, most):
            return self._leave_out(interaction)
        if self._take_cell(rows, np.inf):
            return
        sizes = {
            name: factor.n[np.unique(factor.code[rows & ~factor.pooled_rows])]
            for name, factor in self.factors.items()
        }
        smallest = min((int(n.min()) for n in sizes.values() if n.size), default=0)
        if not 0 < smallest < most:
            raise RefusedError(self._nothing_to_pool(int(self.count[rows].sum())))
        for factor in self.factors.values():
            here = np.isin(np.arange(factor.n.size), factor.code[rows])
            factor.small = factor.small | (here & (factor.n == smallest))

    def _take_cell(self, rows: BoolArray, most: float) -> bool:
        """Give up the smallest cells of shrunken interactions among these rows (B,), if any.

        Only cells with fewer than ``most`` records.
        """
        own = {t: rows & cells.kept & (cells.size < most) for t, cells in self.own_cells.items()}
        sizes = [self.own_cells[t].size[there].min() for t, there in own.items() if there.any()]
        for text, there in own.items():
            taken = there & (self.own_cells[text].size == min(sizes, default=0))
            self.given_up[text] = self.given_up.get(text, np.zeros_like(taken)) | taken
        return bool(sizes)

    def _nothing_to_pool(self, short: int) -> str:
        """Return why rows with ``short`` records stay short, and what to change."""
        where, remedy = repr(self.plain.formula), (
            "Group a numeric predictor into classes or take its logarithm, remove terms of the "
            "formula"
        )
        if self.plain.by_default:
            where, remedy = f"the default predictors ({self.parsed.text!r})", (
                "Make by columns or strata coarser, or use fewer of them: a formula of your own "
                "would need the same terms"
            )
        return (
            f"{records(short)} lie so far from the others in {where} that their fit rests on fewer "
            f"than {self.least:g} records, and there is no small level to pool. {remedy}, or set "
            "allow = ['small_strata'], which the privacy statement does not cover."
        )

    def _build(self) -> DesignMatrix:
        """Build X with the rows of pooled levels averaged."""
        alone = next((name for name, factor in self.factors.items() if factor.small.all()), None)
        if alone is not None:
            raise RefusedError(
                f"no level of {alone!r} has the {self.least:g} records that its own coefficient "
                f"requires, so there is no level to pool the others with: make {alone!r} coarser, "
                "remove it, or set allow = ['small_strata'], which the privacy statement does not "
                "cover."
            )
        while True:
            columns, terms, rows, own = self._averaged()
            empty = [text for text, cells in self.own_cells.items() if not cells.kept.any()]
            for text in empty:
                self._leave_out(text)
            if not empty:
                break
        ridged = np.repeat([False, True], [len(terms) - own, own])
        if self.small_cells:
            kept = independent_columns(distinct_rows(rows)[0])
            columns, terms = (tuple(of[k] for k in kept) for of in (columns, terms))
            rows, ridged = rows[:, kept], ridged[kept]
        distinct, position = distinct_rows(np.hstack([rows, self.cell[:, None]]))
        cell = position[self.index].astype(np.int64)
        made = DesignMatrix(
            self.parsed.text, columns, distinct[:, :-1], cell, ridged=ridged,
            interaction_scale=self.plain.interaction_scale, left_out=self.plain.left_out,
        )  # fmt: skip
        try:
            check_rank(made, terms)
        except InputError as problem:
            raise RefusedError(f"after pooling levels with few records {problem}") from None
        return made

    def _averaged(self) -> tuple[tuple[str, ...], tuple[str, ...], FloatArray, int]:
        """Return columns, their terms, rows (B, K) of X for the base rows, and how many are ridged.

        The ridged columns, of shrunken interactions, come last.
        """
        substitute, at = self.base.copy(), self.base.copy()
        origin, share = np.arange(len(at)), np.ones(len(at))
        codes_at: dict[str, IntArray] = {}
        for name, factor in self.factors.items():
            others = [factor.others(level, self.groups[name]) for level in range(factor.n.size)]
            chosen = np.array([each[int(np.argmax(factor.n[each]))] for each in others])
            substitute[name] = factor.column(chosen[factor.code])
            codes = factor.code[origin]
            copies = np.array([others[code].size for code in codes])
            code = np.concatenate([others[code] for code in codes])
            shares = [factor.n[each] / factor.n[each].sum() for each in others]
            weight = np.concatenate([shares[code] for code in codes])
            origin, share = np.repeat(origin, copies), np.repeat(share, copies) * weight
            codes_at = {known: np.repeat(old, copies) for known, old in codes_at.items()}
            codes_at[name] = code
            at = at.iloc[np.repeat(np.arange(len(at)), copies)].reset_index(drop=True)
            at[name] = factor.column(code)
        shrunken = shrunken_terms(self.parsed, self.factors)
        plain = without_terms(self.parsed, shrunken)
        columns, terms, rows = evaluate(plain, substitute, self.plain.n, at)
        pooled = np.any([each.pooled_rows for each in self.factors.values()], axis=0)[origin]
        count = np.where(pooled, 0, self.count[origin])
        rows, small_cells, small = without_small_cells(
            plain, terms, rows, codes_at, count, self.least
        )
        cells = [
            self._shrunken_cells(term, rows[:, np.isin(terms, mains)], count, origin)
            for term, mains in shrunken.items()
        ]
        self.own_cells = {each.term: CellSizes.of(each, count, origin) for each in cells}
        for each in cells:
            lost = ~each.kept & (each.records > 0)
            if lost.any() and each.kept.any():
                small_cells[each.term] = (int(lost.sum()), int(each.records[lost].sum()))
                small = small | (lost[each.of_row] & (count > 0))
        self.small_cells = small_cells
        own_columns, own_terms, own = interaction_columns(rows, cells, count)
        columns, terms, rows = columns + own_columns, terms + own_terms, np.hstack([rows, own])
        self.in_small_cell = np.bincount(origin, weights=small, minlength=len(self.base)) > 0
        first = np.flatnonzero(np.diff(origin, prepend=-1))
        # Average differences from one of the levels: what all have in common stays exact.
        made = rows[first].copy()
        np.add.at(made, origin, share[:, None] * (rows - rows[first][origin]))
        return columns, terms, made + 0.0, len(own_columns)

    def _shrunken_cells(
        self, term: str, mains: FloatArray, count: IntArray, origin: IntArray
    ) -> Cells:
        """Return the cells of a shrunken interaction, those kept that have enough records."""
        cells = Cells.of(term, mains, count)
        given_up = self.given_up.get(term, np.zeros(len(self.base), dtype=bool))[origin]
        lost = np.bincount(cells.of_row, weights=given_up & (count > 0)) > 0
        kept = (cells.records > 0) & (cells.records >= self.least_cell) & ~lost
        return replace(cells, kept=kept)

    def made(self) -> Pooling:
        """Return the parts that are pooled."""
        levels = {
            name: {str(factor.levels[k]): int(factor.n[k]) for k in np.flatnonzero(factor.small)}
            for name, factor in self.factors.items() if factor.small.any()
        }  # fmt: skip
        pooled = np.any([each.pooled_rows for each in self.factors.values()], axis=0)
        record = (self.in_small_cell | pooled)[self.index]
        return Pooling(
            self.least, levels, tuple(self.left_out), dict(self.small_cells), record
        )


class _Factor:
    """A column: ``code`` (B,) of base rows, ``n`` records and ``small`` if pooled (levels,)."""

    def __init__(self, column: "pd.Series[str]", count: IntArray) -> None:
        self.categorical = isinstance(column.dtype, pd.CategoricalDtype)
        code, levels = pd.factorize(column, sort=True)
        self.code: IntArray = np.asarray(code, dtype=np.int64)
        self.levels = np.asarray(levels)
        self.n = np.bincount(self.code, weights=count, minlength=self.levels.size).astype(np.int64)
        self.small: BoolArray = np.zeros(self.levels.size, dtype=bool)

    @property
    def pooled_rows(self) -> BoolArray:
        """Base rows (B,) with a pooled level."""
        return self.small[self.code]

    def others(self, level: int, group: IntArray) -> IntArray:
        """Return a level, or instead of a pooled one the others, of its group if that has any."""
        if not self.small[level]:
            return np.array([level])
        kept = np.flatnonzero(~self.small)
        near = kept[group[kept] == group[level]]
        return near if near.size else kept

    def column(self, code: IntArray) -> Any:
        """Return values of the column, with only the levels that are not pooled."""
        if not self.categorical:
            return self.levels[code]
        kept = np.flatnonzero(~self.small)
        position = np.zeros(self.levels.size, dtype=np.int64)
        position[kept] = np.arange(kept.size)
        return pd.Categorical.from_codes(position[code], categories=pd.Index(self.levels[kept]))


@dataclass(frozen=True)
class CellSizes:
    """For base rows (B,): records in an interaction's cell, and True if it has an indicator."""

    size: IntArray
    kept: BoolArray

    @classmethod
    def of(cls, cells: Cells, count: IntArray, origin: IntArray) -> "CellSizes":
        """Read them where a base row stands for itself; others have no cell of their own."""
        first = np.flatnonzero(np.diff(origin, prepend=-1))
        cell = cells.of_row[first]
        return cls(cells.records[cell], cells.kept[cell] & (count[first] > 0))


def without_small_cells(
    parsed: ParsedFormula,
    terms: Sequence[str],
    rows: FloatArray,
    code: Mapping[str, IntArray],
    count: IntArray,
    least: float,
) -> tuple[FloatArray, dict[str, tuple[int, int]], BoolArray]:
    """Return rows (R, K) of X whose small cells have nothing of their own, and those cells.

    The cells are their number and that of their records by interaction, and the rows (R,) that are
    in one. ``terms``: of the K columns; ``code``: (R,) of each factor; ``count``: (R,) records, 0
    for rows that do not count.
    """
    made, found, columns = rows.copy(), {}, np.asarray(terms)
    in_one = np.zeros(len(rows), dtype=bool)
    for each in interactions(parsed, code):
        small = each.cell_sizes(code, count, code) < least
        if not small.any():
            continue
        within = np.isin(columns, list(each.within))
        own = columns == each.term
        made[np.ix_(small, own)] = predicted(made[:, within], made[:, own], count, small)
        of_records = small & (count > 0)
        in_one |= of_records
        if of_records.any():
            cells = np.unique(np.stack([code[name][of_records] for name in each.names]), axis=1)
            found[each.text] = (cells.shape[1], int(count[of_records].sum()))
    return made + 0.0, found, in_one
