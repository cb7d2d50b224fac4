"""Consistent margins: sums, dense weighted least squares, and a simulation of the noise."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.taylor import SampleDesign
from surveysynth.evaluation.baselines.consistent import consistent_tables
from surveysynth.evaluation.baselines.laplace import NoisyTable, laplace_tables

pytestmark = pytest.mark.xdist_group("consistent")  # what its tests share is made once

LEVELS = {"a": ["1", "2", "3", "4"], "b": ["x", "y"], "c": ["u", "v", "w"]}
N = 600


@cache
def sample(by: tuple[str, ...]) -> tuple[Domains, SampleDesign, FloatArray, FloatArray]:
    """Level a = 4 has no record with b = y, and no cell has all of c's levels filled but most."""
    rng = np.random.default_rng(7)
    frame = pd.DataFrame({name: rng.choice(levels, N) for name, levels in LEVELS.items()})
    frame.loc[(frame["a"] == "4") & (frame["b"] == "y"), "b"] = "x"
    domains = build_domains(frame, by, LEVELS)
    weight = rng.uniform(20, 40, N)
    return domains, SampleDesign(np.arange(N) % 6), weight, np.exp(rng.normal(2, 0.3, (N, 2)))


def noisy(by: list[str], epsilon: float, seed: int, **changes: Any) -> tuple[Domains, Any]:
    domains, design, weight, outcomes = sample(tuple(by))
    arguments: dict[str, Any] = {
        "weight": weight, "outcomes": outcomes, "epsilon": epsilon,
        "keys": [("count", None), ("mean", 0), ("total", 1)], "rng": np.random.default_rng(seed),
    }  # fmt: skip
    return domains, laplace_tables(domains, design, **{**arguments, **changes})


def indicator(domains: Domains) -> FloatArray:
    """Which interior cells lie in each row of the table, by comparing labels: (D, I)."""
    table = domains.table
    cells = table[~table["is_margin"]]
    inside = np.ones((len(table), len(cells)), dtype=bool)
    for name in domains.by:
        row = table[name].to_numpy()[:, None]
        inside &= (row == "All") | (row == cells[name].to_numpy())
    return inside.astype(float)


def weighted(domains: Domains, counts: FloatArray) -> FloatArray:
    """The rows' means as combinations of the cells' means, a cell being its own."""
    inside = indicator(domains)
    matrix = inside * np.maximum(counts, 0.0)
    with np.errstate(invalid="ignore"):
        matrix /= matrix.sum(axis=1, keepdims=True)
    interior = ~domains.table["is_margin"].to_numpy()
    matrix[interior] = inside[interior]
    return matrix


@pytest.mark.parametrize("by", [["a"], ["a", "b"], ["a", "b", "c"]])
@pytest.mark.parametrize("epsilon", [0.2, 30.0])
def test_margins_add_up(by: list[str], epsilon: float) -> None:
    domains, tables = noisy(by, epsilon, 1)
    interior = ~domains.table["is_margin"].to_numpy()
    full = domains.n > 0
    counts, means, totals = consistent_tables(domains, tables)
    for table in (counts, totals):
        sums = indicator(domains) @ np.nan_to_num(table.estimate[interior])
        np.testing.assert_allclose(table.estimate[full], sums[full], rtol=1e-9, atol=1e-6)
        assert np.isnan(table.estimate[~full]).all()
        replicate = indicator(domains) @ np.nan_to_num(table.replicates[3][interior])
        np.testing.assert_allclose(table.replicates[3][full], replicate[full], rtol=1e-9, atol=1e-6)
    cells = np.nan_to_num(counts.estimate[interior])
    expected = weighted(domains, cells) @ np.nan_to_num(means.estimate[interior])
    has_mean = np.isfinite(means.estimate)
    np.testing.assert_allclose(means.estimate[has_mean], expected[has_mean], rtol=1e-9)
    assert has_mean[interior & full].all()
    if epsilon > 1:
        assert has_mean[full].all()
    raw = indicator(domains) @ np.nan_to_num(tables[0].estimate[interior])
    assert np.abs(raw - tables[0].estimate)[full & ~interior].max() > 1  # before, nothing adds up


def least_squares(matrix: FloatArray, scale: FloatArray, y: FloatArray) -> FloatArray:
    """Rows fitted by dense whitened least squares."""
    white = matrix / scale[:, None]
    return np.asarray(matrix @ np.linalg.lstsq(white, y / scale, rcond=None)[0])


def test_equals_weighted_least_squares() -> None:
    domains, tables = noisy(["a", "b", "c"], 5.0, 2)
    counts, means, totals = consistent_tables(domains, tables)
    rows, interior = domains.n > 0, ~domains.table["is_margin"].to_numpy()
    kept = domains.n[interior] > 0
    plain = indicator(domains)[np.ix_(rows, kept)]
    for got, table in ((counts, tables[0]), (totals, tables[2])):
        expected = least_squares(plain, table.scale[rows], table.estimate[rows])
        np.testing.assert_allclose(got.estimate[rows], expected, rtol=1e-9)
        each = [least_squares(plain, table.scale[rows], each[rows]) for each in table.replicates]
        variance = ((np.stack(each) - expected) ** 2).mean(axis=0)
        np.testing.assert_allclose(got.variance[rows], variance, rtol=1e-8)
    matrix = weighted(domains, np.nan_to_num(counts.estimate[interior]))[np.ix_(rows, kept)]
    expected = least_squares(matrix, tables[1].scale[rows], tables[1].estimate[rows])
    np.testing.assert_allclose(means.estimate[rows], expected, rtol=1e-8)


def rmse(tables: list[list[NoisyTable]], truth: list[FloatArray]) -> list[FloatArray]:
    """Root mean squared error by row, for each statistic."""
    return [
        np.sqrt(np.mean([(each[k].estimate - truth[k]) ** 2 for each in tables], axis=0))
        for k in range(len(truth))
    ]


def test_consistent_margins_are_closer_to_the_sample() -> None:
    """120 times the noise: RMSE below the raw one's in nearly every row, and clearly on average."""
    domains, exact = noisy(["a", "b"], 1e9, 0)
    truth = [table.estimate for table in exact]
    made = [noisy(["a", "b"], 60.0, seed)[1] for seed in range(120)]
    raw = rmse(made, truth)
    consistent = rmse([consistent_tables(domains, tables) for tables in made], truth)
    full = domains.n > 0
    for before, after in zip(raw, consistent, strict=True):
        ratio = after[full] / before[full]
        assert np.mean(ratio < 1.0) > 0.9
        assert ratio.mean() < 0.9
    # The whole's mean has far less noise than a cell's: with the precisions turned round it is bad.
    wrong = [
        consistent_tables(domains, [tables[0], replace(tables[1], scale=1 / tables[1].scale)])
        for tables in made
    ]
    assert rmse(wrong, truth[:2])[1][0] > 2 * raw[1][0]


def test_means_need_counts() -> None:
    domains, tables = noisy(["a", "b"], 5.0, 3)
    assert [t.statistic for t in consistent_tables(domains, tables[1:])] == ["total"]


def test_equal_weights_have_no_noise_and_stay() -> None:
    domains, design, _, outcomes = sample(("a", "b"))
    (table,) = laplace_tables(
        domains, design, weight=np.full(N, 12.0), outcomes=outcomes, keys=[("count", None)],
        epsilon=1.0, rng=np.random.default_rng(1),
    )  # fmt: skip
    assert (table.scale[domains.n > 0] == 0).all()
    (same,) = consistent_tables(domains, [table])
    np.testing.assert_allclose(same.estimate, 12.0 * np.where(domains.n > 0, domains.n, np.nan))


def test_negative_results_are_told() -> None:
    domains, tables = noisy(["a", "b", "c"], 0.05, 4)
    counts, means, _ = consistent_tables(domains, tables)
    np.testing.assert_array_equal(counts.impossible, counts.estimate < 0)
    assert counts.impossible.any()
    np.testing.assert_array_equal(means.impossible, means.estimate < 0)
