"""What the noisy sums Q~ say of log variances and slopes: the shape of proposals.

A normal about one step of scoring from where the warm-up has found them. Proposals need not be
right: where they are not, steps are shorter or refused more often.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    LocationAugmentation,
    in_digits,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moment_law import (
    Geometry,
    Law,
    first,
    last,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import (
    Parameters,
    Point,
    inverse_of,
)
from surveysynth.models.general_location.coefficients import ROUNDING

#: Weight of the latest round in what the warm-up learns.
FORGETTING = 0.05
#: Least precision of the proposal of a log variance: priors of a scale alone leave about that.
LEAST_PRECISION = 0.05
#: Of the parameters of a point: the axis of chains.
AXES = {
    "means": 1, "core": 2, "slopes": 2, "log_variance": 1, "log_s": 1, "log_nu": 1, "log_t": 1,
    "log_tau": 1, "level": 2,
}  # fmt: skip


class Learned:
    """What the warm-up knows of log variances and slopes: of groups, and what they have in common.

    information (D, G, p, p) of Q~, pull (D, G, p): its product with the best guess; wide and
    wide_pull: the same with less of log variances. Of the c = (1 + L) p values that groups have in
    common, log s_0^2 and core slopes, then those of level after level: told (D, c, c), precision by
    all groups and the prior, and middle (D, c): where that is; roots of it in blocks of both kinds.
    """

    def __init__(self, data: LocationAugmentation, parameters: Parameters) -> None:
        self.data, self.parameters = data, parameters
        self.q, self.size = parameters.q, parameters.q + parameters.row.size
        chains = data.target.chains
        self.mean: dict[str, FloatArray] = {}
        #: Prior precisions (c,) of what groups have in common.
        self.prior = np.concatenate([
            np.full(self.q, LEAST_PRECISION), parameters.core_precision,
            np.tile(parameters.level_precision, len(parameters.levels)),
        ])  # fmt: skip
        cuts = self.size * np.cumsum([0, 1, *parameters.contrasts])
        self.blocks = [slice(*ends) for ends in pairwise(cuts.tolist())]
        self.targets = [
            replace(
                each, cross=each.cross[::chains], squares=each.squares[::chains],
                off=each.off[::chains], used=each.used[::chains], told=each.told[::chains],
            )
            for each in data.target.targets
        ]  # fmt: skip

    def take(self, point: Point, rounds: int) -> None:
        """Take the information of the noise at the mean of the chains, of all rounds so far."""
        share = share_of_latest(rounds)
        current = self._mean(_sizes(point))
        for name, value in current.items():
            before = self.mean.get(name, value)
            self.mean[name] = before + share * (value - before)
        here = Point(**self.mean)
        here = replace(
            here, log_variance=2.0 * np.log(here.log_variance), log_s=np.log(here.log_s)
        )
        now = first(self.parameters.of_groups(here))[..., None]
        self.information, score = self._told(here)
        self.pull = score + (self.information @ now)[..., 0]
        self.wide = self._widened(self.information)
        self.wide_pull = (self.wide @ now)[..., 0] + score * self._narrower(self.information) ** 2
        shares = self.parameters.shares
        told = np.einsum("lg,mg,bgpr->blpmr", shares, shares, self.information, optimize=True)
        told = told.reshape(-1, self.prior.size, self.prior.size) + np.diag(self.prior)
        self.middle = self.common(here).T
        self.know(told)

    def know(self, told: FloatArray) -> None:
        """Take the precision (D, c, c) of what groups have in common."""
        self.told = told
        self.roots = [np.linalg.cholesky(told[:, block, block]) for block in self.blocks]
        self.inverses = [np.linalg.inv(root) for root in self.roots]

    def _mean(self, point: Point) -> dict[str, FloatArray]:
        """Return means of a point's arrays over the chains of each database, in place of chains."""
        result = {}
        for name, axis in AXES.items():
            values = np.moveaxis(getattr(point, name), axis, 0)
            chains = self.data.target.chains
            split = values.reshape(len(values) // chains, chains, *values.shape[1:])
            result[name] = np.moveaxis(split.mean(1), 0, axis)
        return result

    def _narrower(self, information: FloatArray) -> FloatArray:
        """Return what to multiply roots of precisions (..., p) of log variances with.

        Under noise a variance may be next to zero: its logarithm has a long tail to the left, in
        which a slice about a narrower normal would stay."""
        sd = np.maximum(np.einsum("...pp->...p", information), 1e-12) ** -0.5
        return np.where(np.arange(self.size) < self.q, 1.0 / (1.0 + 2.0 * sd), 1.0)

    def _widened(self, information: FloatArray) -> FloatArray:
        shares = self._narrower(information)
        return shares[..., :, None] * information * shares[..., None, :]

    def common(self, point: Point) -> FloatArray:
        """Return what groups have in common (c, B)."""
        levels = point.level.swapaxes(0, 1).reshape(-1, point.level.shape[-1])
        return np.concatenate([self.parameters.common(point), levels])

    def of_groups(self, point: Point) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean (p, B, G) and a root (p, p, B, G) of covariance of groups; its inverse.

        Of the information of the noisy sums, and the prior at scales that are held."""
        prior, middle = self._prior(point)
        total = last(_with_prior(self._repeated(self.wide), prior))
        pull = last(self._repeated(self.wide_pull)) + prior[..., None] * middle
        root, inverse = _roots(total)
        back = inverse.swapaxes(0, 1)
        white = np.einsum("ab...,b...->a...", inverse, pull)
        return np.einsum("ab...,b...->a...", back, white), back, root

    def of_core(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """Return mean (B, c) of core slopes b, then v, and a root (B, c, c) of their precision.

        Given t, with log variances and slopes of groups integrated out."""
        q, parameters, (prior, middle) = self.q, self.parameters, self._prior(point)
        wide, pull = self._repeated(self.wide), self._repeated(self.wide_pull)
        own = _with_prior(wide[..., :q, :q], prior[:q])
        pulled = pull[..., :q] + first(prior[:q, :, None] * middle[:q])
        both = np.concatenate([wide[..., :q, q:], pulled[..., None]], axis=-1)
        taken = wide[..., q:, :q] @ np.linalg.solve(own, both)
        told = wide[..., q:, q:] - taken[..., :-1]
        linear = pull[..., q:] - taken[..., -1]
        # Of (told^-1 + t^2)^-1: neither a small t nor little information makes them inexact.
        unit = np.eye(self.size - q)
        both = np.concatenate([told, linear[..., None]], axis=-1)
        solved = np.linalg.solve(unit + told / prior[q:].T[:, None, None, :], both)
        precision = 0.5 * (solved[..., :-1] + solved[..., :-1].swapaxes(2, 3))
        # What a difference of large numbers has left may lie below zero by its rounding.
        least = ROUNDING * np.einsum("bgkk->bgk", wide[..., q:, q:])
        precision = precision + least[..., None] * unit
        shares, fixed = parameters.shares, parameters.prior_of_slopes()
        joint = (shares * np.moveaxis(precision, 1, -1)[:, :, :, None]) @ shares.T
        joint = joint.transpose(0, 3, 1, 4, 2).reshape(-1, fixed.size, fixed.size)
        root = np.linalg.cholesky(joint + np.diag(fixed))
        linear = np.einsum("lg,bgi->bli", shares, solved[..., -1]).reshape(-1, fixed.size, 1)
        return np.linalg.solve(root @ root.swapaxes(1, 2), linear)[..., 0], root

    def _prior(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """Return precision (p, B) and mean (p, B, G) of values of groups, scales held."""
        parameters, q = self.parameters, self.q
        half, middle = 0.5 * np.exp(point.log_nu), parameters.about(point)
        middle[:q] += 1.0 / (half + 0.5)[..., None]
        of_slopes = np.exp(-2.0 * point.log_t)[parameters.row]
        return np.concatenate([half / (1.0 + 1.0 / half) + LEAST_PRECISION, of_slopes]), middle

    def sd(self, number: int) -> FloatArray:
        """Return about the SD (B,) of log s_0^2 of a column."""
        return self._repeated(np.sqrt((self.inverses[0][:, :, number] ** 2).sum(1)))

    def reference(
        self, point: Point, number: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a normal of a block of what groups have in common, given the other blocks.

        Mean (k, B), the root (D, k, k) that makes it white, and that back, for ``times``. Given how
        groups deviate, with s_0 in place of log s_0^2, by a tangent."""
        block, now = self.blocks[number], self.common(point)
        information, pull = map(self._repeated, (self.information, self.pull))
        off = first(self.parameters.of_groups(point) - self.parameters.about(point))
        pull = pull - (information @ off[..., None])[..., 0]
        pull = np.einsum("lg,bgp->lpb", self.parameters.shares, pull).reshape(now.shape)[block]
        pull = pull - self.times(self.told[:, block], now)
        pull = pull + self.times(self.told[:, block, block], now[block])
        root, back = self.roots[number], self.inverses[number].swapaxes(1, 2)
        mean = self.times(back, self.times(self.inverses[number], pull))
        scale, middle = self.is_scale(number), self.middle[:, block]
        size = np.where(scale, 0.5 * np.exp(0.5 * middle), 1.0)
        slope, start = self._repeated(size).T, self._repeated(middle).T
        mean = slope * (np.where(scale[:, None], 2.0, start) + mean - start)
        return mean, root.swapaxes(1, 2) / size[:, None], back * size[..., None]

    def times(self, matrix: FloatArray, values: FloatArray) -> FloatArray:
        """Return matrices (D, k, j) of databases times values (j, B) of their chains, (k, B)."""
        split = values.reshape(len(values), len(matrix), -1).swapaxes(0, 1)
        product = (matrix @ split).swapaxes(0, 1)
        return np.asarray(product.reshape(len(product), -1), dtype=np.float64)

    def is_scale(self, number: int) -> BoolArray:
        """Return which of the values of a block are log s_0^2."""
        return np.arange(self.prior.size)[self.blocks[number]] < self.q

    def _repeated(self, values: FloatArray) -> FloatArray:
        """Return values (D, ...) for every chain (B, ...)."""
        return np.repeat(values, self.data.target.chains, axis=0)

    def _told(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """Return information (D, G, p, p) and score (D, G, p) at a point of D databases.

        p: log variances of all columns, then slopes b + d, row after row."""
        parameters, data = self.parameters, self.data
        q, row = parameters.q, parameters.row
        databases, chains = point.log_s.shape[1], data.target.chains
        size = q + row.size
        result = np.zeros((databases, parameters.groups, size, size))
        scores = np.zeros((databases, parameters.groups, size))
        coefficients = parameters.coefficients(point.means)
        sigmas = parameters.covariances(point)
        lower, variance = point.core[..., None] + point.slopes, np.exp(point.log_variance)
        for p, target in enumerate(self.targets):
            there = parameters.present[p]
            geometry = Geometry.of(target, data.of(target, data.counts[::chains]))
            middle = data.middle(p, coefficients[..., there], target)
            law = Law.of(target, geometry, middle, in_digits(sigmas[p]))
            moved, index = self._moved(law, there, lower, variance)
            df = np.where(target.told, geometry.free, 0.0)
            left = law.spread
            gap = law.gap(law.cross_mean)
            unknown = (geometry.inverse[:, None] * law.cross_sd**2).sum(0)
            for j in range(target.q):
                gap[j, j] -= unknown[j]
            own = np.einsum("aij...,bij...,ij...->...ab", moved, moved, 0.5 * df * df / left)
            score = np.einsum("aij...,ij...->...a", moved, 0.5 * df * gap / left)
            result[..., index[:, None], index] += own
            scores[..., index] += score
        return result, scores

    def _moved(
        self, law: Law, there: IntArray, lower: FloatArray, variance: FloatArray
    ) -> tuple[FloatArray, IntArray]:
        """Return by how much Sigma moves (a, k, k, D, G) in its axes, and places (a,) in p."""
        parameters, spread = self.parameters, self.data.target.spread
        inverse = np.zeros((len(there), len(there), *variance.shape[1:]))
        for i, own in enumerate(inverse_of(lower, there)):
            for j, value in enumerate(own):
                inverse[i, j] = value / spread[there[i]]
        axes = np.einsum("ia...,ij...->aj...", law.turn, inverse)
        rows = np.einsum("ij...,ia...->ja...", law.sigma, law.turn)
        moved = [
            axes[:, j][:, None] * axes[:, j] * variance[column] for j, column in enumerate(there)
        ]
        index = list(there)
        pairs = zip(parameters.row.tolist(), parameters.column.tolist(), strict=True)
        for number, (j, k) in enumerate(pairs):
            if j in there and k in there:
                own = axes[:, np.searchsorted(there, j)]
                other = rows[np.searchsorted(there, k)] * spread[k]
                one = own[:, None] * other
                moved.append(one + one.swapaxes(0, 1))
                index.append(parameters.q + number)
        return np.stack(moved), np.array(index)


def share_of_latest(rounds: int) -> float:
    """Return what the latest round counts in what the warm-up learns, after so many others."""
    return max(1.0 / (rounds + 1.0), FORGETTING)


def _with_prior(told: FloatArray, prior: FloatArray) -> FloatArray:
    """Return precisions (B, G, k, k) of what is told and a prior (k, B), which have roots."""
    diagonal = np.einsum("...kk->...k", told) * ROUNDING + prior.T[:, None]
    return np.asarray(told + diagonal[..., None] * np.eye(len(prior)))


def _roots(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return lower roots (p, p, B, G) of positive definite matrices, and the inverses of these.

    Entry by entry, since LAPACK takes far longer for many small ones."""
    root, inverse = np.zeros_like(matrix), np.zeros_like(matrix)
    for j in range(len(matrix)):
        for i in range(j, len(matrix)):
            left = matrix[i, j] - np.einsum("k...,k...->...", root[i, :j], root[j, :j])
            root[i, j] = np.sqrt(np.maximum(left, 1e-300)) if i == j else left / root[j, j]
        inverse[j, j] = 1.0 / root[j, j]
        for i in range(j):
            before = np.einsum("k...,k...->...", root[j, i:j], inverse[i:j, i])
            inverse[j, i] = -before / root[j, j]
    return root, inverse


def _sizes(point: Point) -> Point:
    """Return the point with scales instead of their logarithms."""
    sd = np.exp(0.5 * point.log_variance)
    return replace(point, log_variance=sd, log_s=np.exp(point.log_s))
