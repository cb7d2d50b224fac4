"""The sampler against exact probabilities and exact moments; wrong variances rejected."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.release.noise import (
    NoiseSource,
    SeededNoise,
    SystemNoise,
    added,
)

DRAWS = 20_000
#: Below this a right sampler fails once in 100,000 tests.
RARE = 1e-5
#: Of variances: such a sampler must be rejected.
WRONG = (Fraction(11, 10), Fraction(10, 11), Fraction(17, 10))
SMALL = (Fraction(1, 10), Fraction(1, 2), Fraction(7, 3), 9, Fraction(123456, 1000))


def probabilities(variance: float) -> tuple[IntArray, FloatArray]:
    """Whole numbers and their exact probabilities, the tails too."""
    reach = math.ceil(40 * math.sqrt(variance)) + 5
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * variance))
    return values, weights / weights.sum()


def chi_square(draws: IntArray, variance: float) -> float:
    """The p-value of the draws' frequencies; values of few expected draws are pooled."""
    values, chances = probabilities(variance)
    observed = np.bincount(draws - values[0], minlength=values.size).astype(np.float64)
    expected = len(draws) * chances
    groups = np.maximum.accumulate(np.cumsum(expected) // 30).astype(np.int64)
    groups = np.minimum(groups, groups[-1] - 1) if groups[-1] else groups
    o, e = (np.bincount(groups, each) for each in (observed, expected))
    o, e = o[e > 0], e[e > 0]
    return float(stats.chisquare(o, e * (o.sum() / e.sum())).pvalue)


def drawn(variance: int | Fraction, seed: int, size: int = DRAWS) -> IntArray:
    return np.array(SeededNoise(np.random.default_rng(seed)).draw(variance, size))


@pytest.mark.parametrize("variance", SMALL)
def test_frequencies_are_the_exact_probabilities(variance: Fraction) -> None:
    draws = drawn(variance, 1)
    assert chi_square(draws, float(variance)) > RARE
    for wrong in WRONG:
        assert chi_square(drawn(variance * wrong, 1), float(variance)) < RARE
    # Moments show what lies far out, where frequencies are pooled.
    values, chances = (each.astype(np.float64) for each in probabilities(float(variance)))
    for power in (1, 2, 4):
        mean = (chances * values**power).sum()
        sd = math.sqrt((chances * values ** (2 * power)).sum() - mean**2)
        assert abs((draws.astype(np.float64) ** power).mean() - mean) < 4.5 * sd / math.sqrt(DRAWS)


def test_a_rounded_normal_is_another_distribution() -> None:
    rounded = np.rint(np.random.default_rng(1).normal(0.0, 0.2**0.5, DRAWS)).astype(np.int64)
    assert chi_square(rounded, 0.2) < RARE


def test_large_noise_is_normal() -> None:
    """At sigma = 2^20 a discrete Gaussian is a normal but for one part in a million; here doubles
    do not hold its whole numbers either."""
    power = 55

    def scaled(variance: int | Fraction) -> FloatArray:
        return np.array([value / 2**power for value in drawn(variance, 2).tolist()])

    assert stats.kstest(scaled(4**power), "norm").pvalue > RARE
    assert RARE < stats.chi2.cdf((scaled(4**power) ** 2).sum(), DRAWS) < 1 - RARE
    for wrong in WRONG:
        below = stats.chi2.cdf((scaled(4**power * wrong) ** 2).sum(), DRAWS)
        assert min(below, 1 - below) < RARE
    digits = np.array([value & 15 for value in drawn(4**power, 3).tolist()])  # the last bits
    assert stats.chisquare(np.bincount(digits, minlength=16)).pvalue > RARE


def test_the_operating_system_s_noise_is_right_and_never_the_same() -> None:
    draws = np.array(SystemNoise().draw(9, DRAWS))
    assert chi_square(draws, 9.0) > RARE / 100  # no seed: it must not fail now and then
    assert SystemNoise().draw(4**30, 3) != SystemNoise().draw(4**30, 3)


def test_a_seed_makes_it_again_and_says_so() -> None:
    assert (drawn(4**20, 6, 5) == drawn(4**20, 6, 5)).all()
    sources: list[NoiseSource] = [SystemNoise(), SeededNoise(np.random.default_rng(0))]
    assert [source.kind for source in sources] == ["system", "seeded"]


def test_added_noise_keeps_digits_that_doubles_have_not() -> None:
    values = np.array([[2**80 + 1, -5, 0]], dtype=object)
    noise = SeededNoise(np.random.default_rng(7)).draw(4, 3)
    noisy = added(values, 4, SeededNoise(np.random.default_rng(7)))
    assert noisy.shape == values.shape
    assert (noisy - values).ravel().tolist() == noise


def test_no_variance_no_noise() -> None:
    with pytest.raises(ValueError, match="above 0"):
        SystemNoise().draw(0, 1)
