"""Zero-concentrated differential privacy: rho, and its (epsilon, delta).

A mechanism is rho-zCDP (Bun & Steinke 2016) if for any two neighboring databases and every order
alpha > 1 the Renyi divergence of its outputs is at most rho alpha. Each order then bounds delta
for a given epsilon (Canonne, Kamath & Steinke 2020, corollary 13):

    log delta = (alpha - 1)(alpha rho - epsilon) + (alpha - 1) log(1 - 1/alpha) - log alpha

This is convex in alpha, and any alpha gives a valid bound: a minimum missed by rounding is a bound
a little too large, never one that does not hold. Bisection returns the safe end of its last
interval.

**What an adversary can conclude.** An adversary who knows every other record suspects, with
probability ``prior``, that a person's record has certain values rather than others. The release
multiplies the odds of the suspicion by the likelihood ratio L of both cases (Bayes), so any limit
on L limits the posterior:

    posterior odds = L · prior odds

- epsilon-differential privacy: L <= exp(epsilon), always (Kasiviswanathan & Smith 2014).
- rho-zCDP: where the suspicion is true, the mean of log L is at most rho, and it exceeds
  rho + 2 sqrt(rho log(1/delta)) with probability delta at most (Bun & Steinke 2016, lemma 3.5).

Both hold for suspicions that are sets of values as well: divergences of mixtures are no larger than
the largest of their parts. The limits do not cover records that
depend on this one (a household).

The same limits bound the power of a test of the suspicion at a given false-alarm rate.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from surveysynth.errors import InputError

#: Bisections of doubles end when the middle is one of the ends, long before this.
MOST_STEPS = 4000


@dataclass(frozen=True)
class Budget:
    """A budget in zCDP, and the same as (epsilon, delta)-differential privacy.

    rho: Bun and Steinke's; epsilon: the least that rho guarantees at this delta. Neither is the
    asymptotic epsilon of the pseudo-posterior, and they are never added to it.
    """

    rho: float
    epsilon: float
    delta: float

    @classmethod
    def of_rho(cls, rho: float, delta: float) -> "Budget":
        """Return the budget of a rho > 0 at a delta in (0, 1); raise ``InputError`` otherwise."""
        return cls(_positive("rho", rho), epsilon_of(rho, delta), delta)

    @classmethod
    def of_epsilon(cls, epsilon: float, delta: float) -> "Budget":
        """Return the largest rho that guarantees epsilon at delta; raise ``InputError``."""
        return cls(rho_of(epsilon, delta), float(epsilon), delta)


def log_delta_of(rho: float, epsilon: float) -> float:
    """Return the log of the smallest delta for which rho-zCDP guarantees (epsilon, delta)-DP.

    At most 0."""
    _positive("rho", rho)

    def slope(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        return (2.0 * excess + 1.0) * rho - epsilon + log_excess - math.log1p(excess)

    low, high = -750.0, 1.0
    while slope(high) < 0.0:
        high *= 2.0
    _, log_excess = _bisected(slope, low, high)
    excess = math.exp(log_excess)  # alpha itself may not differ from 1 in a double
    order, log_share = 1.0 + excess, log_excess - math.log1p(excess)  # log of 1 - 1/alpha
    return min(0.0, excess * (order * rho - epsilon + log_share) - math.log(order))


def epsilon_of(rho: float, delta: float) -> float:
    """Return the smallest epsilon for which rho-zCDP guarantees (epsilon, delta)-DP."""
    _positive("rho", rho)
    target = math.log(_share("delta", delta))
    # Bun & Steinke 2016, proposition 1.3, is never smaller.
    high = rho + 2.0 * math.sqrt(-rho * target)
    return _bisected(lambda epsilon: target - log_delta_of(rho, epsilon), 0.0, high)[1]


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP guarantees (epsilon, delta)-DP."""
    _positive("epsilon", epsilon)
    target = math.log(_share("delta", delta))
    # With this rho the proposition above guarantees epsilon: rho + 2 sqrt(rho t) <= epsilon.
    low = (epsilon / (math.sqrt(epsilon - target) + math.sqrt(-target))) ** 2 * (1.0 - 1e-9)
    high = epsilon
    while log_delta_of(high, epsilon) <= target:  # where delta is no small number
        high *= 2.0
    return _bisected(lambda rho: log_delta_of(rho, epsilon) - target, low, high)[0]


def _bisected(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return neighboring ends: function <= 0 at the first, > 0 (or the given end) at the second."""
    for _ in range(MOST_STEPS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if function(middle) > 0.0:
            high = middle
        else:
            low = middle
    return low, high


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a finite number above 0, but got {value}.")
    return float(value)


def _share(name: str, value: float) -> float:
    if not 0.0 < value < 1.0:
        usual = "; 1e-6 or less is usual" if name == "delta" else ""
        raise InputError(f"{name} must lie between 0 and 1, but got {value}{usual}.")
    return float(value)


#: Orders of Renyi divergences, less 1, that limit a test; any set of them gives a valid limit.
_EXCESS = np.geomspace(1e-3, 1e3, 400)


def posterior(prior: float, log_factor: float) -> float:
    """Return the posterior probability after the odds of a prior are multiplied by exp(log_factor).

    Raises ``InputError`` for a prior outside (0, 1).

    Examples
    --------
    >>> import math
    >>> round(posterior(0.5, math.log(3.0)), 6)
    0.75
    """
    odds = math.log(_share("prior", prior)) - math.log1p(-prior) + log_factor
    return 1.0 / (1.0 + math.exp(-odds)) if odds > -700.0 else 0.0


def zcdp_log_factor(rho: float, delta: float) -> float:
    """Return the bound that log L of a true suspicion exceeds with probability delta at most.

    Under rho-zCDP."""
    return rho + 2.0 * math.sqrt(-rho * math.log(_share("delta", delta)))


def pure_power(epsilon: float, false_alarms: float) -> float:
    """Return the most power of a test with this rate of false alarms under epsilon-DP.

    The rate times exp(epsilon) or, where it is less, 1 - (1 - rate) exp(-epsilon) (Wasserman &
    Zhou 2010)."""
    rate = _share("the rate of false alarms", false_alarms)
    return min(rate * math.exp(min(epsilon, 700.0)), 1.0 - (1.0 - rate) * math.exp(-epsilon))


def gaussian_power(rho: float, false_alarms: float) -> float:
    """Return the power of the best test against normal noise of this rho.

    Phi(Phi^-1(rate) + sqrt(2 rho)) (Dong, Roth & Su 2022)."""
    rate = _share("the rate of false alarms", false_alarms)
    return float(ndtr(ndtri(rate) + math.sqrt(2.0 * rho)))


def zcdp_power(rho: float, false_alarms: float) -> float:
    """Return the most power of a test with this rate of false alarms under rho-zCDP.

    The answer of a test is post-processing, so the Renyi divergences of its two answers, in either
    order, are at most rho times their order. Bisection returns the safe end of its last interval.
    """
    rate = _share("the rate of false alarms", false_alarms)
    return _bisected(lambda power: 0.5 - _possible(power, rate, rho), rate, 1.0)[1]


def _possible(power: float, rate: float, rho: float) -> bool:
    """Return whether rho-zCDP allows a test of this power."""
    if power >= 1.0:
        return False
    ways = ((power, rate), (rate, power))
    return all(bool((_divergences(p, q) <= rho * (1.0 + _EXCESS)).all()) for p, q in ways)


def _divergences(p: float, q: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Return Renyi divergences of a coin with probability p from one with q, by order."""
    order = 1.0 + _EXCESS
    heads = order * math.log(p) - _EXCESS * math.log(q)
    tails = order * math.log1p(-p) - _EXCESS * math.log1p(-q)
    return np.asarray(np.logaddexp(heads, tails) / _EXCESS)
