"""Confidential records of the general location model, by distinct row (x, d) and block.

A row is a cell of X with one combination of categories; a block is a group of cells with one
pattern of present amounts: all its records have the same covariance.
"""

from dataclasses import dataclass, field

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.parts.gaussian import GaussianRecords


@dataclass(frozen=True, repr=False)
class LogitTable(Unpickled):
    """Rows (T, P) that the logit of one outcome tells apart, and of each row (x, d) its place
    (R,) in the flat table (T, categories)."""

    rows: FloatArray
    place: IntArray


@dataclass(frozen=True, repr=False)
class Block(Unpickled):
    """Records (n_b,) of a block, the columns of z that they have, and those values by row."""

    group: int
    columns: IntArray
    index: IntArray
    rows: IntArray
    values: GaussianRecords


@dataclass(frozen=True, repr=False)
class GeneralRecords(Unpickled):
    """cell (n,) of X with rows x_cells (G, K); category (n, p); z (n, q), absent values zero;
    group_of_cell (G,) with codes below ``groups``.

    x_rows (R, W) are the distinct x~, row (n,) the one of a record, row_category (R, p), row_group
    (R,) in rising order, present (R, q) the columns of z that a row has; tables: one a logit.
    """

    layout: Layout
    x_cells: FloatArray
    cell: IntArray
    category: IntArray
    z: FloatArray
    group_of_cell: IntArray
    groups: int
    x_rows: FloatArray = field(init=False)
    row: IntArray = field(init=False)
    row_category: IntArray = field(init=False)
    row_group: IntArray = field(init=False)
    present: BoolArray = field(init=False)
    tables: tuple[LogitTable, ...] = field(init=False)
    blocks: tuple[Block, ...] = field(init=False)

    def __post_init__(self) -> None:
        layout = self.layout
        # The group first, so that the rows of a group stand together.
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
            values = GaussianRecords(self.x_rows[rows], local, self.z[index][:, columns])
            blocks.append(Block(int(self.row_group[row]), columns, index, rows, values))
        return tuple(blocks)


def distinct(codes: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Of n combinations of codes the first place of each distinct one, in their order, and the
    number (n,) of each; codes are not negative."""
    combined = codes[0]
    for code in codes[1:]:
        # Renumbering after each column keeps the product of their sizes within range.
        combined = combined * (int(code.max(initial=0)) + 1) + code
        combined = np.unique(combined, return_inverse=True)[1].reshape(-1)
    _, first, number = np.unique(combined, return_index=True, return_inverse=True)
    return first, number.reshape(-1)
