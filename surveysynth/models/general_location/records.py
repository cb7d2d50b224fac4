"""Confidential records of the general location model, and their log-likelihoods (methods 4).

A row is a cell of X with one combination of categories. A block is a group of cells with one
pattern of present amounts: all its records have the same covariance, and the log-likelihood of a
record is quadratic in its z. The constant holds the logits, computed once for each distinct row.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray, IntArray, Theta
from surveysynth.models.general_location.layout import Layout, LogitPart
from surveysynth.models.general_location.psu_records import (
    BetweenDirections,
    PsuRecords,
    psu_table,
)
from surveysynth.models.parts import log_lik, logit, psu_effects
from surveysynth.models.parts.gaussian import GaussianRecords
from surveysynth.models.parts.log_lik import QuadraticForm
from surveysynth.models.parts.pairs import distinct


@dataclass(frozen=True, repr=False)
class LogitTable(Unpickled):
    """Distinct rows (T, P) for the logit of one outcome.

    place (R,): the position of each row (x, d) in the flat table (T, categories).
    """

    rows: FloatArray
    place: IntArray


@dataclass(frozen=True, repr=False)
class Block(Unpickled):
    """Records (n_b,) of a block, the columns of z that they have, and these values by row."""

    group: int
    columns: IntArray
    index: IntArray
    rows: IntArray
    values: GaussianRecords


@dataclass(frozen=True, repr=False)
class GeneralRecords(Unpickled):
    """Records by cell (n,) of X with rows x_cells (G, K).

    category (n, p); z (n, q), absent values zero; group_of_cell (G,) with codes below ``groups``.
    x_rows (R, W): the distinct x~; row (n,): the one of a record; row_category (R, p); row_group
    (R,) in rising order; present (R, q): the columns of z that a row has; tables: one for each
    logit. psu (n,): codes 0..C-1 where PSUs have effects, else None.
    """

    layout: Layout
    x_cells: FloatArray
    cell: IntArray
    category: IntArray
    z: FloatArray
    group_of_cell: IntArray
    groups: int
    psu: IntArray | None = None
    x_rows: FloatArray = field(init=False)
    row: IntArray = field(init=False)
    row_category: IntArray = field(init=False)
    row_group: IntArray = field(init=False)
    present: BoolArray = field(init=False)
    tables: tuple[LogitTable, ...] = field(init=False)
    blocks: tuple[Block, ...] = field(init=False)
    psus: PsuRecords | None = field(init=False)

    def __post_init__(self) -> None:
        layout = self.layout
        # The group first, so that the rows of a group are adjacent.
        codes = [self.group_of_cell[self.cell], self.cell, *self.category.T]
        first, row = distinct(codes)
        category = self.category[first]
        cell = self.cell[first]
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "x_rows", layout.tilde(self.x_cells[cell], category))
        set_field(self, "row", row)
        set_field(self, "row_category", category)
        set_field(self, "row_group", self.group_of_cell[cell])
        set_field(self, "present", layout.present(category))
        set_field(self, "tables", self._tables(cell))
        set_field(self, "blocks", self._blocks())
        set_field(self, "psus", self._psus())

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.cell.size)

    def _tables(self, cell: IntArray) -> tuple[LogitTable, ...]:
        tables, seen = [], [cell]
        for part in self.layout.logits:
            first, place = distinct(seen)
            own = self.row_category[:, part.outcome]
            rows = self.x_rows[first][:, part.columns]
            tables.append(LogitTable(rows, place * part.categories + own))
            seen.append(own)
        return tuple(tables)

    def _psus(self) -> PsuRecords | None:
        if self.psu is None:
            return None
        tables = []
        for part, table in zip(self.layout.logits, self.tables, strict=True):
            row, own = np.divmod(table.place[self.row], part.categories)
            tables.append(psu_table(table.rows, row, own, part.categories, self.psu))
        ridged = self.layout.ridged
        between = BetweenDirections.of(self.x_cells, self.cell, self.psu, ridged)
        return PsuRecords(int(self.psu.max()) + 1, tuple(tables), between)

    def _blocks(self) -> tuple[Block, ...]:
        first, block_of_row = distinct([self.row_group, *self.present.T.astype(np.int64)])
        block = block_of_row[self.row]
        order = np.argsort(block, kind="stable")
        starts = np.searchsorted(block[order], np.arange(first.size + 1))
        blocks = []
        for b, row in enumerate(first):
            index = order[starts[b] : starts[b + 1]]
            rows, local = np.unique(self.row[index], return_inverse=True)
            columns = np.flatnonzero(self.present[row])
            psu = None if self.psu is None else self.psu[index]
            values = GaussianRecords(self.x_rows[rows], local, self.z[index][:, columns], psu)
            blocks.append(Block(int(self.row_group[row]), columns, index, rows, values))
        return tuple(blocks)


@dataclass(frozen=True, repr=False)
class Chain:
    """The regressions of the present columns, of S draws: in one group, or in several.

    coefficients (S, q, W) on x~, zero for columns that a regression does not use; lower (S, q, q):
    slopes on earlier columns, strictly lower; variance (S, q). Several groups are an axis after S.
    """

    coefficients: FloatArray
    lower: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, theta: Theta, layout: Layout, group: int, present: IntArray) -> "Chain":
        """Select the columns ``present`` (q,) of z from draws (S, ...).

        Raises ``IndexError`` for a group that the draws do not have.
        """
        one = cls.of_groups(theta, layout, present, slice(group, group + 1))
        return cls(one.coefficients[:, 0], one.lower[:, 0], one.variance[:, 0])

    @classmethod
    def of_groups(
        cls, theta: Theta, layout: Layout, present: IntArray, groups: slice = slice(None)
    ) -> "Chain":
        """Select the columns ``present`` (q,) of z in some groups; their axis comes after S.

        All slopes act on residuals about the means: e = (I - L) (z - x~ C), so that L are the
        slopes on z itself, and (I - L) C its coefficients.
        """
        first = layout.regressions[int(present[0])] if present.size else None
        draws = next(iter(theta.values())).shape[0]
        lead = (draws, 1) if first is None else theta[f"variance_{first.name}"][:, groups].shape
        q = present.size
        coefficients, lower = np.zeros((draws, 1, q, layout.width)), np.zeros((draws, 1, q, q))
        slopes, variance = np.zeros((*lead, q, q)), np.empty((*lead, q))
        for i, position in enumerate(present):
            part = layout.regressions[int(position)]
            core = theta[f"coefficients_{part.name}"][:, None]
            coefficients[..., i, part.columns] = core[..., : part.columns.size]
            # Slopes on absent columns (the other side of a split has none) are skipped.
            earlier = np.searchsorted(part.earlier, present[:i])
            lower[..., i, :i] = core[..., part.columns.size + earlier]
            if f"slopes_{part.name}" in theta:
                slopes[..., i, :i] = theta[f"slopes_{part.name}"][:, groups][..., earlier]
            variance[..., i] = theta[f"variance_{part.name}"][:, groups]
        lower = lower + slopes
        return cls(coefficients - lower @ coefficients, lower, variance)

    def form(self, rows: FloatArray, centre: FloatArray) -> QuadraticForm:
        """Return log p(z | x~) about ``centre`` (r, q), or (S, r, q), for rows (r, W) of x~."""
        q = self.lower.shape[-1]
        # Residuals of a record: e = turned d + rest, d = z - centre.
        turned = np.eye(q) - self.lower
        fitted = rows @ self.coefficients.swapaxes(-1, -2)
        rest = centre @ turned.swapaxes(-1, -2) - fitted
        scaled = turned / self.variance[:, :, None]
        linear = -rest @ scaled
        norm = -0.5 * np.log(2.0 * np.pi * self.variance).sum(-1)
        squares = (rest * rest / self.variance[:, None, :]).sum(-1)
        precision = turned.swapaxes(-1, -2) @ scaled
        return QuadraticForm(norm[:, None] - 0.5 * squares, linear, precision)

    def normal(self) -> tuple[FloatArray, FloatArray]:
        """Return the normal law of z given x~: coefficients (S, W, q), covariance (S, q, q)."""
        return (self.inverse() @ self.coefficients).swapaxes(-1, -2), self.covariance()

    def covariance(self) -> FloatArray:
        """Return the covariance of z given x~ (S, q, q)."""
        root = self.inverse() * np.sqrt(self.variance)[..., None, :]
        return np.asarray(root @ root.swapaxes(-1, -2))

    def inverse(self) -> FloatArray:
        """Return by how much each regression's residual moves the columns (S, q, q)."""
        q = self.lower.shape[-1]
        result = np.zeros_like(self.lower)
        for i in range(q):  # forward substitution: the matrices are small and many
            result[..., i, i] = 1.0
            if i:
                result[..., i : i + 1, :i] = self.lower[..., i : i + 1, :i] @ result[..., :i, :i]
        return result


def logit_matrix(theta: Theta, part: LogitPart) -> FloatArray:
    """Return the coefficients (S, P, C - 1) of a logit."""
    return theta[f"logit_{part.name}"]


def discrete_log_mass(
    theta: Theta, layout: Layout, rows: FloatArray, effect: FloatArray | None = None
) -> FloatArray:
    """Return log p(d | x) (S, r) of rows (r, W) of x~, which hold x and d.

    effect (S, r, D): of the PSU of each row.
    """
    draws = next(iter(theta.values())).shape[0]
    result = np.zeros((draws, rows.shape[0]))
    for part, columns in zip(layout.logits, layout.logit_effects, strict=True):
        eta = rows[:, part.columns] @ logit_matrix(theta, part)
        if effect is not None:
            eta = eta + effect[..., columns]
        # The own category's predictor; the first category has none.
        result += np.einsum("src,rc->sr", eta, rows[:, part.own])
        result -= logit.log_total(eta)
    return result


def log_lik_blocks(
    theta: Theta, records: GeneralRecords
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Stream (rows (b,), log_lik (S, b)), unweighted; the array yielded is overwritten."""
    for block in records.blocks:
        for local, values in _of_block(theta, records.layout, block):
            yield block.index[local], values


def _of_block(
    theta: Theta, layout: Layout, block: Block
) -> Iterator[tuple[IntArray, FloatArray]]:
    chain = Chain.of(theta, layout, block.group, block.columns)

    def form(
        theta: Theta, rows: FloatArray, centre: FloatArray, psu: IntArray | None
    ) -> QuadraticForm:
        effect = psu_effects.effects_of(theta, psu)
        if effect is not None:
            # The regressions are those of z less the effects.
            centre = centre - effect[..., layout.amount_effects][..., block.columns]
        gaussian = chain.form(rows, centre)
        discrete = discrete_log_mass(theta, layout, rows, effect)
        return QuadraticForm(gaussian.constant + discrete, gaussian.linear, gaussian.precision)

    yield from log_lik.log_lik_blocks(form, theta, block.values)
