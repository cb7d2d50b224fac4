"""Rows of the prior: what the regressions know before any record (methods 2.11, 4).

A normal prior whose scale is the residual scale is the likelihood of records. There are two kinds.

Shrunken interactions: for each one record with x~ = 1 / kappa there and zero elsewhere, all columns
of z zero.

Pseudo-records, where risk weights protect: R of them for all that a rare answer leaves to few
records, a number that is public.

- The effect of a category on a regression: x~ = root(R) there, z = 0, in that column alone.
- An amount that some records lack: R records spread as the design is, at its declared centre and
  spread.
- Slopes on the residual of an amount: of R records at a distance of one spread, z = 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.models.general_location.layout import Layout, RegressionPart


@dataclass(frozen=True, repr=False)
class PriorRows:
    """Rows x (r, W) and z (r, q), columns of z that are ``present`` (r, q), and how many records.

    These are counts (q,) of each column: the power of its residual scale.
    """

    x: FloatArray
    z: FloatArray
    present: BoolArray
    count: FloatArray

    @classmethod
    def joined(cls, parts: Sequence["PriorRows"]) -> "PriorRows":
        """Join several."""
        x, z, present = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("x", "z", "present")
        )
        return cls(x, z, present, np.sum([part.count for part in parts], axis=0))


def rows_of_prior(layout: Layout, scale: float, pseudo: PriorRows | None) -> PriorRows:
    """Return all rows: of interactions with prior SD ``scale``, and of pseudo-records, if any."""
    shrunken = of_interactions(layout, scale)
    return shrunken if pseudo is None else PriorRows.joined([shrunken, pseudo])


def of_interactions(layout: Layout, scale: float) -> PriorRows:
    """Return the rows of shrunken interactions with prior SD ``scale``."""
    rows = _rows(layout, len(layout.ridged))
    rows.x[np.arange(len(layout.ridged)), list(layout.ridged)] = 1.0 / scale
    rows.present[:] = True
    rows.count[:] = len(layout.ridged)
    return rows


def of_pseudo_records(layout: Layout, x_cells: FloatArray, cell: IntArray) -> PriorRows:
    """Return the rows of a layout's pseudo-records; x_cells (G, K) and cell (n,) of the design."""
    pseudo, parts = layout.pseudo, [_rows(layout, 0)]
    if pseudo is None:
        return parts[0]
    parts += [_of_categories(layout, part, pseudo.records) for part in layout.regressions]
    mass = np.sqrt(np.bincount(cell, minlength=len(x_cells)) / cell.size)
    weighted = mass[:, None] * np.insert(x_cells, 0, 1.0, axis=1)
    moments = np.asarray(np.linalg.qr(weighted, mode="r"), dtype=np.float64)
    for position, typical in enumerate(pseudo.typical):
        if layout.may_lack_amounts and typical is not None:
            parts += _of_amount(layout, position, pseudo.records, typical, moments)
    return PriorRows.joined(parts)


def _of_categories(layout: Layout, part: RegressionPart, records: float) -> PriorRows:
    """Return the rows of the effects of categories on one regression."""
    columns = part.columns[part.columns >= layout.columns]
    rows = _rows(layout, columns.size)
    rows.x[np.arange(columns.size), columns] = np.sqrt(records)
    rows.present[:, part.position] = True
    rows.count[part.position] = columns.size
    return rows


def _of_amount(
    layout: Layout,
    position: int,
    records: float,
    typical: tuple[float, float],
    moments: FloatArray,
) -> list[PriorRows]:
    """Return the rows of an amount, and of the slopes on its residual.

    typical: centre and spread; moments (r, 1 + K): of a one and x over the design.
    """
    centre, spread = typical
    about = _rows(layout, 1)
    about.z[0, position] = np.sqrt(records) * spread
    for part in layout.regressions:
        about.present[0, part.position] = position in part.earlier
    about.count[:] = about.present[0]
    about.present[0, position], about.count[position] = True, records
    if layout.categories[layout.amounts[position][0]] == 1:
        return [about]  # every record has it: the design says how many
    mean = _rows(layout, len(moments))
    mean.x[:, : layout.columns] = np.sqrt(records) * moments[:, 1:]
    mean.z[:, position] = np.sqrt(records) * centre * moments[:, 0]
    mean.present[:, position] = True
    return [about, mean]


def _rows(layout: Layout, size: int) -> PriorRows:
    """Return rows of zeros."""
    return PriorRows(
        np.zeros((size, layout.width)),
        np.zeros((size, layout.q)),
        np.zeros((size, layout.q), dtype=bool),
        np.zeros(layout.q),
    )
