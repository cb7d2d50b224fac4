"""The noisy counts and moments of a release as the posterior reads them: all public.

Cells c of X are in groups g, which have one residual covariance each; rows (c, d) are cells with a
combination of categories, and a pattern p is a set of columns of z that are present. Moments are of
u = (z - center) / spread, and coefficients of z - center, so that their prior is about the center:
an intercept shares its scale tau with effects, and a log weight of about 10 would make tau 10.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import helmert

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape


@dataclass(frozen=True)
class NoisyPattern:
    """The moments of one pattern in all G groups."""

    present: IntArray  # columns of z (q_p,)
    combinations: IntArray  # those of the pattern (D_p,)
    rows: FloatArray  # A, (G, Cg, D_p, r): zero beyond the cells of a group and the axes of a block
    #: sums, squares: (G, r, q_p) and (G, q_p, q_p), with noise.
    sums: FloatArray
    squares: FloatArray
    #: (G, q_p): where the sums of a group are about, in spreads from the common center.
    centers: FloatArray

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """Rows and columns (k,) of the upper triangle of ``squares``."""
        return np.triu_indices(self.present.size)

    @property
    def upper(self) -> FloatArray:
        """The upper triangle of ``squares`` (G, k)."""
        return np.asarray(self.squares[:, self.pairs[0], self.pairs[1]])


@dataclass(frozen=True)
class NoisyTable:
    """Noisy statistics of one survey."""

    shape: LocationShape  # the public table
    x: FloatArray  # rows of X times the root of the prior of coefficients (C, K)
    sizes: IntArray  # records (C,) of each cell
    cells: IntArray  # cells (G, Cg) of each group, -1 beyond its own
    counts: FloatArray  # (C, D) with noise of variance ``count_variance``
    count_variance: float
    patterns: tuple[NoisyPattern, ...]  # those that have columns
    #: sum_variance, square_variance: Of the noise of sums, and of squares off the diagonal; on it
    #: the noise has twice the latter.
    sum_variance: float
    square_variance: float
    #: center, spread: (q,).
    center: FloatArray
    spread: FloatArray

    @classmethod
    def of(
        cls, shape: LocationShape, cell: IntArray, noisy: LocationStatistics, root: FloatArray
    ) -> "NoisyTable":
        """Return the table of a release; cell (n,) of the records, root (K, K) of the prior."""
        count = len(shape.x_cells)
        sizes = np.bincount(cell, minlength=count)
        members = [np.flatnonzero(shape.group == g) for g in range(shape.groups)]
        cells = np.full((shape.groups, max(map(len, members))), -1)
        for own, row in zip(members, cells, strict=True):
            row[: len(own)] = own
        return cls(
            shape=shape,
            x=np.asarray(shape.x_cells @ root),
            sizes=sizes,
            cells=cells,
            counts=noisy.counts.reshape(count, -1),
            count_variance=noisy.count_sd**2,
            patterns=tuple(
                _pattern(shape, p, noisy, sizes, cells)
                for p, there in enumerate(shape.patterns)
                if there.any()
            ),
            sum_variance=noisy.pooled_sigma**2,
            square_variance=noisy.squares_sd[1] ** 2,
            center=noisy.centre,
            spread=noisy.spread,
        )

    @cached_property
    def contrasts(self) -> FloatArray:
        """The effects of the levels of factors in each group, (L, G).

        Effects of one factor add up to zero, so orthonormal coordinates represent them.
        """
        parts = [np.zeros((0, self.shape.groups))]
        for own in self.shape.levels:
            indicators = (own == np.unique(own)[:, None]).astype(np.float64)
            parts.append(helmert(len(indicators)) @ indicators)
        return np.concatenate(parts)

    def square_noise(self, pattern: NoisyPattern) -> FloatArray:
        """Return the variances (k,) of the noise of a pattern's upper triangle."""
        first, second = pattern.pairs
        return np.where(first == second, 2.0, 1.0) * self.square_variance


def _pattern(
    shape: LocationShape,
    number: int,
    noisy: LocationStatistics,
    sizes: IntArray,
    cells: IntArray,
) -> NoisyPattern:
    """Return a pattern with its groups side by side, axes of A filled up with zeros."""
    present, combinations = np.flatnonzero(shape.patterns[number]), shape.pattern == number
    tilde = shape.tilde[:, combinations]
    blocks = np.flatnonzero(noisy.block_pattern == number).tolist()
    r, q = max(noisy.basis[b].shape[1] for b in blocks), present.size
    rows = np.zeros((*cells.shape, tilde.shape[1], r))
    sums, squares = np.zeros((shape.groups, r, q)), np.zeros((shape.groups, q, q))
    centers = np.zeros((shape.groups, q))
    for b in blocks:
        g, size = int(noisy.block_group[b]), noisy.basis[b].shape[1]
        own = cells[g][cells[g] >= 0]
        a = tilde[own] @ noisy.basis[b]
        rows[g, : own.size, :, :size] = a
        squares[g] = noisy.squares[b]
        sums[g, :size] = noisy.cross[b]
        if noisy.first is not None:
            # One noisy sum about the group's center, of both stages (strict 9).
            centers[g] = noisy.first.centres[b]
            moved = (a[:, 0].T @ sizes[own])[:, None] * centers[g]
            shares = (noisy.pooled_sigma / np.array([noisy.first.sigma, noisy.sigma])) ** 2
            first = noisy.first.cross[b] - moved
            sums[g, :size] = shares[0] * first + shares[1] * noisy.cross[b]
    return NoisyPattern(present, np.flatnonzero(combinations), rows, sums, squares, centers)


class PairProducts:
    """Covariances P(X)_ab,cd = X_ac X_bd + X_ad X_bc of products of q normal columns.

    For k pairs a <= b and c <= d: ``entries``, by default all of the upper triangle of squares.
    """

    def __init__(self, q: int, entries: tuple[IntArray, IntArray] | None = None) -> None:
        self.q = q
        self.first, self.second = np.triu_indices(q) if entries is None else entries
        self.diagonal = np.arange(len(self.first))
        #: Number of each pair (q, q), and its share in either of the two places that it has.
        self.number = np.zeros((q, q), dtype=np.int64)
        self.number[self.first, self.second] = self.number[self.second, self.first] = self.diagonal
        self.share = np.zeros((q, q))
        self.share[self.first, self.second] += 0.5
        self.share[self.second, self.first] += 0.5

    def of(self, x: FloatArray) -> FloatArray:
        """Return P(X) (..., k, k) of symmetric matrices (..., q, q)."""
        a, b = self.first, self.second
        result = x[..., a[:, None], a] * x[..., b[:, None], b]
        result += x[..., a[:, None], b] * x[..., b[:, None], a]
        return np.asarray(result)

    def spread(self, upper: FloatArray) -> FloatArray:
        """Return the symmetric gradient (..., q, q) of gradients (..., k) in the upper triangle."""
        return np.asarray(upper[..., self.number] * self.share)

    def gradient(self, pull: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the function from X to the gradient of sum(pull * P(X)) in X.

        pull (b, G, k, k) is symmetric; X (b, G, q, q) or (b, G, r, q, q).
        """
        q, number = self.q, self.number
        full = pull[..., number[:, :, None, None], number]
        full *= self.share[:, :, None, None] * self.share
        # As a matrix from (b, d) to (a, c): the gradient is sum_bd full[a, b, c, d] X_bd.
        matrix = np.ascontiguousarray(full.swapaxes(-3, -2)).reshape(*pull.shape[:2], q * q, q * q)

        def at(x: FloatArray) -> FloatArray:
            flat = x.reshape(*x.shape[:-2], q * q)
            if x.ndim == matrix.ndim:
                return np.asarray(4.0 * (matrix @ flat[..., None])[..., 0]).reshape(x.shape)
            return np.asarray(4.0 * flat @ matrix.swapaxes(-1, -2)).reshape(x.shape)

        return at
