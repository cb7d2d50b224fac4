"""The ridge of interactions as part of the prior of coefficients (methods 3)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.base import INTERACTION_PRIOR
from surveysynth.models.parts.gaussian import GaussianStats


@dataclass(frozen=True)
class Ridge:
    """The prior N(0, Sigma / precision) of the coefficients of ``columns`` of the K of X."""

    columns: slice
    count: int
    precision: float
    scale: float

    @classmethod
    def of(cls, stats: GaussianStats, priors: Mapping[str, float]) -> "Ridge":
        """Return the ridge of a model with these priors on the shrunken columns."""
        k, scale = stats.fit.shape[1], priors[INTERACTION_PRIOR]
        return cls(slice(k - stats.shrunken, k), stats.shrunken, scale**-2, scale)

    def added(self, stats: GaussianStats) -> GaussianStats:
        """Return the statistics as the samplers read them."""
        return stats.with_ridge(self.scale)

    def rows(self, coefficients: FloatArray) -> FloatArray:
        """Return those of its columns, of coefficients (..., p, q)."""
        return coefficients[..., self.columns, :]

    def add_to(self, blocks: FloatArray, residual_precision: FloatArray) -> None:
        """Add the ridge to a prior precision (B, q, K, q, K), for residuals of that (B, q, q)."""
        c = np.arange(self.columns.start, self.columns.stop)
        # Advanced indices around slices: the axis of columns comes first.
        blocks[:, :, c, :, c] += self.precision * residual_precision

    def log_density(self, coefficients: FloatArray, sd: FloatArray) -> FloatArray:
        """Return that (...) of coefficients (..., p) of one column of z given its residual SD."""
        squares = (coefficients[..., self.columns] ** 2).sum(-1) / sd**2
        return np.asarray(-0.5 * self.precision * squares - self.count * np.log(sd))
