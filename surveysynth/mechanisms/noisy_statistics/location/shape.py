"""The public table that noisy statistics of several kinds of outcome are made of.

    row (c, d)  a cell c of X with a combination d of categories, x~ = (x_c, e(d))
    pattern     which amounts are there: those of outcomes whose category is 0
    block       a pattern within a group of cells: its records have one residual covariance

Which combinations there are, and which row belongs to which block, follows from declared levels and
spikes and from public columns alone.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.outcome import Outcome

#: Rows of the table beyond which its counts would hold next to nothing of a sample.
MOST_ROWS = 2**16


@dataclass(frozen=True, eq=False)
class LocationShape:
    """Cells (C, K) with the group (C,) of each; outcomes, and whether a log weight is a column.

    Raises ``InputError`` where the table would have more than ``MOST_ROWS`` rows.
    """

    x_cells: FloatArray
    group: IntArray
    outcomes: tuple[Outcome, ...]
    weighted: bool

    def __post_init__(self) -> None:
        rows = self.x_cells.shape[0] * int(np.prod([each.categories for each in self.discrete]))
        if rows > MOST_ROWS:
            raise InputError(
                f"Noisy statistics count records by cell of X and category of every outcome: "
                f"{rows:,} counts here, more than {MOST_ROWS:,}. Name fewer outcomes with "
                "categories, join their levels, or use mechanism = 'pseudo_posterior'."
            )

    @property
    def discrete(self) -> tuple[Outcome, ...]:
        """Outcomes with a discrete part, in order."""
        return tuple(each for each in self.outcomes if each.is_discrete)

    @property
    def amounts(self) -> tuple[Outcome, ...]:
        """Outcomes that are amounts, in order: columns of z but the last, the log weight."""
        return tuple(each for each in self.outcomes if each.is_amount)

    @property
    def q(self) -> int:
        """Columns of z."""
        return len(self.amounts) + int(self.weighted)

    @property
    def groups(self) -> int:
        """G."""
        return int(self.group.max()) + 1

    @cached_property
    def combinations(self) -> IntArray:
        """Categories (D, outcomes with a discrete part) of each combination."""
        ranges = [range(each.categories) for each in self.discrete]
        rows = list(product(*ranges))  # a single empty one where nothing is discrete
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(ranges))

    def combination_of(self, category: IntArray) -> IntArray:
        """Combination (n,) of categories (n, outcomes)."""
        columns = [j for j, each in enumerate(self.outcomes) if each.is_discrete]
        sizes = [each.categories for each in self.discrete]
        result = np.zeros(category.shape[0], dtype=np.int64)
        for j, size in zip(columns, sizes, strict=True):
            result = result * size + category[:, j]
        return result

    @cached_property
    def indicators(self) -> FloatArray:
        """e(d) (D, E): categories 1 on of each discrete part in turn."""
        columns = [
            self.combinations[:, j] == level
            for j, each in enumerate(self.discrete)
            for level in range(1, each.categories)
        ]
        return np.array(columns, dtype=np.float64).T.reshape(len(self.combinations), -1)

    @cached_property
    def present_in(self) -> BoolArray:
        """Which columns of z there are (D, q) in each combination."""
        result = np.ones((len(self.combinations), self.q), dtype=bool)
        place = {each.name: j for j, each in enumerate(self.discrete)}
        for column, each in enumerate(self.amounts):
            if each.is_discrete:
                result[:, column] = self.combinations[:, place[each.name]] == 0
        return result

    @cached_property
    def _patterns(self) -> tuple[BoolArray, IntArray]:
        found, of = np.unique(self.present_in, axis=0, return_inverse=True)
        return found, np.asarray(of, dtype=np.int64).reshape(-1)

    @property
    def patterns(self) -> BoolArray:
        """Columns that are there (P, q) in each pattern."""
        return self._patterns[0]

    @property
    def pattern(self) -> IntArray:
        """Pattern (D,) of each combination."""
        return self._patterns[1]

    @property
    def width(self) -> int:
        """Columns of x~."""
        return int(self.x_cells.shape[1] + self.indicators.shape[1])

    def rows(self, pattern: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Cells (rows,) and combinations (rows,) of a pattern's rows, and x~ (rows, width)."""
        combination = np.flatnonzero(self.pattern == pattern)
        cells = self.x_cells.shape[0]
        cell = np.repeat(np.arange(cells), combination.size)
        combination = np.tile(combination, cells)
        return cell, combination, np.hstack([self.x_cells[cell], self.indicators[combination]])
