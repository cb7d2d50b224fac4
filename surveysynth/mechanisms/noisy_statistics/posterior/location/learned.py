"""What the noisy sums Q~ say of log variances and slopes: the shape of proposals.

A normal about one step of scoring from where the warm-up has found them. Proposals need not be
right: where they are not, steps are shorter or refused more often.
"""

from dataclasses import replace

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
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
    "log_tau": 1,
}  # fmt: skip


class Learned:
    """What the warm-up knows of log variances and slopes: of groups, and what they have in common.

    information (D, G, p, p) of Q~, pull (D, G, p): its product with the best guess; wide and
    wide_pull: the same with less of log variances; told (D, p, p): information of all groups, and
    middle (D, p): where that is.
    """

    def __init__(self, data: LocationAugmentation, parameters: Parameters) -> None:
        self.data, self.parameters = data, parameters
        self.q, self.size = parameters.q, parameters.q + parameters.row.size
        chains = data.target.chains
        self.mean: dict[str, FloatArray] = {}
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
        now = first(self.values(here))[..., None]
        self.information, score = self._told(here)
        self.pull = score + (self.information @ now)[..., 0]
        self.wide = self._widened(self.information)
        self.wide_pull = (self.wide @ now)[..., 0] + score * self._shares(self.information) ** 2
        self.told, self.middle = self.information.sum(1), self.common(here).T

    def _mean(self, point: Point) -> dict[str, FloatArray]:
        """Return means of a point's arrays over the chains of each database, in place of chains."""
        result = {}
        for name, axis in AXES.items():
            values = np.moveaxis(getattr(point, name), axis, 0)
            split = values.reshape(-1, self.data.target.chains, *values.shape[1:])
            result[name] = np.moveaxis(split.mean(1), 0, axis)
        return result

    def _shares(self, information: FloatArray) -> FloatArray:
        """Return what to multiply roots of precisions (..., p) of log variances with.

        Under noise a variance may be next to zero: its logarithm has a long tail to the left, in
        which a slice about a narrower normal would stay."""
        sd = np.maximum(np.einsum("...pp->...p", information), 1e-12) ** -0.5
        return np.where(np.arange(self.size) < self.q, 1.0 / (1.0 + 2.0 * sd), 1.0)

    def _widened(self, information: FloatArray) -> FloatArray:
        shares = self._shares(information)
        return shares[..., :, None] * information * shares[..., None, :]

    def values(self, point: Point) -> FloatArray:
        """Return log variances and slopes b + d (p, B, G) of groups."""
        total = point.core[..., None] + point.slopes
        return np.concatenate(
            [point.log_variance, total[self.parameters.row, self.parameters.column]]
        )

    def common(self, point: Point) -> FloatArray:
        """Return what groups have in common (p, B): log s_0^2 by column, and core slopes."""
        row, column = self.parameters.row, self.parameters.column
        return np.concatenate([2.0 * point.log_s, point.core[row, column]])

    def of_groups(self, point: Point) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mean (p, B, G) and a root (p, p, B, G) of covariance of groups; its inverse.

        Of the information of the noisy sums, and the prior at scales that are held."""
        prior, middle = self._prior(point)
        total = last(_with_prior(self._repeated(self.wide), prior))
        pull = last(self._repeated(self.wide_pull)) + (prior * middle)[..., None]
        root, inverse = _roots(total)
        back = inverse.swapaxes(0, 1)
        white = np.einsum("ab...,b...->a...", inverse, pull)
        return np.einsum("ab...,b...->a...", back, white), back, root

    def of_core(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """Return mean (B, k) of core slopes b and a root (B, k, k) of their precision.

        Given t, with log variances and slopes of groups integrated out."""
        q, (prior, middle) = self.q, self._prior(point)
        wide, pull = self._repeated(self.wide), self._repeated(self.wide_pull)
        own = _with_prior(wide[..., :q, :q], prior[:q])
        pulled = pull[..., :q] + (prior[:q] * middle[:q]).T[:, None]
        both = np.concatenate([wide[..., :q, q:], pulled[..., None]], axis=-1)
        taken = wide[..., q:, :q] @ np.linalg.solve(own, both)
        told = wide[..., q:, q:] - taken[..., :-1]
        linear = pull[..., q:] - taken[..., -1]
        # Sums of (told^-1 + t^2)^-1: neither a small t nor little information makes them inexact.
        unit = np.eye(self.size - q)
        both = np.concatenate([told, linear[..., None]], axis=-1)
        solved = np.linalg.solve(unit + told / prior[q:].T[:, None, None, :], both).sum(1)
        # What a difference of large numbers has left may lie below zero by its rounding.
        least = ROUNDING * np.einsum("bgkk->bk", wide[..., q:, q:])
        precision = 0.5 * (solved[..., :-1] + solved[..., :-1].swapaxes(1, 2))
        least = least + self.parameters.core_precision
        root = np.linalg.cholesky(precision + least[:, None] * unit)
        return np.linalg.solve(root @ root.swapaxes(1, 2), solved[..., -1:])[..., 0], root

    def _prior(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """Return precision and mean (p, B) of values of groups at scales that are held."""
        parameters, q = self.parameters, self.q
        prior, middle = np.empty((2, self.size, point.log_s.shape[1]))
        half = 0.5 * np.exp(point.log_nu)
        prior[:q] = half / (1.0 + 1.0 / half) + LEAST_PRECISION
        middle[:q] = 2.0 * point.log_s + 1.0 / (half + 0.5)
        prior[q:] = np.exp(-2.0 * point.log_t)[parameters.row]
        middle[q:] = point.core[parameters.row, parameters.column]
        return prior, middle

    def inverse_root(self) -> FloatArray:
        """Return the inverse of a root (B, p, p) of the precision of log s_0^2 and b.

        Where no noisy sum tells a slope, its prior does."""
        told = self._repeated(self.told)
        prior = np.full((len(told), self.size), LEAST_PRECISION)
        prior[:, self.q :] = self.parameters.core_precision
        root = np.linalg.cholesky(told + prior[..., None] * np.eye(self.size))
        return np.asarray(np.linalg.inv(root), dtype=np.float64)

    def reference(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """Return mean (p, B) and inverse root (B, p, p) of a normal of s_0 and core slopes.

        That of log s_0^2 and b, given how groups deviate, on the scale of s_0 by a tangent."""
        information, pull, middle = map(self._repeated, (self.information, self.pull, self.middle))
        off = self.values(point) - self.common(point)[..., None]
        pull = (pull - (information @ first(off)[..., None])[..., 0]).sum(1)
        inverse = self.inverse_root()
        mean = (inverse.swapaxes(-1, -2) @ (inverse @ pull[..., None]))[..., 0]
        scale = np.arange(self.size) < self.q
        size = np.where(scale, 0.5 * np.exp(0.5 * middle), 1.0)
        return (size * (np.where(scale, 2.0, middle) + mean - middle)).T, inverse * size[:, None]

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
