"""The model matrix X of a formula over public columns, stored as distinct rows (methods 3).

X must contain strata and the main effects of all by variables. This is decided by column spaces,
not by names, so a recoding that spans the same effects is sufficient. Where primary sampling units
have effects, these can stand for differences of strata, which X may then leave out.

An interaction of categories has the columns R V, R the indicators of its cells and V orthonormal,
whose coefficients are independent, N(0, kappa^2): a deviation of each cell from main effects that
models shrink, worth 1 / kappa^2 records. Empty cells have no indicator, and so no column.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, raise_problems
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.columns import encode
from surveysynth.survey.formula import (
    ParsedFormula,
    check_variables,
    default_formula,
    parse_formula,
    predicting,
    quote,
    shrunken_terms,
    without_terms,
)

#: Prior SD of the deviation of a cell from main effects, in residual SDs: worth 11 records.
INTERACTION_SCALE = 0.3
#: Singular values below this, of indicators less their projection on the other columns, are zeros.
_RANK_TOLERANCE = 1e-9
#: Digits of V: equal rows of X are equal in every bit, on every machine.
_DIGITS = 12

#: A column with at most this share of its length outside the others is their combination.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class DesignMatrix:
    """The matrix X (n, K) by its distinct rows: row i of X is ``x_cells[cell[i]]``.

    ``formula``: right-hand side as used; ``columns``: names of the K columns; ``x_cells``: (G, K)
    distinct rows; ``cell``: (n,) in 0..G-1; ``by_default``: True if the formula is the default;
    ``ridged``: (K,) True for columns of interactions, which the models shrink (methods 3), the last
    ones; ``interaction_scale``: prior SD of their coefficients in residual SDs, infinite for a
    model that does not shrink them; ``left_out``: interactions that the default formula gave up.
    """

    formula: str
    columns: tuple[str, ...]
    x_cells: FloatArray
    cell: IntArray
    by_default: bool = False
    ridged: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    interaction_scale: float = INTERACTION_SCALE
    left_out: tuple[str, ...] = ()
    #: What models keep of these cells.
    kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.ridged.size:
            object.__setattr__(self, "ridged", np.zeros(self.n_columns, dtype=bool))
        self.ridged.setflags(write=False)

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.cell.size)

    @property
    def n_columns(self) -> int:
        """Number of columns of X, K."""
        return len(self.columns)

    def by_cell(self, values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any] | None":
        """Return the value (G,) of each cell; None where records (n,) of a cell differ."""
        of_cell = np.empty(len(self.x_cells), dtype=values.dtype)
        of_cell[self.cell] = values
        return of_cell if np.array_equal(of_cell[self.cell], values) else None

    @property
    def shrunken_terms(self) -> tuple[str, ...]:
        """Interactions with columns that the model shrinks; none if it has no ridge."""
        names = [name for name, own in zip(self.columns, self.ridged, strict=True) if own]
        terms = dict.fromkeys(name[: name.rindex("[")] for name in names)
        return tuple(terms) if math.isfinite(self.interaction_scale) else ()

    @property
    def shrunken_words(self) -> str:
        """The shrunken interactions and their ridge: "a:b (kappa 0.3, worth 11 records)"."""
        terms = self.shrunken_terms
        return f"{', '.join(terms)} {ridge_words(self.interaction_scale)}" if terms else ""

    @property
    def words(self) -> str:
        """The formula, then the ridge on its interactions, if there is any."""
        if not self.shrunken_terms:
            return self.formula
        what = "interaction" if len(self.shrunken_terms) == 1 else "interactions"
        return f"{self.formula}, the {what} shrunken {ridge_words(self.interaction_scale)}"

    @property
    def shrunken(self) -> int:
        """Number of columns of interactions that the models shrink, the last ones of X."""
        return int(self.ridged.sum())

    @cached_property
    def _records(self) -> FloatArray:
        count = np.bincount(self.cell, minlength=len(self.x_cells)).astype(np.float64)
        # The ridge is that of records: one row a column, of the length of the root of Lambda.
        ridge = np.diag(np.sqrt(ridge_of(self.ridged, self.interaction_scale)))
        rows = np.vstack([np.sqrt(count)[:, None] * self.x_cells, ridge[self.ridged]])
        basis = np.linalg.qr(_unit_columns(rows))[0][: count.size]
        records: FloatArray = count / np.einsum("ij,ij->i", basis, basis)
        records.setflags(write=False)
        return records


def build_design_matrix(
    frame: pd.DataFrame,
    formula: str | None,
    *,
    by: Sequence[str],
    strata: str | None,
    outcome_names: Sequence[str] = (),
    weight_name: str | None = None,
    unit_effects: bool = False,
) -> DesignMatrix:
    """Build X from public columns; ``formula=None`` uses the default of methods 3.

    ``frame``: n records, public columns, without missing values in the columns used. Columns of
    text, and ``by`` and ``strata`` whatever their type, are categorical; others are numbers.
    ``unit_effects``: True where units within strata have effects, so that X needs no strata.

    Raises ``InputError`` for a formula that cannot be parsed or evaluated, that names a
    confidential or unknown column, lacks strata or a by variable, has collinear columns, or has
    more columns than there are records.
    """
    design = list(dict.fromkeys([*([strata] if strata is not None else []), *by]))
    codes = {name: encode(frame[name].astype("str"))[0] for name in design}
    alone = strata if strata not in by else None
    used = codes if formula is not None else predicting(codes, alone)
    text, left_out = (formula, ()) if formula is not None else default_formula(used)
    parsed = parse_formula(text)
    confidential = [*outcome_names, *([weight_name] if weight_name is not None else [])]
    check_variables(parsed, map(str, frame.columns), confidential)
    base, index = base_rows(frame, parsed, categorical=design)
    classes = [n for n in parsed.variables if isinstance(base[n].dtype, pd.CategoricalDtype)]
    shrunken = shrunken_terms(parsed, classes)
    columns, terms, rows = evaluate(without_terms(parsed, shrunken), base, n_records=len(frame))
    kept = independent_columns(rows)
    # Strata may determine one class of another column, which adds nothing then. A release writes
    # the default formula out, and what is rebuilt from it is the same.
    if len(kept) < len(columns) and text.startswith(default_formula(predicting(codes, alone))[0]):
        columns, terms = (tuple(each[k] for k in kept) for each in (columns, terms))
        rows = rows[:, kept]
    count = np.bincount(index, minlength=len(base))
    cells = [Cells.of(each, rows[:, np.isin(terms, mains)], count)
             for each, mains in shrunken.items()]  # fmt: skip
    own_columns, own_terms, own = interaction_columns(rows, cells, count)
    if len(columns) + len(own_columns) > len(frame):
        raise InputError(_too_many(parsed, len(columns) + len(own_columns), len(frame)))
    distinct, position = distinct_rows(np.hstack([rows, own]))
    matrix = DesignMatrix(
        parsed.text, columns + own_columns, distinct, position[index],
        by_default=formula is None,
        ridged=np.repeat([False, True], [len(columns), len(own_columns)]),
        left_out=left_out,
    )  # fmt: skip
    check_rank(matrix, terms + own_terms)
    if unit_effects or len(used) < len(codes):
        codes = {name: codes[name] for name in by}
    _check_contains(matrix, codes, strata)
    return matrix


def base_rows(
    frame: pd.DataFrame, parsed: ParsedFormula, categorical: Sequence[str]
) -> tuple[pd.DataFrame, IntArray]:
    """Return the rows on which to evaluate the formula, and the row of each record.

    Where a row of X depends only on that record, the distinct combinations of the columns are
    enough: the matrix of a million records in 32 cells is evaluated on 32 rows.
    """
    n = len(frame)
    codes: list[IntArray] = []
    data: dict[str, Any] = {}
    for name in parsed.variables:
        series = frame[name]
        if name in categorical or not pd.api.types.is_numeric_dtype(series):
            code, levels = encode(series.astype("str"))
            data[name] = pd.Categorical.from_codes(code, categories=pd.Index(levels))
        else:
            # As integers a power could overflow; in C(...) they keep their plain names.
            data[name] = series.to_numpy(np.float64 if name in parsed.as_numbers else None)
            code = pd.factorize(data[name])[0].astype(np.int64)
        codes.append(code)
    if not parsed.by_record or not codes:
        return pd.DataFrame(data, index=pd.RangeIndex(n)), np.arange(n)
    combined = codes[0]
    for code in codes[1:]:
        # Renumbering after each column keeps the product of the level counts within range.
        pairs = combined * (int(code.max(initial=0)) + 1) + code
        combined = pd.factorize(pairs)[0].astype(np.int64)
    _, first, index = np.unique(combined, return_index=True, return_inverse=True)
    rows = {name: values[first] for name, values in data.items()}
    return pd.DataFrame(rows, index=pd.RangeIndex(first.size)), index.astype(np.int64)


def evaluate(
    parsed: ParsedFormula, base: pd.DataFrame, n_records: int, at: pd.DataFrame | None = None
) -> tuple[tuple[str, ...], tuple[str, ...], FloatArray]:
    """Return column names of the model matrix, the term of each, and its values.

    The values are for the base rows, or for other rows ``at`` with the levels, means, and knots of
    the base rows. Messages name terms, since names of columns contain levels, and a level may be a
    value that slipped in.
    """
    from formulaic import model_matrix  # slow: only where a matrix is built

    _check_size(parsed, base, n_records)
    try:
        with np.errstate(all="ignore"):
            matrix = model_matrix(
                parsed.formula, base, context={}, output="pandas", na_action="ignore"
            )
            if at is not None:
                matrix = matrix.model_spec.get_model_matrix(at, context={})
        columns = tuple(str(column) for column in matrix.columns)
        rows = matrix.to_numpy(dtype=np.float64)
        term_of = {
            position: str(term)
            for term, positions in matrix.model_spec.term_indices.items()
            for position in positions
        }
        terms = tuple(term_of[position] for position in range(len(columns)))
    # Factors raise many types of errors (text in a logarithm, a bad argument).
    except Exception:
        raise InputError(
            f"the formula {parsed.text!r} cannot be evaluated on the data; check that its "
            "functions take numeric columns and valid arguments."
        ) from None
    if not columns:
        raise InputError(f"the formula {parsed.text!r} has no columns; add a predictor or '1'.")
    if len(columns) > n_records:
        raise InputError(_too_many(parsed, len(columns), n_records))
    finite = np.isfinite(rows).all(axis=0)
    broken = dict.fromkeys(term for term, fine in zip(terms, finite, strict=True) if not fine)
    if broken:
        raise InputError(
            f"the formula {parsed.text!r} gives values that are not finite in "
            f"{listing(tuple(broken))}; "
            "for a logarithm add a constant to the column."
        )
    return columns, terms, rows + 0.0  # -0.0 becomes 0.0, so that equal rows are equal in every bit


def _check_size(parsed: ParsedFormula, base: pd.DataFrame, n_records: int) -> None:
    """Raise ``InputError``, before it is built, for a matrix with more columns than records."""

    def levels(name: str, coded: bool) -> int:
        categorical = isinstance(base[name].dtype, pd.CategoricalDtype)
        return base[name].nunique() if coded or categorical else 2

    # Contrast coding leaves at least the product of (levels - 1) columns to a term.
    fewest = sum(
        math.prod(max(levels(name, coded) - 1, 1) for names, coded in term for name in names)
        for term in parsed.terms
    )
    if fewest > n_records + 1:
        raise InputError(_too_many(parsed, fewest, n_records))


def _too_many(parsed: ParsedFormula, columns: int, n_records: int) -> str:
    return (
        f"the formula {parsed.text!r} has at least {columns:,} columns for {n_records:,} records; "
        "expected fewer columns than records: remove interactions or columns with many levels."
    )


def distinct_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return distinct rows (G, K) of (n, K) in order of first appearance, and each row's number."""
    as_bytes = np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}")[:, 0]
    _, first, index = np.unique(as_bytes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return rows[first[order]], np.argsort(order)[index].astype(np.int64)


def records_per_coefficient(matrix: DesignMatrix) -> FloatArray:
    """Return how many records the fit rests on at each distinct row x of X, (G,).

    This is 1 / h, where h = x'(X'X + Lambda)^-1 x is the leverage; Lambda is the ridge on the
    columns of interactions. Without any, its harmonic mean over records is n / K, and for a group
    with an indicator of its own it is at most the number of its records.
    """
    return matrix._records


def _unit_columns(rows: FloatArray) -> FloatArray:
    length = np.sqrt(np.einsum("ij,ij->j", rows, rows))
    return rows / np.where(length > 0, length, 1.0)


def check_rank(matrix: DesignMatrix, terms: Sequence[str]) -> None:
    """Raise ``InputError`` with the term of each column that is a combination of earlier ones."""
    problems = []
    for k, shares in _combinations(matrix.x_cells).items():
        involved = [terms[j] for j, share in shares.items() if abs(share) > 1e-7]
        problems.append(
            f"a column of {terms[k]!r} is a linear combination of those of "
            f"{listing(tuple(dict.fromkeys(involved)))}"
            if involved
            else f"a column of {terms[k]!r} is zero for every record"
        )
    if problems:
        shown = "; ".join(list(dict.fromkeys(problems))[:12])
        raise InputError(
            f"the predictors {matrix.formula!r} are collinear: {shown}. "
            "Remove a term, or an interaction whose cells are empty."
        )


def independent_columns(rows: FloatArray) -> list[int]:
    """Return the columns of (G, K) that are no combination of earlier columns."""
    dependent = _combinations(rows)
    return [k for k in range(rows.shape[1]) if k not in dependent]


def _combinations(rows: FloatArray) -> dict[int, dict[int, float]]:
    """Return the columns of (G, K) that are combinations of earlier ones, and the shares of these.

    Shares are for columns of unit length.
    """
    triangle = np.asarray(np.linalg.qr(_unit_columns(rows), mode="r"))
    basis, kept = np.zeros_like(triangle), list[int]()
    found = {}
    for k, column in enumerate(triangle.T):
        rest = outside(basis[:, : len(kept)], column)
        length = float(np.linalg.norm(rest))
        if length > TOLERANCE:
            basis[:, len(kept)] = rest / length
            kept.append(k)
        else:
            share = np.linalg.lstsq(triangle[:, kept], column, rcond=None)[0]
            found[k] = dict(zip(kept, map(float, share), strict=True))
    return found


def _check_contains(matrix: DesignMatrix, codes: dict[str, IntArray], strata: str | None) -> None:
    """Raise ``InputError`` unless the columns of X span the main effect of every variable."""
    raise_problems(
        f"the predictors {matrix.formula!r} must contain strata and the main effects of all by "
        "variables; otherwise tables would be biased. Missing",
        [f"{'strata' if name == strata else 'the by variable'} {name!r} (add '+ {quote(name)}')"
         for name, code in codes.items() if not _contains(matrix, code)],
    )  # fmt: skip


def _contains(matrix: DesignMatrix, code: IntArray) -> bool:
    """Return True if the indicators of ``code`` (n,) are in the column space of X."""
    of_cell = matrix.by_cell(code)
    if of_cell is None:
        return False
    n_cells = of_cell.size
    indicators = np.zeros((n_cells, int(code.max(initial=0)) + 1))
    indicators[np.arange(n_cells), of_cell] = 1.0
    k = matrix.n_columns
    both = np.hstack([_unit_columns(matrix.x_cells), _unit_columns(indicators)])
    triangle = np.asarray(np.linalg.qr(both, mode="r"))
    return bool(np.linalg.norm(triangle[k:, k:], axis=0).max(initial=0.0) < 1e-7)


@dataclass(frozen=True)
class Cells:
    """The cells of an interaction: its term, its main effects (R, p), the cell (R,) of each row.

    records (C,): how many are in each; kept (C,): True for cells with a deviation of their own.
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
    # The projector on what is orthogonal to {u: R u in the span of the others}.
    others, own = others[count > 0], indicators[count > 0]
    # By powers of two, which change no digit: squares of large numbers would overflow.
    others = np.ldexp(others, -np.frexp(np.abs(others).max(axis=0, initial=0.0))[1])
    length = np.sqrt((others * others).sum(axis=0))
    others = others / np.where(length > 0, length, 1.0)
    fit = np.linalg.lstsq(others, own, rcond=_RANK_TOLERANCE)[0]
    rest = np.linalg.qr(own - others @ fit, mode="r")
    _, values, right = np.linalg.svd(rest)
    used = right[: values.size][values > _RANK_TOLERANCE * max(1.0, values.max(initial=0.0))]
    projector = used.T @ used
    # V with V V' = P and V'V = 1, by Gram-Schmidt in the order of columns: the same on every
    # machine. ``pivots`` has the first row of each column that is not zero.
    root, pivots = np.zeros((len(projector), 0)), list[int]()
    rank = round(float(np.trace(projector)))
    for pivot, column in enumerate(projector.T):
        beyond = outside(root, column)
        size = float(np.linalg.norm(beyond))
        if len(pivots) < rank and size > np.sqrt(_RANK_TOLERANCE):
            root = np.column_stack([root, beyond / size])
            pivots.append(pivot)
    terms = tuple(term_of[pivot] for pivot in pivots)
    numbers: dict[str, Iterator[int]] = {term: iter(range(1, len(terms) + 1)) for term in term_of}
    names = tuple(f"{term}[{next(numbers[term])}]" for term in terms)
    return names, terms, np.round(indicators @ root, _DIGITS) + 0.0


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
