"""Columns of X for the interactions that models shrink towards main effects (methods 3).

An interaction gives each of its cells a deviation of its own, u_c ~ N(0, scale^2) in units of the
residual SD: worth 1 / scale^2 records. With R the indicators of all such cells, those u for which
R u is a combination of the other columns of X (main effects) add nothing. So X has the columns R V,
where the columns of V are orthonormal and span all other u; their coefficients are independent,
N(0, scale^2). The distribution of the fit depends neither on how V is chosen nor on the order of
levels. Empty cells have no indicator, and so no column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray

#: Prior SD of the deviation of a cell from main effects, in residual SDs: worth 11 records.
INTERACTION_SCALE = 0.3
#: Singular values below this, of indicators less their projection on the other columns, are zeros.
_TOLERANCE = 1e-9
#: Digits of V: equal rows of X are equal in every bit, on every machine.
_DIGITS = 12


@dataclass(frozen=True)
class Cells:
    """The cells of an interaction: its term, its main effects (R, p), the cell (R,) of each row.

    records (C,): how many lie in each; kept (C,): True for cells with a deviation of their own.
    """

    term: str
    mains: FloatArray
    of_row: IntArray
    records: IntArray
    kept: BoolArray

    @classmethod
    def of(cls, term: str, mains: FloatArray, count: IntArray) -> "Cells":
        """Find the cells, and keep all that have records; ``count``: (R,) records of the rows."""
        of_row = np.unique(mains, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
        size = np.bincount(of_row, weights=count).astype(np.int64)
        return cls(term, mains, of_row, size, size > 0)

    def indicators(self, count: IntArray) -> FloatArray:
        """Return the indicators (R, kept cells).

        Rows of other cells have what main effects predict over the kept ones.
        """
        position = np.full(self.kept.size, -1)
        position[self.kept] = np.arange(self.kept.sum())
        own = position[self.of_row][:, None] == np.arange(self.kept.sum())
        result: FloatArray = own.astype(np.float64)
        lost = ~self.kept[self.of_row]
        if lost.any():
            within = np.hstack([np.ones((len(own), 1)), self.mains])
            result[lost] = predicted(within, result, count, lost)
        return result


def predicted(
    within: FloatArray, own: FloatArray, count: IntArray, small: BoolArray
) -> FloatArray:
    """Predict columns ``own`` in small cells from those ``within``, by least squares."""
    large = ~small & (count > 0)
    if not large.any():
        return np.zeros((int(small.sum()), own.shape[1]))
    length = np.sqrt((within**2).sum(axis=0))
    scaled = within / np.where(length > 0, length, 1.0)
    root = np.sqrt(count[large])[:, None]
    solved = np.linalg.lstsq(root * scaled[large], root * own[large], rcond=1e-10)[0]
    return np.asarray(scaled[small] @ solved)


def interaction_columns(
    others: FloatArray, cells: Sequence[Cells], count: IntArray
) -> tuple[tuple[str, ...], tuple[str, ...], FloatArray]:
    """Return names, terms, and values (R, k) of the columns R V of some interactions.

    ``others``: (R, p) the other columns of X; ``count``: (R,) records, 0 for rows that do not count
    in what is a combination of what.
    """
    if not any(each.kept.any() for each in cells):
        return (), (), np.zeros((len(others), 0))
    indicators = np.hstack([each.indicators(count) for each in cells])
    term_of = [each.term for each in cells for _ in range(int(each.kept.sum()))]
    root, pivots = _orthonormal_root(_complement(others[count > 0], indicators[count > 0]))
    terms = tuple(term_of[pivot] for pivot in pivots)
    numbers: dict[str, Iterator[int]] = {term: iter(range(1, len(terms) + 1)) for term in term_of}
    names = tuple(f"{term}[{next(numbers[term])}]" for term in terms)
    return names, terms, np.round(indicators @ root, _DIGITS) + 0.0


def _complement(others: FloatArray, indicators: FloatArray) -> FloatArray:
    """Return the projector (C, C) on what is orthogonal to {u: R u in the span of the others}."""
    # By powers of two, which change no digit: squares of large numbers would overflow.
    others = np.ldexp(others, -np.frexp(np.abs(others).max(axis=0, initial=0.0))[1])
    length = np.sqrt((others * others).sum(axis=0))
    others = others / np.where(length > 0, length, 1.0)
    fit = np.linalg.lstsq(others, indicators, rcond=_TOLERANCE)[0]
    rest = np.linalg.qr(indicators - others @ fit, mode="r")
    _, values, right = np.linalg.svd(rest)
    used = right[: values.size][values > _TOLERANCE * max(1.0, values.max(initial=0.0))]
    return np.asarray(used.T @ used, dtype=np.float64)


def _orthonormal_root(projector: FloatArray) -> tuple[FloatArray, list[int]]:
    """Return V (C, k) with V V' = P and V'V = 1, and the first row of each column that is not zero.

    By Gram-Schmidt on the columns of P in their order: the same V on every machine.
    """
    basis, pivots = np.zeros((len(projector), 0)), list[int]()
    rank = round(float(np.trace(projector)))
    for pivot, column in enumerate(projector.T):
        rest = outside(basis, column)
        length = float(np.linalg.norm(rest))
        if len(pivots) < rank and length > np.sqrt(_TOLERANCE):
            basis = np.column_stack([basis, rest / length])
            pivots.append(pivot)
    return basis, pivots


def outside(basis: FloatArray, column: FloatArray) -> FloatArray:
    """Return what is orthogonal to an orthonormal basis (C, k) of a column (C,)."""
    rest = column - basis @ (basis.T @ column)
    return np.asarray(rest - basis @ (basis.T @ rest))  # once more for what rounding left


def ridge_of(ridged: BoolArray, scale: float) -> FloatArray:
    """Return the diagonal (K,) of Lambda: scale^-2 on ridged columns, 0 elsewhere."""
    return np.where(ridged, scale**-2, 0.0)


def ridge_words(scale: float) -> str:
    """Return the prior SD, and the number of records that it is worth, in parentheses."""
    return f"(kappa {scale:g}, worth {scale**-2:.2g} records)"
