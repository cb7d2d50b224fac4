"""Records and weighted data of mixtures.

A mixture has no sufficient statistics. Records that share a cell of X and an outcome become one
pair with the sum of their risk weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.models.parts.pairs import PairRecords, sum_by
from surveysynth.models.weighted import stacked


def mixture_records(
    x_cells: FloatArray, cell: IntArray, y: FloatArray, log_weight: FloatArray | None
) -> PairRecords:
    """Return records of transformed outcomes y (n,); the weight is regressed on the outcome."""
    return PairRecords(x_cells, cell, y, y, log_weight)


@dataclass(frozen=True, repr=False)
class MixtureSums(Unpickled):
    """Weighted data of one database: P pairs of cell and outcome, sorted by cell.

    x (G, K): cells with weight; cell (P,) and starts (G,), the first pair of a cell; y (P,); mass
    (P,): sum of alpha.
    """

    x: FloatArray
    cell: IntArray
    starts: IntArray
    y: FloatArray
    mass: FloatArray

    @property
    def total(self) -> float:
        """Sum of alpha."""
        return float(self.mass.sum())

    def by_cell(self, values: FloatArray) -> FloatArray:
        """Sum values (H, P) by cell, (H, G)."""
        if not self.starts.size:
            return np.zeros((values.shape[0], 0))
        return np.asarray(np.add.reduceat(values, self.starts, axis=1), dtype=np.float64)


@dataclass(frozen=True, repr=False)
class MixtureStats(Unpickled):
    """Weighted data of B databases: of the outcomes and of any weight."""

    outcomes: tuple[MixtureSums, ...]
    weight: GaussianStats | None

    @property
    def outcome(self) -> MixtureSums:
        """Outcome data of the only database."""
        (outcome,) = self.outcomes
        return outcome

    @property
    def shape(self) -> tuple[int, int]:
        """Columns of X, and 2 with a weight or 1 without."""
        return self.outcomes[0].x.shape[1], 1 if self.weight is None else 2

    @classmethod
    def stacked(cls, parts: Sequence["MixtureStats"]) -> "MixtureStats":
        """Join several databases, all with a weight or all without."""
        weights = [part.weight for part in parts if part.weight is not None]
        outcomes = tuple(outcome for part in parts for outcome in part.outcomes)
        return cls(outcomes, stacked(weights) if weights else None)


def compress(records: PairRecords, risk_weights: FloatArray) -> MixtureStats:
    """Sum weights by pair, without pairs of no weight; Gaussian statistics of the survey weight."""
    mass = sum_by(records.pairs.cell, risk_weights, records.pair_y.size)
    seen = mass > 0
    cells, cell = np.unique(records.pair_cell[seen], return_inverse=True)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    sums = MixtureSums(records.x_cells[cells], cell, starts, records.pair_y[seen], mass[seen])
    return MixtureStats((sums,), records.weight_stats(risk_weights))


class MixtureBatch:
    """Weighted data of D databases for the sampler, C chains each.

    x (D, G, K); cell (D, P), sorted; y and mass (D, 1, P); total (D, 1): sum of mass. Arrays by
    chain have leading axes (D, C). Databases with fewer pairs or cells are filled up with empty
    ones.
    """

    def __init__(self, parts: Sequence[MixtureSums], chains: int) -> None:
        cells = max(1, *(part.x.shape[0] for part in parts))
        # A cell that fills up needs a pair of its own, so that every sum by cell has a term.
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
        """Return y - x beta (D, C, P) at beta (D, C, K)."""
        fit = beta @ self.transposed
        if self.lead[0] == 1:  # many times faster than an index a database
            return np.asarray(self.y - np.take(fit, self.cell[0], axis=2))
        return np.asarray(self.y - np.take_along_axis(fit, self.cell[:, None], axis=2))

    def by_cell(self, values: FloatArray) -> FloatArray:
        """Sum values (..., D, C, P) by cell, (..., D, C, G)."""
        rows = values.size // self.pairs
        if rows not in self._offsets:
            row = np.arange(rows)
            starts = self._starts[(row // self.lead[1]) % self.lead[0]]
            self._offsets[rows] = (starts + (row * self.pairs)[:, None]).ravel()
        sums = np.add.reduceat(values.reshape(-1), self._offsets[rows])
        return np.asarray(sums.reshape(*values.shape[:-1], -1), dtype=np.float64)

    def gram(self, by_cell: FloatArray) -> FloatArray:
        """Return X' diag(by_cell) X (D, C, K, K) for by_cell (D, C, G)."""
        return np.asarray((self.transposed[:, None] * by_cell[:, :, None, :]) @ self.x[:, None])

    def quantiles(self, shares: Sequence[float]) -> FloatArray:
        """Return weighted quantiles (D, points) of the outcomes."""
        result = np.zeros((self.lead[0], len(shares)))
        for d in range(self.lead[0]):
            order = np.argsort(self.y[d, 0], kind="stable")
            reached = np.cumsum(self.mass[d, 0, order])
            at = np.searchsorted(reached, np.asarray(shares) * reached[-1])
            result[d] = self.y[d, 0, order[np.minimum(at, order.size - 1)]]
        return result
