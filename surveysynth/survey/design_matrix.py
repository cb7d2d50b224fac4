"""The model matrix X of a formula over public columns, stored as distinct rows (methods 3).

X must contain strata and the main effects of all by variables. This is decided by column spaces,
not by names, so a recoding that spans the same effects is sufficient. Where primary sampling units
have effects, these can stand for differences of strata, which X may then leave out.
"""

import math
from collections.abc import Sequence
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
    DefaultFormula,
    ParsedFormula,
    check_variables,
    default_formula,
    parse_formula,
    quote,
    shrunken_terms,
    without_terms,
)
from surveysynth.survey.interactions import (
    INTERACTION_SCALE,
    Cells,
    interaction_columns,
    outside,
    ridge_of,
    ridge_words,
)

#: A column with at most this share of its length outside the others is their combination.
TOLERANCE = 1e-9
_BLOCK = 65_536


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
    default = DefaultFormula(formula) if formula is not None else default_formula(codes, alone)
    parsed = parse_formula(default.text)
    confidential = [*outcome_names, *([weight_name] if weight_name is not None else [])]
    check_variables(parsed, map(str, frame.columns), confidential)
    base, index = base_rows(frame, parsed, categorical=design)
    shrunken = shrunken_of(parsed, base)
    columns, terms, rows = evaluate(without_terms(parsed, shrunken), base, n_records=len(frame))
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
        left_out=default.left_out,
    )  # fmt: skip
    check_rank(matrix, terms + own_terms)
    if unit_effects or default.without_strata:
        codes = {name: codes[name] for name in by}
    _check_contains(matrix, codes, strata)
    return matrix


def shrunken_of(parsed: ParsedFormula, base: pd.DataFrame) -> dict[str, list[str]]:
    """Return the interactions that the models shrink, with the names of their main effects."""
    classes = [n for n in parsed.variables if isinstance(base[n].dtype, pd.CategoricalDtype)]
    return shrunken_terms(parsed, classes)


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
    """Return distinct rows (G, K) of (n, K) in order of first appearance, and each row's number.

    Rows are hashed column by column and the hashes sorted, O(n log n); the result is compared with
    the input, so a collision of hashes cannot pass.
    """
    n = rows.shape[0]
    key = np.zeros(n, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in rows.T:
            key ^= np.ascontiguousarray(column).view(np.uint64)
            key *= np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    cells, cell = rows[first[order]], rank[index]
    if all(np.array_equal(rows[:, k], cells[cell, k]) for k in range(rows.shape[1])):
        return cells, cell.astype(np.int64)
    cells, cell = np.unique(rows, axis=0, return_inverse=True)
    return cells, cell.astype(np.int64).reshape(-1)


def _triangle(blocks: Sequence[FloatArray]) -> FloatArray:
    """Return R of the QR decomposition of [blocks side by side], a slice of rows at a time."""
    n, width = blocks[0].shape[0], sum(block.shape[1] for block in blocks)
    triangle = np.zeros((0, width))
    for start in range(0, n, _BLOCK):
        rows = np.hstack([block[start : start + _BLOCK] for block in blocks])
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, rows]), mode="r"))
    return triangle


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
    triangle = _triangle([_unit_columns(rows)])
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
    missing = [name for name, code in codes.items() if not _contains(matrix, code)]
    problems = [
        ("strata" if name == strata else "the by variable") + f" {name!r} (add '+ {quote(name)}')"
        for name in missing
    ]
    if problems:
        raise_problems(
            f"the predictors {matrix.formula!r} must contain strata and the main effects of all "
            "by variables; otherwise tables would be biased. Missing",
            problems,
        )


def _contains(matrix: DesignMatrix, code: IntArray) -> bool:
    """Return True if the indicators of ``code`` (n,) lie in the column space of X."""
    n_cells = matrix.x_cells.shape[0]
    of_cell = np.zeros(n_cells, dtype=np.int64)
    of_cell[matrix.cell] = code
    if not np.array_equal(of_cell[matrix.cell], code):
        return False  # records with equal rows of X differ in the variable
    indicators = np.zeros((n_cells, int(code.max(initial=0)) + 1))
    indicators[np.arange(n_cells), of_cell] = 1.0
    k = matrix.n_columns
    triangle = _triangle([_unit_columns(matrix.x_cells), _unit_columns(indicators)])
    return bool(np.linalg.norm(triangle[k:, k:], axis=0).max(initial=0.0) < 1e-7)
