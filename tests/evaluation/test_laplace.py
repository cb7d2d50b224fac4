"""The Laplace comparator against its formulas written out row by row and replicate by replicate."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surveysynth._support.types import FloatArray
from surveysynth.estimation.combining import t_interval
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.replication import preston_bootstrap
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains
from surveysynth.evaluation.laplace import (
    NoisyTable,
    group_sensitivities,
    laplace_tables,
    row_sensitivities,
)

pytestmark = pytest.mark.xdist_group("laplace")  # what its tests share is made once

N = 400
LEVELS = {"a": ["1", "2", "3", "4"], "b": ["x", "y"], "c": ["u", "v"]}
KEYS: list[Any] = [("count", None), ("mean", 0), ("total", 1)]
EPSILON = 7.0


class Sample:
    def __init__(self) -> None:
        rng = np.random.default_rng(6)
        values = {name: rng.choice(levels[:3], N) for name, levels in LEVELS.items()}
        self.frame = pd.DataFrame(values)
        self.domains: Domains = build_domains(self.frame, ["a", "b", "c"], LEVELS)
        self.design = SampleDesign(rng.integers(0, 5, N))
        self.weight = rng.uniform(5, 60, N)
        self.outcomes = np.column_stack([np.exp(rng.normal(3, 0.7, N)), rng.normal(0, 9, N)])

    def tables(self, rng: np.random.Generator, **changes: Any) -> list[NoisyTable]:
        arguments: dict[str, Any] = {
            "weight": self.weight, "outcomes": self.outcomes, "keys": KEYS, "epsilon": EPSILON,
        }  # fmt: skip
        return laplace_tables(self.domains, self.design, rng=rng, **{**arguments, **changes})

    @cache  # noqa: B019  (one sample for the module)
    def members(self, row: int) -> FloatArray:
        """Records of a table row, by comparing labels."""
        inside = np.ones(N, dtype=bool)
        for name in LEVELS:
            label = self.domains.table.loc[row, name]
            inside &= (label == "All") | (self.frame[name] == label).to_numpy()
        return np.flatnonzero(inside)

    @cache  # noqa: B019
    def kind(self, row: int) -> tuple[bool, ...]:
        return tuple(self.domains.table.loc[row, name] == "All" for name in LEVELS)


SAMPLE = Sample()
ROWS = [row for row in range(SAMPLE.domains.n_rows) if SAMPLE.domains.n[row] > 0]


def formula(statistic: str, rule: str, w: FloatArray, y: FloatArray) -> float:
    """Methods 6, for the records of one row."""
    d_count = w.max() - w.min()
    if statistic == "count":
        return float(d_count)
    if statistic == "total":
        if rule == "paper":
            return float((w * y).max() - (w * y).min())
        ends = [a * b for a in (w.min(), w.max()) for b in (y.min(), y.max())]
        return float(max(ends) - min(ends))
    if rule == "paper":
        return float(((w * y).max() - (w * y).min()) / (w.sum() - d_count))
    return float(w.max() * (y.max() - y.min()) / (w.sum() - d_count))


def expected_scales(
    weights: FloatArray, statistic: str, column: int | None, rule: str, parts: FloatArray
) -> FloatArray:
    """Largest sensitivity of each kind of row over its part of the budget, (D,)."""
    y = np.ones(N) if column is None else SAMPLE.outcomes[:, column]
    each = {row: formula(statistic, rule, weights[SAMPLE.members(row)], y[SAMPLE.members(row)])
            for row in ROWS}  # fmt: skip
    scales = np.full(SAMPLE.domains.n_rows, np.nan)
    for row in ROWS:
        group = [each[other] for other in ROWS if SAMPLE.kind(other) == SAMPLE.kind(row)]
        scales[row] = max(group) / parts
    return scales


def exact_estimates(weights: FloatArray, statistic: str, column: int | None) -> FloatArray:
    y = np.ones(N) if column is None else SAMPLE.outcomes[:, column]
    result = np.full(SAMPLE.domains.n_rows, np.nan)
    for row in ROWS:
        w, inside = weights[SAMPLE.members(row)], y[SAMPLE.members(row)]
        result[row] = (w * inside).sum() / (w.sum() if statistic == "mean" else 1.0)
    return result


@cache
def written_out(seed: int, rule: str) -> list[tuple[FloatArray, FloatArray]]:
    """Estimates without noise and Laplace scales of each table, both (1 + R, D)."""
    half = preston_bootstrap(SAMPLE.design, SAMPLE.weight, 10, np.random.default_rng(seed))
    all_weights = [SAMPLE.weight, *half.weights.T]
    parts = [EPSILON / (2 * 3 * 8)] + [EPSILON / (2 * 3 * 8 * 10)] * 10
    return [
        (
            np.stack([exact_estimates(w, statistic, column) for w in all_weights]),
            np.stack(
                [expected_scales(w, statistic, column, rule, part)
                 for w, part in zip(all_weights, parts, strict=True)]
            ),
        )
        for statistic, column in KEYS
    ]  # fmt: skip


def standardized(seed: int, rng: Any, rule: str = "paper") -> list[FloatArray]:
    """(noisy - exact) / scale of each table, (1 + R, rows with records)."""
    tables = SAMPLE.tables(rng, sensitivity=rule)
    result = []
    for table, (exact, scale) in zip(tables, written_out(seed, rule), strict=True):
        noisy = np.vstack([table.estimate, table.replicates])
        np.testing.assert_allclose(table.scale, scale[0], rtol=1e-10)
        result.append(((noisy - exact) / scale)[:, ROWS])
    return result


class Altered:
    """A generator whose Laplace noise is wrong in one way."""

    def __init__(self, seed: int, factor: float = 1.0, shared: bool = False) -> None:
        self._rng, self._factor, self._shared = np.random.default_rng(seed), factor, shared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)

    def laplace(self, size: tuple[int, int]) -> FloatArray:
        noise = self._rng.laplace(size=size) * self._factor
        return np.broadcast_to(noise[:, :1], size).copy() if self._shared else noise


def assert_unit_laplace(noise: FloatArray) -> None:
    """Independent Laplace numbers of scale one: the mean of |x| is 1 with SE 1/sqrt(n)."""
    flat = noise.ravel()
    assert abs(np.abs(flat).mean() - 1.0) < 4 / np.sqrt(flat.size)
    assert stats.kstest(flat, "laplace").pvalue > 1e-4
    signs = np.sign(noise)
    assert abs((signs[:, 1:] * signs[:, :-1]).mean()) < 4 / np.sqrt(flat.size)
    assert abs((signs[1:] * signs[:-1]).mean()) < 4 / np.sqrt(flat.size)


@pytest.mark.parametrize("rule", ["paper", "honest"])
def test_noise_has_the_stated_scale(rule: str) -> None:
    for noise in standardized(21, np.random.default_rng(21), rule):
        # Cells that a half-sample leaves with one weight have no number; there are few.
        usable = np.isfinite(noise).all(axis=1)
        assert usable[0]
        assert usable.sum() >= 6
        assert_unit_laplace(noise[usable])


@pytest.mark.parametrize("wrong", [{"factor": 1.3}, {"factor": 0.7}, {"shared": True}])
def test_wrong_noise_is_told_apart(wrong: dict[str, Any]) -> None:
    for noise in standardized(21, Altered(21, **wrong)):
        with pytest.raises(AssertionError):
            assert_unit_laplace(noise[np.isfinite(noise).all(axis=1)])


def test_the_variance_is_made_of_noisy_values() -> None:
    for table in SAMPLE.tables(np.random.default_rng(2)):
        usable = np.isfinite(table.replicates)
        for row in ROWS:
            squares = (table.replicates[usable[:, row], row] - table.estimate[row]) ** 2
            np.testing.assert_allclose(table.variance[row], squares.mean(), rtol=1e-10)
        assert table.df == 10
    empty = SAMPLE.domains.n == 0
    assert empty.any()
    assert np.isnan(table.estimate[empty]).all()
    assert np.isnan(table.variance[empty]).all()
    lower, upper = t_interval(table.combined())
    half = stats.t.ppf(0.975, 10) * np.sqrt(table.variance[ROWS])
    np.testing.assert_allclose((upper - lower)[ROWS] / 2, half)


def test_without_noise_the_tables_are_the_samples() -> None:
    tables = SAMPLE.tables(np.random.default_rng(2), epsilon=1e15, population_size=2e4,
                           linearisation="ratio")  # fmt: skip
    for table, (statistic, column) in zip(tables, KEYS, strict=True):
        expected = estimate_domains(
            SAMPLE.domains, SAMPLE.design, weight=SAMPLE.weight,
            outcome=None if column is None else SAMPLE.outcomes[:, column],
            statistic=statistic, linearisation="ratio", population_size=2e4,
        )  # fmt: skip
        np.testing.assert_allclose(table.estimate, expected.estimate, rtol=1e-7)
    assert tables[0].variance[0] < 1e-12 * tables[0].estimate[0] ** 2  # calibrated to N


def test_impossible_results_are_told_and_not_clipped() -> None:
    tables = SAMPLE.tables(np.random.default_rng(2), epsilon=0.01)
    count, mean, total = tables
    for table in (count, mean):
        np.testing.assert_array_equal(table.impossible, table.estimate < 0)
        assert table.impossible.any()
    assert (total.estimate < 0).any()
    assert not total.impossible.any()  # its outcome is negative now and then
    outcomes = (SAMPLE.outcomes > 20).astype(float)
    (proportion,) = SAMPLE.tables(
        np.random.default_rng(2), epsilon=0.01, outcomes=outcomes, keys=[("proportion", 0)]
    )
    outside = (proportion.estimate < 0) | (proportion.estimate > 1)
    np.testing.assert_array_equal(proportion.impossible, outside)
    assert (proportion.estimate > 1).any()


def changes_of_the_mean(w: FloatArray, y: FloatArray) -> FloatArray:
    """|change| of the mean when a record takes the weight of one and the outcome of another."""
    n = len(w)
    total, size = (w * y).sum(), w.sum()
    change = [
        abs((total - w[i] * y[i] + w[j] * y[k]) / (size - w[i] + w[j]) - total / size)
        for i in range(n) for j in range(n) for k in range(n)
    ]  # fmt: skip
    return np.array(change)


def test_the_honest_sensitivity_bounds_a_replaced_record_and_the_papers_does_not() -> None:
    rng = np.random.default_rng(11)
    worst = []
    for _ in range(20):
        n = int(rng.integers(3, 9))
        w, y = np.exp(rng.normal(2, 1, n)), np.exp(rng.normal(1, 1, n))
        domains = build_domains(pd.DataFrame(index=range(n)), [], {})
        paper, honest = (
            float(row_sensitivities(domains, w[:, None], y, "mean", rule)[0, 0])  # type: ignore[arg-type]
            for rule in ("paper", "honest")
        )
        largest = changes_of_the_mean(w, y).max()
        assert largest <= honest * (1 + 1e-12)
        worst.append(largest / paper)
    assert max(worst) > 1.2


def test_a_row_of_one_record_and_rows_without_weight() -> None:
    frame = pd.DataFrame({"a": ["p", "q", "q", "r", "r"]})
    domains = build_domains(frame, ["a"], {"a": list("pqrs")})
    weights = np.array([[3.0, 4.0, 9.0, 2.0, 5.0], [3.0, 8.0, 0.0, 0.0, 0.0]]).T
    y = np.array([1.0, 2.0, 4.0, 3.0, 3.0])
    got = row_sensitivities(domains, weights, y, "mean", "paper")
    # whole, p, q, r, s: q keeps one weight in the second set (nothing to divide by), r none.
    d_whole = (36 - 3) / (23 - 7)
    np.testing.assert_allclose(got[:, 0], [d_whole, 0.0, 28 / 8, 9 / 4, np.nan])
    np.testing.assert_allclose(got[:, 1], [16 / 3, 0.0, np.inf, 0.0, np.nan])
    grouped = group_sensitivities(domains, got)
    np.testing.assert_allclose(grouped[:, 0], [d_whole, 3.5, 3.5, 3.5, np.nan])
    np.testing.assert_allclose(grouped[:, 1], [16 / 3, 0.0, np.inf, 0.0, np.nan])
