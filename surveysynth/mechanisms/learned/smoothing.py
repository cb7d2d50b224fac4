"""Smooth noisy histograms towards normal distributions or distributions of counts.

Functions of arrays; what is minimized, and why, is in strict 10: "Smoothing", "Tails",
"Distributions of counts", and "Strata". theta is the log of expected counts, theta_0 what a penalty
draws it to."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.special import betainc

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.survey.transforms import LearnedTransform

#: theta_0, and where its search starts.
Start = tuple[FloatArray, FloatArray]
#: Penalties that are compared, from stiff to loose.
PENALTIES = 10.0 ** np.arange(6.0, -2.0, -1.0)
#: The weight of the pooled curve beside that of a stratum: records, in SDs of one of its counts.
POOLED_WORTH = 20.0
#: Penalty on differences that are too large in tails.
STIFF = 1e4
#: Least index of a Pareto tail, beyond the x where steps are nearly those of a logarithm.
LEAST_INDEX, LOGARITHMIC = 1.5, 1.0
#: Index of the tails that noise may hide, their size in SDs of a count, and the largest share that
#: is given to them.
HIDDEN_INDEX, HIDDEN_SIZE, MOST_HIDDEN = 3.0, 3.0, 0.1
#: A sum of k counts to the end of the grid is more than noise above (a + b sqrt(k)) SDs of one
#: count. Noise alone passes this somewhere in about one tail of a thousand.
MORE_THAN_NOISE = (2.0, 3.5)
#: Least curvature of a bin whose expected count is about zero, and least variance of a count.
LEAST_WEIGHT = 1e-4
LEAST_VARIANCE = 1e-6
MOST_STEPS, LONGEST_STEP, SMALL_GAIN = 30, 4.0, 1e-3
#: Sizes and number of means of the negative binomial laws of which one is taken. The penalty leaves
#: the mean free, so that they need not be near each other.
SIZES, MEANS = 2.0 ** np.arange(-2.0, 7.0), 40
LEAST_MEAN = 0.1
#: Spreads of the normal laws that a search starts from, between half a bin and half of all bins.
NORMAL_SPREADS = 12
#: Least probability of a bin by such a law, and least share of it in the bins that it is fitted to.
LEAST_CHANCE, LEAST_SHARE = 1e-12, 0.02
#: Steps for the number of records of each law.
STEPS = 8


def smoothed_counts(noisy: FloatArray, variance: float, ends: FloatArray) -> FloatArray:
    """Return expected counts (H, J) of noisy histograms (H, J), a row for each stratum.

    variance: of the noise of each count, 0 for none; ends (J + 1,): of the bins, as asinh(y / s).
    Every stratum is shrunk to the pooled curve or to a normal distribution.
    """
    total, normal = noisy.sum(0), np.zeros(noisy.shape[1])
    of_all = max(variance, LEAST_VARIANCE) * len(noisy)
    peaks = peak_bins(total, of_all)
    third = np.diff(np.eye(normal.size), 3, axis=0)
    third = third[free_rows(third, peaks)]
    limits = Limits.of(*tail_bins(total, of_all), ends)

    def likely(counts: FloatArray, variance: float, *pooled: Start) -> FloatArray:
        tails, lower = tail_bins(counts, variance)
        found = [
            smooth(
                Bins(counts, variance, limits.and_concave(tails, theta).free_of(peaks)),
                theta, start, third,
            )
            for theta, start in pooled
        ]  # fmt: skip
        own = Bins(counts, variance, Limits.of(tails, lower, ends).free_of(peaks))
        at = np.arange(counts.size)
        rest = np.where(peaks, np.interp(at, at[~peaks], counts[~peaks]), counts)
        of_peaks = np.log(np.maximum(counts, 1.0))
        for start in normal_starts(rest, variance):
            found.append(smooth(own, normal, np.where(peaks, of_peaks, start), third))
        return max(found, key=itemgetter(1))[0]

    return _of_strata(noisy, variance, ends, likely)


def _of_strata(
    noisy: FloatArray, variance: float, ends: FloatArray, likely: Callable[..., FloatArray]
) -> FloatArray:
    """Return expected counts (H, J), each stratum's drawn to those of all.

    likely: theta (J,) of counts (J,) by the variance of their noise, and by further theta_0 with a
    start each.
    """
    least = max(variance, LEAST_VARIANCE)
    pooled = likely(noisy.sum(0), least * len(noisy))
    rows = [np.exp(pooled)]
    if len(noisy) > 1:
        rows = []
        for counts in noisy:
            size = np.log(max(counts.sum(), 1.0) / np.exp(pooled).sum())
            own = likely(counts, least, (pooled, pooled + size))
            rows.append(drawn_to(pooled, own, counts.sum() / np.sqrt(least + 1.0)))
    return np.stack([with_doubt(row, variance, ends) for row in rows])


def drawn_to(pooled: FloatArray, own: FloatArray, signal: float) -> FloatArray:
    """Return counts (J,) between two curves theta (J,); signal: records, in SDs of a count."""
    share = max(signal, 0.0) / (max(signal, 0.0) + POOLED_WORTH)
    between = np.exp(share * own + (1.0 - share) * pooled)
    return np.asarray(between * (np.exp(own).sum() / between.sum()))


def with_doubt(counts: FloatArray, variance: float, ends: FloatArray) -> FloatArray:
    """Return counts (J,) of which a share is spread like the tails that noise may hide."""
    middle = 0.5 * (ends[1:] + ends[:-1])
    total = max(counts.sum(), np.finfo(np.float64).tiny)
    mean = counts @ middle / total
    spread = max(float(np.sqrt(counts @ (middle - mean) ** 2 / total)), ends[1] - ends[0])
    hidden = np.exp(-np.abs(middle[:, None] - middle) / min(spread, 1.0 / HIDDEN_INDEX))
    hidden *= np.diff(ends)[:, None]
    hidden /= hidden.sum(axis=0)
    doubt = HIDDEN_SIZE * np.sqrt(variance + 1.0) / max(counts.sum(), 1.0)
    share = min(doubt, MOST_HIDDEN)
    return np.asarray((1.0 - share) * counts + share * (hidden @ counts))


def tail_bins(counts: FloatArray, variance: float) -> tuple[BoolArray, int]:
    """Return the bins (J,) beyond which a sum to the end is no more than noise.

    Also the number of those in the lower tail. If a peak is narrow, all bins are in a tail.
    """

    def first_signal(ordered: FloatArray) -> int:
        once, root = MORE_THAN_NOISE
        noise = once + root * np.sqrt(np.arange(1, ordered.size + 1))
        signal = np.flatnonzero(np.cumsum(ordered) > noise * np.sqrt(variance + 1.0))
        return int(signal[0]) if signal.size else ordered.size // 2

    ends = first_signal(counts), counts.size - 1 - first_signal(counts[::-1])
    position = np.arange(counts.size)
    return (position <= min(ends)) | (position >= max(ends)), min(ends) + 1


def peak_bins(counts: FloatArray, variance: float) -> BoolArray:
    """Return the bins (J,) that have more than twice their neighbors' records, beyond noise.

    Most often they have records alike: zeros that were not declared. A law that is stiff enough
    for the others would take these for noise beside them, so peaks have counts of their own.
    """
    padded = np.maximum(np.pad(counts, 1), 0.0)
    beside = padded[:-2] + padded[2:]
    noise = np.sqrt(9.0 * variance + padded[1:-1] + 4.0 * beside + 1.0)
    return np.asarray(counts - 2.0 * beside > sum(MORE_THAN_NOISE) * noise)


def free_rows(rows: FloatArray, bins: BoolArray) -> BoolArray:
    """Return which differences (r, J) have no part in these bins (J,)."""
    return np.asarray(~(rows[:, bins] != 0.0).any(axis=1))


@dataclass(frozen=True)
class Limits:
    """Differences of theta that must not pass their largest value: rows (r, J), largest (r,)."""

    rows: FloatArray
    largest: FloatArray

    @classmethod
    def of(cls, tails: BoolArray, lower: int, ends: FloatArray) -> "Limits":
        """Return the limits in tails: concave, and falling away from zero like a Pareto law.

        lower: bins of the lower tail.
        """
        first, second = (np.diff(np.eye(tails.size), order, axis=0) for order in (1, 2))
        inner = ends[1:-1]
        far = tails[1:] & tails[:-1] & (np.abs(inner) > LOGARITHMIC)
        away = np.where(np.arange(inner.size) < lower, -1.0, 1.0)
        far &= np.sign(inner) == away
        fall = -LEAST_INDEX * np.diff(ends[:-1])
        return cls(
            np.concatenate([second[tails[1:-1]], (away[:, None] * first)[far]]),
            np.concatenate([np.zeros(int(tails[1:-1].sum())), fall[far]]),
        )

    def and_concave(self, tails: BoolArray, about: FloatArray) -> "Limits":
        """Return also the limits that make theta - about concave in other tails (J,)."""
        second = np.diff(np.eye(tails.size), 2, axis=0)[tails[1:-1]]
        return Limits(
            np.concatenate([self.rows, second]), np.concatenate([self.largest, second @ about])
        )

    def free_of(self, bins: BoolArray) -> "Limits":
        """Return the limits that have no part in these bins (J,)."""
        kept = free_rows(self.rows, bins)
        return Limits(self.rows[kept], self.largest[kept])

    def excess(self, theta: FloatArray) -> FloatArray:
        """Return by how much differences pass their limits (r,), 0 where they do not."""
        return np.maximum(self.rows @ theta - self.largest, 0.0)


@dataclass(frozen=True)
class Bins:
    """Noisy counts (J,), the variance of their noise, and the limits of theta."""

    counts: FloatArray
    variance: float
    limits: Limits

    def deviance(self, theta: FloatArray) -> float:
        """Return half the deviance of exp(theta), up to a constant."""
        mean = np.exp(theta)
        shifted = mean + self.variance
        return float((mean - (self.counts + self.variance) * np.log(shifted)).sum())

    def score_and_weight(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient (J,) of ``deviance`` and its expected curvature (J,)."""
        mean = np.exp(theta)
        slope = mean / (mean + self.variance)
        return (mean - self.counts) * slope, np.maximum(mean * slope, LEAST_WEIGHT)


def smooth(
    bins: Bins, towards: FloatArray, theta: FloatArray, differences: FloatArray | None = None
) -> tuple[FloatArray, float]:
    """Return theta (J,) under the penalty of largest marginal likelihood, and the log of that.

    differences (r, J): what the penalty takes of theta - towards, by default third differences.
    """
    rows = np.diff(np.eye(theta.size), 3, axis=0) if differences is None else differences
    squares = rows.T @ rows
    best, most = theta, float("-inf")
    for penalty in PENALTIES:
        theta, objective, log_det = _minimum(bins, penalty * squares, towards, theta)
        evidence = 0.5 * len(rows) * np.log(penalty) - objective - 0.5 * log_det
        if evidence > most:
            best, most = theta, evidence
    return best, most


def _minimum(
    bins: Bins, roughness: FloatArray, towards: FloatArray, theta: FloatArray
) -> tuple[FloatArray, float, float]:
    """Return the penalized estimate, its objective and log det of the curvature."""

    limited, places = bool(len(bins.limits.rows)), np.arange(theta.size)

    def objective(at: FloatArray) -> float:
        apart = at - towards
        squares = apart @ roughness @ apart
        if limited:
            excess = bins.limits.excess(at)
            squares += STIFF * excess @ excess
        return bins.deviance(at) + 0.5 * float(squares)

    value = objective(theta)
    for _ in range(MOST_STEPS):
        score, weight = bins.score_and_weight(theta)
        curvature, gradient = roughness.copy(), score + roughness @ (theta - towards)
        curvature[places, places] += weight
        if limited:
            excess = bins.limits.excess(theta)
            beyond = bins.limits.rows[excess > 0.0]
            curvature += STIFF * (beyond.T @ beyond)
            gradient += STIFF * (excess @ bins.limits.rows)
        # LAPACK itself: to check so small a matrix takes longer than to solve it.
        root, failed = dpotrf(curvature)
        if failed:
            raise np.linalg.LinAlgError("the curvature of a smoothed histogram has no root")
        step = -dpotrs(root, gradient)[0]
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
    return theta, value, 2.0 * float(np.log(root.diagonal()).sum())


@lru_cache(maxsize=8)
def _normal_laws(bins: int) -> FloatArray:
    """Return log shares (laws, J) of bins by normal laws about each of them, narrow and wide."""
    position = np.arange(bins)
    spread = np.geomspace(0.5, max(0.5 * bins, 1.0), NORMAL_SPREADS)[:, None, None]
    log_share = (-0.5 * ((position - position[:, None]) / spread) ** 2).reshape(-1, bins)
    log_share -= np.log(np.exp(log_share).sum(axis=1, keepdims=True))
    log_share.flags.writeable = False
    return np.asarray(log_share, dtype=np.float64)


def normal_starts(counts: FloatArray, variance: float) -> tuple[FloatArray, FloatArray]:
    """Return two theta (J,) of normal laws from which to search: a wide one, and a likely one.

    The deviance has several minima. From too wide a start, a search takes a peak of one or two bins
    for noise; from the most likely law of a grid, it may take noise of one bin for a peak.
    """
    position = np.linspace(-1.0, 1.0, counts.size)
    width = min(7, counts.size)
    rough = np.maximum(np.convolve(counts, np.full(width, 1.0 / width), "same"), 0.0) + 1e-6
    share = rough / rough.sum()
    centre = share @ position
    spread = np.sqrt(share @ (position - centre) ** 2) + 2.0 / counts.size
    wide = -0.5 * ((position - centre) / spread) ** 2
    size = np.log(max(counts.sum(), 1.0))
    wide += size - np.log(np.exp(wide).sum())
    theta = size + _normal_laws(counts.size)
    mean = np.exp(theta)
    deviance = mean.sum(axis=1) - np.log(mean + variance) @ (counts + variance)
    return wide, np.asarray(theta[int(np.argmin(deviance))], dtype=np.float64)


def expected_counts(
    transform: LearnedTransform, noisy: FloatArray, variance: float
) -> FloatArray:
    """Return expected counts (H, J) of noisy histograms (H, J) of an amount or a count.

    variance: of the noise of each noisy count, 0 for none.
    """
    if not transform.whole:
        return smoothed_counts(noisy, variance, transform.ends)
    likely = partial(_most_likely, np.diff(transform.edges))
    return _of_strata(noisy, variance, transform.ends, likely)


def _most_likely(
    values: FloatArray, counts: FloatArray, variance: float, *others: Start
) -> FloatArray:
    """Return the theta (J,) of a count that is most likely; values (J,): numbers in each bin."""
    bins = Bins(counts, variance, Limits(np.zeros((0, counts.size)), np.zeros(0)))
    # Outermost bins that are more than noise have their own counts.
    apart = np.zeros(counts.size, dtype=bool)
    apart[[0, -1]] = counts[[0, -1]] > sum(MORE_THAN_NOISE) * np.sqrt(variance + 1.0)
    second = np.diff(np.eye(counts.size), 2, axis=0)
    second = second[free_rows(second, apart)]
    binomial = negative_binomial(counts, variance, values, ~apart)
    flat = [(np.log(values), start) for start in normal_starts(counts, variance)]
    laws = [*others, (binomial, binomial), *flat]
    found = [smooth(bins, towards, start, second) for towards, start in laws]
    return max(found, key=itemgetter(1))[0]


@lru_cache(maxsize=8)
def _chances(values: tuple[float, ...]) -> FloatArray:
    """Return the probabilities (laws, J) of bins of whole numbers for distributions on a grid."""
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
    """Return log expected counts (J,) under the most likely distribution of those on a grid.

    values (J,): whole numbers in each bin, starting at 0; used (J,): bins that the distribution is
    fitted to.
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
