"""What noisy sums and squares say of coefficients on x~: a slice turns about a normal near that.

Given covariances T~ and the prior make them normal, exactly. Q~ has T'G^+T in it, which says more
of means the less noise it has: to first order about the means of that normal, with xi held, the gap
between Q~ and its mean is linear in coefficients too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from scipy.linalg.blas import dtrsv

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    LocationAugmentation,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moment_law import (
    Law,
    back,
    first,
    last,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Parameters, Point
from surveysynth.models.general_location.coefficients import ROUNDING

#: Precisions and linear terms (B, ...) of what is told of coefficients, in the blocks of a form.
Told: TypeAlias = list[FloatArray]


class Near(Protocol):
    """A normal of coefficients (B, C) with a root of its covariance."""

    @property
    def mean(self) -> FloatArray:
        """Mean (B, C)."""
        ...

    @property
    def log_room(self) -> FloatArray:
        """Log determinant (B,) of values by their standard normals, up to a constant."""
        ...

    def drawn(self, normals: FloatArray) -> FloatArray:
        """Return what standard normals (B, C) are, less the mean."""
        ...

    def white(self, values: FloatArray) -> FloatArray:
        """Return the standard normals (B, C) of values (B, C)."""
        ...


@dataclass(frozen=True, repr=False)
class Normal:
    """A normal: mean (B, C) and a root (B, C, C) of its precision."""

    mean: FloatArray
    root: FloatArray

    @classmethod
    def of(cls, precision: FloatArray, linear: FloatArray) -> "Normal":
        """Return the normal of a precision (B, C, C) and a linear term (B, C)."""
        root = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
        return cls(solved(root, solved(root, linear), transposed=True), root)

    def drawn(self, normals: FloatArray) -> FloatArray:
        """Return what standard normals (B, C) are, less the mean."""
        return solved(self.root, normals, transposed=True)

    def white(self, values: FloatArray) -> FloatArray:
        """Return the standard normals (B, C) of values (B, C)."""
        return np.asarray(((values - self.mean)[:, None] @ self.root)[:, 0])

    @property
    def log_room(self) -> FloatArray:
        """Log determinant (B,) of values by their standard normals."""
        return np.asarray(-np.log(np.einsum("bcc->bc", self.root)).sum(1))


class MeanReference:
    """The law of all coefficients on x~, regression after regression, given the noisy sums."""

    def __init__(self, data: LocationAugmentation, parameters: Parameters) -> None:
        self.data, self.target, self.parameters = data, data.target, parameters
        columns = parameters.layout.columns
        self.single = [SingleCells.of(each.link, columns) for each in data.target.targets]
        self.chains, width = data.target.chains, parameters.index.size
        databases = data.batch // self.chains
        #: What the warm-up has found that Q~ adds, of each database: a precision, a linear term.
        self.learned: Told = [np.zeros((databases, width, width)), np.zeros((databases, width))]

    def sums(self, laws: Sequence[Law], point: Point) -> Near:
        """Return the normal given T~ and the rest of the point, which is exact."""
        return self._normal(self._of_sums(laws), point)

    def normal(self, laws: Sequence[Law], point: Point, share: float = 0.0) -> Near:
        """Return about what noisy sums and squares say, given the rest of the point and xi.

        share: what these squares count in what is learned of them."""
        told = self._of_sums(laws)
        squares = self._of_squares(laws, self._normal(told, point).mean)
        if share:
            means = [
                each.reshape(len(each) // self.chains, self.chains, *each.shape[1:]).mean(1)
                for each in squares
            ]
            pairs = zip(self.learned, means, strict=True)
            self.learned = [known + share * (new - known) for known, new in pairs]
        return self._normal(_both(told, squares), point)

    def roughly(self, laws: Sequence[Law], point: Point) -> Near:
        """Return the normal with what is learned of squares, which takes half of the time.

        Squares of the point itself would make a better one, and no move needs it."""
        squares = [np.repeat(each, self.chains, axis=0) for each in self.learned]
        return self._normal(_both(self._of_sums(laws), squares), point)

    def _normal(self, told: Told, point: Point) -> Near:
        """Return the normal of what is told, and of the prior at a point."""
        precision, linear = told
        with_prior = precision + 0.0
        self._add_prior(with_prior, point)
        # A trifle on the diagonal, which rounding may have left without a root.
        places = np.arange(linear.shape[1])
        with_prior[:, places, places] *= 1.0 + ROUNDING
        return Normal.of(with_prior, linear)

    def _of_sums(self, laws: Sequence[Law]) -> Told:
        """Return the precision (B, C, C) and linear term (B, C) of T~."""
        parameters = self.parameters
        batch, width, q = self.data.batch, parameters.layout.width, parameters.q
        precision = np.zeros((batch, q, width, q, width))
        linear = np.zeros((batch, q, width))
        for p, law in enumerate(laws):
            there = parameters.present[p]
            curved, pull = self._told(there, law, self.single[p])
            precision[:, there[:, None], :, there] += np.moveaxis(curved, (1, 2), (0, 1))
            linear[:, there] += pull
        index, size = parameters.index, q * width
        own = precision.reshape(batch, size, size)[:, index[:, None], index]
        return [own, linear.reshape(batch, size)[:, index]]

    def _of_squares(self, laws: Sequence[Law], about: FloatArray) -> Told:
        """Return what Q~ adds to precision and linear term, to first order about means (B, C)."""
        parameters, (batch, count) = self.parameters, about.shape
        precision, linear = np.zeros((batch, count, count)), np.zeros((batch, count))
        links = [target.link for target in self.target.targets]
        for slopes, weight, gap in self._gaps(laws, about, links):
            rows = slopes.reshape(batch, -1, parameters.q * parameters.layout.width)
            rows = rows[..., parameters.index]
            weights, left = weight.reshape(batch, -1), gap.reshape(batch, -1)
            scaled = (rows * weights[..., None]).swapaxes(-1, -2)
            precision += scaled @ rows
            left = left + (rows @ about[..., None])[..., 0]
            linear += (scaled @ left[..., None])[..., 0]
        return [precision, linear]

    def _gaps(
        self, laws: Sequence[Law], about: FloatArray, links: Sequence[FloatArray]
    ) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Yield by how much what is linked lowers gaps of Q~ (B, G, pairs of columns, q, W).

        Then precisions of gaps and gaps (B, G, pairs), pattern by pattern; about (B, C): where.
        links (G, r, W): of the rows of patterns with what means hang on, as x~."""
        parameters, data = self.parameters, self.data
        coefficients = parameters.coefficients(about.T)
        for p, law in enumerate(laws):
            there, target = parameters.present[p], law.target
            if not (target.used & target.told).any():
                continue
            near = law.with_means(data.middle(p, coefficients[..., there]))
            cross = near.cross_at(data.inner[p][0])
            slopes = self._slopes(near, cross, there, links[p])
            gap, spread = near.gap(cross), near.spread
            own = [(i, j) for i in range(there.size) for j in range(i, there.size)]
            weight = np.stack([
                target.used * target.told / (spread[i, j] * (1.0 + (i == j))) for i, j in own
            ])  # fmt: skip
            gaps = np.stack([gap[i, j] for i, j in own])
            places = np.zeros((*slopes.shape[:3], parameters.q, slopes.shape[-1]))
            places[:, :, :, there] = slopes
            yield places, np.moveaxis(weight, 0, -1), np.moveaxis(gaps, 0, -1)

    def _slopes(
        self, law: Law, cross: FloatArray, there: IntArray, link: FloatArray
    ) -> FloatArray:
        """Return by how much what is linked lowers gaps (B, G, pairs of columns, k, W), at a cross.

        T follows M with xi held as far as the records outweigh no noise."""
        geometry, target = law.geometry, law.target
        follows = np.where(geometry.lam[:, None] > 0, 1.0 - (law.cross_sd / target.sigma) ** 2, 0.0)
        links = first(back(geometry.vectors)) @ link
        # Of entry (i, j) of T'G^+T, by what is in column i of T, in the axes of Sigma.
        moved = np.einsum("ri...,rj...->ijr...", follows, cross)
        by = first(moved) @ links[:, :, None]
        turn = first(law.turn) / self.target.spread[there][:, None]
        slopes = [
            turn[..., :, i, None] * by[..., i, j, None, :]
            + turn[..., :, j, None] * by[..., j, i, None, :]
            for i in range(there.size) for j in range(i, there.size)
        ]  # fmt: skip
        return np.stack(slopes, axis=2)

    def _add_prior(self, precision: FloatArray, point: Point) -> None:
        """Add the precision of the prior: of shrunken interactions across regressions."""
        parameters, c = self.parameters, np.arange(precision.shape[1])
        precision[:, c, c] += (np.exp(-2.0 * point.log_tau).T) @ parameters.free
        if not parameters.ridged.size:
            return
        root = self._root_of_interactions(point)
        precisions = root.swapaxes(1, 2) @ root
        for k, row in enumerate(parameters.ridged):
            for j, column in enumerate(parameters.ridged):
                precision[:, row, column] += precisions[:, k, j, None]

    def _root_of_interactions(self, point: Point) -> FloatArray:
        """Return R (B, q, q): R'R is the precision of a shrunken interaction in all regressions."""
        turned = np.eye(self.parameters.q)[..., None] - point.core
        size = np.exp(point.log_s) * self.parameters.priors["interaction_scale"]
        return np.moveaxis(turned / size[:, None], -1, 0)

    def _told(
        self, there: IntArray, law: Law, single: "SingleCells | None"
    ) -> tuple[FloatArray, FloatArray]:
        """Return precisions (B, k, k, W, W) and linear terms (B, k, W) of a pattern's columns."""
        axes, curved, pull = self._by_axis(there, law)
        batch, k, width = self.data.batch, there.size, law.target.link.shape[-1]
        if single is not None:
            moved, linear = single.summed(axes, curved, pull)
            return moved.reshape(batch, k, k, width, width), linear
        links = axes @ law.target.link
        rows = links.reshape(len(links), -1, width)
        own = rows[:, None]
        moved = (own.swapaxes(-1, -2) * curved[:, :, None]) @ own
        return moved.reshape(batch, k, k, width, width), pull @ rows

    def _by_axis(self, there: IntArray, law: Law) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return axes (B or 1, G, r, r) of a pattern's rows, and what is told along them.

        Of the mean of its columns: precisions (B, k k, G r) and linear terms (B, k, G r)."""
        geometry, target, k = law.geometry, law.target, there.size
        centre, spread = self.target.centre[there], self.target.spread[there]
        lam = geometry.lam[:, None]
        weight = target.used / (lam * law.size + target.sigma**2)
        # T~ about the centre, in units of z: what coefficients themselves add to the mean.
        axes = first(back(geometry.vectors))
        ones = np.moveaxis((axes @ (target.link @ self.target.ones)[..., None])[..., 0], -1, 0)
        about = geometry.cross + lam * ones[:, None] * (centre / spread)[:, None, None]
        about = about + lam * last(axes @ target.off)
        into = law.turn / spread[:, None, None, None]
        curved = np.einsum("ij...,kj...,rj...->rik...", into, into, weight * lam * lam)
        turned = np.einsum("ri...,ij...->rj...", about, law.turn)
        pull = np.einsum("ij...,rj...->ri...", into, weight * lam * turned)
        batch = self.data.batch
        # Groups and their axes last, so that sums over them are products of matrices.
        curved = np.moveaxis(curved, (3, 0), (0, -1)).reshape(batch, k * k, -1)
        pull = np.moveaxis(pull, (2, 0), (0, -1)).reshape(batch, k, -1)
        return axes, curved, pull


@dataclass(frozen=True, repr=False)
class SingleCells:
    """Rows of A where every group is one cell of X: x~ = a (t x, e) with one x a group.

    x (G, K), t (G, r, 1), e (G, r, E).
    """

    x: FloatArray
    t: FloatArray
    e: FloatArray

    @classmethod
    def of(cls, link: FloatArray, columns: int) -> "SingleCells | None":
        """Return those of a link (G, r, K + E); None where a group has several cells."""
        left, size, right = np.linalg.svd(link[..., :columns], full_matrices=False)
        if (size[:, 1:] > ROUNDING * size[:, :1]).any():
            return None
        x = right[:, 0]
        return cls(x, left[..., :1] * size[:, :1, None], link[..., columns:])

    def summed(
        self, axes: FloatArray, curved: FloatArray, pull: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return sums of x~ x~' (B, m, W, W) and x~ (B, k, W) over the axes of all groups.

        axes (B or 1, G, r, r); weights (B, m, G r) and (B, k, G r)."""
        own, crossed, shared, mean, of_shared = self.apart(axes, curved, pull)
        # Products of many small matrices: of one large one, BLAS would wake up all processors.
        of_x, linear = (self.x.T * own[:, :, None]) @ self.x, mean @ self.x
        k, e = self.x.shape[1], self.e.shape[-1]
        if not e:
            return of_x, linear
        result = np.empty((*curved.shape[:2], k + e, k + e))
        result[..., :k, :k], result[..., k:, k:] = of_x, shared
        result[..., :k, k:] = self.x.T @ crossed
        result[..., k:, :k] = result[..., :k, k:].swapaxes(-1, -2)
        return result, np.concatenate([linear, of_shared], axis=-1)

    def apart(
        self, axes: FloatArray, curved: FloatArray, pull: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return sums of t t' (B, m, G) and t e' (B, m, G, E) by group, of e e' (B, m, E, E).

        Then of t (B, k, G) by group, and of e (B, k, E). Axes and weights as of ``summed``."""
        (groups, r, e), batch = self.e.shape, len(curved)
        t, rows = (axes @ self.t)[:, None, ..., 0], axes @ self.e
        by_t = curved.reshape(batch, -1, groups, r) * t
        flat = rows.reshape(len(rows), 1, groups * r, e)
        linear = (pull.reshape(batch, -1, groups, r) * t).sum(-1)
        if not e:  # sums of nothing take their time too
            none = np.zeros((batch, curved.shape[1], groups, 0))
            return (by_t * t).sum(-1), none, none[:, :, :0], linear, pull[..., :0]
        crossed = (by_t[..., None, :] @ rows[:, None])[..., 0, :]
        shared = (flat.swapaxes(-1, -2) * curved[:, :, None]) @ flat
        return (by_t * t).sum(-1), crossed, shared, linear, pull @ flat[:, 0]


def _both(one: Told, other: Told) -> Told:
    return [left + right for left, right in zip(one, other, strict=True)]


def solved(root: FloatArray, values: FloatArray, *, transposed: bool = False) -> FloatArray:
    """Return root^-1 values, or root'^-1 values, of lower roots (B, C, C) and values (B, C).

    One by one: NumPy would not use that these are triangular. BLAS has matrices by column.
    """
    trans = 0 if transposed else 1
    pairs = zip(root.swapaxes(-1, -2), values, strict=True)
    return np.stack([dtrsv(own, right, lower=0, trans=trans) for own, right in pairs])
