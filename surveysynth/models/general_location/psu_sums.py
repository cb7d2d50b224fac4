"""Weighted sums by PSU of the general location model (methods 4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.models.general_location.psu_records import BetweenDirections
from surveysynth.models.parts.pairs import sum_by

if TYPE_CHECKING:
    from surveysynth.models.general_location.records import Block, GeneralRecords


@dataclass(frozen=True, repr=False)
class PsuCounts(Unpickled):
    """Weighted counts of one logit by distinct row and PSU, sorted by PSU.

    x (T, P); psu (T,); counts (T, categories): sums of alpha.
    """

    x: FloatArray
    psu: IntArray
    counts: FloatArray


@dataclass(frozen=True, repr=False)
class PatternSums(Unpickled):
    """Sums of the records with one pattern of columns of z, by distinct row and PSU.

    present (q,): the columns they have; x (m, W): rows of x~; psu (m,); mass (m,): sums of alpha;
    mean (m, q): weighted means of z, zero where absent; scatter (q, q): weighted, about the means.
    """

    present: BoolArray
    x: FloatArray
    psu: IntArray
    mass: FloatArray
    mean: FloatArray
    scatter: FloatArray


@dataclass(frozen=True, repr=False)
class PsuSums(Unpickled):
    """Sums of one database with C = ``count`` PSUs: of each logit, and of each pattern."""

    count: int
    logits: tuple[PsuCounts, ...]
    patterns: tuple[PatternSums, ...]
    between: BetweenDirections


def psu_sums(records: "GeneralRecords", alpha: FloatArray) -> PsuSums:
    """Compute the sums of one database of records with PSUs; risk weights alpha (n,)."""
    psus = records.psus
    assert psus is not None  # only called where PSUs have effects
    logits = []
    for part, table in zip(records.layout.logits, psus.tables, strict=True):
        shape = (len(table.psu), part.categories)
        counts = sum_by(table.place, alpha, shape[0] * shape[1]).reshape(shape)
        logits.append(PsuCounts(table.x, table.psu, counts))
    q = records.layout.q
    patterns = tuple(_of_block(block, alpha[block.index], q) for block in records.blocks if q)
    return PsuSums(psus.count, tuple(logits), patterns, psus.between)


def _of_block(block: "Block", alpha: FloatArray, q: int) -> PatternSums:
    values = block.values
    order, starts, columns = values.order, values.starts[:-1], block.columns
    assert values.block_psu is not None  # the records have PSUs
    weight = alpha[order]
    mass = np.add.reduceat(weight, starts)
    safe = np.where(mass > 0, mass, 1.0)[:, None]
    deviation = values.z - values.centre[values.cell]
    near = np.add.reduceat(weight[:, None] * deviation[order], starts) / safe
    within = deviation[order] - np.repeat(near, np.diff(values.starts), axis=0)
    mean, scatter = np.zeros((len(mass), q)), np.zeros((q, q))
    mean[:, columns] = values.centre[values.block_cell] + near
    scatter[np.ix_(columns, columns)] = (within * weight[:, None]).T @ within
    present = np.isin(np.arange(q), columns)
    x = values.x_cells[values.block_cell]
    return PatternSums(present, x, values.block_psu, mass, mean, scatter)
