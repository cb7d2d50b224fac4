"""What noisy sums say of coefficients and covariances: the shape of proposals.

Given slopes and variances the noisy sums T~ alone make coefficients on x~ normal, exactly; slices
turn about that normal. Of log variances and slopes, the information of Q~ at a common
covariance. Proposals need not be right: where they are not, steps are refused more often.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    LocationAugmentation,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moment_law import (
    Law,
    symmetric_axes,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.records import Chain

#: Slopes (B, G, q_p, q_p) of a pattern's columns on coefficients of all of them.
MeanMap = FloatArray


@dataclass(frozen=True, repr=False)
class Normal:
    """A normal: mean (B, C), a root (B, C, C) of its precision, and that root's inverse."""

    mean: FloatArray
    root: FloatArray
    inverse: FloatArray

    def white(self, values: FloatArray) -> FloatArray:
        """Return values (B, C) as standard normals."""
        off = (values - self.mean)[..., None]
        return np.asarray((self.root.swapaxes(-1, -2) @ off)[..., 0])

    def at(self, white: FloatArray) -> FloatArray:
        """Return the values (B, C) of standard normals."""
        return self.mean + (self.inverse.swapaxes(-1, -2) @ white[..., None])[..., 0]

    @property
    def log_root(self) -> FloatArray:
        """Log of the determinant (B,) of the root."""
        return np.asarray(np.log(np.einsum("bii->bi", self.root)).sum(1))

    def chosen(self, accept: BoolArray, other: "Normal") -> "Normal":
        """Return the other normal for the chains (B,) that accept it."""
        wide = accept[:, None, None]
        return Normal(
            np.where(accept[:, None], other.mean, self.mean),
            np.where(wide, other.root, self.root),
            np.where(wide, other.inverse, self.inverse),
        )


class MeanReference:
    """The law of all coefficients on x~, regression after regression, given the noisy sums."""

    def __init__(self, data: LocationAugmentation, layout: Layout) -> None:
        self.data, self.target, self.layout = data, data.target, layout
        width, parts = layout.width, layout.regressions
        self.index = np.concatenate([part.position * width + part.columns for part in parts])

    def normal(self, laws: Sequence[Law], maps: Sequence[MeanMap], prior: FloatArray) -> Normal:
        """Return the normal at these laws, with prior precisions (B, C)."""
        batch, width, q = self.data.batch, self.layout.width, self.layout.q
        precision = np.zeros((batch, q, width, q, width))
        linear = np.zeros((batch, q, width))
        for number, law, mean_map in zip(self.target.patterns, laws, maps, strict=True):
            there = np.flatnonzero(self.target.shape.patterns[number])
            curved, pull = self._told(there, law, mean_map)
            precision[:, there[:, None], :, there] += np.moveaxis(curved, (1, 2), (0, 1))
            linear[:, there] += pull
        size = q * width
        own = precision.reshape(batch, size, size)[:, self.index[:, None], self.index]
        own = own + prior[..., None] * np.eye(self.index.size)
        root = np.asarray(np.linalg.cholesky(own), dtype=np.float64)
        inverse = np.asarray(np.linalg.inv(root), dtype=np.float64)
        told = linear.reshape(batch, size)[:, self.index]
        mean = inverse.swapaxes(-1, -2) @ (inverse @ told[..., None])
        return Normal(mean[..., 0], root, inverse)

    def _told(
        self, there: IntArray, law: Law, mean_map: MeanMap
    ) -> tuple[FloatArray, FloatArray]:
        """Return precisions (B, q, q, W, W) and linear terms (B, q, W) of a pattern's columns."""
        geometry, target = law.geometry, law.target
        centre, spread = self.target.centre[there], self.target.spread[there]
        lam = geometry.lam[..., None]
        links = geometry.vectors.swapaxes(-1, -2) @ target.link
        weight = lam / (lam * law.size[..., None, :] + target.sigma**2)
        weight = weight * target.used[..., None, None]
        into = law.turn.swapaxes(-1, -2) @ (mean_map / spread[:, None])
        about = lam * (links @ self.target.ones)[..., None] * (centre / spread)
        observed = geometry.cross @ law.turn + about @ law.turn
        back = into.swapaxes(-1, -2)[..., None, :, :]
        curved = (back * (weight * lam)[..., None, :]) @ into[..., None, :, :]
        pull = (back @ (weight * observed)[..., None])[..., 0]
        batch, q = self.data.batch, there.size
        curved = np.moveaxis(curved.reshape(batch, -1, q * q), 1, 2)
        pull = pull.reshape(batch, -1, q).swapaxes(-1, -2)
        width = links.shape[-1]
        if len(links) == 1:
            rows = links.reshape(-1, width)
            outer = (rows[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
            moved = (curved.reshape(batch * q * q, -1) @ outer).reshape(batch, q, q, width, width)
            return moved, pull @ rows
        own = links.reshape(batch, 1, -1, width)
        moved = (own.swapaxes(-1, -2) * curved[:, :, None]) @ own
        return moved.reshape(batch, q, q, width, width), pull @ own[:, 0]


def mean_maps(theta: Theta, layout: Layout, target: LocationTarget) -> list[MeanMap]:
    """Return by how much coefficients on x~ move means of each pattern's columns.

    Slopes of groups act on residuals and leave means where they are.
    """
    theta = {name: values for name, values in theta.items() if not name.startswith("slopes_")}
    present = [np.flatnonzero(target.shape.patterns[number]) for number in target.patterns]
    return [Chain.of_groups(theta, layout, each).inverse() for each in present]


def information(
    data: LocationAugmentation, variance: FloatArray, lower: FloatArray
) -> FloatArray:
    """Return what Q~ tells of log variances and slopes of each group: (D, G, p, p).

    At variances (D, q) and slopes (D, q, q) on earlier columns that all groups have, of D
    databases; p: a log variance of each of the q columns, then the slopes, row after row.
    """
    target, q = data.target, lower.shape[-1]
    row, column = np.tril_indices(q, -1)
    size = q + row.size
    chains = data.batch // len(variance)
    result = np.zeros((len(variance), target.shape.groups, size, size))
    for number, each, geometry in zip(
        target.patterns, target.targets, data.geometry, strict=True
    ):
        there = np.flatnonzero(target.shape.patterns[number])
        inside = np.isin(row, there) & np.isin(column, there)
        inverse = np.linalg.inv(np.eye(there.size) - lower[:, there[:, None], there])
        inverse = inverse / target.spread[there][:, None]
        v = variance[:, there]
        values, axes = symmetric_axes((inverse * v[:, None]) @ inverse.swapaxes(-1, -2))
        own = axes.swapaxes(-1, -2) @ inverse
        # Sigma moves by N E N' with the log variance, by N (E V + V E') N' with the slope.
        j, k = (np.searchsorted(there, each[inside]) for each in (row, column))
        diagonal = np.einsum("dij,dkj->djik", own, own) * v[..., None, None]
        slope = np.einsum("dij,dkj->djik", own[..., j], own[..., k] * v[:, None, k])
        moved = np.concatenate([diagonal, slope + slope.swapaxes(-1, -2)], axis=1)
        df = np.where(each.told, geometry.free, 0.0)[::chains, :, None, None]
        left = df * values[:, None, :, None] * values[:, None, None, :] + each.squares_sd**2
        weight = 0.5 * df * df / np.maximum(left, 1e-300)
        told = np.einsum("daij,dgij,dbij->dgab", moved, weight, moved)
        index = np.concatenate([there, q + np.flatnonzero(inside)])
        result[:, :, index[:, None], index] += told
    return result

