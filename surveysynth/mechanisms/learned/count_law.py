"""Smooth noisy histograms of counts towards a negative binomial or a geometric law.

Bins of a count end at whole numbers, and most have one value (``transforms.py``). The noisy
counts of bins have the law of ``smoothing.py``, and the estimate minimizes

    sum mu - (h + s^2) log(mu + s^2)  +  lambda/2 |D^2 (theta - theta_0)|^2 .

Second differences of a linear function are zero. So with theta_0 = 0 a large lambda gives a
geometric law, and with the log probabilities of a negative binomial law one of the same size with
any mean. Poisson laws are those of a large size. The marginal likelihood chooses lambda, and
between these laws: both have the same null space, so that it compares them.

**Ends.** Many records may have none, or lie at a top code, in any number. So where an outermost bin
is more than noise, no difference takes it: it has its own noisy count, whatever the others say, and
the law is fitted to the other bins. So the share of zeros has the noise of one count.

**Tails** need no limits: a law of this kind has them. Concave tails would be wrong for counts: an
excess of zeros, and negative binomial laws of a size below 1, are convex.

**Strata** and **doubt** are as in ``smoothing.py``: a stratum departs from the pooled curve or from
a law of its own, whichever is most likely, and is drawn to the pooled one.
"""

from functools import lru_cache
from operator import itemgetter

import numpy as np
from scipy.special import betainc

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.mechanisms.learned.smoothing import (
    LEAST_VARIANCE,
    MORE_THAN_NOISE,
    Bins,
    Limits,
    drawn_to,
    normal_start,
    smooth,
    smoothed_counts,
    with_doubt,
)
from surveysynth.survey.transforms import LearnedTransform

#: Sizes and number of means of the negative binomial laws of which one is taken. The penalty leaves
#: the mean free, so that they need not be near each other.
SIZES, MEANS = 2.0 ** np.arange(-2.0, 7.0), 40
LEAST_MEAN = 0.1
#: Least probability of a bin by such a law, and least share of it in the bins that it is fitted to.
LEAST_CHANCE, LEAST_SHARE = 1e-12, 0.02
#: Steps for the number of records of each law.
STEPS = 8


def expected_counts(
    transform: LearnedTransform, noisy: FloatArray, variance: float
) -> FloatArray:
    """Return expected counts (H, J) of noisy histograms (H, J) of an amount or a count.

    variance: of the noise of each noisy count, 0 for none.
    """
    if not transform.whole:
        return smoothed_counts(noisy, variance, transform.ends)
    values, ends = np.diff(transform.edges), transform.ends
    return np.stack([
        with_doubt(row, variance, ends) for row in _laws(noisy, variance, values)
    ])


def _laws(noisy: FloatArray, variance: float, values: FloatArray) -> list[FloatArray]:
    """Return the estimate (J,) of every stratum; values (J,): whole numbers in each bin."""
    variance = max(variance, LEAST_VARIANCE)
    total = noisy.sum(axis=0)
    pooled, _ = _most_likely(total, variance * len(noisy), values)
    if len(noisy) == 1:
        return [np.exp(pooled)]
    rows = []
    for counts in noisy:
        size = np.log(max(counts.sum(), 1.0) / np.exp(pooled).sum())
        likely, _ = _most_likely(counts, variance, values, (pooled, pooled + size))
        rows.append(drawn_to(pooled, likely, counts.sum() / np.sqrt(variance + 1.0)))
    return rows


def _most_likely(
    counts: FloatArray,
    variance: float,
    values: FloatArray,
    *others: tuple[FloatArray, FloatArray],
) -> tuple[FloatArray, float]:
    """Return the theta (J,) that is most likely, and the log of its marginal likelihood.

    others: further theta_0, each with a start.
    """
    bins = Bins(counts, variance, Limits.none(counts.size))
    apart = outermost_apart(counts, variance)
    second = np.diff(np.eye(counts.size), 2, axis=0)
    second = second[~(second[:, apart] != 0.0).any(axis=1)]
    binomial = negative_binomial(counts, variance, values, ~apart)
    laws = [*others, (binomial, binomial), (np.log(values), normal_start(counts))]
    found = [smooth(bins, towards, start, second) for towards, start in laws]
    return max(found, key=itemgetter(1))


def outermost_apart(counts: FloatArray, variance: float) -> BoolArray:
    """Return which bins (J,) are outermost and more than noise."""
    apart = np.zeros(counts.size, dtype=bool)
    apart[[0, -1]] = counts[[0, -1]] > sum(MORE_THAN_NOISE) * np.sqrt(variance + 1.0)
    return apart


@lru_cache(maxsize=8)
def _chances(values: tuple[float, ...]) -> FloatArray:
    """Return the probabilities (laws, J) of bins of so many whole numbers by laws on a grid."""
    ends = np.cumsum(values)
    size, mean = map(
        np.ravel, np.meshgrid(SIZES, np.geomspace(LEAST_MEAN, max(ends[-1], 1.0), MEANS))
    )
    # P(Y < y) = I_p(size, y), with p = size / (size + mean).
    below = betainc(size[:, None], ends, (size / (size + mean))[:, None])
    chance = np.maximum(np.diff(below, axis=1, prepend=0.0), LEAST_CHANCE)
    chance.flags.writeable = False
    return np.asarray(chance, dtype=np.float64)


def negative_binomial(
    counts: FloatArray, variance: float, values: FloatArray, used: BoolArray
) -> FloatArray:
    """Return log expected counts (J,) by the law that is most likely of those on a grid.

    values (J,): whole numbers in each bin, from 0 on; used (J,): bins that the law is fitted to.
    """
    chance = _chances(tuple(values))
    given, of_used = counts[used], chance[:, used]
    records = max(given.sum(), 1.0) / np.maximum(of_used.sum(axis=1), LEAST_SHARE)
    for _ in range(STEPS):
        mu = records[:, None] * of_used
        slope = mu / (mu + variance)
        score, weight = ((given - mu) * slope).sum(axis=1), (mu * slope).sum(axis=1)
        records *= np.exp(np.clip(score / np.maximum(weight, 1e-6), -1.0, 1.0))
    mu = records[:, None] * of_used
    deviance = (mu - (given + variance) * np.log(mu + variance)).sum(axis=1)
    best = int(np.argmin(deviance))
    return np.asarray(np.log(records[best] * chance[best]), dtype=np.float64)
