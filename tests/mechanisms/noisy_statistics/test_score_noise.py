"""Noise on scores. Truth: scores of records summed one by one, and the covariance of scores that
are computed from sums with noise, draw after draw."""

from dataclasses import replace
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.group_centres import GroupSums
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationDesign,
    LocationStatistics,
    LocationSums,
    released,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping, NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.statistics import (
    NoisyStatistics,
    noisy_statistics,
)
from surveysynth.mechanisms.noisy_statistics.score_noise import ScoreNoise
from surveysynth.mechanisms.score_sums import ScoredColumn, ScoreSums
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

PLAIN = Transform("identity")
INCOME = Outcome("income", transform=PLAIN)
BENEFIT = Outcome("benefit", "semicontinuous", transform=PLAIN, spikes=(0.0,))
WORK = Outcome("work", "categorical", levels=("none", "part", "full"))
X = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
GROUP = np.array([0, 0, 1, 1])
N, DRAWS = 400, 3000
CELL = np.random.default_rng(1).integers(0, 4, N)
BUDGET = Budget.of_epsilon(5.0, 1e-6)


def scored(positions: tuple[int, ...], category: tuple[int, int] | None) -> ScoreSums:
    """Columns with arbitrary fitted values, linear in X; products by group."""
    rng = np.random.default_rng(2)
    columns = [
        ScoredColumn(position, None, X @ [1.0, 0.4, -0.3] + 0.2 * position, 0.7 + 0.2 * position)
        for position in positions
    ]
    if category is not None:
        columns.append(ScoredColumn(None, category, np.full(4, 0.3), 0.4))
    amounts = range(len(positions))
    pairs = [(j, k) for j in amounts for k in amounts if k <= j]
    flags = [(GROUP[:, None] == np.arange(2)).astype(float) for _ in pairs]
    return ScoreSums(X, columns, pairs, flags, [rng.random(2) for _ in pairs])


def of_records(
    sums: ScoreSums, category: FloatArray, z: FloatArray, there: FloatArray
) -> FloatArray:
    """Sums (P,) over the records, each score from its definition."""
    found, residuals = [], []
    for column in sums.columns:
        if column.position is None:
            assert column.category is not None
            outcome, level = column.category
            value, known = (category[:, outcome] == level).astype(float), np.ones(N, dtype=bool)
        else:
            value, known = z[:, column.position], there[:, column.position]
        residual = np.where(known, value - column.fitted[CELL], 0.0) / column.spread
        residuals.append((residual, known))
        found.append(X[CELL].T @ residual)
    for (j, k), mean in zip(sums.products, sums.means, strict=True):
        both = residuals[j][1] & residuals[k][1]
        product = residuals[j][0] * residuals[k][0] - mean[GROUP[CELL]]
        found.append(np.bincount(GROUP[CELL], np.where(both, product, 0.0), minlength=2))
    return np.concatenate(found)


def of_statistics(sums: ScoreSums, table: LocationShape, given: LocationStatistics) -> FloatArray:
    """The same from released sums: those by row of X and products, block by block."""
    counts = given.counts.reshape(len(X), -1)
    known = np.bincount(CELL, minlength=len(X))
    counts = counts + ((known - counts.sum(axis=1)) / counts.shape[1])[:, None]
    cross = np.zeros((2, table.q, table.q, len(X[0])))  # X'u_k of records that also have u_j
    pairs = np.zeros((2, table.q, table.q))
    for pattern, group, basis, sums_of, squares in zip(
        given.block_pattern, given.block_group, given.basis, given.cross, given.squares, strict=True
    ):
        cell, _, x = table.rows(int(pattern))
        own = GROUP[cell] == group
        by_row = np.linalg.lstsq((x[own] @ basis).T, sums_of, rcond=None)[0]
        there = np.flatnonzero(given.present[pattern])
        cross[group][np.ix_(there, there)] += (X[cell[own]].T @ by_row).T
        pairs[group][np.ix_(there, there)] += squares
    found, offs = [], []
    present = table.present_in
    for column in sums.columns:
        if column.position is None:
            outcome, level = column.category or (0, 0)
            inside = counts[:, table.combinations[:, outcome] == level].sum(axis=1)
            found.append(X.T @ (inside - known * column.fitted) / column.spread)
            offs.append((np.zeros(3), 0.0))
            continue
        centre, scale = given.centre[column.position], given.spread[column.position]
        off = (centre - column.fitted) / column.spread
        there = counts[:, present[:, column.position]].sum(axis=1)
        part = cross.sum(axis=0)[column.position, column.position] * scale / column.spread
        found.append(part + X.T @ (off * there))
        offs.append((np.linalg.lstsq(X, off, rcond=None)[0], scale / column.spread))
    for (j, k), mean in zip(sums.products, sums.means, strict=True):
        one, other = sums.columns[j].position, sums.columns[k].position
        (off_j, scale_j), (off_k, scale_k) = offs[j], offs[k]
        there = counts[:, present[:, one] & present[:, other]].sum(axis=1)
        constant = there * ((X @ off_j) * (X @ off_k) - mean[GROUP])
        found.append(np.array([
            scale_j * scale_k * pairs[g, one, other] + scale_k * off_j @ cross[g, one, other]
            + scale_j * off_k @ cross[g, other, one] + constant @ np.equal(GROUP, g)
            for g in range(2)
        ]))  # fmt: skip
    return np.concatenate(found)


def spread_of(truth: FloatArray, drawn: FloatArray) -> tuple[float, float]:
    """Smallest and largest variance of draws in directions in which the truth has variance one."""
    root = np.linalg.inv(np.linalg.cholesky(truth))
    values = np.linalg.eigvalsh(root @ np.cov(drawn.T) @ root.T)
    return float(values[0]), float(values[-1])


def test_noise_on_scores_of_several_kinds_is_that_of_sums_with_noise() -> None:
    outcomes = (INCOME, BENEFIT, WORK)
    rng = np.random.default_rng(3)
    category = np.column_stack(
        [np.zeros(N, dtype=np.int64), rng.integers(0, 2, N), rng.integers(0, 3, N)]
    )
    there = np.column_stack([np.ones(N, dtype=bool), category[:, 1] == 0, np.ones(N, dtype=bool)])
    z = np.where(there, 1.0 + 0.3 * rng.standard_normal((N, 3)), 0.0)
    table = LocationShape(X, GROUP, outcomes, weighted=True)
    design = LocationDesign.optimal(table, Clipping(np.array([0.9, 1.2, 1.0]), np.full(3, 0.6)))
    exact = LocationSums(design)
    exact.add(CELL, table.combination_of(category), z)
    sums = scored((0, 1, 2), (2, 1))
    made = released(design, exact, budget=BUDGET, source=SeededNoise(rng))
    silent: Any = exact
    blocks = [(exact.cross(each), exact.squares_of(each)) for each in design.blocks]
    step = design.clipping.step
    shown = [np.flatnonzero(table.patterns[each.pattern]) for each in design.blocks]
    silent = replace(
        made, counts=exact.count.astype(float),
        cross=tuple(
            c[:, s].astype(float) * 2.0**-30 * step for (c, _), s in zip(blocks, shown, strict=True)
        ),
        squares=tuple(
            q[np.ix_(s, s)].astype(float) * step**2 for (_, q), s in zip(blocks, shown, strict=True)
        ),
    )  # fmt: skip
    expected = of_records(sums, category, z, there)
    np.testing.assert_allclose(of_statistics(sums, table, silent), expected, atol=2e-3)
    drawn = []
    for _ in range(DRAWS):
        squares = []
        for each in silent.squares:
            noise = np.triu(made.squares_sd[1] * rng.standard_normal(each.shape), 1)
            noise = noise + noise.T + np.diag(made.squares_sd[0] * rng.standard_normal(len(each)))
            squares.append(each + noise)
        drawn.append(of_statistics(sums, table, replace(
            silent, squares=tuple(squares),
            counts=silent.counts + made.count_sd * rng.standard_normal(silent.counts.size),
            cross=tuple(
                each + made.sigma * rng.standard_normal(each.shape) for each in silent.cross
            ),
        )))  # fmt: skip
    truth = ScoreNoise(made, table).covariance(sums)
    low, high = spread_of(truth, np.array(drawn))
    assert 0.8 < low < high < 1.25
    # Without the noise on counts, or with that of products apart from sums, it would be another.
    no_counts = ScoreNoise(replace(made, count_sd=0.0), table).covariance(sums)
    assert spread_of(no_counts + 1e-6 * np.eye(len(truth)), np.array(drawn))[1] > 2.0
    apart = truth.copy()
    apart[:12, 12:] = apart[12:, :12] = 0.0
    assert spread_of(apart, np.array(drawn))[0] < 0.7


def test_noise_on_scores_of_amounts_is_that_of_sums_with_noise() -> None:
    """One covariance for all: what the mechanism itself releases, again and again."""
    rng = np.random.default_rng(4)
    z = 1.0 + 0.3 * rng.standard_normal((N, 2))
    design = NoiseDesign.optimal(X, Clipping(np.array([0.8, 1.1]), np.full(2, 0.5)))
    sums = replace(
        scored((0, 1), None), groups=[np.ones((4, 1))] * 3, means=[np.array([0.5])] * 3
    )
    table = LocationShape(X, np.zeros(4, dtype=np.int64), (INCOME,), weighted=True)
    made = noisy_statistics(design, CELL, z, budget=BUDGET, source=SeededNoise(rng))

    def of_one(given: NoisyStatistics) -> FloatArray:
        by_row = np.linalg.lstsq((X @ given.basis).T, given.cross[0], rcond=None)[0]
        cross, count = X.T @ by_row, np.bincount(CELL)
        off = [(given.centre[j] - c.fitted) / c.spread for j, c in enumerate(sums.columns)]
        scale = [given.spread[j] / c.spread for j, c in enumerate(sums.columns)]
        slope = [np.linalg.lstsq(X, each, rcond=None)[0] for each in off]
        found = [scale[j] * cross[:, j] + X.T @ (off[j] * count) for j in range(2)]
        for j, k in sums.products:
            product = scale[j] * scale[k] * given.squares[0, j, k] + count @ (off[j] * off[k])
            product += scale[k] * slope[j] @ cross[:, k] + scale[j] * slope[k] @ cross[:, j]
            found.append(np.array([product - 0.5 * N]))
        return np.concatenate(found)

    drawn = np.array([
        of_one(noisy_statistics(design, CELL, z, budget=BUDGET, source=SeededNoise(rng)))
        for _ in range(800)
    ])  # fmt: skip
    residual = np.stack([(z[:, j] - c.fitted[CELL]) / c.spread for j, c in enumerate(sums.columns)])
    expected = [X[CELL].T @ each for each in residual]
    expected += [[residual[j] @ residual[k] - 0.5 * N] for j, k in sums.products]
    error = drawn.std(axis=0) / np.sqrt(800)
    assert np.abs((drawn.mean(axis=0) - np.concatenate(expected)) / error).max() < 4.5
    truth = ScoreNoise(made, table).covariance(sums)
    low, high = spread_of(truth, drawn)
    assert 0.75 < low < high < 1.3
    wider = ScoreNoise(replace(made, sigma=1.5 * made.sigma), table).covariance(sums)
    assert spread_of(wider, drawn)[0] < 0.6


def test_where_nothing_is_scored_there_is_no_noise() -> None:
    """Counts with public weights: no outcome and no weight has a regression."""
    rng = np.random.default_rng(5)
    table = LocationShape(X, GROUP, (INCOME,), weighted=False)
    design = LocationDesign.optimal(table, Clipping(np.array([0.9]), np.array([0.6])))
    sums = LocationSums(design)
    sums.add(CELL, np.zeros(N, dtype=np.int64), rng.normal(1.0, 0.3, (N, 1)))
    made = released(design, sums, budget=BUDGET, source=SeededNoise(rng))
    assert ScoreNoise(made, table).covariance(ScoreSums(X, [], [], [], [])).shape == (0, 0)


def test_sums_about_centres_of_groups_have_the_noise_of_both_stages() -> None:
    """Equal centres are another common one; first sums as precise halve the variance of sums."""
    rng = np.random.default_rng(6)
    table = LocationShape(X, GROUP, (INCOME,), weighted=True)
    design = LocationDesign.optimal(table, Clipping(np.array([0.9, 1.2]), np.array([0.6, 0.5])))
    exact = LocationSums(design)
    z = rng.normal(1.0, 0.3, (N, 2))
    exact.add(CELL, np.zeros(N, dtype=np.int64), z)
    made = released(design, exact, budget=BUDGET, source=SeededNoise(rng))
    sums = scored((0, 1), None)
    shift = np.array([0.7, -0.4])
    first = GroupSums(made.cross, np.tile(shift, (len(made.cross), 1)), 1e9, 3.0, 0.1)
    common = replace(made, centre=made.centre + shift * made.spread)
    found = ScoreNoise(replace(made, first=first), table).covariance(sums)
    np.testing.assert_allclose(found, ScoreNoise(common, table).covariance(sums), rtol=1e-6)
    plain = ScoreNoise(made, table).covariance(sums)
    assert np.abs(found - plain).max() > 0.1 * np.abs(plain).max()
    precise = replace(first, centres=np.zeros((len(made.cross), 2)), sigma=made.sigma)
    both = ScoreNoise(replace(made, first=precise), table).covariance(sums)
    np.testing.assert_allclose(both[:6, :6], 0.5 * plain[:6, :6], rtol=1e-9)
