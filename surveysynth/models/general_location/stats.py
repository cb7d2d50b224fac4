"""Weighted sufficient statistics of the general location model.

A logit has weighted counts of its categories over distinct rows. The regressions share rows that
have the weighted moments of the records of each block (a group with one pattern of present columns
of z): the mean of each distinct row of x~, times the root of its weight, and a root of the scatter
within them. So sums of squares are sums over rows, and lose no digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.models.general_location.layout import Layout, LogitPart
from surveysynth.models.general_location.prior_rows import PriorRows, of_pseudo_records
from surveysynth.models.general_location.psu_sums import PsuSums, psu_sums
from surveysynth.models.general_location.records import Block, GeneralRecords, LogitTable
from surveysynth.models.parts.logit import LogitSums
from surveysynth.models.parts.pairs import sum_by

#: A fit leaves out directions with less than this share of the length of the scaled columns: it is
#: only the point that chains start about.
_NEGLIGIBLE = 1e-10


@dataclass(frozen=True, repr=False)
class GroupRows(Unpickled):
    """Rows with the weighted moments of the records, of B databases by group g.

    x (B, g, m, W) and z (B, g, m, q), absent columns zero: over the rows of a block X~'AX~ is x'x,
    X~'AZ is x'z and Z'AZ is z'z. present (B, g, m, q): the columns of z that the block of a row
    has; none for rows that only fill up a group. total (B, g, q): sum of alpha over the records
    that have a column.
    """

    x: FloatArray
    z: FloatArray
    present: BoolArray
    total: FloatArray

    def repeated(self, chains: int) -> "GroupRows":
        """Repeat the rows for ``chains`` chains of each database."""
        x, z, total = (np.repeat(part, chains, axis=0) for part in (self.x, self.z, self.total))
        return GroupRows(x, z, np.repeat(self.present, chains, axis=0), total)

    def with_prior(self, prior: PriorRows) -> "GroupRows":
        """Append rows of the prior, in groups after the others.

        They have no weight in ``total``, which stays that of the other groups.
        """
        size = len(prior.x)
        if not size:
            return self
        batch, _, most, _ = self.x.shape
        groups = -(-size // most)

        def appended(own: Any, more: Any) -> Any:
            filled = np.zeros((groups * most, more.shape[1]), dtype=own.dtype)
            filled[:size] = more
            shape = (batch, groups, most, more.shape[1])
            more = np.broadcast_to(filled.reshape(shape[1:]), shape)
            return np.concatenate([own, more], axis=1)

        return GroupRows(
            appended(self.x, prior.x),
            appended(self.z, prior.z),
            appended(self.present, prior.present),
            self.total,
        )

    @classmethod
    def stacked(cls, parts: Sequence["GroupRows"]) -> "GroupRows":
        """Join several databases; groups that some of them lack have no records there."""
        groups = max(part.x.shape[1] for part in parts)
        most = max(part.x.shape[2] for part in parts)
        shape = (len(parts), groups, most)
        q = parts[0].z.shape[-1]
        x, z = np.zeros((*shape, parts[0].x.shape[-1])), np.zeros((*shape, q))
        present, total = np.zeros((*shape, q), dtype=bool), np.zeros((len(parts), groups, q))
        for b, part in enumerate(parts):
            own, rows = part.x.shape[1:3]
            x[b, :own, :rows], z[b, :own, :rows] = part.x[0], part.z[0]
            present[b, :own, :rows], total[b, :own] = part.present[0], part.total[0]
        return cls(x, z, present, total)


@dataclass(frozen=True, repr=False)
class GeneralStats(Unpickled):
    """Sums of B databases: ``logits`` in the order of the layout's parts, ``rows`` of regressions.

    rows: None where the layout has no regressions. psus: sums by PSU of each database, empty where
    PSUs have no effects. pseudo: rows of the layout's pseudo-records.
    """

    layout: Layout
    logits: tuple[LogitSums, ...]
    rows: GroupRows | None
    psus: tuple[PsuSums, ...] = ()
    pseudo: PriorRows | None = None

    @property
    def shape(self) -> tuple[Layout, int]:
        """Layout and number of groups, from which shapes of parameters follow."""
        return self.layout, self.groups

    @property
    def groups(self) -> int:
        """Number of groups of the regressions."""
        return 1 if self.rows is None else self.rows.total.shape[1]

    @property
    def databases(self) -> int:
        """B."""
        first = self.logits[0].counts if self.rows is None else self.rows.total
        return int(first.shape[0])

    @classmethod
    def stacked(cls, parts: Sequence["GeneralStats"]) -> "GeneralStats":
        """Join several databases; raise ``ValueError`` unless they have the same layout."""
        layout = parts[0].layout
        if any(part.layout != layout for part in parts):
            raise ValueError("databases of one batch must have the same parts")
        rows = [part.rows for part in parts if part.rows is not None]
        return cls(
            layout,
            tuple(map(LogitSums.stacked, zip(*(part.logits for part in parts), strict=True))),
            GroupRows.stacked(rows) if rows else None,
            tuple(each for part in parts for each in part.psus),
            parts[0].pseudo,
        )


def solution(gram: FloatArray, products: FloatArray) -> FloatArray:
    """Solve gram b = products (..., C) approximately, zero along directions without length."""
    # Lengths without records may be slightly negative.
    length = np.sqrt(np.maximum(np.einsum("...ii->...i", gram), 0.0))
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    scaled = gram * inverse[..., :, None] * inverse[..., None, :]
    values, vectors = np.linalg.eigh(0.5 * (scaled + scaled.swapaxes(-1, -2)))
    kept = values > _NEGLIGIBLE * np.maximum(values[..., -1:], 0.0)
    rotated = (vectors.swapaxes(-1, -2) @ (inverse * products)[..., None])[..., 0]
    rotated = np.divide(rotated, values, out=np.zeros_like(rotated), where=kept)
    return np.asarray(inverse * (vectors @ rotated[..., None])[..., 0], dtype=np.float64)


def compress(records: GeneralRecords, risk_weights: FloatArray) -> GeneralStats:
    """Compute the statistics of one database, B = 1, in one pass over the records.

    Raises ``InputError`` for PSUs together with groups: only noisy sums tell of both.
    """
    layout = records.layout
    if records.psu is not None and layout.grouped:
        raise InputError(
            "By the pseudo-posterior the model has no effects of primary sampling units together "
            "with covariance_by. Leave it out, or declare survey.design_effect, a public factor by "
            "which clustering raises variances."
        )
    mass = sum_by(records.row, risk_weights, records.x_rows.shape[0])
    logits = tuple(
        _logit(part, table, mass)
        for part, table in zip(layout.logits, records.tables, strict=True)
    )
    rows = _rows(records, risk_weights) if layout.q else None
    psus = () if records.psus is None else (psu_sums(records, risk_weights),)
    pseudo = of_pseudo_records(layout, records.x_cells, records.cell) if layout.q else None
    return GeneralStats(layout, logits, rows, psus, pseudo)


def _logit(part: LogitPart, table: LogitTable, mass: FloatArray) -> LogitSums:
    """Return counts of one logit from the weight (R,) of every row (x, d)."""
    counts = sum_by(table.place, mass, table.rows.shape[0] * part.categories)
    return LogitSums(table.rows[None], counts.reshape(1, -1, part.categories))


def _rows(records: GeneralRecords, alpha: FloatArray) -> GroupRows:
    """Return the rows of one database."""
    layout, groups = records.layout, records.groups
    total = np.zeros((1, groups, layout.q))
    of_group: list[list[tuple[IntArray, FloatArray]]] = [[] for _ in range(groups)]
    for block in records.blocks:
        weight = alpha[block.index]
        total[0, block.group, block.columns] += weight.sum()
        of_group[block.group].append((block.columns, _of_block(block, weight)))
    most = max(sum(len(rows) for _, rows in blocks) for blocks in of_group)
    x, z = np.zeros((1, groups, most, layout.width)), np.zeros((1, groups, most, layout.q))
    present = np.zeros(z.shape, dtype=bool)
    for g, blocks in enumerate(of_group):
        first = 0
        for columns, rows in blocks:
            last = first + len(rows)
            x[0, g, first:last] = rows[:, : layout.width]
            z[0, g, first:last, columns] = rows[:, layout.width :].T
            present[0, g, first:last, columns] = True
            first = last
    return GroupRows(x, z, present, total)


def _of_block(block: Block, alpha: FloatArray) -> FloatArray:
    """Return rows (m, W + q_b) with the moments of (x~, z) of a block, as few as there can be."""
    values = block.values
    size = values.x_cells.shape[0]
    mass = sum_by(values.cell, alpha, size)
    safe = np.where(mass > 0, mass, 1.0)
    mean = values.centre.copy()
    for j in range(mean.shape[1]):
        deviation = alpha * (values.z[:, j] - values.centre[values.cell, j])
        mean[:, j] += sum_by(values.cell, deviation, size) / safe
    within = np.sqrt(alpha)[:, None] * (values.z - mean[values.cell])
    root = _root(within)
    rows = np.hstack([values.x_cells, mean]) * np.sqrt(mass)[:, None]
    rows = np.vstack([rows, np.hstack([np.zeros((len(root), values.x_cells.shape[1])), root])])
    return rows if len(rows) <= rows.shape[1] else _root(rows)


def _root(rows: FloatArray) -> FloatArray:
    """Return R, as few rows as there can be, with R'R = rows'rows."""
    return np.asarray(np.linalg.qr(rows, mode="r"), dtype=np.float64)
