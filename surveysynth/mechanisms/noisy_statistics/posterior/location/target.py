"""Noisy counts and moments by block as the augmentation reads them: public all of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.moment_law import (
    NO_SHARE,
    PatternTarget,
)
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape

#: Where numbers of records have noise a block is looked at if its noisy number passes what its
#: moments need by so many SDs of the noise: the unknown number then does so, but for a chance of
#: less than 1e-6.
CERTAIN_SDS = 5.0


@dataclass(frozen=True, repr=False)
class LocationTarget:
    """Noisy statistics of databases with one public table, ``chains`` chains each.

    patterns: numbers of those that have columns, and a target for each; counts (B, C, D) noisy;
    sizes (C,) public; ones (width,): x~ ones = 1.
    """

    shape: LocationShape
    chains: int
    patterns: tuple[int, ...]
    targets: tuple[PatternTarget, ...]
    counts: FloatArray
    count_sd: float
    sizes: IntArray
    ones: FloatArray
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def of(
        cls,
        shape: LocationShape,
        cell: IntArray,
        noisy: Sequence[LocationStatistics],
        chains: int,
    ) -> "LocationTarget":
        """Return the target of statistics with equal constants, one per database; cell (n,)."""
        first, cells = noisy[0], shape.x_cells.shape[0]
        counts = np.stack([each.counts for each in noisy]).reshape(len(noisy), cells, -1)
        ones = np.zeros(shape.width)
        solution = np.linalg.lstsq(shape.x_cells, np.ones(cells), rcond=None)[0]
        ones[: shape.x_cells.shape[1]] = solution
        if np.abs(shape.x_cells @ solution - 1.0).max() > 1e-8:
            raise ValueError("noisy statistics about a centre need an intercept in the span of X")
        sizes = np.bincount(cell, minlength=cells)
        patterns = tuple(p for p, there in enumerate(shape.patterns) if there.any())
        repeated = [each for each in noisy for _ in range(chains)]
        return cls(
            shape=shape,
            chains=chains,
            patterns=patterns,
            targets=tuple(_pattern_target(shape, p, repeated, sizes, ones) for p in patterns),
            counts=np.repeat(counts, chains, axis=0),
            count_sd=first.count_sd,
            sizes=sizes,
            ones=ones,
            centre=first.centre,
            spread=first.spread,
        )

    def about_centre(self) -> "LocationTarget":
        """Return the target of coefficients of z - centre, so that their prior is about the centre.

        An intercept shares its scale tau with effects. A log weight of about 10 would make tau 10,
        and let the noise of a rare level's sums multiply its weights by exp(10)."""
        return replace(self, centre=np.zeros_like(self.centre))

    def on_columns(self, root: FloatArray) -> "LocationTarget":
        """Return the target of coefficients e, those on X (K,) being ``root`` (K, K) times e.

        Logits keep theirs on X."""
        turned = np.eye(self.shape.width)
        turned[: len(root), : len(root)] = root
        targets = tuple(replace(each, link=each.link @ turned) for each in self.targets)
        return replace(self, targets=targets, ones=np.asarray(np.linalg.solve(turned, self.ones)))


def _pattern_target(
    shape: LocationShape,
    pattern: int,
    noisy: Sequence[LocationStatistics],
    sizes: IntArray,
    ones: FloatArray,
) -> PatternTarget:
    """Return a pattern's target, groups side by side, axes of A filled up with zeros."""
    first, there = noisy[0], np.flatnonzero(shape.patterns[pattern])
    cell, combination, x = shape.rows(pattern)
    row, group = cell * len(shape.combinations) + combination, shape.group[cell]
    blocks = [int(b) for b in np.flatnonzero(first.block_pattern == pattern)]
    r, q, width = max(first.basis[b].shape[1] for b in blocks), there.size, shape.width
    rows, link = np.zeros((row.size, r)), np.zeros((shape.groups, r, width))
    cross = np.zeros((len(noisy), shape.groups, r, q))
    squares = np.zeros((len(noisy), shape.groups, q, q))
    off = np.zeros((len(noisy), shape.groups, r, q))
    for b in blocks:
        g, size = int(first.block_group[b]), first.basis[b].shape[1]
        own = x[group == g] @ first.basis[b]
        rows[group == g, :size] = own
        link[g, :size] = np.linalg.lstsq(own, x[group == g], rcond=None)[0]
        if first.first is None:
            cross[:, g, :size] = [each.cross[b] for each in noisy]
        else:
            gram, along = (own.T * sizes[cell[group == g]]) @ own, link[g, :size] @ ones
            off[:, g, :size] = along[:, None] * _centres(noisy, b)[:, None]
            moved = gram @ off[:, g, :size]
            pairs = zip(noisy, moved, strict=True)
            cross[:, g, :size] = [_both_stages(each, b, change) for each, change in pairs]
        squares[:, g] = [each.squares[b] for each in noisy]
    used, told = _used(shape, pattern, noisy, sizes, rows)
    return PatternTarget(
        row=row,
        row_group=group,
        rows=rows,
        outer=_outer(rows, group, shape.groups),
        link=link,
        cross=cross,
        squares=squares,
        off=off,
        used=used,
        told=told,
        sigma=first.pooled_sigma,
        squares_sd=first.squares_sd[1],
    )


def _centres(noisy: Sequence[LocationStatistics], block: int) -> FloatArray:
    """Return the centres (B, q) of a block, in spreads from the common one."""
    return np.array([each.first.centres[block] for each in noisy if each.first is not None])


def _both_stages(noisy: LocationStatistics, block: int, moved: FloatArray) -> FloatArray:
    """Return sums (r, q) of a block about its centre, of both stages.

    moved (r, q): by how much sums about the common centre are larger."""
    assert noisy.first is not None
    shares = (noisy.pooled_sigma / np.array([noisy.first.sigma, noisy.sigma])) ** 2
    return np.asarray(
        shares[0] * (noisy.first.cross[block] - moved) + shares[1] * noisy.cross[block]
    )


def _outer(rows: FloatArray, group: IntArray, groups: int) -> sparse.csr_array:
    """Return products aa' (R, G r r) of rows, in the place of their group."""
    size, r = rows.shape
    products = (rows[:, :, None] * rows[:, None, :]).reshape(size, r * r)
    columns = (group * r * r)[:, None] + np.arange(r * r)
    index = np.repeat(np.arange(size), r * r)
    shape = (size, groups * r * r)
    return sparse.csr_array((products.ravel(), (index, columns.ravel())), shape=shape)


def _used(
    shape: LocationShape,
    pattern: int,
    noisy: Sequence[LocationStatistics],
    sizes: IntArray,
    rows: FloatArray,
) -> tuple[BoolArray, BoolArray]:
    """Return the blocks (B, G) of which T is looked at, and those of which Q is as well.

    Published numbers alone decide. Without categories numbers of records are public: T is looked
    at wherever there are records, and Q where these leave W a density."""
    cell, combination, _ = shape.rows(pattern)
    row, group = cell * len(shape.combinations) + combination, shape.group[cell]
    first, q = noisy[0], int(shape.patterns[pattern].sum())
    used = np.zeros((len(noisy), shape.groups), dtype=bool)
    told = used.copy()
    for b in np.flatnonzero(first.block_pattern == pattern):
        g = int(first.block_group[b])
        own = group == g
        if not shape.discrete:
            a, n = rows[own], sizes[cell[own]]
            lam = np.linalg.eigvalsh(a.T * n @ a)
            rank = np.count_nonzero(lam > NO_SHARE * lam.max(initial=1e-300))
            used[:, g], told[:, g] = n.sum() > 0, n.sum() - rank >= q
            continue
        needed = first.basis[b].shape[1] + q + 1 + CERTAIN_SDS * first.count_sd * own.sum() ** 0.5
        told[:, g] = used[:, g] = [each.counts[row[own]].sum() > needed for each in noisy]
    return used, told
