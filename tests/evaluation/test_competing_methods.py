"""The competitors of ``tests.long_runs.comparison`` are fair, working implementations.

Truth: closed forms of the Fay-Herriot model with equal variances (Rao and Molina 2015, chapter 6)
and its simulated error; the privacy loss of pairs of records, one by one; the sample's own tables,
which noisy totals and marginals reach without noise; and the page, which shows the golden file.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from tests.long_runs.comparison import __main__ as comparison
from tests.long_runs.comparison.marginals import maximum_entropy, three_pairs
from tests.long_runs.comparison.noise_ignored import posterior
from tests.long_runs.comparison.noisy_totals import Ball, NoisyTotals, fay_herriot
from tests.long_runs.comparison.summary import GOLDEN, _measures, page, readme

ROOT = Path(__file__).parents[2]
BALL = Ball(Clipping(np.log([100_000.0, 100.0]), np.array([0.42, 0.6])))


def _areas(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.column_stack([np.ones(size), rng.standard_normal(size)])
    return x, x @ np.array([10.0, 2.0]) + rng.standard_normal(size)


def test_fay_herriot_with_equal_variances_has_a_closed_form() -> None:
    rng = np.random.default_rng(1)
    x, theta = _areas(rng, 20)
    variance = 0.7
    y = theta + variance**0.5 * rng.standard_normal(20)
    line = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    total = ((y - line) ** 2).sum() / 18  # REML: the area variance is this less the known one
    kept = (total - variance) / total
    assert kept > 0.1
    estimate, mse = fay_herriot(y, np.full(20, variance), x)
    np.testing.assert_allclose(estimate, line + kept * (y - line), rtol=1e-4)
    leverage = np.diag(x @ np.linalg.inv(x.T @ x) @ x.T)
    expected = kept * variance + (1 - kept) ** 2 * total * leverage
    expected += 2 * variance**2 / total**3 * (2 * total**2 / 20)
    np.testing.assert_allclose(mse, expected, rtol=1e-3)


def test_fay_herriot_shrinks_wholly_where_areas_do_not_differ() -> None:
    x = np.ones((6, 1))
    y = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 1.0])
    estimate, mse = fay_herriot(y, np.full(6, 4.0), x)
    np.testing.assert_allclose(estimate, 1.0)
    assert (mse >= 4.0 / 6.0).all()


def test_the_stated_error_of_fay_herriot_is_its_error() -> None:
    rng = np.random.default_rng(2)
    variance = np.tile([0.3, 1.0, 3.0], 8)
    squares, stated, inside = [], [], []
    for _ in range(150):
        x, theta = _areas(rng, 24)
        y = theta + np.sqrt(variance) * rng.standard_normal(24)
        estimate, mse = fay_herriot(y, variance, x)
        squares.append((estimate - theta) ** 2)
        stated.append(mse)
        inside.append(np.abs(estimate - theta) <= 1.96 * np.sqrt(mse))
    ratio = np.mean(squares, axis=0).reshape(8, 3).mean(0) / np.mean(stated, axis=0)[:3]
    np.testing.assert_allclose(ratio, 1.0, atol=0.12)
    assert 0.93 < np.mean(inside) < 0.97
    assert np.mean(squares) < 0.75 * variance.mean()  # direct estimates are worse


def test_noise_on_totals_spends_rho_and_no_less() -> None:
    """The loss of a pair is (w - w')^2 / 2 s^2 + (t - t')^2 / 2 s'^2, at points of the ball."""
    rho, rng = 0.3, np.random.default_rng(3)
    u = rng.standard_normal((4000, 2))
    u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True) / 2.0, 1.0)  # many on the boundary
    y, w = np.exp(u * BALL.clipping.spread * BALL.clipping.radius / 2.0 + BALL.clipping.centre).T
    assert all(np.allclose(a, b) for a, b in zip(BALL.clipped(y, w), (y, w), strict=True))
    first, second = BALL.noise_sd(rho)
    z = np.column_stack([w / first, w * (y - BALL.offset) / second])
    loss = ((z[:, None] - z[None, ::4]) ** 2).sum(axis=2) / 2.0
    assert 0.9 * rho < loss.max() <= rho * (1 + 1e-3)


def test_clipping_moves_records_to_the_ball() -> None:
    y, w = BALL.clipped(np.array([1e9, 1e5, 1.0]), np.array([100.0, 100.0, 1e-6]))
    u = (np.log(np.column_stack([y, w])) - BALL.clipping.centre) / BALL.clipping.spread
    np.testing.assert_allclose(np.linalg.norm(u, axis=1), [BALL.clipping.radius, 0, 3.2552], 1e-3)


@pytest.fixture(scope="module")
def sample() -> comparison.Sample:
    return comparison.Sample(comparison.study_of("published", 10.8, 1, None), 0)


def test_totals_without_noise_are_those_of_the_sample(sample: comparison.Sample) -> None:
    made = NoisyTotals.of(
        sample.rows, sample.ball.holding(1 - 1e-12), *sample.values, rho=1e12, population=1e5,
        rng=np.random.default_rng(4),
    )  # fmt: skip
    truth, own = sample.study.truth, sample.own["estimate"]
    for borrowing in (False, True):
        for name, (estimate, _) in made.estimates(borrowing=borrowing).items():
            exact = own.loc[truth.loc[truth["statistic"] == name, "row"]].to_numpy()
            if not borrowing:
                np.testing.assert_allclose(estimate, exact, rtol=1e-3)
            else:  # Fay-Herriot still shrinks for sampling
                assert np.median(np.abs(estimate / exact - 1)) < 0.06


def test_public_sampling_variances_are_near_the_sample_s(sample: comparison.Sample) -> None:
    relative = sample.rows.sampling_variances(sample.ball.clipping)
    truth, own = sample.study.truth, sample.own
    for name, variance in relative.items():
        rows = truth.loc[truth["statistic"] == name, "row"]
        cv = (own.loc[rows, "se"] / own.loc[rows, "estimate"]).to_numpy()
        some = cv > 1e-9
        assert 0.8 < np.median(np.sqrt(variance[some]) / cv[some]) < 1.6


def test_a_posterior_that_takes_sums_as_exact_is_the_regression_s() -> None:
    rng = np.random.default_rng(5)
    rows, sizes = np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([60.0, 90.0])
    x = np.repeat(rows, sizes.astype(int), axis=0)
    root = np.array([[1.0, 0.0], [0.5, 0.4]])
    u = x @ np.array([[0.2, -1.0], [1.0, 0.5]]) + rng.standard_normal((150, 2)) @ root.T
    beta, rest, *_ = np.linalg.lstsq(x, u, rcond=None)
    drawn = [posterior(rows, sizes, x.T @ u, u.T @ u, rng) for _ in range(700)]
    means, covariances = (np.mean(each, axis=0) for each in zip(*drawn, strict=True))
    np.testing.assert_allclose(means, rows @ beta, atol=0.03)
    residual = u - x @ beta
    np.testing.assert_allclose(covariances, residual.T @ residual / (148 - 3), rtol=0.05)
    assert rest.size == 2


@pytest.mark.slow
def test_noise_ignored_covers_too_little_of_what_noise_adds(sample: comparison.Sample) -> None:
    """At epsilon 1 its intervals miss; a wrong implementation that knows the noise would not."""
    study = comparison.study_of("published", 1.0, 1, None)
    made = comparison.Sample(study, 0).released_by("exact").reindex(study.truth["row"])
    truth = study.truth["truth"].to_numpy()
    inside = (made["ci_lower"] <= truth) & (truth <= made["ci_upper"])
    assert inside.mean() < 0.85


def test_three_pairs_without_noise_are_reproduced() -> None:
    rng = np.random.default_rng(6)
    table = rng.poisson(6.0, (3, 4, 5)).astype(float)
    table[:, :, 4] = table[:, :, 3]
    pairs = (table.sum(2), table.sum(1), table.sum(0))
    counts = maximum_entropy(pairs, table.sum((1, 2))) * table.sum((1, 2))[:, None, None]
    for axis, pair in zip((2, 1, 0), pairs, strict=True):
        np.testing.assert_allclose(counts.sum(axis), pair, atol=0.2)


def test_marginals_without_noise_are_near_the_sample(sample: comparison.Sample) -> None:
    y, w = sample.values
    model = three_pairs(
        sample.rows.cell, 16, sample.ball, y, w, rho=1e9, bins=32, rng=np.random.default_rng(7)
    )
    middle = [np.exp((each[1:] + each[:-1]) / 2) for each in model.edges]
    sizes = sample.rows.sizes.sum(axis=0)
    weights = (model.shares * middle[1]).sum(axis=(1, 2)) * sizes
    means = (model.shares * middle[1] * middle[0][:, None]).sum(axis=(1, 2)) * sizes / weights
    exact = np.bincount(sample.rows.cell, w)
    own = np.bincount(sample.rows.cell, w * y) / exact
    assert np.median(np.abs(weights / exact - 1)) < 0.03
    assert np.median(np.abs(means / own - 1)) < 0.03
    drawn, _ = model.draw(np.zeros(20_000, dtype=int), np.random.default_rng(8))
    plain = (model.shares[0].sum(1) * middle[0]).sum()
    assert drawn.mean() == pytest.approx(plain, rel=0.02)


@pytest.mark.slow
def test_opendp_s_marginals_without_noise_are_near_the_sample() -> None:
    pytest.importorskip("mbi", reason="needs opendp[mbi]")
    wide = comparison.Sample(comparison.study_of("published", 1e5, 1, None), 0, bins=32)
    made, own = wide.released_by("mst"), wide.own
    means = own.index[wide.study.truth["statistic"] == "mean"]
    error = (made["estimate"] - own["estimate"]).abs() / own["se"]
    assert error.loc[means].median() < 1.5  # a tree leaves one pair out


def test_measures_by_hand() -> None:
    truth = np.array([10.0, 20.0, 5.0])
    own = np.array([[11.0, 22.0, 5.0], [9.0, 18.0, 5.0]])  # the third is known exactly
    made = np.array([[12.0, 20.0, 5.0], [8.0, 24.0, 5.0]])
    found = _measures(truth, (made, made - 3, made + 3), (own, own - 1, own + 1))
    assert found["rows"] == 2
    assert found["coverage"] == 0.75  # 24 - 3 > 20
    assert found["rmse"] == pytest.approx(np.median([2.0, np.sqrt(8) / 2]), rel=1e-3)
    assert found["length"] == 3.0


def test_the_page_and_the_readme_show_the_golden_file() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    text = (ROOT / "vignettes" / "comparison.md").read_text(encoding="utf-8")
    assert "\n".join(page(golden)) in text, "run python -m tests.long_runs.comparison page"
    assert len(text.splitlines()) <= 90
    assert "\n".join(readme(golden)) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_line_of_the_page_put_together_by_hand() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    (own,) = [
        each for each in golden["results"]
        if (each["population"], each["epsilon"], each["method"], each["statistic"])
        == ("fares", 3.6, "package", "mean")
    ]  # fmt: skip
    cell = f"{own['rmse']:.2f} ± {own['rmse_error']:.2f}, {own['coverage']:.2f}"
    text = (ROOT / "vignettes" / "comparison.md").read_text(encoding="utf-8")
    line = next(each for each in text.splitlines() if each.startswith("| surveysynth"))
    assert cell in line
