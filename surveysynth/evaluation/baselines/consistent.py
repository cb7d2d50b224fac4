"""Noisy tables adjusted to add up, by generalized least squares (methods 6; Hay et al. 2010).

This is post-processing of noisy numbers. Every row of a table is a measurement of the interior
cells with noise of known variance, and the cells that fit all rows best replace them. Margins gain
from their cells and cells from their margins; the result adds up.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import linalg, sparse

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import interior_rows, margin_matrix
from surveysynth.estimation.statistics import statistic_of
from surveysynth.evaluation.baselines.laplace import NoisyTable, impossible_values

#: Most cells with records in the (dense) normal equations.
MOST_CELLS = 4000


def consistent_tables(domains: Domains, tables: Sequence[NoisyTable]) -> list[NoisyTable]:
    """Return the tables with margins that are sums or weighted means of their cells.

    Counts and totals are sums. Means and proportions need a table of counts among ``tables``, whose
    consistent values, zero if noise made them negative, weight the cells; without one they are left
    out, and so are statistics whose margins are neither sums nor means. Standard errors come from
    the noisy replicates, mapped as the estimates are; a replicate without an estimate of some cell
    is left out.

    Raises ``InputError`` for tables of more than 4,000 cells with records.
    """
    sums = {
        index: _consistent(domains, table, None)
        for index, table in enumerate(tables)
        if statistic_of(table.statistic).additive
    }
    counts = [
        table.estimate for table in sums.values() if statistic_of(table.statistic).is_count
    ]
    result = []
    for index, table in enumerate(tables):
        if index in sums:
            result.append(sums[index])
        elif counts and statistic_of(table.statistic).margins == "means":
            cells = np.maximum(np.nan_to_num(counts[0][interior_rows(domains)]), 0.0)
            result.append(_consistent(domains, table, cells))
    return result


def _consistent(domains: Domains, table: NoisyTable, cells: FloatArray | None) -> NoisyTable:
    """Adjust one table; ``cells`` (I,) weights the cells of means, None takes sums."""
    used = (domains.n > 0) & np.isfinite(table.estimate)
    interior = interior_rows(domains)
    kept = interior[used[interior]]  # cells without records are exactly zero
    if kept.size > MOST_CELLS:
        raise InputError(
            f"Consistent margins are made for tables of up to {MOST_CELLS:,} cells, but this one "
            f"has {kept.size:,} with records; use fewer by variables."
        )
    design = _design(domains, cells)[:, np.flatnonzero(used[interior])]
    rows = np.flatnonzero(used & (design.sum(axis=1) > 0))
    fitted = _Fit(design, rows, table.scale)
    mapped = fitted.mapped(np.vstack([table.estimate, table.replicates]))
    variance = _variance(mapped)
    variance[np.isnan(table.variance)] = np.nan
    return replace(
        table,
        estimate=mapped[0],
        variance=variance,
        replicates=mapped[1:],
        impossible=impossible_values(table.statistic, table.never_negative, mapped[0]),
    )


def _design(domains: Domains, cells: FloatArray | None) -> Any:
    """Return the rows of a table as combinations of its interior cells: sparse (D, I)."""
    matrix = margin_matrix(domains)
    if cells is None:
        return matrix
    sums = matrix @ cells
    inverse = np.divide(1.0, sums, where=sums > 0, out=np.zeros_like(sums))
    weighted = sparse.diags_array(inverse) @ matrix @ sparse.diags_array(cells)
    # A cell is its own mean, even if noise left it no weight in the margins.
    interior = interior_rows(domains)
    alone = sparse.lil_array(weighted)
    alone[interior] = matrix[interior]
    return sparse.csr_array(alone)


class _Fit:
    """The least-squares map from all noisy rows to rows that agree."""

    def __init__(self, design: Any, rows: IntArray, scale: FloatArray) -> None:
        self._design, self._rows = design, rows
        largest = scale[rows].max() if rows.size else 1.0
        # Rows without noise are exact; a tiny variance keeps the equations solvable.
        noise = np.maximum(scale[rows] / largest, 1e-6) if largest > 0 else np.ones(rows.size)
        self._precision = noise**-2.0
        self._measured = design[rows]
        normal = (self._measured.T @ sparse.diags_array(self._precision) @ self._measured).toarray()
        self._factor = linalg.cho_factor(normal)

    def mapped(self, noisy: FloatArray) -> FloatArray:
        """Map tables (S, D) to tables that add up, NaN in rows without an estimate."""
        right = self._measured.T @ (self._precision[:, None] * noisy[:, self._rows].T)
        cells = np.full(right.shape, np.nan)
        sound = np.isfinite(right).all(axis=0)
        cells[:, sound] = linalg.cho_solve(self._factor, right[:, sound])
        result = np.full(noisy.shape, np.nan)
        result[:, self._rows] = (self._measured @ cells).T
        return result


def _variance(mapped: FloatArray) -> FloatArray:
    """Return (1/R) sum_r (replicate_r - estimate)^2 over replicates with an estimate, (D,)."""
    squares = (mapped[1:] - mapped[0]) ** 2
    usable = np.isfinite(squares)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(usable, squares, 0.0).sum(axis=0) / usable.sum(axis=0))
