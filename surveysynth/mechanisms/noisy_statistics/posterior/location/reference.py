"""A normal near what noisy moments say of the coefficients: what elliptical slices turn about.

For one regression z ~ N(u b, s_g^2) in each group g, u = (x~, earlier z), with H = U'U and c = U'z,
all z about their centres: c has the mean H b and the covariance s^2 H, its noisy value N more. b
has about the precision sum of H (s^2 H + N)^-1 H, and its prior's. H is that of the chains' starts,
and c the noisy value itself: both follow from what is published, and s, the prior and the slopes
that groups add are held. It need not be right: where it is not, slices are shorter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    LocationAugmentation,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.models.general_location.layout import Layout, RegressionPart
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.models.general_location.stats import BlockMoments


@dataclass(frozen=True, repr=False)
class Normals:
    """Independent normals, one a regression.

    mean (B, all C) and a root (B, C, C) of each precision."""

    mean: FloatArray
    roots: tuple[FloatArray, ...]

    def _split(self, values: FloatArray) -> list[FloatArray]:
        sizes = np.cumsum([root.shape[-1] for root in self.roots])[:-1]
        return np.split(values, sizes, axis=1)

    def deviation(self, normals: FloatArray) -> FloatArray:
        """Return a draw less the mean (B, all C) from standard normals."""
        parts = zip(self.roots, self._split(normals), strict=True)
        drawn = [np.linalg.solve(root.swapaxes(-1, -2), z[..., None])[..., 0] for root, z in parts]
        return np.concatenate(drawn, axis=1)

    def log_density(self, deviation: FloatArray) -> FloatArray:
        """Return the log density (B,) up to a constant at a deviation from the mean."""
        parts = zip(self.roots, self._split(deviation), strict=True)
        white = [(root.swapaxes(-1, -2) @ d[..., None])[..., 0] for root, d in parts]
        return np.asarray(-0.5 * sum((each * each).sum(1) for each in white))


@dataclass(frozen=True, repr=False)
class _Part:
    """The part of one regression.

    H (B, G, C, C), c (B, G, C) and N (G, C, C) about the centres, where coefficients are shear
    b - shift; least: residual variance below which the moments say nothing."""

    gram: FloatArray
    cross: FloatArray
    noise: FloatArray
    shear: FloatArray
    shift: FloatArray
    least: float

    def normal(
        self, variance: FloatArray, tau: FloatArray, slopes: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean (B, C) and a root of the precision (B, C, C)."""
        size = self.gram.shape[-1]
        total = self.gram * np.maximum(variance, self.least)[..., None, None] + self.noise
        ridge = 1e-9 * np.einsum("bgii->bg", total).max(1)[:, None, None, None]
        solved = np.linalg.solve(total + ridge * np.eye(size), self.gram)
        rest = self.cross
        if slopes.shape[-1]:
            last = self.gram[..., size - slopes.shape[-1] :]
            rest = rest - (last @ slopes[..., None])[..., 0]
        told = (self.gram @ solved).sum(1)
        linear = (solved.swapaxes(-1, -2) @ rest[..., None])[..., 0].sum(1) + told @ self.shift
        precision = self.shear.T @ told @ self.shear + np.eye(size) / (tau * tau)[:, None, None]
        precision = 0.5 * (precision + precision.swapaxes(-1, -2))
        mean = np.linalg.solve(precision, (linear @ self.shear)[..., None])[..., 0]
        return mean, np.asarray(np.linalg.cholesky(precision), dtype=np.float64)


class Reference:
    """Made of the chains' starts; ``normals`` at variances, scales and slopes as they are."""

    def __init__(
        self, data: LocationAugmentation, layout: Layout, regressions: Regressions
    ) -> None:
        target = data.target
        squares = [each.squares for each in target.targets]
        noisy = data.about_centre([each.cross for each in target.targets], squares)
        started = data.about_centre(data.cross, data.squares())
        noise = _noise_by_group(target)
        self.regressions = regressions
        self.parts = [
            _part(part.part, layout, target, started, noisy, noise) for part in regressions.parts
        ]

    def normals(self) -> Normals:
        """Return the normals at the variances, scales and slopes of the chains."""
        scales, means, roots = self.regressions.scales, [], []
        for j, (part, regression) in enumerate(
            zip(self.parts, self.regressions.parts, strict=True)
        ):
            mean, root = part.normal(scales.variance[j], scales.tau[j], regression.slopes)
            means.append(mean)
            roots.append(root)
        return Normals(np.concatenate(means, axis=1), tuple(roots))


def _part(
    part: RegressionPart,
    layout: Layout,
    target: LocationTarget,
    started: BlockMoments,
    noisy: BlockMoments,
    noise: FloatArray,
) -> _Part:
    x, earlier, own, groups = part.columns, part.earlier, part.position, target.shape.groups
    member = (started.group == np.arange(groups)[:, None]) & started.present[:, own]

    def by_group(values: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("gb,nb...->ng...", member.astype(np.float64), values))

    gram, cross, scatter = map(by_group, (started.gram, started.cross, started.scatter))
    beside = cross[..., x[:, None], earlier]
    upper = np.concatenate([gram[..., x[:, None], x], beside], axis=-1)
    lower = np.concatenate(
        [beside.swapaxes(-1, -2), scatter[..., earlier[:, None], earlier]], axis=-1
    )
    told = by_group(noisy.cross)[..., x, own], by_group(noisy.scatter)[..., earlier, own]
    columns = np.concatenate([x, target.shape.width + earlier])
    spread = target.spread[own]
    shear, shift = _shear(part, layout, target.ones, target.centre)
    return _Part(
        gram=np.concatenate([upper, lower], axis=-2),
        cross=np.concatenate(told, axis=-1),
        noise=noise[:, columns[:, None], columns] * spread * spread,
        shear=shear,
        shift=shift,
        least=0.05 * float(spread * spread),
    )


def _shear(
    part: RegressionPart, layout: Layout, ones: FloatArray, centre: Sequence[float] | FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return shear and shift: coefficients about the centres are shear b - shift.

    The centre of an earlier z that is present moves the constant; where it is absent its
    indicators undo that."""
    size, w = part.width, part.columns.size
    shear, shift = np.eye(size), np.zeros(size)
    shift[:w] = ones[part.columns] * centre[part.position]
    for k, position in enumerate(part.earlier):
        there = layout.presence(int(position), ones)
        shear[:w, w + k] = there[part.columns] * centre[int(position)]
    return shear, shift


def _noise_by_group(target: LocationTarget) -> FloatArray:
    """Return the covariance (G, W + q, W + q) of the noise on (X~, Z)'z, z in spreads.

    Of X~'u through A, on Z'u in units of z, over the patterns of a group."""
    shape = target.shape
    size = shape.width + shape.q
    result = np.zeros((shape.groups, size, size))
    for number, each in zip(target.patterns, target.targets, strict=True):
        there = shape.width + np.flatnonzero(shape.patterns[number])
        spread = target.spread[there - shape.width]
        of_rows = each.link.swapaxes(-1, -2) @ each.link * each.sigma**2
        result[:, : shape.width, : shape.width] += of_rows
        off = each.squares_sd
        result[:, there, there] += (off * spread) ** 2
    return result
