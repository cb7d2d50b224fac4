"""Records by primary sampling unit (PSU) of the general location model (methods 3.5).

PSUs have effects on the predictors of all logits and on the means of all columns of z. Some
coefficients change predictors by the same amount in all records of a PSU, as those of strata do, or
by nearly the same, where a unit lies in two regions. Coefficients in these directions and effects
of PSUs compete, which the sampler has to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.parts.pairs import distinct

#: Directions are shifted against effects if this share of their squares, or less, lies within PSUs.
_WITHIN = 0.5
#: Share of the squares that rounding may leave.
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
        count, free = int(psu.max()) + 1, np.setdiff1d(np.arange(x_cells.shape[1]), ridged)
        first, pair = distinct([psu, cell])
        x, unit = x_cells[cell[first]], psu[first]
        size = np.bincount(pair).astype(np.float64)
        mean = np.zeros((count, x.shape[1]))
        np.add.at(mean, unit, size[:, None] * x)
        mean /= np.bincount(psu, minlength=count)[:, None]
        root = np.sqrt(size)[:, None]
        length = np.maximum(np.sqrt(((root * x)[:, free] ** 2).sum(0)), 1e-300)
        total, within = ((root * rows)[:, free] / length for rows in (x, x - mean[unit]))
        squares = total.T @ total + _NEGLIGIBLE * np.eye(free.size)
        shares, vectors = scipy.linalg.eigh(within.T @ within, squares)
        kept = shares < _WITHIN
        coefficients = np.zeros((x.shape[1], int(kept.sum())))
        coefficients[free] = vectors[:, kept] / length[:, None]
        constant = bool((shares[kept] < _NEGLIGIBLE).all())
        return cls(coefficients, mean, constant)

    @classmethod
    def of_databases(cls, found: Sequence["BetweenDirections"]) -> "BetweenDirections":
        """Take the directions of the first of D databases for all; mean (D, C, K)."""
        first = found[0].coefficients
        constant = all(
            each.constant and np.array_equal(each.coefficients, first) for each in found
        )
        return cls(first, np.stack([each.mean for each in found]), constant)

    @property
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
