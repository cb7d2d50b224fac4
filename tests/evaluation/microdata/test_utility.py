"""Utility measures against NumPy and SciPy, records repeated by their weight, and coverage of the
resampled intervals where the truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surveysynth.errors import InputError
from surveysynth.estimation.quantiles import weighted_quantiles
from surveysynth.evaluation.microdata.utility import (
    barycentre,
    distribution_utility,
    estimands,
    interval_overlap,
    ks_distance,
)

VALUES = st.lists(st.integers(-9, 9), min_size=1, max_size=30)


@given(VALUES, st.lists(st.integers(1, 4), min_size=30, max_size=30))
def test_weighted_quantiles_are_those_of_repeated_records(values, repeats):
    y, times = np.array(values, dtype=float), np.array(repeats[: len(values)])
    shares = np.array([0.1, 0.25, 0.5, 0.9, 1.0])
    np.testing.assert_array_equal(
        weighted_quantiles(y, times.astype(float), shares),
        np.quantile(np.repeat(y, times), shares, method="inverted_cdf"),
    )


def test_the_barycentre_averages_order_statistics():
    rng = np.random.default_rng(1)
    datasets = [rng.normal(mean, 1 + mean, 500) for mean in (0, 1, 5)]
    np.testing.assert_allclose(barycentre(datasets), np.mean(np.sort(datasets), axis=0))
    # Of normal distributions it is the normal one with the mean mean and the mean SD.
    many = [rng.normal(mean, 1 + mean, 20_000) for mean in (0, 1, 5)]
    assert stats.kstest(barycentre(many), stats.norm(2, 3).cdf).statistic < 0.01
    assert stats.kstest(np.concatenate(many), stats.norm(2, 3).cdf).statistic > 0.1


def test_the_barycentre_of_weighted_datasets_of_any_size():
    values, repeats = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 1.0])
    np.testing.assert_array_equal(barycentre([values], [repeats], size=4), [1.0, 1.0, 2.0, 3.0])
    mixed = barycentre([np.zeros(2), np.array([4.0, 2.0, 6.0, 8.0])])
    np.testing.assert_array_equal(mixed, [1.0, 2.0, 3.0, 4.0])


def test_estimates_are_those_of_numpy():
    y = np.random.default_rng(2).lognormal(0, 1, 301)
    found = estimands(y, np.random.default_rng(3), quantiles=(0.15, 0.9), resamples=200)
    assert found.names == ("mean", "median", "q15", "q90")
    expected = [y.mean(), *np.quantile(y, [0.5, 0.15, 0.9], method="inverted_cdf")]
    np.testing.assert_allclose(found.estimate, expected)
    assert (found.lower <= found.estimate).all()
    assert (found.estimate <= found.upper).all()


def test_weights_repeat_records():
    rng = np.random.default_rng(4)
    y, times = rng.normal(0, 1, 60), rng.integers(1, 5, 60)
    weighted = estimands(y, rng, weight=times.astype(float), resamples=10)
    repeated = estimands(np.repeat(y, times), rng, resamples=10)
    np.testing.assert_allclose(weighted.estimate, repeated.estimate)


def test_resampled_intervals_cover():
    """Mean of a normal sample: 95% of 300 intervals, of the length that theory gives."""
    rng = np.random.default_rng(5)
    found = [estimands(rng.normal(3, 2, 80), rng, resamples=300) for _ in range(300)]
    covered = np.mean([each.lower[0] <= 3 <= each.upper[0] for each in found])
    assert 0.90 <= covered <= 0.98
    length = np.mean([each.upper[0] - each.lower[0] for each in found])
    assert length == pytest.approx(2 * 1.96 * 2 / np.sqrt(80), rel=0.05)


@given(VALUES, VALUES)
def test_ks_is_scipys(first, second):
    x, y = np.array(first, dtype=float), np.array(second, dtype=float)
    with np.errstate(divide="ignore"):  # of the p-value, for single records
        expected = stats.ks_2samp(x, y, method="asymp").statistic
    assert ks_distance(x, y) == pytest.approx(expected, abs=1e-12)
    assert ks_distance(x, x) == 0.0


def test_weighted_ks_repeats_records():
    rng = np.random.default_rng(6)
    x, y, times = rng.normal(size=40), rng.normal(size=50), rng.integers(1, 5, 40)
    weighted = ks_distance(x, y, weight=times.astype(float))
    assert weighted == pytest.approx(ks_distance(np.repeat(x, times), y), abs=1e-12)


def test_overlap_of_intervals():
    lower, upper = np.array([0.0, 0.0, 0.0, 1.0, 1.0]), np.array([4.0, 4.0, 4.0, 1.0, 1.0])
    other = np.array([0.0, 2.0, 8.0, 1.0, 3.0]), np.array([4.0, 4.0, 12.0, 1.0, 5.0])
    # Equal; a half of one and all of the other; apart by a length; points, equal and apart.
    np.testing.assert_allclose(interval_overlap(lower, upper, *other), [1.0, 0.75, -1.0, 1.0, -0.5])


def test_utility_of_a_distribution():
    rng = np.random.default_rng(7)
    y = rng.lognormal(3, 1, 800)
    near = [y * rng.lognormal(0, 0.05, 800) for _ in range(3)]
    good = distribution_utility(y, near, rng, resamples=300)
    poor = distribution_utility(y, [rng.lognormal(3, 0.5, 800)], rng, resamples=300)
    assert good.ks < 0.02
    assert poor.ks > 0.09
    assert (good.to_frame()["overlap"] > 0.8).all()
    assert poor.to_frame().set_index("estimand").loc["q90", "overlap"] < 0


@pytest.mark.parametrize("options", [{"quantiles": (1.2,)}, {"level": 0.0}])
def test_mistakes(options):
    with pytest.raises(InputError, match="between 0 and 1"):
        estimands(np.ones(5), np.random.default_rng(1), **options)
    with pytest.raises(InputError, match="at least one dataset"):
        barycentre([])
