"""Rows of a table as sums of its interior cells."""

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.domains import Domains

__all__ = [
    "cell_of_record",
    "interior_rows",
    "margin_matrix",
    "margin_set_of_row",
    "sums_by_row",
    "sums_by_unit",
]


def interior_rows(domains: Domains) -> IntArray:
    """Table rows (I,) of the interior cells, in the order of the table."""
    return np.flatnonzero(margin_set_of_row(domains) == 2 ** len(domains.by) - 1)


def cell_of_record(domains: Domains) -> IntArray:
    """Interior cell 0..I-1 of each record, shape (n,)."""
    position = np.full(domains.n_rows, -1, dtype=np.int64)
    rows = interior_rows(domains)
    position[rows] = np.arange(rows.size)
    cell: IntArray = position[domains.codes[-1]]
    return cell


def margin_set_of_row(domains: Domains) -> IntArray:
    """Position in ``domains.codes`` of the margin set that each row belongs to, shape (D,)."""
    return _margin_sets(domains.level_counts)


@lru_cache(maxsize=16)
def _margin_sets(counts: tuple[int, ...]) -> IntArray:
    sets = np.zeros(1, dtype=np.int64)
    for levels in counts:
        kept = (np.arange(1 + levels) > 0).astype(np.int64)
        sets = (2 * sets[:, None] + kept).ravel()
    sets.setflags(write=False)  # shared by all callers
    return sets


def margin_matrix(domains: Domains) -> Any:
    """Sparse zeros and ones (D, I): row d of the table is the sum of the interior cells with a one.

    One by variable has its margin first, then its levels: a row of ones above an identity. With
    several, rows and cells run through all combinations, the last variable fastest.
    """
    return _margin_matrix(domains.level_counts)


@lru_cache(maxsize=16)
def _margin_matrix(counts: tuple[int, ...]) -> Any:
    matrix: Any = sparse.csr_array(np.ones((1, 1)))
    for levels in counts:
        one = sparse.csr_array(np.vstack([np.ones((1, levels)), np.eye(levels)]))
        matrix = sparse.csr_array(sparse.kron(matrix, one, format="csr"))
    return matrix


def sums_by_row(domains: Domains, values: FloatArray) -> FloatArray:
    """Sum the values (n,) of the records of each row of the table: (D,)."""
    sums = np.zeros(domains.n_rows)
    for rows in domains.codes:
        sums += np.bincount(rows, values, minlength=domains.n_rows)
    return sums


def sums_by_unit(
    unit: IntArray, cell: IntArray, values: FloatArray, shape: tuple[int, int]
) -> Any:
    """Sum the values (n,) of records by interior cell and unit: sparse, shape (cells, units)."""
    if shape[1] == unit.size:  # every record is its own unit
        return sparse.csr_array((values, (cell, unit)), shape=shape)
    pair, keys = pd.factorize(cell * shape[1] + unit)
    sums = np.bincount(pair, values, minlength=len(keys))
    return sparse.csr_array((sums, np.divmod(keys, shape[1])), shape=shape)
