"""Records and weighted data of the count models.

Sums by cell of X and, for the negative binomial, the weight of each distinct count: a gradient
costs the same at any number of records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.models.parts.pairs import PairRecords, filled_up, sum_by
from surveysynth.models.weighted import stacked

#: Share of pseudo-records that are an event.
EVENTS = 0.5


def count_records(
    x_cells: FloatArray,
    cell: IntArray,
    y: FloatArray,
    log_weight: FloatArray | None,
    shrunken: int = 0,
    pseudo: float = 0.0,
) -> PairRecords:
    """Return records of counts y (n,); the weight is regressed on log(1 + y)."""
    return PairRecords(x_cells, cell, y, np.log1p(y), log_weight, shrunken, pseudo)


@dataclass(frozen=True, repr=False)
class CountSums(Unpickled):
    """Weighted data of B databases, over G cells of X and D distinct counts each.

    x (B, G, K), or (1, G, K) where all share it; mass (B, G): sum of alpha, sums (B, G): sum of
    alpha y, by cell; values (B, D) and value_mass (B, D), the sum of alpha of each; log_factorials
    (B,): sum of alpha log y!. Cells and counts without weight have no effect. shrunken: number of
    columns of X, the last ones, that are shrunken.
    """

    x: FloatArray
    mass: FloatArray
    sums: FloatArray
    values: FloatArray
    value_mass: FloatArray
    log_factorials: FloatArray
    shrunken: int = 0

    @classmethod
    def stacked(cls, parts: Sequence["CountSums"]) -> "CountSums":
        """Join several databases, filled up with cells and counts without weight."""
        shared = all(np.array_equal(part.x, parts[0].x) for part in parts)
        return cls(
            parts[0].x if shared else filled_up([part.x for part in parts]),
            filled_up([part.mass for part in parts]),
            filled_up([part.sums for part in parts]),
            filled_up([part.values for part in parts]),
            filled_up([part.value_mass for part in parts]),
            np.concatenate([part.log_factorials for part in parts]),
            parts[0].shrunken,
        )

    def eta(self, beta: FloatArray) -> FloatArray:
        """Return linear predictors (B, S, G) at beta (B, S, K)."""
        return np.asarray(beta @ self.x.swapaxes(-1, -2), dtype=np.float64)

    def gram(self, by_cell: FloatArray) -> FloatArray:
        """Return X' diag(by_cell) X (B, S, K, K) for by_cell (B, S, G)."""
        columns = self.x.swapaxes(-1, -2)[:, None]
        return np.asarray((columns * by_cell[:, :, None, :]) @ self.x[:, None], dtype=np.float64)


@dataclass(frozen=True, repr=False)
class CountStats(Unpickled):
    """Weighted data of B databases: of the counts and of any weight component."""

    counts: CountSums
    weight: GaussianStats | None

    @property
    def shape(self) -> tuple[int, int]:
        """Columns of X, and 2 with a weight or 1 without."""
        return self.counts.x.shape[-1], 1 if self.weight is None else 2

    @classmethod
    def stacked(cls, parts: Sequence["CountStats"]) -> "CountStats":
        """Join several databases, all with a weight or all without."""
        weights = [part.weight for part in parts if part.weight is not None]
        counts = CountSums.stacked([part.counts for part in parts])
        return cls(counts, stacked(weights) if weights else None)


def compress(records: PairRecords, risk_weights: FloatArray, scale: float) -> CountStats:
    """Compute the sums in one pass over the records (methods 4), without counts of no weight.

    ``scale``: prior SD of the weight's coefficients of shrunken columns, in residual SDs. Of R
    pseudo-records half are events, spread as the design is, without adding to what is exposed: a
    mean next to zero would rest on the few records above it. The weight's slope has a prior worth R
    records of one event.
    """
    n_cells = records.x_cells.shape[0]
    mass = sum_by(records.cell, risk_weights, n_cells)
    sums = sum_by(records.cell, risk_weights * records.y, n_cells) + _events(records)
    value_mass = sum_by(records.code, risk_weights, records.values.size)
    seen = value_mass > 0
    values, value_mass = records.values[seen], value_mass[seen]
    counts = CountSums(
        x=records.x_cells[None],
        mass=mass[None],
        sums=sums[None],
        values=values[None],
        value_mass=value_mass[None],
        log_factorials=np.array([value_mass @ gammaln(values + 1.0)]),
        shrunken=records.shrunken,
    )
    weight = records.weight_stats(risk_weights, scale)
    if weight is not None and records.pseudo:
        weight = weight.with_slope_prior(float(np.sqrt(records.pseudo) * np.log(2.0)))
    return CountStats(counts, weight)


def _events(records: PairRecords) -> FloatArray:
    """Return the events (G,) that pseudo-records add to the counts of each cell."""
    share = np.bincount(records.cell, minlength=records.x_cells.shape[0]) / max(records.n, 1)
    return np.asarray(EVENTS * records.pseudo * share)
