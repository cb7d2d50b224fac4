"""The public table behind noisy statistics of several kinds of outcome.

    row (c, d)  a cell c of X with a combination d of categories, x~ = (x_c, e(d))
    pattern     which columns of z are there: amounts at no spike, above or below a split
    block       a pattern within a group of cells: its records have one residual covariance

Which combinations there are, and which row belongs to which block, follows from declared levels,
spikes and splits and from public columns alone.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.models.general_location.layout import Layout
from surveysynth.survey.outcome import Outcome

#: Rows of the table beyond which its counts would hold next to nothing of a sample.
MOST_ROWS = 2**16


@dataclass(frozen=True, eq=False)
class LocationShape:
    """Cells (C, K) with the group (C,) of each; outcomes, and whether a log weight is a column.

    level (F, G): that of each group in each column that has fewer levels than there are groups.

    Raises ``InputError`` where the table would have more than ``MOST_ROWS`` rows.
    """

    x_cells: FloatArray
    group: IntArray
    outcomes: tuple[Outcome, ...]
    weighted: bool
    level: IntArray | None = None

    def __post_init__(self) -> None:
        rows = self.x_cells.shape[0] * int(np.prod([each.categories for each in self.discrete]))
        if rows > MOST_ROWS:
            raise InputError(
                f"Noisy statistics count records by cell of X and category of every outcome: "
                f"{rows:,} counts here, more than {MOST_ROWS:,}. Name fewer outcomes with "
                "categories, join their levels, or divide the outcomes between releases in one "
                "ledger, the later ones with weights = \"release:PATH\" in [survey]."
            )

    @property
    def discrete(self) -> tuple[Outcome, ...]:
        """Outcomes with a discrete part, in order."""
        return tuple(each for each in self.outcomes if each.is_discrete)

    @cached_property
    def layout(self) -> Layout:
        """The layout of the model: columns of x~ and of z."""
        return Layout.of_outcomes(
            self.x_cells.shape[1], self.outcomes, weighted=self.weighted, grouped=self.groups > 1
        )

    @property
    def q(self) -> int:
        """Columns of z."""
        return self.layout.q

    @property
    def groups(self) -> int:
        """G."""
        return int(self.group.max()) + 1

    @property
    def levels(self) -> IntArray:
        """Levels (F, G) of groups."""
        return np.zeros((0, self.groups), dtype=np.int64) if self.level is None else self.level

    @cached_property
    def combinations(self) -> IntArray:
        """Categories (D, outcomes) of each combination."""
        ranges = [range(each.categories) for each in self.outcomes]
        return np.array(list(product(*ranges)), dtype=np.int64)

    def combination_of(self, category: IntArray) -> IntArray:
        """Return the combination (n,) of categories (n, outcomes)."""
        sizes = [each.categories for each in self.outcomes]
        return np.asarray(np.ravel_multi_index(tuple(category.T), sizes), dtype=np.int64)

    @cached_property
    def indicators(self) -> FloatArray:
        """e(d) (D, E): indicators of all categories but the first of each discrete part."""
        columns = self.layout.columns
        return self.layout.tilde(np.zeros((len(self.combinations), columns)), self.combinations)[
            :, columns:
        ]

    @cached_property
    def tilde(self) -> FloatArray:
        """x~ (C, D, W) of every row."""
        cells, combinations = len(self.x_cells), len(self.combinations)
        x = np.repeat(self.x_cells, combinations, axis=0)
        rows = np.hstack([x, np.tile(self.indicators, (cells, 1))])
        return rows.reshape(cells, combinations, -1)

    @cached_property
    def flags(self) -> FloatArray:
        """1[d_j = l] (D, E) of every category of each outcome with a discrete part."""
        columns = [
            self.combinations[:, j, None] == np.arange(outcome.categories)
            for j, outcome in enumerate(self.outcomes)
            if outcome.is_discrete
        ]
        none = np.zeros((len(self.combinations), 0))
        return np.concatenate([none, *columns], axis=1, dtype=np.float64)

    @cached_property
    def present_in(self) -> BoolArray:
        """Flags (D, q) of the columns of z that exist in each combination."""
        return self.layout.present(self.combinations)

    @cached_property
    def _patterns(self) -> tuple[BoolArray, IntArray]:
        found, of = np.unique(self.present_in, axis=0, return_inverse=True)
        return found, np.asarray(of, dtype=np.int64).reshape(-1)

    @property
    def patterns(self) -> BoolArray:
        """Flags (P, q) of the columns present in each pattern."""
        return self._patterns[0]

    @property
    def pattern(self) -> IntArray:
        """Pattern (D,) of each combination."""
        return self._patterns[1]

    @property
    def width(self) -> int:
        """Columns of x~."""
        return self.layout.width

    def rows(self, pattern: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Return cells (rows,), combinations (rows,) and x~ (rows, width) of a pattern's rows."""
        combination = np.flatnonzero(self.pattern == pattern)
        cells = self.x_cells.shape[0]
        cell = np.repeat(np.arange(cells), combination.size)
        combination = np.tile(combination, cells)
        return cell, combination, self.tilde[cell, combination]
