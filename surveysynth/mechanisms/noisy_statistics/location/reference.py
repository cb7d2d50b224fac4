"""A normal near what noisy moments say of the coefficients: what elliptical slices turn about.

For one regression z ~ N(u b, s^2), with H = U'U and c = U'z, c has the mean H b and the covariance
s^2 H, its noisy value N more: b has about the precision H (s^2 H + N)^-1 H. H, c and s are those of
the chains' starts, which follow from what is published. It need not be right: where it is not,
slices are shorter.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.location.augmentation import LocationTarget
from surveysynth.models.general_location.regressions import Regressions


@dataclass(frozen=True, repr=False)
class Reference:
    """Independent normals, one a regression: mean (B, all C) and a root (B, C, C) of each
    precision, whose inverse is the transpose of what normals are multiplied by."""

    mean: FloatArray
    roots: tuple[FloatArray, ...]

    @classmethod
    def of(cls, target: LocationTarget, regressions: Regressions) -> "Reference":
        """From the sums that the regressions started with."""
        noise = _noise_by_group(target)
        means, roots = [], []
        for regression, start in zip(regressions.parts, regressions.scales.variance, strict=True):
            part, sums = regression.part, regression.sums
            own = target.spread[part.position]
            columns = np.concatenate([part.columns, target.shape.width + part.earlier])
            of_noise = noise[:, columns[:, None], columns] * own * own
            variance = np.maximum(start, 0.05 * own * own)
            total = sums.gram * variance[..., None, None] + of_noise
            size = total.shape[-1]
            ridge = 1e-9 * np.einsum("bgii->bg", total).max(1)[:, None, None, None]
            solved = np.linalg.solve(total + ridge * np.eye(size), sums.gram)
            precision = (sums.gram @ solved).sum(1) + np.eye(size) / (4.0 * own * own)
            linear = (solved.swapaxes(-1, -2) @ sums.cross[..., None]).sum(1)
            linear = linear - (sums.fit / (4.0 * own * own))[..., None]
            means.append(sums.fit + np.linalg.solve(precision, linear)[..., 0])
            roots.append(np.linalg.cholesky(precision))
        return cls(np.concatenate(means, axis=1), tuple(roots))

    def _split(self, values: FloatArray) -> list[FloatArray]:
        sizes = np.cumsum([root.shape[-1] for root in self.roots])[:-1]
        return np.split(values, sizes, axis=1)

    def deviation(self, normals: FloatArray) -> FloatArray:
        """A draw less the mean (B, all C) from standard normals."""
        parts = zip(self.roots, self._split(normals), strict=True)
        drawn = [np.linalg.solve(root.swapaxes(-1, -2), z[..., None])[..., 0] for root, z in parts]
        return np.concatenate(drawn, axis=1)

    def log_density(self, deviation: FloatArray) -> FloatArray:
        """Log density (B,) up to a constant at a deviation from the mean."""
        parts = zip(self.roots, self._split(deviation), strict=True)
        white = [(root.swapaxes(-1, -2) @ d[..., None])[..., 0] for root, d in parts]
        return np.asarray(-0.5 * sum((each * each).sum(1) for each in white))


def _noise_by_group(target: LocationTarget) -> FloatArray:
    """Covariance (G, W + q, W + q) of the noise on (X~, Z)'z, z in spreads: of X~'u through A, on
    Z'u in units of z, over the patterns of a group."""
    shape = target.shape
    size = shape.width + shape.q
    result = np.zeros((shape.groups, size, size))
    for number, each in zip(target.patterns, target.targets, strict=True):
        there = shape.width + np.flatnonzero(shape.patterns[number])
        spread = target.spread[there - shape.width]
        of_rows = each.link.swapaxes(-1, -2) @ each.link * each.sigma**2
        result[:, : shape.width, : shape.width] += of_rows
        off = each.squares_sd.min()
        result[:, there, there] += (off * spread) ** 2
    return result
