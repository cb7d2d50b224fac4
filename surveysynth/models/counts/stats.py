"""Records, weighted data and log-likelihood of the count models.

Sums by cell of X and, for the negative binomial, the weight of each distinct count: a value costs
the same at any number of records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, psi

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.models.parts.pairs import PairRecords, filled_up, sum_by
from surveysynth.models.weighted import stacked

#: Share of pseudo-records that are an event.
EVENTS = 0.5
#: Larger log means are cut here, so that sums do not overflow; all are equally impossible.
LARGEST_ETA = 600.0
#: From this phi on Stirling's series is exact to a double's last digits, where differences of log
#: gamma functions lose theirs.
LARGE_PHI = 1e4


def count_records(
    x_cells: FloatArray, cell: IntArray, y: FloatArray, log_weight: FloatArray | None,
    shrunken: int = 0, pseudo: float = 0.0,
) -> PairRecords:  # fmt: skip
    """Return records of counts y (n,); the weight is regressed on log(1 + y)."""
    return PairRecords(x_cells, cell, y, np.log1p(y), log_weight, shrunken, pseudo)


@dataclass(frozen=True, repr=False)
class CountStats(Unpickled):
    """Weighted data of B databases, over G cells of X and D distinct counts each.

    x (B, G, K), or (1, G, K) where all share it; mass (B, G): sum of alpha, sums (B, G): sum of
    alpha y, by cell; values (B, D) and value_mass (B, D), the sum of alpha of each; log_factorials
    (B, 1): sum of alpha log y!. Cells and counts without weight have no effect. weight: statistics
    of any weight component. shrunken: number of columns of X, the last ones, that are shrunken.
    """

    x: FloatArray
    mass: FloatArray
    sums: FloatArray
    values: FloatArray
    value_mass: FloatArray
    log_factorials: FloatArray
    weight: GaussianStats | None
    shrunken: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Columns of X, and 2 with a weight or 1 without."""
        return self.x.shape[-1], 1 if self.weight is None else 2

    @classmethod
    def stacked(cls, parts: Sequence["CountStats"]) -> "CountStats":
        """Join databases, all with a weight or without, filled up with cells without weight."""
        weights = [part.weight for part in parts if part.weight is not None]
        shared = all(np.array_equal(part.x, parts[0].x) for part in parts)
        return cls(
            parts[0].x if shared else filled_up([part.x for part in parts]),
            filled_up([part.mass for part in parts]),
            filled_up([part.sums for part in parts]),
            filled_up([part.values for part in parts]),
            filled_up([part.value_mass for part in parts]),
            filled_up([part.log_factorials for part in parts]),
            stacked(weights) if weights else None,
            parts[0].shrunken,
        )

    def taken(self, which: IntArray) -> "CountStats":
        """Return the counts' data of these databases (b,), which may repeat."""
        return CountStats(
            self.x if len(self.x) == 1 else self.x[which], self.mass[which], self.sums[which],
            self.values[which], self.value_mass[which], self.log_factorials[which], None,
            self.shrunken,
        )  # fmt: skip

    def log_likelihood(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return value (b,), without log y!, and gradient (b, d) at points t (b, d).

        A point is beta and, of a negative binomial, log phi; one for each database, or many of one.
        """
        beta, log_phi = np.split(t, [self.x.shape[-1]], axis=1)
        eta = np.minimum((self.x @ beta[:, :, None])[:, :, 0], LARGEST_ETA)
        if not log_phi.size:
            mean = self.mass * np.exp(eta)
            return (self.sums * eta - mean).sum(1), self._by_beta(self.sums - mean)
        phi, log_odds = np.exp(log_phi), eta - log_phi
        log_rest = np.logaddexp(0.0, log_odds)
        share = np.exp(log_odds - log_rest)
        rising, slope = (self.value_mass * each for each in log_rising(phi, self.values))
        value = self.sums * (log_odds - log_rest) - self.mass * phi * log_rest
        of_mass = phi * self.mass * (log_rest - share) + self.sums * np.exp(-log_rest)
        by_log_phi = phi * slope.sum(1, keepdims=True) - of_mass.sum(1, keepdims=True)
        by_beta = self._by_beta(self.sums - (self.sums + self.mass * phi) * share)
        return value.sum(1) + rising.sum(1), np.append(by_beta, by_log_phi, 1)

    def _by_beta(self, by_eta: FloatArray) -> FloatArray:
        return np.asarray((by_eta[:, None] @ self.x)[:, 0])


def log_rising(phi: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log Gamma(phi + y) - log Gamma(phi) and its slope in phi, elementwise, y >= 0."""
    value, slope = gammaln(phi + y) - gammaln(phi), psi(phi + y) - psi(phi)
    if np.any(large := phi > LARGE_PHI):
        ratio, end, begin = np.log1p(y / phi), 1.0 / (phi + y), 1.0 / phi
        series = (phi + y - 0.5) * ratio + y * np.log(phi) - y + (end - begin) / 12.0
        value = np.where(large, series, value)
        series = ratio + 0.5 * (begin - end) + (begin**2 - end**2) / 12.0
        slope = np.where(large, series, slope)
    return np.asarray(value), np.asarray(slope)


def compress(records: PairRecords, risk_weights: FloatArray, scale: float) -> CountStats:
    """Compute the sums in one pass over the records (methods 4), without counts of no weight.

    ``scale``: prior SD of the weight's coefficients of shrunken columns, in residual SDs. Of R
    pseudo-records half are events, spread as the design is, without adding to what is exposed: a
    mean next to zero would rest on the few records above it. The weight's slope has a prior worth R
    records of one event.
    """
    n_cells = records.x_cells.shape[0]
    mass = sum_by(records.cell, risk_weights, n_cells)
    share = sum_by(records.cell, np.ones(records.n), n_cells) / max(records.n, 1)
    events = EVENTS * records.pseudo * share
    sums = sum_by(records.cell, risk_weights * records.y, n_cells) + events
    value_mass = sum_by(records.code, risk_weights, records.values.size)
    seen = value_mass > 0
    values, value_mass = records.values[seen], value_mass[seen]
    weight = records.weight_stats(risk_weights, scale)
    if weight is not None and records.pseudo:
        weight = weight.with_slope_prior(float(np.sqrt(records.pseudo) * np.log(2.0)))
    log_factorials = value_mass[None] @ gammaln(values + 1.0)
    return CountStats(
        records.x_cells[None], mass[None], sums[None], values[None], value_mass[None],
        log_factorials[None], weight, records.shrunken,
    )  # fmt: skip
