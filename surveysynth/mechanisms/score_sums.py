"""Scores of regressions as sums over records, which a mechanism can say the noise of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from surveysynth._support.types import FloatArray, IntArray


@dataclass(frozen=True)
class ScoredColumn:
    """A column with a regression on X: position in z of an amount, or outcome and category.

    fitted: (C,) by row of X, on the scale of the model; spread: residual SD.
    """

    position: int | None
    category: tuple[int, int] | None
    fitted: FloatArray
    spread: float


@dataclass(frozen=True)
class ScoreSums:
    """What scores are sums of: columns with K scores each, then products of their residuals.

    x_cells (C, K); products: pairs of columns, with one score for each column of ``groups``
    (C, G), flags of the rows of X in it; means: (G,) of each product.
    """

    x_cells: FloatArray
    columns: Sequence[ScoredColumn]
    products: Sequence[tuple[int, int]]
    groups: Sequence[FloatArray]
    means: Sequence[FloatArray]

    @property
    def features(self) -> list[FloatArray]:
        """Matrices (C, K or G) of the scores of each column, and of each product."""
        return [*[self.x_cells] * len(self.columns), *self.groups]


class NoiseOnScores(Protocol):
    """Noise of a mechanism that all of its draws follow."""

    @property
    def group(self) -> IntArray:
        """Group (C,) of each row of X: groups have residual covariances of their own."""

    def covariance(self, sums: ScoreSums) -> FloatArray:
        """Return the covariance (P, P) of the noise on scores."""
