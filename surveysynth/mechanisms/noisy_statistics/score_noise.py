"""Noise of released statistics on the scores of regressions: how it moves whatever is fitted.

A score is a sum over records, such as x (z - x b) / s or the product of two residuals. It is linear
in sums by X, in products, and in counts, and so it has the noise of those that are released.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationStatistics,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.module_statistics import ModuleStatistics
from surveysynth.mechanisms.noisy_statistics.release.statistics import NoisyStatistics
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import Statistics, table_of
from surveysynth.mechanisms.noisy_statistics.settings import Module, NoisySettings
from surveysynth.mechanisms.score_sums import ScoredColumn, ScoreSums
from surveysynth.models.base import Model
from surveysynth.survey.survey import PublicDesign

#: The weight in the place of an outcome.
WEIGHT = -1


@dataclass(frozen=True)
class _Block:
    """Sums with noise of their own: lift (K, r) from the sums to X'U, columns (q_b,) of z.

    cells: (C,) flags of rows of X; centre (q,): what sums are about; sigma, diagonal, rest: SD of
    sums, squares, products.
    """

    lift: FloatArray
    columns: IntArray
    cells: FloatArray
    centre: FloatArray
    sigma: float
    diagonal: float
    rest: float


@dataclass(frozen=True)
class ScoreNoise:
    """The noise of released statistics on scores; ``table``: of the design."""

    statistics: NoisyStatistics | LocationStatistics
    table: LocationShape

    @property
    def group(self) -> IntArray:
        """Group (C,) of each row of X."""
        return self.table.group

    def covariance(self, sums: ScoreSums) -> FloatArray:
        """Return the covariance (P, P) of the noise on scores; of none where no column varies."""
        size = sum(each.shape[1] for each in sums.features)
        result = np.zeros((size, size))
        if not sums.columns:
            return result
        for block in _blocks(self.statistics, self.table):
            result += _moments(self.statistics, block, sums)
        if isinstance(self.statistics, LocationStatistics):
            result += _counts(self.statistics, self.table, sums)
        return result


def _moments(
    statistics: NoisyStatistics | LocationStatistics, block: _Block, sums: ScoreSums
) -> FloatArray:
    """Return what the noise of the sums and squares of a block adds."""
    columns = sums.columns
    begin = np.concatenate([[0], np.cumsum([each.shape[1] for each in sums.features])])
    result = np.zeros((begin[-1], begin[-1]))
    at = {j: columns[j].position for j in range(len(columns)) if columns[j].position is not None}
    scale = {j: statistics.spread[c] / columns[j].spread for j, c in at.items()}
    # Coefficients on X of what is fitted, in residual SDs about the centre.
    solve = np.linalg.pinv(sums.x_cells)
    lifted = {
        j: solve @ ((columns[j].fitted - block.centre[c]) / columns[j].spread) @ block.lift
        for j, c in at.items()
    }
    products = []
    for p, (pair, groups) in enumerate(zip(sums.products, sums.groups, strict=True)):
        if all(at[each] in block.columns for each in pair):
            inside = np.flatnonzero(block.cells @ groups)
            products.append((pair, begin[len(columns) + p] + inside))
    for position in block.columns:
        moved = np.zeros((begin[-1], block.lift.shape[1]))
        for j, c in at.items():
            if c == position:
                moved[begin[j] : begin[j + 1]] = scale[j] * block.lift
        for pair, where in products:
            for one, other in (pair, pair[::-1]):
                if at[other] == position:
                    moved[where] -= scale[other] * lifted[one]
        result += block.sigma**2 * moved @ moved.T
    for (one, other), where in products:
        sd = block.diagonal if one == other else block.rest
        result[where, where] += (sd * scale[one] * scale[other]) ** 2
    return result


def _blocks(
    statistics: NoisyStatistics | LocationStatistics, table: LocationShape
) -> Iterator[_Block]:
    k = table.x_cells.shape[1]
    if isinstance(statistics, NoisyStatistics):
        rows, q = table.x_cells @ statistics.basis, statistics.centre.size
        sd = statistics.squares_sd
        yield _Block(
            table.x_cells.T @ np.linalg.pinv(rows.T), np.arange(q), np.ones(len(table.x_cells)),
            statistics.centre, statistics.sigma, float(sd[0, 0]), float(sd[0, -1]),
        )  # fmt: skip
        return
    centres, sigma = statistics.centres, statistics.pooled_sigma
    for pattern, group, basis, centre in zip(
        statistics.block_pattern, statistics.block_group, statistics.basis, centres, strict=True
    ):
        cell, _, x = table.rows(int(pattern))
        own = table.group[cell] == group
        lift = x[own].T @ np.linalg.pinv((x[own] @ basis).T)
        yield _Block(
            lift[:k], np.flatnonzero(statistics.present[pattern]),
            (table.group == group).astype(np.float64), centre, sigma, *statistics.squares_sd,
        )  # fmt: skip


def _counts(
    statistics: LocationStatistics, table: LocationShape, sums: ScoreSums
) -> FloatArray:
    """Return what noise on counts adds; the number of records of a row of X is public."""
    combinations, present = table.combinations, table.present_in.astype(np.float64)
    loads = []  # (C, D) of each column and product
    residual = []
    for each in sums.columns:
        if each.position is None:
            assert each.category is not None
            outcome, level = each.category
            flags = (combinations[:, outcome] == level) / each.spread
            loads.append(np.broadcast_to(flags, (len(table.x_cells), flags.size)))
            residual.append(np.zeros(len(table.x_cells)))
        else:
            off = (statistics.centre[each.position] - each.fitted) / each.spread
            loads.append(off[:, None] * present[:, each.position])
            residual.append(off)
    for (one, other), groups, means in zip(sums.products, sums.groups, sums.means, strict=True):
        first, second = sums.columns[one].position, sums.columns[other].position
        both = present[:, first] * present[:, second]
        off = residual[one] * residual[other] - groups @ means
        loads.append(off[:, None] * both)
    load = np.stack(loads, axis=1)
    load = load - load.mean(axis=-1, keepdims=True)
    shared = statistics.count_sd**2 * load @ load.swapaxes(-1, -2)
    features = sums.features
    return np.block([
        [one.T @ (shared[:, j, k, None] * other) for k, other in enumerate(features)]
        for j, one in enumerate(features)
    ])  # fmt: skip


@dataclass(frozen=True)
class ModuleNoise:
    """The noise of modules: a score is of outcomes of one module, and perhaps of the weight.

    design: of all outcomes; tables: of each module.
    """

    statistics: ModuleStatistics
    design: PublicDesign
    modules: Sequence[Module]
    tables: Sequence[LocationShape]

    @property
    def group(self) -> IntArray:
        """Group (C,) of each row of X."""
        return self.tables[0].group

    def covariance(self, sums: ScoreSums) -> FloatArray:
        """Return the covariance (P, P) of the noise on scores.

        Scores of the weight alone have that of the first module. Raises ``ValueError`` for
        outcomes of several modules, whose tables a specification does not allow.
        """
        named = {self._outcome(each) for each in sums.columns} - {WEIGHT}
        for number, module in enumerate(self.modules):
            if named <= set(module.columns):
                own = replace(sums, columns=[self._moved(each, module) for each in sums.columns])
                noise = ScoreNoise(self.statistics.modules[number], self.tables[number])
                return noise.covariance(own)
        raise ValueError("scores of outcomes in several modules")

    def _outcome(self, column: ScoredColumn) -> int:
        """Return the outcome of a column, ``WEIGHT`` for the weight."""
        if column.category is not None:
            return column.category[0]
        assert column.position is not None  # no category
        return [*self._amounts, WEIGHT][column.position]

    @cached_property
    def _amounts(self) -> list[int]:
        """The outcome of each column of z but the weight."""
        return [j for j, each in enumerate(self.design.outcomes) for _ in each.sides]

    def _moved(self, column: ScoredColumn, module: Module) -> ScoredColumn:
        """Return a column with its place among those of the module."""
        if column.category is not None:
            outcome, level = column.category
            return replace(column, category=(module.columns.index(outcome), level))
        whole = [*self._amounts, WEIGHT]
        kept = [k for k, outcome in enumerate(whole) if outcome in (*module.columns, WEIGHT)]
        assert column.position is not None  # no category
        return replace(column, position=kept.index(column.position))


def score_noise(
    statistics: Statistics, model: Model, design: PublicDesign, settings: NoisySettings
) -> ScoreNoise | ModuleNoise:
    """Return the noise of released statistics on scores."""
    if not isinstance(statistics, ModuleStatistics):
        return ScoreNoise(statistics, table_of(model, design))
    modules = settings.modules_of(design)
    return ModuleNoise(
        statistics, design, modules, [table_of(model, each.design) for each in modules]
    )
