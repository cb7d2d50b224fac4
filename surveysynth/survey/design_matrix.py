"""The model matrix X of a formula over public columns, stored as distinct rows (methods 3).

X must contain strata and the main effects of all by variables. This is decided by column spaces,
not by names, so a recoding that spans the same effects is sufficient.
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
    ParsedFormula,
    check_variables,
    default_formula,
    parse_formula,
    quote,
    shrunken_terms,
)

#: A column with at most this share of its length outside the others is their combination.
TOLERANCE = 1e-9
_BLOCK = 65_536


@dataclass(frozen=True)
class DesignMatrix:
    """The matrix X (n, K) by its distinct rows: row i of X is ``x_cells[cell[i]]``.

    ``formula``: right-hand side as used; ``columns``: names of the K columns; ``x_cells``: (G, K)
    distinct rows; ``cell``: (n,) in 0..G-1; ``by_default``: True if the formula is the default;
    ``ridged``: (K,) True for columns of interactions, which the models shrink (methods 3); none by
    default.
    """

    formula: str
    columns: tuple[str, ...]
    x_cells: FloatArray
    cell: IntArray
    by_default: bool = False
    ridged: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))

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

    @cached_property
    def _records(self) -> FloatArray:
        count = np.bincount(self.cell, minlength=len(self.x_cells)).astype(np.float64)
        basis = np.linalg.qr(_unit_columns(np.sqrt(count)[:, None] * self.x_cells))[0]
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
) -> DesignMatrix:
    """Build X from public columns; ``formula=None`` uses the default of methods 3.

    ``frame``: n records, public columns, without missing values in the columns used. Columns of
    text, and ``by`` and ``strata`` whatever their type, are categorical; others are numbers.

    Raises ``InputError`` for a formula that cannot be parsed or evaluated, that names a
    confidential or unknown column, lacks strata or a by variable, has collinear columns, or has
    more columns than there are records.
    """
    design = list(dict.fromkeys([*([strata] if strata is not None else []), *by]))
    codes = {name: encode(frame[name].astype("str"))[0] for name in design}
    parsed = parse_formula(default_formula(codes) if formula is None else formula)
    confidential = [*outcome_names, *([weight_name] if weight_name is not None else [])]
    check_variables(parsed, map(str, frame.columns), confidential)
    base, index = base_rows(frame, parsed, categorical=design)
    columns, terms, rows = evaluate(parsed, base, n_records=len(frame))
    distinct, position = distinct_rows(rows)
    matrix = DesignMatrix(
        parsed.text, columns, distinct, position[index], by_default=formula is None,
        ridged=ridged_columns(parsed, base, terms),
    )  # fmt: skip
    check_rank(matrix, terms)
    _check_contains(matrix, codes, strata)
    return matrix


def ridged_columns(
    parsed: ParsedFormula, base: pd.DataFrame, terms: Sequence[str]
) -> BoolArray:
    """Return which columns of X (K,), of these ``terms``, belong to shrunken interactions."""
    classes = [n for n in parsed.variables if isinstance(base[n].dtype, pd.CategoricalDtype)]
    return np.isin(terms, list(shrunken_terms(parsed, classes)))


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

    This is 1 / h, where h = x'(X'X)^-1 x is the leverage. Its harmonic mean over records is n / K;
    for a group with an indicator of its own it is at most the number of its records.
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
    kept: list[int] = []
    found = {}
    for k in range(rows.shape[1]):
        others = triangle[:, kept]
        share = np.linalg.lstsq(others, triangle[:, k], rcond=None)[0] if kept else np.zeros(0)
        if float(np.linalg.norm(triangle[:, k] - others @ share)) > TOLERANCE:
            kept.append(k)
        else:
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


def least_squares_residuals(matrix: DesignMatrix, values: FloatArray) -> FloatArray:
    """Return residuals (n, q) of the least-squares regressions of ``values`` (n, q) on X.

    Only the mean of each distinct row matters for the coefficients, so this takes O(G K^2).
    """
    count = np.bincount(matrix.cell, minlength=matrix.x_cells.shape[0]).astype(np.float64)
    sums = np.stack(
        [np.bincount(matrix.cell, weights=v, minlength=count.size) for v in values.T], axis=1
    )
    root = np.sqrt(count)[:, None]
    length = np.sqrt(np.einsum("ij,ij->j", root * matrix.x_cells, root * matrix.x_cells))
    scaled = root * matrix.x_cells / length
    coefficients = np.linalg.lstsq(scaled, sums / root, rcond=None)[0]
    fitted = (matrix.x_cells / length) @ coefficients
    return np.asarray(values - fitted[matrix.cell], dtype=np.float64)


def within_groups(
    matrix: DesignMatrix, values: FloatArray, group: IntArray
) -> tuple[DesignMatrix, FloatArray]:
    """Return X and ``values`` (n, q) minus their means in each group (n,), codes 0..C-1.

    Regressions of these values on this X equal those on X and an indicator of every group. Columns
    of X that are constant within the groups are left out.
    """
    n_cells = matrix.x_cells.shape[0]
    size = np.bincount(group).astype(np.float64)
    keys, pair = np.unique(group * n_cells + matrix.cell, return_inverse=True)
    group_of, cell_of = np.divmod(keys, n_cells)
    rows = matrix.x_cells[cell_of]
    count = np.bincount(pair)[:, None]
    mean = np.stack(
        [np.bincount(group_of, weights=column) for column in (count * rows).T], axis=1
    ) / size[:, None]
    centred = rows - mean[group_of]
    before, after = (np.sqrt((count * part**2).sum(axis=0)) for part in (rows, centred))
    varies = after > TOLERANCE * before
    columns = tuple(name for name, kept in zip(matrix.columns, varies, strict=True) if kept)
    means = np.stack([np.bincount(group, weights=v) for v in values.T], axis=1) / size[:, None]
    rows, ridged = centred[:, varies], matrix.ridged[varies]
    inside = DesignMatrix(matrix.formula, columns, rows, pair.astype(np.int64), ridged=ridged)
    return inside, values - means[group]
