"""How much of epsilon an attacker can prove, from many runs on two databases.

The method is that of Jagielski, Ullman & Oprea (2020). A statistic of what is released, best the
log-likelihood ratio of both databases, is compared with a threshold c. If the mechanism is
(epsilon, delta)-differentially private, the event t > c has under both databases probabilities p
and q with p <= exp(epsilon) q + delta. Counts of runs bound p from below and q from above (Clopper
& Pearson 1934), so that

    epsilon >= log((p_low - delta) / q_high)

with the confidence of both bounds together. If it is rho-zCDP, rho also limits p given q, at any
rate of false alarms (``zcdp_power``): the least rho that allows these bounds is a lower bound on
it, and its epsilon at delta one on epsilon. That needs fewer runs than rare events.

The threshold is chosen on runs that the bounds do not see. Runs that are refused are an outcome
like any other: the caller gives them a statistic.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import betaincinv, ndtri

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.accounting import epsilon_of, zcdp_power

#: Error probability of a bound, both of its sides together.
LEVEL = 0.05
#: Bisections of a p-value, and of rho, on the log scale.
STEPS, RHO_STEPS = 60, 40


@dataclass(frozen=True)
class Proven:
    """What an attack proves.

    epsilon: the lower bound on it at ``LEVEL``, 0 where nothing is proven; hits, alarms: runs
    beyond the threshold of the one database and of the other, each out of ``runs``; delta: that
    was granted; zcdp: the bound is on rho, and epsilon is that of rho at delta.
    """

    epsilon: float
    hits: int
    alarms: int
    runs: int
    delta: float
    zcdp: bool = False

    def p_value(self, stated: float) -> float:
        """Of the hypothesis that the mechanism holds ``stated``: the smallest level at which the
        bound passes it."""
        low, high = math.log(1e-12), 0.0
        if self.bound(1e-12) > stated:
            return 1e-12
        for _ in range(STEPS):
            middle = 0.5 * (low + high)
            if self.bound(math.exp(middle)) > stated:
                high = middle
            else:
                low = middle
        return math.exp(high)

    def bound(self, level: float = LEVEL) -> float:
        """The lower bound on epsilon at a level."""
        given = self.hits, self.alarms, self.runs
        if self.zcdp:
            return epsilon_of_rho(lower_rho(*given, level=level), self.delta)
        return lower_bound(*given, delta=self.delta, level=level)


def lower_bound(
    hits: int, alarms: int, runs: int, *, delta: float = 0.0, level: float = LEVEL
) -> float:
    """The bound on epsilon that counts out of ``runs`` a side prove at a level; at least 0."""
    return float(_bounds(np.array(hits), np.array(alarms), runs, delta, level))


def lower_rho(hits: int, alarms: int, runs: int, *, level: float = LEVEL) -> float:
    """The bound on rho that counts out of ``runs`` a side prove at a level; at least 0."""
    p_low, q_high = (float(each) for each in _rates(np.array(hits), np.array(alarms), runs, level))
    low, high = 1e-9, 1e3
    if p_low <= q_high or zcdp_power(low, q_high) >= p_low:
        return 0.0
    for _ in range(RHO_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if zcdp_power(middle, q_high) >= p_low else (middle, high)
    return low


def epsilon_of_rho(rho: float, delta: float) -> float:
    """Epsilon at delta of rho-zCDP; 0 for 0."""
    return epsilon_of(rho, delta) if rho > 0.0 else 0.0


def _bounds(
    hits: IntArray, alarms: IntArray, runs: int, delta: float, level: float
) -> FloatArray:
    p_low, q_high = _rates(hits, alarms, runs, level)
    return np.asarray(np.log(np.maximum((p_low - delta) / q_high, 1.0)))


def _rates(
    hits: IntArray, alarms: IntArray, runs: int, level: float
) -> tuple[FloatArray, FloatArray]:
    """The lower bound of the rate of hits, and the upper one of the rate of alarms."""
    # Beta quantiles; 0 and 1 where there is no hit, or nothing but alarms.
    p_low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, level / 2), 0.0)
    q_high = np.where(
        alarms < runs, betaincinv(alarms + 1, np.maximum(runs - alarms, 1), 1 - level / 2), 1.0
    )
    return p_low, q_high


def most_provable(
    runs: int, *, delta: float = 0.0, level: float = LEVEL, zcdp: bool = False
) -> float:
    """What can be proven at best by as many runs: all hits, no false alarms, one test in half of
    them."""
    tested = runs // 2
    if zcdp:
        return epsilon_of_rho(lower_rho(tested, 0, tested, level=level), delta)
    return lower_bound(tested, 0, tested, delta=delta, level=level)


def proven(
    first: FloatArray, second: FloatArray, *, delta: float = 0.0, zcdp: bool = False
) -> Proven:
    """What statistics (R,) of runs on the one database and (R,) on the other prove: the threshold,
    the side of it and the database that hits are of are chosen on the first halves, the bound is
    of the second halves."""
    half = min(first.size, second.size) // 2
    best, chosen = -math.inf, (0, math.inf)
    for event, (own, other) in enumerate(_events(first[:half], second[:half])):
        values = np.unique(np.concatenate([own, other]))
        thresholds = 0.5 * (values + np.append(values[1:], values[-1]))
        hits = (own[:, None] > thresholds).sum(0)
        alarms = (other[:, None] > thresholds).sum(0)
        found = _bounds(hits, alarms, half, delta, LEVEL)
        if zcdp:  # the distance of two normal laws with these rates
            p_low, q_high = np.clip(_rates(hits, alarms, half, LEVEL), 1e-12, 1.0 - 1e-12)
            found = ndtri(p_low) - ndtri(q_high)
        # Of thresholds that are alike the one in the middle, far from both databases' runs.
        alike = np.flatnonzero(found == found.max())
        at = int(alike[alike.size // 2])
        if found[at] > best:
            best, chosen = float(found[at]), (event, float(thresholds[at]))
    event, threshold = chosen
    own, other = _events(first[half : 2 * half], second[half : 2 * half])[event]
    hits_, alarms_ = int((own > threshold).sum()), int((other > threshold).sum())
    made = Proven(0.0, hits_, alarms_, half, delta, zcdp)
    return replace(made, epsilon=made.bound())


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
