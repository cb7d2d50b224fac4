"""Smooth noisy histograms towards a normal law (Silverman 1982), as functions of arrays.

A bin's noisy count h has the mean mu = exp(theta) and about the variance s^2 + mu: that of its
noise and of the sample. Then h + s^2 is nearly Poisson with the mean mu + s^2, and the estimate
minimizes

    sum mu - (h + s^2) log(mu + s^2)  +  lambda/2 |D^3 (theta - theta_0)|^2 .

Its score (h - mu)/(s^2 + mu) has the mean zero. The sum of squares with the same variance has not:
in an empty bin it prefers mu > 0, since that also raises the variance it divides by. Third
differences of a quadratic are zero, so with theta_0 = 0 a large lambda gives a normal law, with its
own total, mean and variance. A stratum departs in this way either from the pooled curve of all
strata or from a normal law of its own.

**lambda** is the one of largest marginal likelihood (Laplace's approximation), given that theta has
the improper normal prior that the penalty is. The same likelihood says which theta_0 a stratum
takes. A misfit within the number of bins, the other usual rule, lets noise make a mode in an empty
tail every few samples, and means follow it.

**Tails.** Beyond the bins whose sum to the end is more than noise, theta is concave (a stiff
penalty on positive second differences): a tail there falls like a normal one or like a power, and
cannot rise again.
"""

from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from surveysynth._support.types import BoolArray, FloatArray

#: Penalties that are compared, from stiff to loose.
PENALTIES = 10.0 ** np.arange(6.0, -2.0, -1.0)
#: Penalty on positive second differences in tails.
STIFF = 1e4
#: A sum to the end of the grid above so many of its SDs is more than noise.
MORE_THAN_NOISE = 3.0
#: Least curvature of a bin whose expected count is about zero, and least variance of a count.
LEAST_WEIGHT = 1e-4
LEAST_VARIANCE = 1e-6
MOST_STEPS, LONGEST_STEP, SMALL_GAIN = 30, 4.0, 1e-3


def smoothed_counts(noisy: FloatArray, variance: float) -> FloatArray:
    """Return expected counts (H, J) of noisy histograms (H, J), a row for each stratum.

    variance: of the noise of each count, 0 for none. Every stratum is shrunk to the pooled curve
    or to a normal law.
    """
    variance = max(variance, LEAST_VARIANCE)
    total, normal = noisy.sum(0), np.zeros(noisy.shape[1])
    pooled_variance = variance * len(noisy)
    tails = tail_bins(total, pooled_variance)
    pooled, _ = _smooth(_Bins(total, pooled_variance, tails), normal, _normal_start(total))
    if len(noisy) == 1:
        return np.exp(pooled)[None]
    rows = []
    for counts in noisy:
        bins = _Bins(counts, variance, tails)
        size = np.log(max(counts.sum(), 1.0) / np.exp(pooled).sum())
        like_pooled = _smooth(bins, pooled, pooled + size)
        like_normal = _smooth(bins, normal, _normal_start(counts))
        rows.append(np.exp(max(like_pooled, like_normal, key=itemgetter(1))[0]))
    return np.stack(rows)


def tail_bins(counts: FloatArray, variance: float) -> BoolArray:
    """Return the bins (J,) beyond which a sum to the end is no more than noise."""

    def first_signal(ordered: FloatArray) -> int:
        sd = np.sqrt((variance + 1.0) * np.arange(1, ordered.size + 1))
        signal = np.flatnonzero(np.cumsum(ordered) > MORE_THAN_NOISE * sd)
        return int(signal[0]) if signal.size else ordered.size // 2

    ends = first_signal(counts), counts.size - 1 - first_signal(counts[::-1])
    position = np.arange(counts.size)
    return np.asarray((position <= min(ends)) | (position >= max(ends)), dtype=bool)


@dataclass(frozen=True)
class _Bins:
    """Noisy counts (J,), the variance of their noise, and which bins are in a tail."""

    counts: FloatArray
    variance: float
    tails: BoolArray

    def deviance(self, theta: FloatArray) -> float:
        """Return half the deviance of exp(theta), but for a constant."""
        mean = np.exp(theta)
        shifted = mean + self.variance
        return float((mean - (self.counts + self.variance) * np.log(shifted)).sum())

    def score_and_weight(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient (J,) of ``deviance`` and its expected curvature (J,)."""
        mean = np.exp(theta)
        slope = mean / (mean + self.variance)
        return (mean - self.counts) * slope, np.maximum(mean * slope, LEAST_WEIGHT)

    def rise(self, theta: FloatArray) -> FloatArray:
        """Return the second differences (J - 2,) that are positive in a tail, and 0 for others."""
        return np.where(self.tails[1:-1], np.maximum(np.diff(theta, 2), 0.0), 0.0)


def _smooth(
    bins: _Bins, towards: FloatArray, theta: FloatArray
) -> tuple[FloatArray, float]:
    """Return theta (J,) under the penalty of largest marginal likelihood, and the log of that."""
    third = np.diff(np.eye(theta.size), 3, axis=0)
    best, most = theta, float("-inf")
    for penalty in PENALTIES:
        roughness = penalty * (third.T @ third)
        theta, objective, log_det = _minimum(bins, roughness, towards, theta)
        evidence = 0.5 * len(third) * np.log(penalty) - objective - 0.5 * log_det
        if evidence > most:
            best, most = theta, evidence
    return best, most


def _minimum(
    bins: _Bins, roughness: FloatArray, towards: FloatArray, theta: FloatArray
) -> tuple[FloatArray, float, float]:
    """Return the penalized estimate, its objective and log det of the curvature."""

    def objective(at: FloatArray) -> float:
        apart, rise = at - towards, bins.rise(at)
        return bins.deviance(at) + 0.5 * float(apart @ roughness @ apart + STIFF * rise @ rise)

    value, second = objective(theta), np.diff(np.eye(theta.size), 2, axis=0)
    for _ in range(MOST_STEPS):
        score, weight = bins.score_and_weight(theta)
        rising = second[bins.rise(theta) > 0.0]
        stiff = STIFF * (rising.T @ rising)
        factor = cho_factor(np.diag(weight) + roughness + stiff, check_finite=False)
        gradient = score + roughness @ (theta - towards) + stiff @ theta
        step = -cho_solve(factor, gradient, check_finite=False)
        step *= min(1.0, LONGEST_STEP / np.abs(step).max())
        length, before = 1.0, value
        while (value := objective(theta + length * step)) > before and length > SMALL_GAIN:
            length *= 0.5
        if value > before:
            value = before
            break
        theta = theta + length * step
        if before - value < SMALL_GAIN:
            break
    return theta, value, 2.0 * float(np.log(np.diag(factor[0])).sum())


def _normal_start(counts: FloatArray) -> FloatArray:
    """Return theta (J,) of a normal law with about the place and spread of the counts."""
    position = np.linspace(-1.0, 1.0, counts.size)
    rough = np.maximum(np.convolve(counts, np.full(7, 1.0 / 7.0), "same"), 0.0) + 1e-6
    share = rough / rough.sum()
    centre = share @ position
    spread = np.sqrt(share @ (position - centre) ** 2) + 2.0 / counts.size
    theta = -0.5 * ((position - centre) / spread) ** 2
    return np.asarray(theta + np.log(max(counts.sum(), 1.0) / np.exp(theta).sum()))
