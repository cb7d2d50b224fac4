"""Noisy totals: the sample itself where noise vanishes, repeated noise and samples elsewhere."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import Statistic, estimate_domains
from surveysynth.evaluation.baselines.noisy_totals import Declared, gaussian_tables
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.noise import ApproximateNoise, SeededNoise

SIZES = np.array([260, 200, 150, 90])
STRATA = np.repeat(np.arange(4), SIZES)
N = int(SIZES.sum())
CENTRE, SPREAD = np.array([8.0, 4.0]), np.array([0.4, 0.5])
DECLARED = Declared.of(CENTRE, SPREAD, [np.exp])
KEYS: list[tuple[Statistic, int | None]] = [("count", None), ("mean", 0), ("total", 0)]
EXACT = Budget(1e12, 1e6, 1e-6)
BUDGET = Budget.of_epsilon(3.6, 1e-6)


def sample(rng: np.random.Generator) -> tuple[Domains, FloatArray, FloatArray]:
    b = rng.integers(0, 2, N)
    frame = pd.DataFrame({"a": STRATA.astype(str), "b": b.astype(str)})
    effect = np.array([0.3, 0.0, -0.4, 0.2])[STRATA] - 0.2 * b
    u = rng.normal(size=(N, 2)) @ np.array([[1.0, -0.5], [0.0, 0.866]])
    y = np.exp(CENTRE[0] + effect + SPREAD[0] * u[:, 0])
    w = np.exp(CENTRE[1] - 0.5 * effect + SPREAD[1] * u[:, 1])
    domains = build_domains(frame, ["a", "b"], {"a": list("0123"), "b": list("01")})
    return domains, w, y


def tables(domains: Domains, w: FloatArray, y: FloatArray, **changes: Any) -> list[Combined]:
    arguments: dict[str, Any] = {
        "weight": w, "outcomes": y[:, None], "keys": KEYS, "declared": DECLARED, "budget": BUDGET,
        "source": ApproximateNoise(np.random.default_rng(1)), "population_size": 50_000.0,
    }  # fmt: skip
    return gaussian_tables(domains, SampleDesign(STRATA), **{**arguments, **changes})


@pytest.mark.parametrize("population_size", [None, 50_000.0])
def test_without_noise_it_is_the_sample(population_size: float | None) -> None:
    domains, w, y = sample(np.random.default_rng(1))
    found = tables(domains, w, y, budget=EXACT, radius=50.0, population_size=population_size)
    for (statistic, column), each in zip(KEYS, found, strict=True):
        own = estimate_domains(
            domains, SampleDesign(STRATA), weight=w, outcome=None if column is None else y,
            statistic=statistic, linearisation="plain" if population_size is None else "ratio",
            population_size=population_size,
        )  # fmt: skip
        assert each.estimate == pytest.approx(own.estimate, rel=1e-4)
        rows = slice(1, None)  # the whole is known or nearly so
        ratio = np.sqrt(each.within[rows] / own.variance[rows])
        assert np.median(ratio) == pytest.approx(1.0, abs=0.06)
        assert ratio == pytest.approx(1.0, abs=0.3)
        assert (each.between <= 1e-4 * each.within.max()).all()


def test_rows_add_up_and_means_are_totals_over_counts() -> None:
    domains, w, y = sample(np.random.default_rng(2))
    count, mean, total = (each.estimate for each in tables(domains, w, y))
    for values in (count, total):
        grid = values.reshape(5, 3)  # levels of a and b, margins first
        assert grid[0] == pytest.approx(grid[1:].sum(axis=0))
        assert grid[:, 0] == pytest.approx(grid[:, 1:].sum(axis=1))
    assert count[0] == pytest.approx(50_000)
    assert mean == pytest.approx(total / count)


def test_the_noise_has_the_variance_that_is_told() -> None:
    domains, w, y = sample(np.random.default_rng(3))
    source = ApproximateNoise(np.random.default_rng(4))
    runs = [tables(domains, w, y, budget=Budget.of_epsilon(10.8, 1e-6), source=source)
            for _ in range(300)]  # fmt: skip
    for index in range(3):
        estimates = np.array([run[index].estimate for run in runs])[:, 1:]
        told = np.mean([run[index].between for run in runs], axis=0)[1:]
        ratio = estimates.var(axis=0) / told
        assert ratio.mean() == pytest.approx(1.0, abs=0.1)
        assert ratio == pytest.approx(1.0, abs=0.3)
        assert (ratio * 1.3**2).mean() > 1.5  # noise of 1.3 times the size would be seen


def test_consistent_rows_beat_rows_by_themselves() -> None:
    """Dense least squares of all measured rows; a row alone has 1/share times the variance."""
    domains, w, y = sample(np.random.default_rng(3))
    (count,) = tables(domains, w, y, keys=[("count", None)], population_size=None)
    sigma = 2 * DECLARED.sd[0] * 3.2552 / np.sqrt(2 * BUDGET.rho)
    alone = np.full(15, (sigma * 2.0) ** 2)  # four margin sets, a share of a quarter each
    member = (np.arange(15)[:, None, None] == domains.codes).any(axis=1)  # (15, n)
    cells = np.unique(member, axis=1).astype(float)
    covariance = cells @ np.linalg.inv(cells.T @ cells) @ cells.T * alone[0]
    assert count.between == pytest.approx(np.diag(covariance), rel=1e-3)
    assert (count.between < alone).all()


def test_standard_errors_over_repeated_samples() -> None:
    rng = np.random.default_rng(5)
    source = ApproximateNoise(rng)
    runs = [tables(*sample(rng), source=source) for _ in range(120)]
    for index in range(3):
        estimates = np.array([run[index].estimate for run in runs])[:, 1:]
        told = np.mean([run[index].standard_error ** 2 for run in runs], axis=0)[1:]
        sampling = np.mean([run[index].within for run in runs], axis=0)[1:]
        ratio = np.sqrt(told / estimates.var(axis=0))
        assert np.median(ratio) == pytest.approx(1.0, abs=0.12)
        assert np.median(np.sqrt(sampling / estimates.var(axis=0))) < 0.8  # noise forgotten


def test_shrunken_weights_have_less_noise_and_a_bias() -> None:
    domains, w, y = sample(np.random.default_rng(6))
    shrunken = Declared.of(CENTRE, SPREAD, [np.exp], 0.5)
    plain, shrunk = (
        tables(domains, w, y, declared=declared, shrink=shrink, population_size=None)
        for declared, shrink in ((DECLARED, 1.0), (shrunken, 0.5))
    )
    assert (shrunk[0].between < 0.3 * plain[0].between).all()
    exact = tables(
        domains, w, y, declared=shrunken, shrink=0.5, budget=EXACT, radius=50.0,
        population_size=None,
    )  # fmt: skip
    sums = np.bincount(domains.codes[-1], 0.5 * w + 0.5 * DECLARED.weight, minlength=15)
    interior = np.flatnonzero(np.bincount(domains.codes[-1], minlength=15))
    assert exact[0].estimate[interior] == pytest.approx(sums[interior], rel=1e-4)


def test_declared_moments() -> None:
    rng = np.random.default_rng(7)
    for shrink in (1.0, 0.6):
        declared = Declared.of(CENTRE, SPREAD, [np.exp], shrink)
        y, w = np.exp(rng.normal(CENTRE, SPREAD, (400_000, 2))).T
        w = shrink * w + (1 - shrink) * declared.weight
        products = w * (y - declared.outcome[0])
        assert w.mean() == pytest.approx(declared.weight, rel=0.01)
        assert y.mean() == pytest.approx(declared.outcome[0], rel=0.01)
        assert [w.std(), products.std()] == pytest.approx(declared.sd.tolist(), rel=0.03)
        found = [each.var() / each.mean() ** 2 for each in (w, w * y)]
        assert found == pytest.approx(declared.variation.tolist(), rel=0.03)


def test_extreme_records_and_empty_cells() -> None:
    domains, w, y = sample(np.random.default_rng(8))
    w[:3], y[:3] = [1e300, 1e-300, 1e300], [1e300, -1e300, -1e300]
    kept = domains.codes[-1] != domains.codes[-1][0]
    frame = pd.DataFrame({"a": STRATA[kept].astype(str), "b": domains.codes[-1][kept] % 3 == 1})
    frame["b"] = np.where(frame["b"], "0", "1")
    for each in tables(domains, w, y):
        assert np.isfinite(each.estimate).all()
        assert np.isfinite(each.standard_error).all()
    partial = build_domains(frame, ["a", "b"], {"a": list("0123"), "b": list("01")})
    found = gaussian_tables(
        partial, SampleDesign(STRATA[kept]), weight=w[kept], outcomes=y[kept, None], keys=KEYS,
        declared=DECLARED, budget=BUDGET, source=SeededNoise(np.random.default_rng(1)),
    )  # fmt: skip
    for each in found:
        assert (np.isnan(each.estimate) == (partial.n == 0)).all()
        assert np.isnan(each.standard_error[partial.n == 0]).all()


def test_arguments_that_do_not_fit() -> None:
    domains, w, y = sample(np.random.default_rng(9))
    negative = Declared.of(np.array([-1.0, 4.0]), SPREAD, [lambda z: z])
    for changes in (
        {"shrink": 0.0},
        {"weight": w[1:]},
        {"outcomes": None},
        {"keys": [("proportion", 0)]},
        {"keys": [("mean", 1)]},
        {"keys": [("mean", None)]},
        {"declared": negative},
    ):
        with pytest.raises(InputError):
            tables(domains, w, y, **changes)
    with pytest.raises(InputError, match="PSUs"):
        gaussian_tables(
            domains, SampleDesign(STRATA, np.arange(N)), weight=w, outcomes=y[:, None], keys=KEYS,
            declared=DECLARED, budget=BUDGET,
        )  # fmt: skip
