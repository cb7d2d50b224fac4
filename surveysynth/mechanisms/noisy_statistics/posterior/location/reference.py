"""What noisy sums and squares say of coefficients on x~: a slice turns about a normal near that.

Given covariances T~ and the prior make them normal, exactly. Q~ has T'G^+T in it, which says more
of means the less noise it has: to first order about the means of that normal, with xi held, the gap
between Q~ and its mean is linear in coefficients too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
        self.learned = [np.zeros((databases, width, width)), np.zeros((databases, width))]

    def sums(self, laws: Sequence[Law], point: Point) -> Normal:
        """Return the normal given T~ and the rest of the point, which is exact."""
        return Normal.of(*self._of_sums(laws, point))

    def normal(self, laws: Sequence[Law], point: Point, share: float = 0.0) -> Normal:
        """Return about what noisy sums and squares say, given the rest of the point and xi.

        share: what these squares count in what is learned of them."""
        precision, linear = self._of_sums(laws, point)
        squares = self._of_squares(laws, Normal.of(precision, linear).mean)
        if share:
            means = [each.reshape(-1, self.chains, *each.shape[1:]).mean(1) for each in squares]
            pairs = zip(self.learned, means, strict=True)
            self.learned = [known + share * (new - known) for known, new in pairs]
        return Normal.of(precision + squares[0], linear + squares[1])

    def roughly(self, laws: Sequence[Law], point: Point) -> Normal:
        """Return the normal with what is learned of squares, which takes half of the time.

        Squares of the point itself would make a better one, and no move needs it."""
        precision, linear = self._of_sums(laws, point)
        curved, pull = (np.repeat(each, self.chains, axis=0) for each in self.learned)
        return Normal.of(precision + curved, linear + pull)

    def _of_sums(self, laws: Sequence[Law], point: Point) -> tuple[FloatArray, FloatArray]:
        """Return the precision (B, C, C) and linear term (B, C) of T~ and the prior."""
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
        places = np.arange(index.size)
        own = precision.reshape(batch, size, size)[:, index[:, None], index]
        self._add_prior(own, point)
        # A trifle on the diagonal, which rounding may have left without a root.
        own[:, places, places] *= 1.0 + ROUNDING
        return own, linear.reshape(batch, size)[:, index]

    def _of_squares(
        self, laws: Sequence[Law], about: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return what Q~ adds to precision and linear term, to first order about means (B, C)."""
        parameters, data = self.parameters, self.data
        batch, count = about.shape
        coefficients = parameters.coefficients(about.T)
        precision, linear = np.zeros((batch, count, count)), np.zeros((batch, count))
        for p, law in enumerate(laws):
            there, target = parameters.present[p], law.target
            if not (target.used & target.told).any():
                continue
            near = law.with_means(data.middle(p, coefficients[..., there]))
            cross = near.cross_at(data.inner[p][0])
            slopes = self._slopes(near, cross, there)
            gap, spread = near.gap(cross), near.spread
            own = [(i, j) for i in range(there.size) for j in range(i, there.size)]
            weight = np.stack([
                target.used * target.told / (spread[i, j] * (1.0 + (i == j))) for i, j in own
            ])  # fmt: skip
            gaps = np.stack([gap[i, j] for i, j in own])
            places = np.zeros((batch, *slopes.shape[1:3], parameters.q, slopes.shape[-1]))
            places[:, :, :, there] = slopes
            rows = places.reshape(batch, -1, parameters.q * slopes.shape[-1])
            rows = rows[..., parameters.index]
            weights, left = (
                np.moveaxis(each, 0, -1).reshape(batch, -1) for each in (weight, gaps)
            )
            scaled = rows * weights[..., None]
            precision += scaled.swapaxes(-1, -2) @ rows
            left = left + (rows @ about[..., None])[..., 0]
            linear += (scaled.swapaxes(-1, -2) @ left[..., None])[..., 0]
        return precision, linear

    def _slopes(self, law: Law, cross: FloatArray, there: IntArray) -> FloatArray:
        """Return by how much coefficients lower gaps (B, G, pairs of columns, k, W), at a cross.

        T follows M with xi held as far as the records outweigh no noise."""
        geometry, target = law.geometry, law.target
        follows = np.where(geometry.lam[:, None] > 0, 1.0 - (law.cross_sd / target.sigma) ** 2, 0.0)
        links = first(back(geometry.vectors)) @ target.link
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
        turned = np.eye(parameters.q)[..., None] - point.core
        scaled = turned * np.exp(-2.0 * point.log_s)[:, None]
        precisions = np.einsum("jkb,jlb->bkl", turned, scaled)
        precisions = precisions / parameters.priors["interaction_scale"] ** 2
        for k, row in enumerate(parameters.ridged):
            for j, column in enumerate(parameters.ridged):
                precision[:, row, column] += precisions[:, k, j, None]

    def _told(
        self, there: IntArray, law: Law, single: "SingleCells | None"
    ) -> tuple[FloatArray, FloatArray]:
        """Return precisions (B, k, k, W, W) and linear terms (B, k, W) of a pattern's columns."""
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
        batch, width = self.data.batch, target.link.shape[-1]
        # Groups and their axes last, so that sums over them are products of matrices.
        curved = np.moveaxis(curved, (3, 0), (0, -1)).reshape(batch, k * k, -1)
        pull = np.moveaxis(pull, (2, 0), (0, -1)).reshape(batch, k, -1)
        if single is not None:
            moved, linear = single.summed(axes, curved, pull)
            return moved.reshape(batch, k, k, width, width), linear
        links = axes @ target.link
        rows = links.reshape(len(links), -1, width)
        if len(links) == 1:
            outer = (rows[0, :, :, None] * rows[0, :, None, :]).reshape(rows.shape[1], -1)
            moved = curved.reshape(batch * k * k, -1) @ outer
            return moved.reshape(batch, k, k, width, width), pull @ rows[0]
        own = rows[:, None]
        moved = (own.swapaxes(-1, -2) * curved[:, :, None]) @ own
        return moved.reshape(batch, k, k, width, width), pull @ rows


@dataclass(frozen=True, repr=False)
class SingleCells:
    """Rows of A where every group is one cell of X: x~ = a (t x, e) with one x a group.

    x (G, K), outer (G, K K): its squares, t (G, r, 1), e (G, r, E).
    """

    x: FloatArray
    outer: FloatArray
    t: FloatArray
    e: FloatArray

    @classmethod
    def of(cls, link: FloatArray, columns: int) -> "SingleCells | None":
        """Return those of a link (G, r, K + E); None where a group has several cells."""
        left, size, right = np.linalg.svd(link[..., :columns], full_matrices=False)
        if (size[:, 1:] > ROUNDING * size[:, :1]).any():
            return None
        x = right[:, 0]
        outer = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        return cls(x, outer, left[..., :1] * size[:, :1, None], link[..., columns:])

    def summed(
        self, axes: FloatArray, curved: FloatArray, pull: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return sums of x~ x~' (B, m, W, W) and x~ (B, k, W) over the axes of all groups.

        axes (B or 1, G, r, r); weights (B, m, G r) and (B, k, G r)."""
        (groups, r, _), (k, e) = self.t.shape, (self.x.shape[1], self.e.shape[-1])
        batch, m = curved.shape[:2]
        t, rows = axes @ self.t, axes @ self.e
        split = curved.reshape(batch, m, groups, r)
        by_t = split * t[:, None, ..., 0]
        result = np.empty((batch, m, k + e, k + e))
        flat = (by_t * t[:, None, ..., 0]).sum(-1).reshape(batch * m, groups)
        result[..., :k, :k] = (flat @ self.outer).reshape(batch, m, k, k)
        crossed = (by_t[..., None, :] @ rows[:, None])[..., 0, :]
        result[..., :k, k:] = self.x.T @ crossed
        result[..., k:, :k] = result[..., :k, k:].swapaxes(-1, -2)
        own = rows.reshape(len(rows), 1, groups * r, e)
        result[..., k:, k:] = (own.swapaxes(-1, -2) * curved[:, :, None]) @ own
        of_x = (pull.reshape(batch, -1, groups, r) * t[:, None, ..., 0]).sum(-1) @ self.x
        return result, np.concatenate([of_x, pull @ own[:, 0]], axis=-1)


def solved(root: FloatArray, values: FloatArray, *, transposed: bool = False) -> FloatArray:
    """Return root^-1 values, or root'^-1 values, of lower roots (B, C, C) and values (B, C).

    One by one: NumPy would not use that these are triangular. BLAS has matrices by column.
    """
    trans = 0 if transposed else 1
    pairs = zip(root.swapaxes(-1, -2), values, strict=True)
    return np.stack([dtrsv(own, right, lower=0, trans=trans) for own, right in pairs])
