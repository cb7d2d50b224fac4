"""Sensitivities: how far one record moves a number of a table (methods 6, [T] 2.4).

They are read from the values themselves, which are confidential for a sample: results must not be
released.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.estimation.domains import Domains, cell_of_record

Rule: TypeAlias = Literal["paper", "honest"]


@dataclass(frozen=True)
class Ranges:
    """Largest and smallest value in each row of a table, for several sets of weights: (D, S)."""

    most: FloatArray
    least: FloatArray

    @property
    def width(self) -> FloatArray:
        """Largest less smallest, (D, S)."""
        return self.most - self.least


class RowExtremes:
    """Extremes and sums by interior cell, then by margin, for columns of values at once."""

    def __init__(self, domains: Domains) -> None:
        self._labels = domains.labels
        cell = cell_of_record(domains)
        self._order = np.argsort(cell, kind="stable")
        ordered = cell[self._order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self._cells = ordered[self._starts]

    def ranges(self, values: FloatArray) -> Ranges:
        """Largest and smallest of the values (n, S) in each row: (D, S), NaN without records."""
        inside = values[self._order]
        most = self._rows(np.maximum.reduceat(inside, self._starts), np.fmax, np.nan)
        least = self._rows(np.minimum.reduceat(inside, self._starts), np.fmin, np.nan)
        return Ranges(most, least)

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum the values (n, S) in each row: (D, S)."""
        return self._rows(np.add.reduceat(values[self._order], self._starts), np.add, 0.0)

    def _rows(self, by_cell: FloatArray, reduce: np.ufunc, empty: float) -> FloatArray:
        """Interior cells (I', S) to all rows of the table (D, S)."""
        columns, levels = by_cell.shape[1], [len(each.levels) for each in self._labels]
        grid = np.full((int(np.prod(levels)), columns), empty)
        grid[self._cells] = by_cell
        grid = grid.reshape(*levels, columns)
        for axis in range(len(levels)):
            whole = reduce.reduce(grid, axis=axis, keepdims=True)
            grid = np.concatenate([whole, grid], axis=axis)
        return grid.reshape(-1, columns)


Sensitivity: TypeAlias = Callable[[RowExtremes, FloatArray, FloatArray, Rule], FloatArray]
"""How far one record can move each row: (D, S) from weights (n, S) and an outcome (n,). NaN in
rows without records; infinite where weights of zero leave nothing to divide by."""


def of_weights(
    rows: RowExtremes, weights: FloatArray, outcome: FloatArray, rule: Rule
) -> FloatArray:
    """Return D_c = max w - min w of the records of a row, for counts."""
    return rows.ranges(weights).width


def of_totals(
    rows: RowExtremes, weights: FloatArray, outcome: FloatArray, rule: Rule
) -> FloatArray:
    """Return the range of w y ("paper"), or of all products of a w and a y ("honest")."""
    if rule == "paper":
        return rows.ranges(weights * outcome[:, None]).width
    weight, y = rows.ranges(weights), rows.ranges(outcome[:, None])
    corners = np.stack([a * b for a in (weight.least, weight.most) for b in (y.least, y.most)])
    return np.asarray(corners.max(axis=0) - corners.min(axis=0))


def of_means(
    rows: RowExtremes, weights: FloatArray, outcome: FloatArray, rule: Rule
) -> FloatArray:
    """Return the bound on a record's effect on means.

    - "paper": D_a = (max wy - min wy) / (sum w - D_c), which is not a bound: a record that takes
      another's place moves the mean by up to 2.4 D_a;
    - "honest": D_h = max w (max y - min y) / (sum w - D_c), which covers the change of the
      denominator too.
    """
    weight = rows.ranges(weights)
    rest = rows.sums(weights) - weight.width
    if rule == "paper":
        numerator = rows.ranges(weights * outcome[:, None]).width
    else:
        numerator = weight.most * rows.ranges(outcome[:, None]).width
    with np.errstate(divide="ignore", invalid="ignore"):
        nothing = np.where(numerator > 0, np.inf, 0.0 * numerator)  # NaN without records
        return np.where(rest > 0, numerator / rest, nothing)
