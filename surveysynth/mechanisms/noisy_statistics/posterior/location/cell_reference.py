"""The law of coefficients where every cell has a mean of its own, shrunken to main effects.

Noisy moments speak of the mean of each cell alone: a precision D in blocks (q, q). With Pi (q, q)
that of interactions, whose columns are orthonormal, M an orthonormal basis of what main effects
span and Lambda their precision on it, the means of all cells have

    D + Pi (1 - MM') + M Lambda M'

The effects of one factor, as strata, stay within its levels: for all but few columns N of M they
are in blocks B of a level. In units of U^-1, Pi = U'U, with B = CC' and C^-1 N = QR, Q'Q = 1,

    B + N H N' = C (1 + Q (TT' - 1) Q') C',  TT' = 1 + R H R'

Effects of earlier categories, which all cells share, come last. Time grows with levels and the cube
of what one of them has, not with that of cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    LocationAugmentation,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moment_law import Law
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Parameters, Point
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import (
    MeanReference,
    Near,
    SingleCells,
    Told,
)
from surveysynth.models.general_location.coefficients import ROUNDING

#: Columns of interactions from which it pays to go by cell.
LEAST = 20
#: How exactly columns of interactions are orthonormal, and to main effects.
EXACT = 1e-8
#: Scales are known to it within this distance, in logarithms, of the declared ones.
FARTHEST = 12.0


@dataclass(frozen=True, repr=False)
class Cells:
    """What is public of G cells: X (G, K), its inverse, and how rows hang on means of cells.

    single: of each pattern; own (q, K): places of
    coefficients on x, and shared (f,): on e, with regression and column of e (2, f); place (G,):
    that of a cell in S levels of at most a cells; apart, along (S, a, a): of B, times Pi and times
    the precision of main effects; few (S a, r): N; spanned, scaled (r, r): of H, times -Pi and
    times the precision of main effects.
    """

    x: FloatArray
    inverse: FloatArray
    single: list[SingleCells]
    own: IntArray
    shared: IntArray
    of_shared: IntArray
    place: IntArray
    apart: FloatArray
    along: FloatArray
    few: FloatArray
    spanned: FloatArray
    scaled: FloatArray

    @classmethod
    def of(cls, data: LocationAugmentation, parameters: Parameters) -> "Cells | None":
        """Return those of a target; None where it has no such form, or would gain nothing."""
        layout, targets, shape = parameters.layout, data.target.targets, data.target.shape
        columns, ridged = layout.columns, np.array(layout.ridged, dtype=np.int64)
        free = np.setdiff1d(np.arange(columns), ridged)
        row, column = np.divmod(parameters.index, layout.width)
        every = np.count_nonzero(column < columns) == parameters.q * columns
        square = np.array_equal(np.sort(shape.group), np.arange(columns))
        if not every or not square or ridged.size < LEAST:
            return None
        first = np.unique(targets[0].row_group, return_index=True)[1]
        x = (targets[0].rows[first][:, None] @ targets[0].link)[:, 0, :columns]
        own, (main, turn) = x[:, ridged], np.linalg.qr(x[:, free])
        of_cell = (x / (x * x).sum(1, keepdims=True))[..., None]
        on_mean = [target.link[..., :columns] @ of_cell for target in targets]
        off = [own.T @ own - np.eye(ridged.size), main.T @ own]
        off += [each.link[..., :columns] - hang * x[:, None]
                for each, hang in zip(targets, on_mean, strict=True)]  # fmt: skip
        if max(np.abs(each).max() for each in off) > EXACT:
            return None
        inverse = np.empty_like(x)
        inverse[ridged], inverse[free] = own.T, np.linalg.solve(turn, main.T)
        precision = inverse[free].T @ inverse[free]
        single = [SingleCells(x, hang, each.link[..., columns:])
                  for each, hang in zip(targets, on_mean, strict=True)]  # fmt: skip
        shared = np.flatnonzero(column >= columns)
        of_shared = np.stack([row[shared], column[shared] - columns])
        places = np.flatnonzero(column < columns).reshape(-1, columns)
        # The factor of which the fewest columns are left; none, with a cell a level.
        levels = [np.arange(len(x)), *shape.levels]
        split = min((_split(main, precision, own) for own in levels), key=lambda each: each[3].size)
        return cls(x, inverse, single, places, shared, of_shared, *split)

    def across(self, means: FloatArray) -> FloatArray:
        """Return means (B, S, a q, c) by level of means (B, G, q, c)."""
        result = np.zeros((len(means), len(self.few), *means.shape[2:]))
        result[:, self.place] = means
        return result.reshape(len(means), len(self.apart), -1, means.shape[-1])

    def back(self, values: FloatArray, q: int) -> FloatArray:
        """Return means (B, G, q) of means by level."""
        return np.asarray(values.reshape(len(values), -1, q)[:, self.place])


def _split(main: FloatArray, precision: FloatArray, level: IntArray) -> tuple[
    IntArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray
]:  # fmt: skip
    """Return place, apart, along, few, spanned and scaled of ``Cells`` for the level of each cell.

    main (G, k): M; precision (G, G) of main effects on all cells."""
    codes = np.unique(level, return_inverse=True)[1]
    member = codes == np.arange(codes.max() + 1)[:, None]  # (S, G)
    most, size = member.sum(1).max(), member.sum(1)
    place = most * codes + (member.cumsum(1) - 1)[codes, np.arange(codes.size)]
    there = np.zeros((len(member), most))
    there.reshape(-1)[place] = 1.0
    mean = there[:, :, None] * there[:, None] / size[:, None, None]
    # A cell a level has no effect of the level: all of it is left.
    factor = most > 1
    own = member.T / np.sqrt(size) * factor
    rest, inside = precision - (own / size) @ own.T, main - own @ (own.T @ main)
    # Beside each other, so that none is mixed with what may be a million times as wide.
    basis = np.hstack([_span(inside), _span(own @ (own.T @ rest))])
    few = np.zeros((there.size, basis.shape[1]))
    few[place] = basis
    spanned = basis.T @ inside
    apart = np.eye(most) - mean * factor
    along = mean * factor / size[:, None, None]
    return place, apart, along, few, spanned @ spanned.T, basis.T @ rest @ basis


def _span(matrix: FloatArray) -> FloatArray:
    """Return an orthonormal basis (G, r) of the columns of a matrix."""
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(left[:, values > EXACT])


@dataclass(frozen=True, repr=False)
class CellNormal:
    """A normal of coefficients (B, C), regression after regression, about ``mean`` (B, C).

    unit (B, q, q): U; root and inverse (B, S, a q, a q): C and C^-1; few (B, S a q, r q): Q; top
    and its inverse (B, r q, r q): T; cross (B, S a q, f): white means of cells by what they share,
    whose root and inverse are last (B, f, f).
    """

    cells: Cells
    mean: FloatArray
    unit: FloatArray
    root: FloatArray
    inverse: FloatArray
    few: FloatArray
    top: FloatArray
    top_inverse: FloatArray
    cross: FloatArray
    last: FloatArray
    last_inverse: FloatArray

    @classmethod
    def of(cls, cells: Cells, told: Told, unit: FloatArray, scales: FloatArray) -> "CellNormal":
        """Return the normal of what is told of cells, as ``CellReference`` has it.

        unit (B, q, q): U; scales (B, q): precisions of main effects of regressions."""
        own, crossed, shared, pull, of_shared = told
        (batch, _, q), (levels, most, _) = pull.shape, cells.apart.shape
        less = np.linalg.inv(unit)
        up = less.swapaxes(1, 2)[:, None]
        of_main = (less.swapaxes(1, 2) @ (scales[..., None] * less))[:, None, :, None]
        eye = np.eye(q)[:, None]
        blocks = cells.along[:, :, None, :, None] * of_main[:, None]
        blocks += cells.apart[:, :, None, :, None] * eye
        level, cell = np.divmod(cells.place, most)
        blocks[:, level, cell, :, cell] += (up @ own @ less[:, None]).swapaxes(0, 1)
        root, inverse = _root(blocks.reshape(batch, levels, most * q, most * q))
        few = (cells.few[:, None, :, None] * eye).reshape(levels, most * q, -1)
        few, right = np.linalg.qr((inverse @ few).reshape(batch, levels * most * q, -1))
        middle = cells.scaled[:, None, :, None] * of_main - cells.spanned[:, None, :, None] * eye
        total = right @ middle.reshape(right.shape) @ right.swapaxes(1, 2)
        top, top_inverse = _root(total + (1.0 + ROUNDING) * np.eye(right.shape[-1]))
        white = inverse @ cells.across(up @ np.concatenate([crossed, pull[..., None]], axis=-1))
        white = _moved(few, white.reshape(batch, levels * most * q, -1), top_inverse)
        cross, white = white[..., :-1], white[..., -1:]
        prior = scales[:, cells.of_shared[0], None] * np.eye(cells.shared.size)
        last, last_inverse = _root(shared + prior - cross.swapaxes(1, 2) @ cross)
        normal = cls(
            cells, np.zeros((batch, cells.own.size + cells.shared.size)), unit, root, inverse, few,
            top, top_inverse, cross, last, last_inverse,
        )  # fmt: skip
        left = last_inverse @ (of_shared[..., None] - cross.swapaxes(1, 2) @ white)
        return replace(normal, mean=normal._coefficients(white[..., 0], left[..., 0]))

    def drawn(self, normals: FloatArray) -> FloatArray:
        """Return what standard normals (B, C) are, less the mean."""
        white = self.cells.across(normals[:, self.cells.own].swapaxes(1, 2)[..., None])
        return self._coefficients(white.reshape(len(white), -1), normals[:, self.cells.shared])

    def white(self, values: FloatArray) -> FloatArray:
        """Return the standard normals (B, C) of values (B, C)."""
        cells, off = self.cells, values - self.mean
        means = cells.x @ off[:, cells.own].swapaxes(1, 2) @ self.unit.swapaxes(1, 2)
        white = self.root.swapaxes(-1, -2) @ cells.across(means[..., None])
        white = _moved(self.few, white.reshape(len(off), -1, 1), self.top.swapaxes(1, 2))
        shared = off[:, cells.shared, None]
        result = np.empty_like(values)
        white = cells.back(white + self.cross @ shared, self.unit.shape[-1])
        result[:, cells.own] = white.swapaxes(1, 2)
        result[:, cells.shared] = (self.last.swapaxes(1, 2) @ shared)[..., 0]
        return result

    @property
    def log_room(self) -> FloatArray:
        """Log determinant (B,) of values by their standard normals, up to a constant."""
        unit, root, top, last = (
            np.log(np.einsum("...ii->...i", each)).sum(-1)
            for each in (self.unit, self.root, self.top, self.last)
        )
        return np.asarray(-len(self.cells.x) * unit - root.sum(1) - top - last)

    def _coefficients(self, white: FloatArray, of_shared: FloatArray) -> FloatArray:
        """Return coefficients (B, C) of standard normals by level (B, S a q), and others (B, f)."""
        cells, q, result = self.cells, self.unit.shape[-1], np.empty_like(self.mean)
        shared = self.last_inverse.swapaxes(1, 2) @ of_shared[..., None]
        left = white[..., None] - self.cross @ shared
        left = _moved(self.few, left, self.top_inverse.swapaxes(1, 2))
        left = left.reshape(*self.root.shape[:3], 1)
        means = cells.back(self.inverse.swapaxes(-1, -2) @ left, q)
        means = means @ np.linalg.inv(self.unit).swapaxes(1, 2)
        result[:, cells.own] = (cells.inverse @ means).swapaxes(1, 2)
        result[:, cells.shared] = shared[..., 0]
        return result


def _moved(few: FloatArray, values: FloatArray, by: FloatArray) -> FloatArray:
    """Return (1 + Q (N - 1) Q') y of y (B, S a q, c) and matrices N (B, r q, r q)."""
    inner = few.swapaxes(1, 2) @ values
    return values + few @ (by @ inner - inner)


def _root(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return lower roots of positive definite matrices (..., k, k), and their inverses.

    A trifle on the diagonal, which rounding may have left without a root."""
    trifle = ROUNDING * np.abs(np.einsum("...kk->...k", matrix))
    root = np.linalg.cholesky(matrix + trifle[..., None] * np.eye(matrix.shape[-1]))
    both = np.stack([root, np.linalg.inv(root)]).astype(np.float64)
    return both[0], both[1]


class CellReference(MeanReference):
    """``MeanReference`` by cell.

    What is told: precisions of means of cells (B, G, q, q), with f coefficients on earlier
    categories (B, G, q, f), and of these (B, f, f); linear terms (B, G, q) and (B, f)."""

    def __init__(self, data: LocationAugmentation, parameters: Parameters, cells: Cells) -> None:
        super().__init__(data, parameters)
        self.cells = cells
        self.learned = self._nothing(data.batch // self.chains)

    def _nothing(self, batch: int) -> Told:
        (groups, q), f = (len(self.cells.x), self.parameters.q), self.cells.shared.size
        shapes = (groups, q, q), (groups, q, f), (f, f), (groups, q), (f,)
        return [np.zeros((batch, *shape)) for shape in shapes]

    def _normal(self, told: Told, point: Point) -> Near:
        # Beyond, no move needs it: rounding would hide the one or the other.
        middle = np.log(self.target.spread)[:, None]
        log_s, log_tau = (
            np.clip(each, middle - FARTHEST, middle + FARTHEST)
            for each in (point.log_s, point.log_tau)
        )
        unit = self._root_of_interactions(replace(point, log_s=log_s))
        return CellNormal.of(self.cells, told, unit, np.exp(-2.0 * log_tau).T)

    def _of_sums(self, laws: Sequence[Law]) -> Told:
        (row, column), q = self.cells.of_shared, self.parameters.q
        own, _, _, pull, _ = self._nothing(self.data.batch)
        e = self.cells.single[0].e.shape[-1]
        crossed, shared = np.zeros((*own.shape, e)), np.zeros((len(own), q, q, e, e))
        of_shared = np.zeros((len(own), q, e))
        for p, law in enumerate(laws):
            there = self.parameters.present[p]
            parts = self.cells.single[p].apart(*self._by_axis(there, law))
            of_own, both, of_both, mean, linear = parts
            split, pairs = (len(own), there.size, there.size), (there[:, None], there)
            own[:, :, *pairs] += np.moveaxis(of_own.reshape(*split, -1), -1, 1)
            crossed[:, :, *pairs] += np.moveaxis(both.reshape(*split, *both.shape[2:]), 3, 1)
            shared[:, *pairs] += of_both.reshape(*split, e, e)
            pull[..., there] += mean.swapaxes(1, 2)
            of_shared[:, there] += linear
        return [
            own, crossed[:, :, :, row, column],
            shared[:, row[:, None], row, column[:, None], column], pull, of_shared[:, row, column],
        ]  # fmt: skip

    def _of_squares(self, laws: Sequence[Law], about: FloatArray) -> Told:
        cells, (row, column) = self.cells, self.cells.of_shared
        told = self._nothing(len(about))
        means = (cells.x @ about[:, cells.own].swapaxes(1, 2))[..., None]
        rest = about[:, None, cells.shared, None]
        links = [np.concatenate([each.t, each.e], axis=-1) for each in cells.single]
        for slopes, weight, gap in self._gaps(laws, about, links):
            own, shared = slopes[..., 0], slopes[..., 1:][:, :, :, row, column]
            left = gap[..., None] + own @ means + shared @ rest
            scaled, others = ((each * weight[..., None]).swapaxes(-1, -2) for each in (own, shared))
            more = scaled @ own, scaled @ shared, others @ shared, scaled @ left, others @ left
            told[0] += more[0]
            told[1] += more[1]
            told[2] += more[2].sum(1)
            told[3] += more[3][..., 0]
            told[4] += more[4].sum(1)[..., 0]
        return told


def mean_reference(data: LocationAugmentation, parameters: Parameters) -> MeanReference:
    """Return the reference by cell where it has one that pays."""
    cells = Cells.of(data, parameters)
    if cells is None:
        return MeanReference(data, parameters)
    return CellReference(data, parameters, cells)
