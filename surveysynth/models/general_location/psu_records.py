"""Records by primary sampling unit (PSU) of the general location model (methods 3.5).

PSUs have effects on the predictors of all logits and on the means of all columns of z. Some
coefficients change predictors by the same amount in all records of a PSU, as those of strata do.
Coefficients in these directions and effects of PSUs compete, which the sampler has to know.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.parts.pairs import distinct

#: A direction is constant in PSUs if this share of its squared length, or less, lies within them.
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True, repr=False)
class ConstantDirections:
    """Directions of coefficients that are constant in every PSU; they are public.

    coefficients (K, r): orthonormal, zero for shrunken interactions; along (C, r): by how much each
    changes the predictor in a PSU.
    """

    coefficients: FloatArray
    along: FloatArray

    @classmethod
    def of(
        cls, x_cells: FloatArray, cell: IntArray, psu: IntArray, ridged: Sequence[int]
    ) -> "ConstantDirections":
        """Find those of rows x_cells[cell] (n, K) and codes psu (n,) from 0 on."""
        count, free = int(psu.max()) + 1, np.setdiff1d(np.arange(x_cells.shape[1]), ridged)
        first, pair = distinct([psu, cell])
        x, unit = x_cells[cell[first]], psu[first]
        size = np.bincount(pair).astype(np.float64)
        mean = np.zeros((count, x.shape[1]))
        np.add.at(mean, unit, size[:, None] * x)
        mean /= np.bincount(psu, minlength=count)[:, None]
        root = np.sqrt(size)[:, None]
        within = (root * (x - mean[unit]))[:, free]
        length = np.maximum(np.sqrt(((root * x)[:, free] ** 2).sum(0)), 1e-300)
        values, vectors = np.linalg.eigh((within / length).T @ (within / length))
        kept = np.linalg.qr(vectors[:, values < _NEGLIGIBLE] / length[:, None])[0]
        coefficients = np.zeros((x.shape[1], kept.shape[1]))
        coefficients[free] = kept
        return cls(coefficients, mean @ coefficients)


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
    """The PSUs of records: ``count`` C, a table for each logit, constant directions."""

    count: int
    tables: tuple[PsuTable, ...]
    constant: ConstantDirections


def psu_table(
    rows: FloatArray, row: IntArray, own: IntArray, categories: int, psu: IntArray
) -> PsuTable:
    """Return the table of a logit with distinct rows (T', P).

    row (n,): the one of a record; own (n,): its category.
    """
    first, number = distinct([psu, row])
    return PsuTable(rows[row[first]], psu[first], number * categories + own)
