"""Local sensitivities of weighted counts, totals and means (methods 6, [T] 2.4).

They are read from the confidential data, so whatever is made with them is no release.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import cell_of_record, margin_set_of_row
from surveysynth.estimation.taylor import Statistic

Rule: TypeAlias = Literal["paper", "honest"]


@dataclass(frozen=True)
class _Ranges:
    """Largest and smallest value in each row of a table, for several sets of weights: (D, S)."""

    most: FloatArray
    least: FloatArray

    @property
    def width(self) -> FloatArray:
        return self.most - self.least


def row_sensitivities(
    domains: Domains,
    weights: FloatArray,
    outcome: FloatArray | None,
    statistic: Statistic,
    rule: Rule,
) -> FloatArray:
    """How far one record can move each row: (D, S) for S sets of weights (n, S).

    Of the records of a row, w and y:

    - count: D_c = max w - min w;
    - mean, "paper": D_a = (max wy - min wy) / (sum w - D_c), which is not a bound: a record that
      takes another's place moves the mean by up to 2.4 D_a;
    - mean, "honest": D_h = max w (max y - min y) / (sum w - D_c), which covers the change of the
      denominator too;
    - total: the range of w y ("paper"), or of all products of a w and a y ("honest").

    NaN in rows without records; infinite where weights of zero leave nothing to divide by.
    """
    grid = _Grid(domains)
    weight = grid.ranges(weights)
    if statistic == "count" or outcome is None:
        return weight.width
    paper = grid.ranges(weights * outcome[:, None]).width
    y = grid.ranges(outcome[:, None])
    if statistic == "total":
        if rule == "paper":
            return paper
        corners = np.stack([a * b for a in (weight.least, weight.most) for b in (y.least, y.most)])
        return np.asarray(corners.max(axis=0) - corners.min(axis=0))
    rest = grid.sums(weights) - weight.width
    numerator = paper if rule == "paper" else weight.most * y.width
    with np.errstate(divide="ignore", invalid="ignore"):
        nothing = np.where(numerator > 0, np.inf, 0.0 * numerator)  # NaN without records
        return np.where(rest > 0, numerator / rest, nothing)


def group_sensitivities(domains: Domains, by_row: FloatArray) -> FloatArray:
    """The largest finite sensitivity of each margin set, given to all of its rows: (D, S).

    Cells do not show the full range of their population, so interior cells take the largest among
    them, and each kind of margin the largest of its own ([T] 2.4). Rows without a sensitivity of
    their own keep NaN or infinity.
    """
    sets = margin_set_of_row(domains)
    finite = np.where(np.isfinite(by_row), by_row, 0.0)
    largest = np.zeros((2 ** len(domains.by), by_row.shape[1]))
    np.maximum.at(largest, sets, finite)
    return np.where(np.isfinite(by_row), largest[sets], by_row)


class _Grid:
    """Extremes and sums by interior cell, then by margin, for columns of values at once."""

    def __init__(self, domains: Domains) -> None:
        self._levels = domains.level_counts
        cell = cell_of_record(domains)
        self._order = np.argsort(cell, kind="stable")
        self._cells, self._starts = _runs(cell[self._order])

    def ranges(self, values: FloatArray) -> _Ranges:
        """Largest and smallest of the values (n, S) in each row: (D, S), NaN without records."""
        inside = values[self._order]
        most = self._rows(np.maximum.reduceat(inside, self._starts), np.fmax, np.nan)
        least = self._rows(np.minimum.reduceat(inside, self._starts), np.fmin, np.nan)
        return _Ranges(most, least)

    def sums(self, values: FloatArray) -> FloatArray:
        """Sums of the values (n, S) in each row: (D, S)."""
        return self._rows(np.add.reduceat(values[self._order], self._starts), np.add, 0.0)

    def _rows(self, by_cell: FloatArray, reduce: np.ufunc, empty: float) -> FloatArray:
        """Interior cells (I', S) to all rows of the table (D, S)."""
        columns = by_cell.shape[1]
        grid = np.full((int(np.prod(self._levels)), columns), empty)
        grid[self._cells] = by_cell
        grid = grid.reshape(*self._levels, columns)
        for axis in range(len(self._levels)):
            grid = np.concatenate([reduce.reduce(grid, axis=axis, keepdims=True), grid], axis=axis)
        return grid.reshape(-1, columns)


def _runs(ordered: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct values of a sorted array, and where each begins."""
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    return ordered[starts], starts
