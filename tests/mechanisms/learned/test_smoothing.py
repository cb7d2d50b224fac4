"""Curves of known laws from noisy histograms, by the means of those laws; an unsmoothed clip fails.

A law of an outcome has a mean of its own. A model sees z = T(y) by its mean and variance alone, and
makes y = T^-1(z) of a normal z: the mean of that, at the learned T, is compared with the law's own,
in standard errors of a sample.
"""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.learned import smoothing
from surveysynth.mechanisms.learned.smoothing import smoothed_counts, tail_bins
from surveysynth.survey.transforms import BINS, LearnedTransform, bin_of, normal_scores

NODES = ndtri((np.arange(4000) + 0.5) / 4000)
#: Of a tenth of epsilon 10.8 and 3.6 at delta = 1e-6.
VARIANCES = (6.0, 45.0)
CLIP = 3.3
#: Ends of bins near zero, where steps are those of amounts.
LINEAR = np.linspace(0.0, 1.0, BINS + 1)


def lognormal(n: int, rng: np.random.Generator) -> FloatArray:
    return np.exp(rng.normal(10.5, 0.6, n))


def mixture(n: int, rng: np.random.Generator) -> FloatArray:
    low = rng.random(n) < 0.4
    return np.exp(np.where(low, rng.normal(9.0, 0.3, n), rng.normal(11.0, 0.4, n)))


def heavy(n: int, rng: np.random.Generator) -> FloatArray:
    """A log-normal body and, for one in twenty, a Pareto tail of index 1.8."""
    body = np.exp(rng.normal(10.5, 0.8, n))
    tail = 1e5 * (1.0 - rng.random(n)) ** (-1.0 / 1.8)
    return np.where(rng.random(n) < 0.05, tail, body)


def losses(n: int, rng: np.random.Generator) -> FloatArray:
    """As ``heavy``, but one in twenty is a loss."""
    loss = -np.exp(rng.normal(8.5, 1.2, n))
    return np.where(rng.random(n) < 0.05, loss, heavy(n, rng))


def wide(n: int, rng: np.random.Generator) -> FloatArray:
    return np.exp(rng.normal(9.5, 1.5, n))


def modest(n: int, rng: np.random.Generator) -> FloatArray:
    return np.exp(rng.normal(8.5, 0.9, n))


def zeros(n: int, rng: np.random.Generator) -> FloatArray:
    return np.where(rng.random(n) < 0.45, 0.0, np.exp(rng.normal(6.0, 1.2, n)))


LAWS: dict[str, tuple[Callable[[int, np.random.Generator], FloatArray], float, float]] = {
    "lognormal": (lognormal, 0.0, 5e6),
    "mixture": (mixture, 0.0, 1e6),
    "heavy": (heavy, 0.0, 2e7),
    "losses": (losses, -2e6, 2e7),
    "wide": (wide, 0.0, 2e7),
    "zeros": (zeros, -1e4, 1e5),
}


def ends_of(grid: LearnedTransform) -> FloatArray:
    return np.linspace(*grid.grid, BINS + 1)


def histogram(grid: LearnedTransform, values: FloatArray) -> FloatArray:
    return np.bincount(bin_of(grid, values), minlength=BINS).astype(np.float64)


def learned(grid: LearnedTransform, counts: FloatArray) -> LearnedTransform:
    """The transform with the curve of expected counts (J,)."""
    knots = tuple(map(tuple, normal_scores(counts[None]).tolist()))
    return LearnedTransform(low=grid.low, high=grid.high, curves=(knots,))


def distance(curve: LearnedTransform, population: FloatArray, n: int) -> float:
    """The mean that a normal z implies, less the law's own, in standard errors of n records."""
    z = np.clip(curve.forward(population), -CLIP, CLIP)
    implied = curve.inverse(z.mean() + z.std() * NODES).mean()
    return float((implied - population.mean()) / (population.std() / np.sqrt(n)))


def errors(law: str, variance: float, *, clip: bool, n: int = 2000, times: int = 8) -> FloatArray:
    """``distance`` for several samples and noises."""
    draw, low, high = LAWS[law]
    rng, grid = np.random.default_rng(7), LearnedTransform(low=low, high=high)
    population = np.clip(draw(200_000, rng), low, high)
    found = []
    for _ in range(times):
        noise = np.round(rng.normal(0.0, np.sqrt(variance), BINS))
        noisy = histogram(grid, draw(n, rng)) + noise
        smooth = smoothed_counts(noisy[None], variance, ends_of(grid))[0]
        counts = np.maximum(noisy, 0.0) if clip else smooth
        found.append(distance(learned(grid, counts), population, n))
    return np.array(found)


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("law", ["lognormal", "mixture", "heavy", "losses"])
def test_means_survive_the_noise_and_an_unsmoothed_clip_moves_them(
    law: str, variance: float
) -> None:
    smooth, planted = (errors(law, variance, clip=clip) for clip in (False, True))
    assert np.sqrt(np.mean(smooth**2)) < (1.3 if law in ("heavy", "losses") else 0.7)
    assert np.abs(smooth).max() < 3.0
    assert np.sqrt(np.mean(planted**2)) > 2.0  # mass in empty tails


@pytest.mark.parametrize("variance", [0.0, 6.0, 45.0])
def test_a_normal_law_on_the_scale_of_the_grid_comes_back(variance: float) -> None:
    rng, middle = np.random.default_rng(3), np.arange(BINS) + 0.5
    for centre, spread in ((20.0, 4.0), (40.0, 8.0), (32.0, 2.0)):
        edges = np.arange(BINS + 1)
        expected = 2000.0 * np.diff(stats.norm.cdf(edges, centre, spread))
        counts = rng.poisson(expected) + np.round(rng.normal(0.0, np.sqrt(variance), BINS))
        share = smoothed_counts(counts[None], variance, LINEAR)[0]
        share /= share.sum()
        mean = share @ middle
        sd = np.sqrt(share @ (middle - mean) ** 2)
        skewness = share @ ((middle - mean) / sd) ** 3
        assert abs(mean - centre) < 0.1 * spread
        assert abs(sd / spread - 1.0) < 0.1
        assert abs(skewness) < 0.1


def test_a_peak_of_two_bins_is_no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of 300 teachers about 35, in a range of 0 to 80: bins of both tails meet in the peak.

    Planted: the upper tail begins in the middle of the grid, where it must fall like a Pareto law.
    """
    grid = LearnedTransform(low=0.0, high=80.0)

    def worst() -> float:
        rng, found = np.random.default_rng(13), []
        for _ in range(12):
            values = rng.normal(35.0, 3.0, 307)
            noisy = histogram(grid, values) + np.round(rng.normal(0.0, 4.1, BINS))
            share = smoothed_counts(noisy[None], 17.0, ends_of(grid))[0]
            middle = grid.divisor * np.sinh(0.5 * (ends_of(grid)[1:] + ends_of(grid)[:-1]))
            found.append(abs(share @ middle / share.sum() - 35.0))
        return max(found)

    assert worst() < 3.0  # one SD of the hours; a bin is 3 wide
    halves = lambda counts, variance: (tail_bins(counts, variance)[0], BINS // 2)  # noqa: E731
    monkeypatch.setattr(smoothing, "tail_bins", halves)
    assert worst() > 10.0


def test_a_peak_does_not_hide_the_other_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 amounts with 45% zeros that nobody declared. Planted: one law for zeros and amounts."""
    assert np.sqrt(np.mean(errors("zeros", 45.0, clip=False, n=500) ** 2)) < 2.5
    monkeypatch.setattr(smoothing, "peak_bins", lambda counts, _: counts > np.inf)
    assert np.sqrt(np.mean(errors("zeros", 45.0, clip=False, n=500) ** 2)) > 20.0


def test_strata_take_their_amounts_from_all_beside_a_peak() -> None:
    """Where the noise hides the amounts of every stratum, its mean is that of all at least."""
    rng, grid = np.random.default_rng(12), LearnedTransform(low=-1e4, high=1e5)
    middle, ratios = np.sinh(0.5 * (ends_of(grid)[1:] + ends_of(grid)[:-1])), []
    for _ in range(8):
        counts = np.stack([histogram(grid, zeros(n, rng)) for n in (500, 600, 700, 1100)])
        noisy = counts + np.round(rng.normal(0.0, np.sqrt(78.0), counts.shape))
        smooth = smoothed_counts(noisy, 78.0, ends_of(grid))
        found, true = (each / each.sum(1, keepdims=True) @ middle for each in (smooth, counts))
        ratios.append(found / true)
    assert np.median(ratios) > 0.5
    assert np.max(ratios) < 1.5


def test_noise_alone_is_no_error_and_gives_a_concave_curve() -> None:
    """Counts without any record: nothing but noise, whose law cannot rise in its tails."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        noise = np.round(rng.normal(0.0, np.sqrt(45.0), (1, BINS)))
        counts = smoothed_counts(noise, 45.0, LINEAR)
        assert np.isfinite(counts).all()
        assert (counts > 0).all()
        assert counts.max() < 60.0
        knots = normal_scores(counts)
        assert (np.diff(knots) > 0).all()


def test_the_score_of_an_empty_bin_has_the_mean_zero() -> None:
    """The planted sum of squares, by contrast, prefers counts above zero under noise alone."""
    noise = np.random.default_rng(1).normal(0.0, 3.0, 400_000)
    variance, mean = 9.0, 0.0

    def planted(mu: float) -> float:
        return float(np.mean((noise - mu) ** 2 / (2.0 * (variance + mu))))

    slope = (planted(0.01) - planted(0.0)) / 0.01
    assert slope < -0.03  # -1/(2 s^2)
    own = float(np.mean((mean - noise) / (variance + mean)))
    assert abs(own) < 0.005


def test_tails_begin_where_sums_to_the_end_are_noise() -> None:
    counts = np.zeros(BINS)
    counts[20:40] = 100.0
    tails, lower = tail_bins(counts, 9.0)
    assert lower == 21
    assert tails[:20].all()
    assert tails[41:].all()
    assert not tails[21:39].any()


@pytest.mark.parametrize("noise", ["normal", "laplace"])
def test_noise_alone_is_seldom_taken_for_a_tail(
    noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts that are noise in all bins but the middle ones, whose tails may begin nowhere else."""
    rng = np.random.default_rng(19)
    draws = getattr(rng, noise)(size=(3000, BINS)) * (3.0 if noise == "normal" else 3.0 / 2**0.5)
    draws[:, 30:34] = 500.0

    def wrong() -> float:
        return float(np.mean([not tail_bins(row, 9.0)[0][[29, 34]].all() for row in draws]))

    assert wrong() < 0.01
    monkeypatch.setattr(smoothing, "MORE_THAN_NOISE", (0.0, 3.0))  # planted: of one sum, not of all
    assert wrong() > 0.015


def test_a_stratum_of_few_records_takes_the_common_shape() -> None:
    """Of two modes with 30 records the pooled shape is nearer than noise, or than one mode."""
    rng, grid = np.random.default_rng(11), LearnedTransform(low=0.0, high=1e6)
    truth = histogram(grid, mixture(400_000, rng))
    truth /= truth.sum()
    apart = []
    for _ in range(6):
        strata = [histogram(grid, mixture(n, rng)) for n in (2000, 2000, 150)]
        noisy = np.stack(strata) + np.round(rng.normal(0.0, 2.5, (3, BINS)))
        for counts in (smoothed_counts(noisy, 6.0, ends_of(grid))[2], np.maximum(noisy[2], 0.0)):
            apart.append(np.abs(counts / counts.sum() - truth).sum())
    own, clipped = np.array(apart).reshape(-1, 2).T
    assert own.max() < 0.5 * clipped.min()


def test_a_small_stratum_has_its_tail_from_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """150 records, with others that lie higher, under the noise of epsilon 3.6."""
    grid, draws = LearnedTransform(low=0.0, high=5e6), (modest, lognormal, heavy, lognormal)

    def far() -> float:
        rng, found = np.random.default_rng(4), []
        for _ in range(24):
            strata = [draw(n, rng) for draw, n in zip(draws, (150, 300, 300, 300), strict=True)]
            counts = np.stack([histogram(grid, values) for values in strata])
            noisy = counts + np.round(rng.normal(0.0, np.sqrt(45.0), counts.shape))
            curve = learned(grid, smoothed_counts(noisy, 45.0, ends_of(grid))[0])
            found.append(distance(curve, strata[0], strata[0].size))
        return float(np.sqrt(np.mean(np.square(found))))

    assert far() < 1.2
    monkeypatch.setattr(smoothing, "POOLED_WORTH", 0.0)  # planted: every stratum by itself
    assert far() > 1.5


def test_a_wide_law_of_few_records_keeps_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 records of a log SD of 1.5: noise in its tail must not reach the end of the range."""
    assert np.sqrt(np.mean(errors("wide", 6.0, clip=False, n=500) ** 2)) < 1.2
    monkeypatch.setattr(smoothing, "LEAST_INDEX", -5.0)  # planted: tails that are concave only
    assert np.sqrt(np.mean(errors("wide", 6.0, clip=False, n=500) ** 2)) > 1.5


def test_a_tail_that_the_noise_hides_is_not_sent_to_the_end_of_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 2,000 records 8 are far from the others, at a z of 2.7 by rank."""
    rng, grid = np.random.default_rng(17), LearnedTransform(low=0.0, high=5e6)
    values = np.exp(rng.normal(10.5, 0.3, 2000))
    values[:8] = np.exp(12.0)
    noisy = histogram(grid, values) + np.round(rng.normal(0.0, np.sqrt(45.0), BINS))

    def largest() -> float:
        counts = smoothed_counts(noisy[None], 45.0, ends_of(grid))[0]
        return float(learned(grid, counts).forward(values[:8]).max())

    assert largest() < 4.1
    monkeypatch.setattr(smoothing, "MOST_HIDDEN", 0.0)  # planted: the estimate as it is
    assert largest() > 4.5
