"""Limits on what an adversary can conclude, and on the power of a test of a suspicion.

An adversary who knows every other record suspects, with probability ``prior``, that the record of
a person holds certain values and not others. The release multiplies the odds of the suspicion
by the likelihood ratio L of both cases (Bayes), so any limit on L limits the posterior:

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

import numpy as np
from scipy.special import ndtr, ndtri

from surveysynth.errors import InputError

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
    odds = math.log(_probability("prior", prior)) - math.log1p(-prior) + log_factor
    return 1.0 / (1.0 + math.exp(-odds)) if odds > -700.0 else 0.0


def zcdp_log_factor(rho: float, delta: float) -> float:
    """Return the bound that log L of a true suspicion exceeds with probability delta at most.

    Under rho-zCDP."""
    return rho + 2.0 * math.sqrt(-rho * math.log(_probability("delta", delta)))


def pure_power(epsilon: float, false_alarms: float) -> float:
    """Return the most power of a test with this rate of false alarms under epsilon-DP.

    The rate times exp(epsilon) or, where it is less, 1 - (1 - rate) exp(-epsilon) (Wasserman &
    Zhou 2010)."""
    rate = _probability("the rate of false alarms", false_alarms)
    return min(rate * math.exp(min(epsilon, 700.0)), 1.0 - (1.0 - rate) * math.exp(-epsilon))


def gaussian_power(rho: float, false_alarms: float) -> float:
    """Return the power of the best test against normal noise of this rho.

    Phi(Phi^-1(rate) + sqrt(2 rho)) (Dong, Roth & Su 2022)."""
    rate = _probability("the rate of false alarms", false_alarms)
    return float(ndtr(ndtri(rate) + math.sqrt(2.0 * rho)))


def zcdp_power(rho: float, false_alarms: float) -> float:
    """Return the most power of a test with this rate of false alarms under rho-zCDP.

    The answer of a test is post-processing, so the Renyi divergences of its two answers, in either
    order, are at most rho times their order. Found by bisection and reported at the safe end.
    """
    rate = _probability("the rate of false alarms", false_alarms)
    low, high = rate, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if _possible(middle, rate, rho):
            low = middle
        else:
            high = middle
    return high


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


def _probability(name: str, value: float) -> float:
    if not 0.0 < value < 1.0:
        raise InputError(f"{name} must lie between 0 and 1, but got {value}.")
    return value
