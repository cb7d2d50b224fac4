"""Combining against figures worked out by hand, and against a simulated synthesis."""

import numpy as np
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import combine, t_interval


def one_row(values: list[list[float]]) -> FloatArray:
    """Values by draw and replicate, shape (m, r, 1)."""
    return np.array(values, dtype=float)[:, :, np.newaxis]


def test_hand_computed_reiter_and_not_rubin() -> None:
    # q = 10, 12, 14 and u = 1, 2, 3: mean 12, within 2, between 4, T = 2 + 4/3 = 10/3.
    combined = combine(one_row([[10], [12], [14]]), one_row([[1], [2], [3]]), df_design=100)
    assert combined.estimate[0] == pytest.approx(12)
    assert combined.within[0] == pytest.approx(2)
    assert combined.between[0] == pytest.approx(4)
    assert combined.standard_error[0] ** 2 == pytest.approx(10 / 3, rel=1e-14)
    assert combined.df[0] == pytest.approx(2 * (1 + 2 / (4 / 3)) ** 2)  # 12.5
    rubin = 2 + (1 + 1 / 3) * 4
    assert abs(combined.standard_error[0] ** 2 / rubin - 1) > 0.5
    lower, upper = t_interval(combined, 0.95)
    half = 2.169186 * np.sqrt(10 / 3)  # R: qt(0.975, 12.5)
    assert lower[0] == pytest.approx(12 - half, abs=1e-5)
    assert upper[0] == pytest.approx(12 + half, abs=1e-5)


def test_replicates_are_averaged_before_draws_are_compared() -> None:
    # Draw means 10 and 20: between 50. Four datasets as four draws would give 36.67.
    combined = combine(one_row([[8, 12], [18, 22]]), one_row([[1, 3], [5, 7]]), df_design=np.inf)
    assert combined.between[0] == pytest.approx(50)
    assert combined.within[0] == pytest.approx(4)
    assert combined.standard_error[0] == pytest.approx(np.sqrt(4 + 25))


def test_degrees_of_freedom_never_exceed_the_design() -> None:
    combined = combine(one_row([[10], [10.001]]), one_row([[4], [4]]), df_design=17)
    assert combined.df[0] == 17


def test_single_draw_has_only_the_sampling_variance() -> None:
    combined = combine(one_row([[10, 12]]), one_row([[4, 6]]), df_design=30)
    assert combined.standard_error[0] == pytest.approx(np.sqrt(5))
    assert combined.df[0] == 30
    assert np.isnan(combined.between[0])


@pytest.mark.parametrize("third", [1e8 / 3, 1e8 / 3 + 1e-7])
def test_no_variance_between_draws_up_to_rounding(third: float) -> None:
    estimates = one_row([[1e8 / 3], [1e8 / 3], [third]])
    combined = combine(estimates, np.zeros((3, 1, 1)), df_design=30)
    assert combined.between[0] == 0
    assert combined.standard_error[0] == 0
    assert combined.df[0] == 30
    lower, upper = t_interval(combined)
    assert lower[0] == upper[0] == combined.estimate[0]


def test_rows_without_estimate_or_variance_stay_missing_without_a_warning() -> None:
    estimates = np.array([[[np.nan, 5.0, 1.0]], [[np.nan, 6.0, 2.0]]])
    variances = np.array([[[np.nan, np.nan, 1.0]], [[np.nan, np.nan, 1.0]]])
    combined = combine(estimates, variances, df_design=10)
    assert np.isnan(combined.estimate).tolist() == [True, False, False]
    for missing in (combined.standard_error, combined.df, *t_interval(combined)):
        assert np.isnan(missing).tolist() == [True, True, False]


def test_design_without_degrees_of_freedom_has_no_interval() -> None:
    combined = combine(one_row([[10], [12]]), one_row([[1], [2]]), df_design=0)
    assert combined.df[0] == 0
    assert np.isnan(t_interval(combined)).all()


def test_total_variance_is_that_of_the_estimate_under_synthesis() -> None:
    """Normal data, posterior draw of the mean, synthetic sample of the same size.

    The 40,000 repetitions take the place of table rows. The variance of the combined estimate is
    1/n + (2/n)/m; Rubin's T would expect 1/n + (1 + 1/m) 2/n, 2.2 times as much.
    """
    rng = np.random.default_rng(7)
    n, m, repetitions = 50, 3, 40_000
    observed = rng.normal(0, np.sqrt(1 / n), repetitions)
    drawn = observed + rng.normal(0, np.sqrt(1 / n), (m, 1, repetitions))
    synthetic = drawn + rng.normal(0, np.sqrt(1 / n), (m, 1, repetitions))
    within = rng.chisquare(n - 1, synthetic.shape) / (n - 1) / n
    combined = combine(synthetic, within, df_design=n - 1)
    squared = combined.standard_error**2
    ratio = squared.mean() / combined.estimate.var()
    error = np.sqrt(2 / repetitions + (squared.std() / squared.mean()) ** 2 / repetitions)
    assert abs(ratio - 1) < 4 * error
    rubin = combined.within + (1 + 1 / m) * combined.between
    assert abs(rubin.mean() / combined.estimate.var() - 1) > 40 * error
    lower, upper = t_interval(combined, 0.95)
    covered = ((lower <= 0) & (upper >= 0)).mean()
    assert 0.94 < covered < 0.96


def test_interval_uses_the_level() -> None:
    combined = combine(one_row([[0]]), one_row([[1]]), df_design=7)
    lower, upper = t_interval(combined, 0.8)
    assert upper[0] == -lower[0] == pytest.approx(stats.t.ppf(0.9, 7))


@pytest.mark.parametrize("level", [0, 1, 95, np.nan])
def test_impossible_levels(level: float) -> None:
    combined = combine(one_row([[0]]), one_row([[1]]), df_design=7)
    with pytest.raises(InputError, match="between 0 and 1"):
        t_interval(combined, level)


@pytest.mark.parametrize("shape", [(3, 4), (0, 1, 4), (2, 0, 4)])
def test_impossible_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"draws, replicates, rows"):
        combine(np.zeros(shape), np.zeros(shape), df_design=7)
