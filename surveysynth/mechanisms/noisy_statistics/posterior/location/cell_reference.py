"""The law of coefficients where every cell has a mean of its own, shrunken to main effects.

Noisy moments speak of the mean of each cell alone: a precision D in blocks (q, q). With Pi (q, q)
that of interactions, whose columns are orthonormal, M an orthonormal basis of what main effects
span and Lambda their precision on it, the means of all cells have

    D + Pi (1 - MM') + M Lambda M'

The effects of one factor, as strata, stay within its levels: for all but few columns N of M they
are in blocks B of a level. In units of U^-1, Pi = U'U, with B = CC' and C^-1 N = QR, Q'Q = 1,

    B + N H N' = C (1 + Q (TT' - 1) Q') C',  TT' = 1 + R H R'

Time grows with levels and the cube of what one of them has, not with that of cells.
"""

from collections.abc import Callable, Sequence
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
    solved,
)
from surveysynth.models.general_location.coefficients import ROUNDING

#: Columns of interactions for each of main effects beyond which it pays to go by cell.
WORTHWHILE = 1.0
#: How exactly columns of interactions are orthonormal, and to main effects.
EXACT = 1e-8
#: Scales are known to it within this distance, in logarithms, of the declared ones.
FARTHEST = 12.0


@dataclass(frozen=True, repr=False)
class Cells:
    """What is public of G cells: X (G, K), its inverse, and how rows hang on means of cells.

    links (G, r, 1) of each pattern; place (G,): that of a cell in S levels of at most a cells;
    apart, along (S, a, a): of B, times Pi and times the precision of main effects; few (S a, r): N;
    spanned, scaled (r, r): of H, times -Pi and times the precision of main effects.
    """

    x: FloatArray
    inverse: FloatArray
    links: list[FloatArray]
    place: IntArray
    apart: FloatArray
    along: FloatArray
    few: FloatArray
    spanned: FloatArray
    scaled: FloatArray

    @classmethod
    def of(cls, data: LocationAugmentation, parameters: Parameters) -> "Cells | None":
        """Return those of a target; None where it has no such form, or would gain nothing."""
        layout, targets = parameters.layout, data.target.targets
        ridged = np.array(layout.ridged, dtype=np.int64)
        free = np.setdiff1d(np.arange(layout.columns), ridged)
        every = np.array_equal(parameters.index, np.arange(parameters.q * layout.columns))
        groups = targets[0].row_group
        square = np.array_equal(np.sort(groups), np.arange(layout.columns))
        if not every or not square or ridged.size <= WORTHWHILE * free.size:
            return None
        x = (targets[0].rows[:, None] @ targets[0].link[groups])[np.argsort(groups), 0]
        own, (main, turn) = x[:, ridged], np.linalg.qr(x[:, free])
        links = [target.link @ (x / (x * x).sum(1, keepdims=True))[..., None] for target in targets]
        pairs = zip(targets, links, strict=True)
        off = [own.T @ own - np.eye(ridged.size), main.T @ own]
        off += [each.link - link * x[:, None] for each, link in pairs]
        if max(np.abs(each).max() for each in off) > EXACT:
            return None
        inverse = np.empty_like(x)
        inverse[ridged], inverse[free] = own.T, np.linalg.solve(turn, main.T)
        precision = inverse[free].T @ inverse[free]
        # The factor of which the fewest columns are left; none, with a cell a level.
        levels = [np.arange(len(x)), *data.target.shape.levels]
        split = min((_split(main, precision, own) for own in levels), key=lambda each: each[3].size)
        return cls(x, inverse, links, *split)

    def across(self, means: FloatArray) -> FloatArray:
        """Return means (B, S, a q) by level of means (B, G, q)."""
        result = np.zeros((len(means), len(self.few), means.shape[-1]))
        result[:, self.place] = means
        return result.reshape(len(means), len(self.apart), -1)

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
    (B, r q, r q): T.
    """

    cells: Cells
    mean: FloatArray
    unit: FloatArray
    root: FloatArray
    inverse: FloatArray
    few: FloatArray
    top: FloatArray

    @classmethod
    def of(
        cls,
        cells: Cells,
        told: FloatArray,
        pull: FloatArray,
        unit: FloatArray,
        scales: FloatArray,
    ) -> "CellNormal":
        """Return the normal of precisions D (B, G, q, q) and linear terms (B, G, q) of cells.

        unit (B, q, q): U; scales (B, q): precisions of main effects of regressions."""
        (batch, _, q), (levels, most, _) = pull.shape, cells.apart.shape
        less = np.linalg.inv(unit)
        of_main = (less.swapaxes(1, 2) @ (scales[..., None] * less))[:, None, :, None]
        eye = np.eye(q)[:, None]
        blocks = cells.along[:, :, None, :, None] * of_main[:, None]
        blocks += cells.apart[:, :, None, :, None] * eye
        level, cell = np.divmod(cells.place, most)
        in_units = less.swapaxes(1, 2)[:, None] @ told @ less[:, None]
        blocks[:, level, cell, :, cell] += in_units.swapaxes(0, 1)
        root = _root(blocks.reshape(batch, levels, most * q, most * q))
        inverse = np.asarray(np.linalg.inv(root), dtype=np.float64)
        few = (cells.few[:, None, :, None] * eye).reshape(levels, most * q, -1)
        few, right = np.linalg.qr((inverse @ few).reshape(batch, levels * most * q, -1))
        middle = cells.scaled[:, None, :, None] * of_main - cells.spanned[:, None, :, None] * eye
        total = right @ middle.reshape(right.shape) @ right.swapaxes(1, 2)
        top = _root(total + (1.0 + ROUNDING) * np.eye(right.shape[-1]))
        normal = cls(cells, np.zeros((batch, pull[0].size)), unit, root, inverse, few, top)
        white = normal._times(inverse, cells.across(pull @ less))

        def twice(inner: FloatArray) -> FloatArray:
            return solved(top, solved(top, inner), transposed=True)

        return replace(normal, mean=normal._coefficients(normal._moved(white, twice)))

    def drawn(self, normals: FloatArray) -> FloatArray:
        """Return what standard normals (B, C) are, less the mean."""
        white = self.cells.across(normals.reshape(len(normals), -1, self.unit.shape[-1]))
        return self._coefficients(
            self._moved(white, lambda inner: solved(self.top, inner, transposed=True))
        )

    def white(self, values: FloatArray) -> FloatArray:
        """Return the standard normals (B, C) of values (B, C)."""
        cells, q = self.cells, self.unit.shape[-1]
        off = cells.x @ (values - self.mean).reshape(len(values), q, -1).swapaxes(1, 2)
        off = cells.across(off @ self.unit.swapaxes(1, 2))
        white = self._times(self.root.swapaxes(-1, -2), off)
        white = self._moved(white, lambda inner: np.asarray((inner[:, None] @ self.top)[:, 0]))
        return cells.back(white, q).reshape(len(values), -1)

    @property
    def log_room(self) -> FloatArray:
        """Log determinant (B,) of values by their standard normals, up to a constant."""
        unit, root, top = (
            np.log(np.einsum("...ii->...i", each)).sum(-1)
            for each in (self.unit, self.root, self.top)
        )
        return np.asarray(-len(self.cells.x) * unit - root.sum(1) - top)

    def _times(self, matrix: FloatArray, values: FloatArray) -> FloatArray:
        """Return matrices (B, S, a q, a q) times values (B, S, a q)."""
        return np.asarray((matrix @ values[..., None])[..., 0])

    def _coefficients(self, white: FloatArray) -> FloatArray:
        """Return coefficients (B, C) of C' times means by level, in the units of Pi."""
        means = self._times(self.inverse.swapaxes(-1, -2), white)
        back = np.linalg.inv(self.unit).swapaxes(1, 2)
        means = self.cells.back(means, len(back[0])) @ back
        return (self.cells.inverse @ means).swapaxes(1, 2).reshape(len(means), -1)

    def _moved(
        self, white: FloatArray, turned: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """Return (1 + Q (N - 1) Q') y of y (B, S, a q); ``turned``: N on vectors (B, r q)."""
        inner = (white.reshape(len(white), 1, -1) @ self.few)[:, 0]
        moved = (turned(inner) - inner)[..., None]
        return white + (self.few @ moved).reshape(white.shape)


def _root(matrix: FloatArray) -> FloatArray:
    """Return lower roots of positive definite matrices (..., k, k).

    A trifle on the diagonal, which rounding may have left without a root."""
    trifle = ROUNDING * np.abs(np.einsum("...kk->...k", matrix))
    more = matrix + trifle[..., None] * np.eye(matrix.shape[-1])
    return np.asarray(np.linalg.cholesky(more), dtype=np.float64)


class CellReference(MeanReference):
    """``MeanReference`` by cell: precisions (B, G, q, q) and linear terms (B, G, q) of means."""

    def __init__(self, data: LocationAugmentation, parameters: Parameters, cells: Cells) -> None:
        super().__init__(data, parameters)
        self.cells = cells
        shape = data.batch // self.chains, len(cells.x), parameters.q
        self.learned = [np.zeros((*shape, parameters.q)), np.zeros(shape)]

    def _normal(self, precision: FloatArray, linear: FloatArray, point: Point) -> Near:
        # Beyond, no move needs it: rounding would hide the one or the other.
        middle = np.log(self.target.spread)[:, None]
        log_s, log_tau = (
            np.clip(each, middle - FARTHEST, middle + FARTHEST)
            for each in (point.log_s, point.log_tau)
        )
        unit = self._root_of_interactions(replace(point, log_s=log_s))
        return CellNormal.of(self.cells, precision, linear, unit, np.exp(-2.0 * log_tau).T)

    def _of_sums(self, laws: Sequence[Law]) -> tuple[FloatArray, FloatArray]:
        precision, linear = (np.zeros_like(each) for each in self._repeated())
        for p, law in enumerate(laws):
            there = self.parameters.present[p]
            axes, curved, pull = self._by_axis(there, law)
            along = (axes @ self.cells.links[p])[:, None, ..., 0]
            split = (len(curved), -1, *along.shape[-2:])
            moved = (curved.reshape(split) * along * along).sum(-1).swapaxes(1, 2)
            moved = moved.reshape(*moved.shape[:2], there.size, there.size)
            precision[:, :, there[:, None], there] += moved
            linear[..., there] += (pull.reshape(split) * along).sum(-1).swapaxes(1, 2)
        return precision, linear

    def _of_squares(
        self, laws: Sequence[Law], about: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        precision, linear = (np.zeros_like(each) for each in self._repeated())
        means = self.cells.x @ about.reshape(len(about), -1, len(self.cells.x)).swapaxes(1, 2)
        for slopes, weight, gap in self._gaps(laws, about, self.cells.links):
            rows = slopes[..., 0]
            scaled = (rows * weight[..., None]).swapaxes(-1, -2)
            precision += scaled @ rows
            left = gap + (rows @ means[..., None])[..., 0]
            linear += (scaled @ left[..., None])[..., 0]
        return precision, linear


def mean_reference(data: LocationAugmentation, parameters: Parameters) -> MeanReference:
    """Return the reference by cell where it has one that pays."""
    cells = Cells.of(data, parameters)
    if cells is None:
        return MeanReference(data, parameters)
    return CellReference(data, parameters, cells)
