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

    x (G, K): cells with weight; cell (P,); y (P,); mass (P,): sum of alpha.
    """

    x: FloatArray
    cell: IntArray
    y: FloatArray
    mass: FloatArray


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
    sums = MixtureSums(records.x_cells[cells], cell, records.pair_y[seen], mass[seen])
    return MixtureStats((sums,), records.weight_stats(risk_weights))
