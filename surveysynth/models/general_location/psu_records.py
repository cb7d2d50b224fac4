"""Records by primary sampling unit (PSU) of the general location model (methods 3.5).

PSUs have effects on the predictors of all logits and on the means of all columns of z. Some
coefficients change predictors by the same amount in all records of a PSU, as those of strata do, or
by nearly the same, where a unit lies in two regions. Coefficients in these directions and effects
of PSUs compete, which the sampler has to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.parts.pairs import distinct
from surveysynth.models.parts.unit_design import (
    BETWEEN,
    between_units,
    records_by_unit,
    unit_means,
)

#: Share of the squares of a direction that rounding may leave within PSUs.
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True, repr=False)
class BetweenDirections:
    """Directions of coefficients that change predictors between PSUs, and little within them.

    coefficients (K, r): of squared length 1 over all records, zero for shrunken interactions; mean
    (..., C, K): of the columns of X in each PSU; constant: no direction varies within PSUs. Public.
    """

    coefficients: FloatArray
    mean: FloatArray
    constant: bool

    @classmethod
    def of(
        cls, x_cells: FloatArray, cell: IntArray, psu: IntArray, ridged: Sequence[int]
    ) -> "BetweenDirections":
        """Find those of rows x_cells[cell] (n, K) and codes psu (n,) from 0 on."""
        records = records_by_unit(cell, psu, len(x_cells))
        length = np.sqrt(records.sum(0) @ (x_cells * x_cells))
        # Columns of no length are no directions, nor are shrunken interactions.
        free = np.setdiff1d(np.flatnonzero(length), ridged)
        between, directions = between_units(x_cells[:, free] / length[free], records)
        kept = between > BETWEEN
        coefficients = np.zeros((x_cells.shape[1], int(kept.sum())))
        coefficients[free] = directions[:, kept] / length[free, None]
        constant = bool((1.0 - between[kept] < _NEGLIGIBLE).all())
        return cls(coefficients, unit_means(x_cells, records), constant)

    @classmethod
    def of_chains(
        cls, found: Sequence["BetweenDirections"], chains: int
    ) -> "BetweenDirections":
        """Take the directions of the first of D databases for all; mean (D chains, C, K)."""
        first, mean = found[0].coefficients, np.stack([each.mean for each in found])
        constant = all(
            each.constant and np.array_equal(each.coefficients, first) for each in found
        )
        return cls(first, np.repeat(mean, chains, axis=0), constant)

    @cached_property
    def along(self) -> FloatArray:
        """By how much each direction changes the predictor in a PSU on average (..., C, r)."""
        return np.asarray(self.mean @ self.coefficients, dtype=np.float64)


@dataclass(frozen=True, repr=False)
class PsuTable(Unpickled):
    """Distinct rows of a logit in each PSU, sorted by PSU.

    x (T, P); psu (T,); place (n,): the position of each record in the flat table (T, categories).
    """

    x: FloatArray
    psu: IntArray
    place: IntArray


@dataclass(frozen=True, repr=False)
class PsuRecords(Unpickled):
    """The PSUs of records: ``count`` C, a table for each logit, directions between them."""

    count: int
    tables: tuple[PsuTable, ...]
    between: BetweenDirections


def psu_table(
    rows: FloatArray, row: IntArray, own: IntArray, categories: int, psu: IntArray
) -> PsuTable:
    """Return the table of a logit with distinct rows (T', P).

    row (n,): the one of a record; own (n,): its category.
    """
    first, number = distinct([psu, row])
    return PsuTable(rows[row[first]], psu[first], number * categories + own)
