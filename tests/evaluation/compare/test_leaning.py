"""Leans of tables. Truth: repeated samples of a regression, whose distances have an empirical
covariance; sums written out; releases of samples from a right and from a wrong model."""

import numpy as np
import pytest
from scipy import stats

from surveysynth.evaluation.compare.leaning import (
    BIAS,
    INEXACT,
    Fit,
    Scored,
    lean_of,
    reported,
    scores,
)
from tests.long_runs.leaning_study import CASES, leans_of

N, M, R = 300, 3, 4


class Regression:
    """Main effects of two factors, fitted by least squares; tables of means by both and by one."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        one, two = np.arange(N) % 3, (np.arange(N) // 3) % 2 * (np.arange(N) % 7 > 0)
        self.x = np.stack([np.ones(N), one == 1, one == 2, two == 1], axis=1).astype(float)
        self.cell = one * 2 + two
        rows = [self.cell == c for c in range(6)] + [one == a for a in range(3)]
        self.inside = np.array(rows, dtype=float).T  # (n, K): cells, then a margin
        self.size = self.inside.sum(axis=0)

    def linearised(self, y: np.ndarray) -> np.ndarray:
        """u (n, K) of the means."""
        mean = y @ self.inside / self.size
        return self.inside * (y[:, None] - mean) / self.size

    def one(
        self, interaction: float = 0.0, noise: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distances (K,), their covariance (K, K), and that of a fit that knows of no noise.

        Without noise the second is of a model that does not follow the sample."""
        y = self.x @ [1.0, 0.5, -0.2, 0.3] + self.rng.standard_normal(N)
        y += interaction * (self.cell == 3)
        inverse = np.linalg.inv(self.x.T @ self.x)
        fit = inverse @ self.x.T @ y
        spread = np.sqrt(((y - self.x @ fit) ** 2).sum() / (N - 4))
        fit = fit + noise * inverse @ self.rng.standard_normal(4)
        variance = spread**2 * inverse + noise**2 * inverse @ inverse
        draws = fit + self.rng.standard_normal((M, 4)) @ np.linalg.cholesky(variance).T
        data = (draws @ self.x.T)[:, None] + spread * self.rng.standard_normal((M, R, N))
        means = data @ self.inside / self.size
        error = spread / np.sqrt(self.size)
        r = np.mean([self.linearised(each) for each in data.reshape(-1, N)], axis=0)
        r = (r - self.linearised(y)) / error
        made = scores(
            np.unique(self.x, axis=0), np.unique(self.x, axis=0, return_inverse=True)[1].ravel(),
            [Scored(y, position=0)], np.zeros(4), np.zeros(6, dtype=np.int64),
        )  # fmt: skip
        known = np.diag([(noise / spread) ** 2] * 4 + [0.0])
        difference = (means.mean(axis=(0, 1)) - y @ self.inside / self.size) / error
        other = Fit(np.zeros((N, 0)) if noise == 0.0 else made.psi, np.ones(N), None,
                    np.zeros(0 if noise == 0.0 else 5))  # fmt: skip
        fitted = Fit(made.psi, np.ones(N), None, np.zeros(5), known)
        return difference, fitted.covariance(r, M), other.covariance(r, M)


def test_the_covariance_is_that_of_repeated_samples() -> None:
    world = Regression(np.random.default_rng(1))
    found = [world.one() for _ in range(700)]
    distances, covariances, unfitted = (np.array(each) for each in zip(*found, strict=True))
    empirical, expected = np.cov(distances.T), covariances.mean(axis=0)
    for rows in (slice(0, 6), slice(6, 9), slice(0, 9)):
        true = empirical[rows, rows].sum()
        assert expected[rows, rows].sum() == pytest.approx(true, rel=0.12)
        # As if the model did not follow the sample.
        assert unfitted.mean(axis=0)[rows, rows].sum() != pytest.approx(true, rel=0.5)
    # As if rows were independent of each other, which those of a fitted margin are.
    for rows in (slice(0, 6), slice(0, 9)):
        assert np.trace(expected[rows, rows]) != pytest.approx(empirical[rows, rows].sum(), rel=0.2)
    assert np.trace(expected) == pytest.approx(np.trace(empirical), rel=0.08)

    def false_reports(covariance: np.ndarray, rows: slice) -> tuple[float, float]:
        leans = [
            lean_of(each[rows], of_one[rows, rows], N - 1)
            for each, of_one in zip(distances, covariance, strict=True)
        ]
        return (
            float(np.mean([each.p < 0.05 for each in leans])),
            float(np.mean([each.p_rows < 0.05 for each in leans])),
        )

    independent = np.array([np.diag(np.diag(each)) for each in covariances])
    for rows in (slice(0, 6), slice(6, 9), slice(0, 9)):
        mean, square = false_reports(covariances, rows)
        assert 0.03 < mean < 0.075
        # All rows together hold three that follow from the others.
        assert (0.005 if rows == slice(0, 9) else 0.02) < square < 0.075
        assert max(false_reports(unfitted, rows)) < 0.01
    assert false_reports(independent, slice(0, 6))[0] < 0.03
    assert false_reports(independent, slice(0, 9))[0] > 0.075
    # An interaction that the model lacks moves cells apart; the fit keeps margins together.
    wrong_cells = [world.one(interaction=1.0) for _ in range(40)]
    p_rows = [lean_of(d[:6], c[:6, :6], N - 1).p_rows for d, c, _ in wrong_cells]
    assert np.mean(np.array(p_rows) < 0.05) > 0.8


def test_the_covariance_is_that_of_repeated_samples_with_noise() -> None:
    world = Regression(np.random.default_rng(5))
    found = [world.one(noise=12.0) for _ in range(500)]
    distances, covariances, unaware = (np.array(each) for each in zip(*found, strict=True))
    empirical, expected = np.cov(distances.T), covariances.mean(axis=0)
    for rows in (slice(0, 6), slice(6, 9), slice(0, 9)):
        true = empirical[rows, rows].sum()
        assert expected[rows, rows].sum() == pytest.approx(true, rel=0.15)
        assert unaware.mean(axis=0)[rows, rows].sum() < 0.5 * true
    for covariance, lowest, highest in ((covariances, 0.02, 0.1), (unaware, 0.3, 1.0)):
        p_rows = [
            lean_of(d[:6], c[:6, :6], N - 1).p_rows
            for d, c in zip(distances, covariance, strict=True)
        ]
        assert lowest < np.mean(np.array(p_rows) < 0.05) < highest


def test_units_weights_noise_and_prior_of_the_fit_are_written_out() -> None:
    rng = np.random.default_rng(2)
    r, psi, weight = rng.standard_normal((40, 2)), rng.standard_normal((40, 1)), rng.random(40)
    none, cross = np.zeros(1), psi[:, 0] @ r
    information = (weight * psi[:, 0] ** 2).sum()
    for noise, prior in ((0.0, 0.0), (7.0, 0.0), (0.0, 3.0), (7.0, 3.0)):
        precision = information**2 / (information + noise) + prior
        follows = information / (information + noise) / precision
        rest = r - np.outer(weight * psi[:, 0], follows * cross)
        moved = np.outer(cross, cross) * follows**2 * noise
        expected = 40 / 39 * rest.T @ rest + moved + np.outer(cross, cross) / precision / 5
        fit = Fit(psi, weight, None, none + prior, noise * np.eye(1))
        np.testing.assert_allclose(fit.covariance(r, 5), expected, rtol=1e-10)
    unit = np.repeat(np.arange(10), 4)
    sums = np.array([rest[unit == each].sum(axis=0) for each in range(10)])
    by_unit = Fit(psi, weight, unit, none + 3.0, 7.0 * np.eye(1)).covariance(r, 5)
    difference = 10 / 9 * sums.T @ sums - 40 / 39 * rest.T @ rest
    np.testing.assert_allclose(by_unit, expected + difference, rtol=1e-10)
    # A column twice is that column once.
    twice = Fit(np.hstack([psi, psi]), weight, None, np.zeros(2)).covariance(r, 5)
    once = Fit(psi, weight, None, none).covariance(r, 5)
    np.testing.assert_allclose(twice, once, rtol=1e-8)


def test_scores_are_rows_of_x_times_residuals_and_products_of_residuals() -> None:
    rng = np.random.default_rng(3)
    x_cells, cell = np.array([[1.0, 0.0], [1.0, 1.0]]), np.repeat([0, 1], 25)
    amount = np.where(rng.random(50) < 0.3, np.nan, rng.standard_normal(50))
    level = (rng.random(50) < 0.5).astype(float)
    ridge, columns = np.array([0.0, 11.0]), [Scored(amount, 0), Scored(level, None, (0, 1))]
    by_cell = scores(x_cells, cell, columns, ridge, np.arange(2))
    made = by_cell.psi
    assert by_cell.ridge.tolist() == [0.0, 11.0, 0.0, 11.0, 0.0, 0.0]
    assert made.shape == (50, 2 + 2 + 2)
    residual = np.zeros(50)
    for each in (0, 1):
        there = np.isfinite(amount) & (cell == each)
        residual[there] = amount[there] - amount[there].mean()
    residual /= np.sqrt(np.mean(residual[np.isfinite(amount)] ** 2))
    np.testing.assert_allclose(made[:, 0], residual, atol=1e-12)
    np.testing.assert_allclose(made[:, 1], residual * cell, atol=1e-12)
    squares = np.where(np.isfinite(amount), residual**2, np.nan)
    for each in (0, 1):
        of_cell = np.where(cell == each, squares - np.nanmean(squares[cell == each]), 0.0)
        np.testing.assert_allclose(made[:, 4 + each], np.nan_to_num(of_cell), atol=1e-12)
        assert by_cell.sums.means[0][each] == pytest.approx(np.nanmean(squares[cell == each]))
        fitted = by_cell.sums.columns[0].fitted[each]
        assert fitted == pytest.approx(np.nanmean(amount[cell == each]))
    np.testing.assert_array_equal(by_cell.sums.groups[0], np.eye(2))
    assert by_cell.sums.products == [(0, 0)]
    common = scores(x_cells, cell, columns, ridge, np.zeros(2, dtype=np.int64))
    assert common.psi.shape == (50, 5)
    assert common.sums.groups[0].tolist() == [[1.0], [1.0]]
    assert not scores(x_cells, cell, [Scored(np.ones(50), 0)], ridge, np.arange(2)).psi.size


def test_a_lean_is_its_mean_over_its_error_and_a_scaled_chi_square() -> None:
    difference, covariance = np.array([1.0, 2.0, 0.0]), np.diag([1.0, 1.0, 1.0])
    lean = lean_of(difference, covariance, 20.0)
    # All directions weigh the same: the plain chi-square.
    assert (lean.mean, lean.rows, lean.df) == (1.0, 3, pytest.approx(3.0))
    assert lean.chi_square == pytest.approx(5.0)
    assert lean.se == pytest.approx(3**-0.5)
    assert lean.bias == pytest.approx(np.sqrt(2 / 3))
    assert lean.p == pytest.approx(2 * stats.t.sf(3**0.5, 20))
    assert lean.p_rows == pytest.approx(stats.f.sf(lean.chi_square / 3.0, 3, 20))
    public = lean_of(difference, np.zeros((3, 3)), 20.0)
    assert np.isnan([public.p, public.p_rows]).all()
    # Two directions: of the sum and of the difference of rows that share an error.
    together = lean_of(np.array([1.5, -1.0]), np.array([[1.0, 0.9], [0.9, 1.0]]), 20.0)
    variance, tolerated = np.array([1.9, 0.1]), np.array([1.9, 0.1]) + INEXACT**2
    weight = 1.0 / tolerated - 1.0 / (tolerated + BIAS**2)
    expected = weight * variance
    df = expected.sum() ** 2 / (expected**2).sum()
    ratio = weight @ (np.array([0.5, 2.5]) ** 2 / 2) / expected.sum()
    assert together.df == pytest.approx(df)
    assert together.p_rows == pytest.approx(stats.f.sf(ratio, df, 20))
    # A plain sum of squares would not see the difference.
    assert together.p_rows < 1e-4
    assert stats.f.sf(3.25 / 2.0, 4.0 / 3.62, 20) > 0.1


def test_reports_are_those_of_benjamini_and_hochberg() -> None:
    p = np.array([0.04, np.nan, 0.011, 0.9, 0.02])
    # Sorted: 0.011 <= 0.0125, 0.02 <= 0.025, 0.04 > 0.0375, 0.9.
    assert reported(p).tolist() == [False, False, True, False, True]
    assert not reported(np.array([np.nan])).any()
    p[3] = 0.05
    assert reported(p).tolist() == [True, False, True, True, True]


def test_a_release_of_a_wrong_model_is_reported_and_of_a_right_one_is_not() -> None:
    right = leans_of(CASES["noisy_10.8_right"], 1)
    assert not [each for each in right if each.leans or each.misfits]
    wrong = leans_of(CASES["noisy_10.8_spread_2"], 1)
    found = [each for each in wrong if each.leans or each.misfits]
    assert ("mean", "rows by gender") in [(each.key[0], each.rows) for each in found]
    # Counts add up to a public total and cannot all lean.
    assert np.isnan([each.lean.p for each in wrong if each.key[0] == "count"]).all()
