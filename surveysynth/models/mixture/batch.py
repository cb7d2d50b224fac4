"""Weighted data of several databases for the sampler of mixtures, side by side.

D databases, C chains each; arrays by chain have leading axes (D, C). Databases with fewer pairs of
cell and outcome, or fewer cells, are filled up with some of no weight.
"""

from collections.abc import Sequence

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.mixture.stats import MixtureSums


class MixtureBatch:
    """x (D, G, K); cell (D, P), sorted; y and mass (D, 1, P); total (D, 1), the sum of mass."""

    def __init__(self, parts: Sequence[MixtureSums], chains: int) -> None:
        cells = max(1, *(part.x.shape[0] for part in parts))
        # A cell that is filled up needs a pair of its own: every sum by cell has then a term.
        pairs = max(part.y.size + cells - part.x.shape[0] for part in parts)
        self.lead = len(parts), chains
        self.columns = parts[0].x.shape[1]
        self.x = np.zeros((len(parts), cells, self.columns))
        self.cell = np.full((len(parts), pairs), cells - 1, dtype=np.int64)
        self.y = np.zeros((len(parts), 1, pairs))
        self.mass = np.zeros((len(parts), 1, pairs))
        self._starts = np.zeros((len(parts), cells), dtype=np.int64)
        for d, part in enumerate(parts):
            own, n = part.x.shape[0], part.y.size
            self.x[d, :own], self.cell[d, :n] = part.x, part.cell
            self.y[d, 0, :n], self.mass[d, 0, :n] = part.y, part.mass
            self.cell[d, n : n + cells - own] = np.arange(own, cells)
            self._starts[d] = np.concatenate([part.starts, n + np.arange(cells - own)])
        self.total = self.mass.sum(axis=-1)
        self.transposed = np.ascontiguousarray(self.x.swapaxes(1, 2))
        self._offsets: dict[int, IntArray] = {}

    @property
    def pairs(self) -> int:
        """P."""
        return int(self.cell.shape[1])

    def residual(self, beta: FloatArray) -> FloatArray:
        """y - x beta (D, C, P) at beta (D, C, K)."""
        fit = beta @ self.transposed
        if self.lead[0] == 1:  # many times faster than an index a database
            return np.asarray(self.y - np.take(fit, self.cell[0], axis=2))
        return np.asarray(self.y - np.take_along_axis(fit, self.cell[:, None], axis=2))

    def by_cell(self, values: FloatArray) -> FloatArray:
        """Sums (..., D, C, G) of values (..., D, C, P)."""
        rows = values.size // self.pairs
        if rows not in self._offsets:
            row = np.arange(rows)
            starts = self._starts[(row // self.lead[1]) % self.lead[0]]
            self._offsets[rows] = (starts + (row * self.pairs)[:, None]).ravel()
        sums = np.add.reduceat(values.reshape(-1), self._offsets[rows])
        return np.asarray(sums.reshape(*values.shape[:-1], -1), dtype=np.float64)

    def gram(self, by_cell: FloatArray) -> FloatArray:
        """X' diag(by_cell) X (D, C, K, K) for by_cell (D, C, G)."""
        return np.asarray((self.transposed[:, None] * by_cell[:, :, None, :]) @ self.x[:, None])

    def quantiles(self, shares: Sequence[float]) -> FloatArray:
        """Weighted quantiles (D, points) of the outcomes."""
        result = np.zeros((self.lead[0], len(shares)))
        for d in range(self.lead[0]):
            order = np.argsort(self.y[d, 0], kind="stable")
            reached = np.cumsum(self.mass[d, 0, order])
            at = np.searchsorted(reached, np.asarray(shares) * reached[-1])
            result[d] = self.y[d, 0, order[np.minimum(at, order.size - 1)]]
        return result
