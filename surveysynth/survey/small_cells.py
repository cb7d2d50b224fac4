"""Cells of interactions that pooling takes out of X (methods 2.10)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.survey.formula import ParsedFormula, interactions
from surveysynth.survey.interactions import Cells, predicted


@dataclass(frozen=True)
class OwnCells:
    """Of base rows (B,): records in the cell of an interaction, and True if it has an indicator."""

    size: IntArray
    kept: BoolArray

    @classmethod
    def of(cls, cells: Cells, count: IntArray, origin: IntArray) -> "OwnCells":
        """Read them where a base row stands for itself; others have no cell of their own."""
        first = np.flatnonzero(np.diff(origin, prepend=-1))
        cell = cells.of_row[first]
        return cls(cells.records[cell], cells.kept[cell] & (count[first] > 0))


def without_small_cells(
    parsed: ParsedFormula,
    terms: Sequence[str],
    rows: FloatArray,
    code: Mapping[str, IntArray],
    count: IntArray,
    least: float,
) -> tuple[FloatArray, dict[str, tuple[int, int]], BoolArray]:
    """Return rows (R, K) of X whose small cells have nothing of their own, and those cells.

    The cells are their number and that of their records by interaction, and the rows (R,) that lie
    in one. ``terms``: of the K columns; ``code``: (R,) of each factor; ``count``: (R,) records, 0
    for rows that do not count.
    """
    made, found, columns = rows.copy(), {}, np.asarray(terms)
    in_one = np.zeros(len(rows), dtype=bool)
    for each in interactions(parsed, code):
        small = each.cell_sizes(code, count, code) < least
        if not small.any():
            continue
        within = np.isin(columns, list(each.within))
        own = columns == each.term
        made[np.ix_(small, own)] = predicted(made[:, within], made[:, own], count, small)
        of_records = small & (count > 0)
        in_one |= of_records
        if of_records.any():
            cells = np.unique(np.stack([code[name][of_records] for name in each.names]), axis=1)
            found[each.text] = (cells.shape[1], int(count[of_records].sum()))
    return made + 0.0, found, in_one
