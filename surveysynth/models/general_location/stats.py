"""Weighted sufficient statistics of the general location model.

A logit has weighted counts of its categories over distinct rows. A regression has, by group, sums
of squares and products about a common fit. Both mechanisms compute regressions from the moments of
blocks (``BlockMoments``) or, with records at hand, in a way that loses no digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.models.general_location.layout import Layout, LogitPart, RegressionPart
from surveysynth.models.general_location.records import GeneralRecords, LogitTable
from surveysynth.models.parts.gaussian import GaussianRecords
from surveysynth.models.parts.logit import LogitSums
from surveysynth.models.parts.pairs import sum_by

#: A fit leaves out directions with less than this share of the length of the scaled columns: it is
#: only the point about which squares are computed.
_NEGLIGIBLE = 1e-10


@dataclass(frozen=True, repr=False)
class RegressionSums(Unpickled):
    """Sums of one regression over its own records, of B databases by group g.

    Columns are u = (x, e(d), earlier z), C of them. total (B, g): sum of alpha; gram (B, g, C, C):
    U'AU; fit (B, C): approximate least-squares solution over all groups; cross (B, g, C): U'Ar and
    residual (B, g): r'Ar of r = z - U fit.
    """

    total: FloatArray
    gram: FloatArray
    fit: FloatArray
    cross: FloatArray
    residual: FloatArray

    def repeated(self, chains: int) -> "RegressionSums":
        """Repeat the sums for ``chains`` chains of each database."""
        parts = (self.total, self.gram, self.fit, self.cross, self.residual)
        return RegressionSums(*(np.repeat(part, chains, axis=0) for part in parts))

    @classmethod
    def stacked(cls, parts: Sequence["RegressionSums"]) -> "RegressionSums":
        """Join several databases; groups that some of them lack have no records there."""
        groups = max(part.total.shape[1] for part in parts)

        def joined(name: str) -> FloatArray:
            arrays = [getattr(part, name) for part in parts]
            if name == "fit":
                return np.concatenate(arrays)
            return np.concatenate([_filled_up(array, groups) for array in arrays])

        return cls(*(joined(name) for name in ("total", "gram", "fit", "cross", "residual")))

    def squares(self, core: FloatArray, slopes: FloatArray) -> FloatArray:
        """Return weighted sums of squares of residuals (B, g).

        core: coefficients (B, C); slopes (B, g, k): what each group adds to the last k of them. One
        database serves any number.
        """
        shift = self.shift(core, slopes)
        moved = (self.gram @ shift[..., None])[..., 0] - 2.0 * self.cross
        return np.asarray(np.maximum(self.residual + (shift * moved).sum(-1), 0.0))

    def shift(self, core: FloatArray, slopes: FloatArray) -> FloatArray:
        """Return the coefficients of each group (B, g, C) less the fit."""
        shift = np.repeat((core - self.fit)[:, None], self.total.shape[1], axis=1)
        shift[:, :, core.shape[1] - slopes.shape[-1] :] += slopes
        return shift


def _filled_up(array: FloatArray, groups: int) -> FloatArray:
    missing = groups - array.shape[1]
    return np.pad(array, [(0, 0), (0, missing), *[(0, 0)] * (array.ndim - 2)])


@dataclass(frozen=True, repr=False)
class GeneralStats(Unpickled):
    """Sums of B databases: ``logits`` and ``regressions`` in the order of the layout's parts."""

    layout: Layout
    logits: tuple[LogitSums, ...]
    regressions: tuple[RegressionSums, ...]

    @property
    def shape(self) -> tuple[Layout, int]:
        """Layout and number of groups, from which shapes of parameters follow."""
        return self.layout, self.groups

    @property
    def groups(self) -> int:
        """Number of groups of the regressions."""
        return self.regressions[0].total.shape[1] if self.regressions else 1

    @property
    def databases(self) -> int:
        """B."""
        first = self.regressions[0].total if self.regressions else self.logits[0].counts
        return int(first.shape[0])

    @classmethod
    def stacked(cls, parts: Sequence["GeneralStats"]) -> "GeneralStats":
        """Join several databases; raise ``ValueError`` unless they have the same layout."""
        layout = parts[0].layout
        if any(part.layout != layout for part in parts):
            raise ValueError("databases of one batch must have the same parts")
        return cls(
            layout,
            tuple(map(LogitSums.stacked, zip(*(part.logits for part in parts), strict=True))),
            tuple(
                map(RegressionSums.stacked, zip(*(part.regressions for part in parts), strict=True))
            ),
        )


@dataclass(frozen=True, repr=False)
class BlockMoments(Unpickled):
    """Moments of the blocks of B databases: groups with one pattern of present columns of z.

    group (b,) and present (b, q) identify the blocks; total (B, b): sum of alpha, gram (B, b, W,
    W): X~'AX~, cross (B, b, W, q): X~'AZ, scatter (B, b, q, q): Z'AZ, absent columns zero.
    """

    group: IntArray
    present: BoolArray
    total: FloatArray
    gram: FloatArray
    cross: FloatArray
    scatter: FloatArray

    def recentred(self, centre: FloatArray, ones: FloatArray) -> "BlockMoments":
        """Return the moments of Z from these of Z - centre (q,); X~ ones = 1, ones (W,)."""
        shift = np.where(self.present, centre, 0.0)
        x_sum = self.gram @ ones
        z_sum = np.einsum("w,nbwq->nbq", ones, self.cross)
        cross = self.cross + x_sum[..., :, None] * shift[:, None, :]
        mixed = z_sum[..., :, None] * shift[:, None, :]
        mass = self.total[..., None, None] * shift[:, :, None] * shift[:, None, :]
        scatter = self.scatter + mixed + mixed.swapaxes(-1, -2) + mass
        return BlockMoments(self.group, self.present, self.total, self.gram, cross, scatter)


def regression_from_moments(
    part: RegressionPart, moments: BlockMoments, groups: int
) -> RegressionSums:
    """Return sums of one regression over the blocks that have its column, and a fit from them."""
    x, earlier, own = part.columns, part.earlier, part.position
    member = (moments.group == np.arange(groups)[:, None]) & moments.present[:, own]
    pick = member.astype(np.float64)

    def by_group(values: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("gb,nb...->ng...", pick, values), dtype=np.float64)

    total, gram = by_group(moments.total), by_group(moments.gram)
    cross, scatter = by_group(moments.cross), by_group(moments.scatter)
    c, w = part.width, x.size
    full = np.empty((*total.shape, c, c))
    full[..., :w, :w] = gram[..., x[:, None], x]
    full[..., :w, w:] = cross[..., x[:, None], earlier]
    full[..., w:, :w] = full[..., :w, w:].swapaxes(-1, -2)
    full[..., w:, w:] = scatter[..., earlier[:, None], earlier]
    # Assembled moments may not quite form a Gram matrix, by rounding.
    size = np.einsum("...ii->...", full) / max(c, 1)
    full += 1e-12 * size[..., None, None] * np.eye(c)
    products = np.concatenate([cross[..., x, own], scatter[..., earlier, own]], axis=-1)
    fit = _solution(full.sum(1), products.sum(1))
    explained = (full @ fit[:, None, :, None])[..., 0]
    squares = scatter[..., own, own] - (fit[:, None] * (2.0 * products - explained)).sum(-1)
    return RegressionSums(total, full, fit, products - explained, np.maximum(squares, 0.0))


def _solution(gram: FloatArray, products: FloatArray) -> FloatArray:
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
    """Compute the statistics of one database, B = 1, in one pass over the records."""
    size = records.x_rows.shape[0]
    mass = sum_by(records.row, risk_weights, size)
    means = np.zeros((size, records.z.shape[1]))
    within = []
    for block in records.blocks:
        mean, scatter = _within(block.values, risk_weights[block.index])
        means[np.ix_(block.rows, block.columns)] = mean
        within.append(scatter)
    layout = records.layout
    logits = tuple(
        _logit(part, table, mass)
        for part, table in zip(layout.logits, records.tables, strict=True)
    )
    regressions = tuple(
        _regression(part, records, mass, means, within) for part in layout.regressions
    )
    return GeneralStats(layout, logits, regressions)


def _logit(part: LogitPart, table: LogitTable, mass: FloatArray) -> LogitSums:
    """Return counts of one logit from the weight (R,) of every row (x, d)."""
    counts = sum_by(table.place, mass, table.rows.shape[0] * part.categories)
    return LogitSums(table.rows[None], counts.reshape(1, -1, part.categories))


def _within(values: GaussianRecords, alpha: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return weighted means (R_b, q_b) by row, and the scatter (q_b, q_b) about them."""
    rows = values.x_cells.shape[0]
    mass = sum_by(values.cell, alpha, rows)
    safe = np.where(mass > 0, mass, 1.0)
    mean = values.centre.copy()
    for j in range(mean.shape[1]):
        deviation = alpha * (values.z[:, j] - values.centre[values.cell, j])
        mean[:, j] += sum_by(values.cell, deviation, rows) / safe
    deviation = values.z - mean[values.cell]
    return mean, (deviation * alpha[:, None]).T @ deviation


def _regression(
    part: RegressionPart,
    records: GeneralRecords,
    mass: FloatArray,
    means: FloatArray,
    within: Sequence[FloatArray],
) -> RegressionSums:
    """Return the sums of a regression from the means of rows and the scatter within them.

    Columns of X~ do not vary within a row.
    """
    w, own = part.columns.size, part.position
    weight = mass * records.present[:, own]
    u = np.concatenate([records.x_rows[:, part.columns], means[:, part.earlier]], axis=1)
    starts = np.searchsorted(records.row_group, np.arange(records.groups + 1))
    ranges = [slice(first, last) for first, last in pairwise(starts)]
    gram = np.stack([(u[rows] * weight[rows, None]).T @ u[rows] for rows in ranges])
    # The scatter of (earlier z, z) within rows, by group.
    inner = np.zeros((records.groups, own + 1, own + 1))
    for block, scatter in zip(records.blocks, within, strict=True):
        if own in block.columns:
            kept = block.columns <= own
            columns = block.columns[kept]
            inner[block.group][np.ix_(columns, columns)] += scatter[np.ix_(kept, kept)]
    # Only columns of the regression: not those of the other side of a split.
    taken = np.append(part.earlier, own)
    inner = inner[np.ix_(np.arange(records.groups), taken, taken)]
    gram[:, w:, w:] += inner[:, :-1, :-1]
    products = (u * weight[:, None]).T @ means[:, own]
    products[w:] += inner[:, :-1, -1].sum(0)
    fit = _solution(gram.sum(0), products)
    turned = np.append(-fit[w:], 1.0)
    rest = means[:, own] - u @ fit
    cross = np.stack([(u[rows] * weight[rows, None]).T @ rest[rows] for rows in ranges])
    cross[:, w:] += (inner @ turned)[:, :-1]
    squares = np.array([(weight[rows] * rest[rows] ** 2).sum() for rows in ranges])
    squares += np.einsum("i,gij,j->g", turned, inner, turned)
    total = np.array([weight[rows].sum() for rows in ranges])
    return RegressionSums(total[None], gram[None], fit[None], cross[None], squares[None])
