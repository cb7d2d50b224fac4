"""How much of epsilon an attacker can prove, from many runs on two databases.

The method is that of Jagielski, Ullman & Oprea (2020). A statistic of what is released, best the
log-likelihood ratio of both databases, is compared with a threshold c. If the mechanism is
(epsilon, delta)-differentially private, the event t > c has under both databases probabilities p
and q with p <= exp(epsilon) q + delta. Counts of runs bound p from below and q from above (Clopper
& Pearson 1934), so that

    epsilon >= log((p_low - delta) / q_high)

with the confidence of both bounds together. The threshold is chosen on runs that the bounds do not
see. Runs that are refused are an outcome like any other: the caller gives them a statistic.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from surveysynth._support.types import FloatArray, IntArray

#: Error probability of a bound, both of its sides together.
LEVEL = 0.05
#: Bisections of a p-value on the log scale.
STEPS = 60


@dataclass(frozen=True)
class Proven:
    """What an attack proves.

    epsilon: the lower bound on it at ``LEVEL``, 0 where nothing is proven; hits, alarms: runs
    beyond the threshold of the one database and of the other, each out of ``runs``; delta: that
    was granted.
    """

    epsilon: float
    hits: int
    alarms: int
    runs: int
    delta: float

    def p_value(self, stated: float) -> float:
        """Of the hypothesis that the mechanism holds ``stated``: the smallest level at which the
        bound passes it."""
        low, high = math.log(1e-12), 0.0
        if self._bound(1e-12) > stated:
            return 1e-12
        for _ in range(STEPS):
            middle = 0.5 * (low + high)
            if self._bound(math.exp(middle)) > stated:
                high = middle
            else:
                low = middle
        return math.exp(high)

    def _bound(self, level: float) -> float:
        return lower_bound(self.hits, self.alarms, self.runs, delta=self.delta, level=level)


def lower_bound(
    hits: int, alarms: int, runs: int, *, delta: float = 0.0, level: float = LEVEL
) -> float:
    """The bound on epsilon that counts out of ``runs`` a side prove at a level; at least 0."""
    return float(_bounds(np.array(hits), np.array(alarms), runs, delta, level))


def _bounds(
    hits: IntArray, alarms: IntArray, runs: int, delta: float, level: float
) -> FloatArray:
    # Beta quantiles; 0 and 1 where there is no hit, or nothing but alarms.
    p_low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, level / 2), 0.0)
    q_high = np.where(
        alarms < runs, betaincinv(alarms + 1, np.maximum(runs - alarms, 1), 1 - level / 2), 1.0
    )
    return np.asarray(np.log(np.maximum((p_low - delta) / q_high, 1.0)))


def most_provable(runs: int, *, delta: float = 0.0, level: float = LEVEL) -> float:
    """What can be proven at best by as many runs: all hits, no false alarms, one test in half of
    them."""
    tested = runs // 2
    return lower_bound(tested, 0, tested, delta=delta, level=level)


def proven(first: FloatArray, second: FloatArray, *, delta: float = 0.0) -> Proven:
    """What statistics (R,) of runs on the one database and (R,) on the other prove: the threshold,
    the side of it and the database that hits are of are chosen on the first halves, the bound is
    of the second halves."""
    half = min(first.size, second.size) // 2
    best, chosen = -1.0, (0, math.inf)
    for event, (own, other) in enumerate(_events(first[:half], second[:half])):
        values = np.unique(np.concatenate([own, other]))
        thresholds = 0.5 * (values + np.append(values[1:], values[-1]))
        hits = (own[:, None] > thresholds).sum(0)
        alarms = (other[:, None] > thresholds).sum(0)
        found = _bounds(hits, alarms, half, delta, LEVEL)
        # Of thresholds that are alike the one in the middle, far from both databases' runs.
        alike = np.flatnonzero(found == found.max())
        at = int(alike[alike.size // 2])
        if found[at] > best:
            best, chosen = float(found[at]), (event, float(thresholds[at]))
    event, threshold = chosen
    own, other = _events(first[half : 2 * half], second[half : 2 * half])[event]
    hits_, alarms_ = int((own > threshold).sum()), int((other > threshold).sum())
    bound = lower_bound(hits_, alarms_, half, delta=delta)
    return Proven(bound, hits_, alarms_, half, delta)


def _events(first: FloatArray, second: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """Statistics of which the first is beyond a threshold where the event is a hit."""
    return [(first, second), (-second, -first), (-first, -second), (second, first)]


def holm(p_values: Sequence[float] | Mapping[str, float]) -> list[float]:
    """Adjusted p-values, in order (Holm 1979)."""
    values = list(p_values.values()) if isinstance(p_values, Mapping) else list(p_values)
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, index in enumerate(np.argsort(values, kind="stable")):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = largest
    return adjusted
