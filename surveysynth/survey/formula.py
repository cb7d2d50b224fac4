"""Formulas over public columns: parsing, their columns and interactions, and the default.

A formula comes from a file, so only column names, arithmetic, and a short list of functions are
evaluated; the caller's Python context cannot be reached.
"""

import ast
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import IntArray
from surveysynth.errors import InputError

if TYPE_CHECKING:
    from formulaic import SimpleFormula

#: The default leaves out interactions, the largest first, only while X would have more columns of
#: interactions than this share of the records: such cells hold too few records to say anything.
MOST_COLUMNS = 0.2

#: Strata that are no by column leave the default where they are more than this many, and cells of
#: strata and by columns more than this many, with fewer records than this on average.
MANY_STRATA, MANY_CELLS, FEW_RECORDS = 10, 100, 30.0

#: Functions whose value for a record does not depend on other records.
_ROW_FUNCTIONS = frozenset({"C", "I", "log", "log2", "log10", "exp", "exp2", "exp10"})
#: Functions that use the whole column (its mean, its knots).
_COLUMN_FUNCTIONS = frozenset({"center", "scale", "standardize", "poly", "bs", "cs", "cc", "cr"})
_CODING_FUNCTIONS = frozenset({"contr", "Treatment", "Sum", "Helmert", "Diff", "Poly"})
FUNCTIONS = _ROW_FUNCTIONS | _COLUMN_FUNCTIONS

_QUOTED = re.compile(r"`([^`]*)`")
_ALLOWED_NODES = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp,
    ast.Load, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Mod, ast.FloorDiv, ast.UAdd,
    ast.USub, ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.List,
    ast.Tuple, ast.Attribute,
)  # fmt: skip


@dataclass(frozen=True)
class ParsedFormula:
    """A checked formula.

    ``terms``: for each factor of each term, its columns, and True if it is categorical whatever its
    columns contain (``C(...)``).
    ``by_record``: a row of X depends only on that record's columns, so X can be computed on the
    distinct combinations of the columns.
    """

    text: str
    formula: "SimpleFormula"
    variables: tuple[str, ...]
    terms: tuple[tuple[tuple[tuple[str, ...], bool], ...], ...]
    by_record: bool

    @property
    def as_numbers(self) -> frozenset[str]:
        """Columns that occur in a factor other than ``C(...)``."""
        return frozenset(
            name for term in self.terms for names, coded in term if not coded for name in names
        )


def parse_formula(text: str) -> ParsedFormula:
    """Parse the right-hand side of a formula; raise ``InputError`` if that is not possible."""
    from formulaic import Formula, SimpleFormula  # slow: only where there is a formula

    body = text.strip().removeprefix("~").strip()
    if not body:
        raise InputError("the formula of the predictors is empty; remove it for the default.")
    try:
        formula = Formula(body)
    # formulaic raises errors of many kinds for malformed text, bare ones among them.
    except (Exception, RecursionError):
        raise InputError(
            f"the formula {text!r} cannot be parsed; expected something like 'field * gender' or "
            "'field + log(size)'."
        ) from None
    if not isinstance(formula, SimpleFormula):
        raise InputError(
            f"the formula {text!r} has several parts; expected one right-hand side, without an "
            "outcome and without '|'."
        )
    variables: dict[str, None] = {}
    terms, by_record = [], True
    for term in formula:
        factors = []
        for factor in term.factors:
            names, functions = _names_in(factor.expr, factor.eval_method.value, text)
            by_record = by_record and functions <= _ROW_FUNCTIONS | _CODING_FUNCTIONS
            variables.update(dict.fromkeys(names))
            factors.append((names, "C" in functions))
        terms.append(tuple(factors))
    return ParsedFormula(body, formula, tuple(variables), tuple(terms), by_record)


def _names_in(expression: str, method: str, text: str) -> tuple[tuple[str, ...], set[str]]:
    """Return the columns and functions in one factor; anything else is an error."""
    if method == "literal":
        return (), set()
    if method == "lookup":
        if expression == ".":
            raise InputError(f"the formula {text!r} uses '.'; name the columns instead.")
        return (expression,), set()
    columns = {f"quoted_column_{k}": name for k, name in enumerate(_QUOTED.findall(expression))}
    placeholders = iter(columns)
    try:
        tree = ast.parse(_QUOTED.sub(lambda _: next(placeholders), expression), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"the part {expression!r} of the formula cannot be parsed.") from None
    names: dict[str, None] = {}
    functions: set[str] = set()
    called: set[int] = set()  # names that are no columns; a call comes before what it calls
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if id(node) not in called:
                names[columns.get(node.id, node.id)] = None
        elif isinstance(node, ast.Attribute):
            # ``contr.treatment`` and its siblings: the only dotted names of the formula language.
            if not (isinstance(node.value, ast.Name) and node.value.id == "contr"):
                raise InputError(_not_allowed(expression))
            called.add(id(node.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name not in FUNCTIONS | _CODING_FUNCTIONS:
                raise InputError(
                    f"unknown function {name!r} in a formula.{nearest(name, FUNCTIONS)} Known: "
                    f"{listing(sorted(FUNCTIONS), limit=40)}."
                )
            functions.add(name)
            called.add(id(node.func))
        elif not isinstance(node, _ALLOWED_NODES) or (
            isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute)
        ):
            raise InputError(_not_allowed(expression))
    return tuple(names), functions


def _not_allowed(expression: str) -> str:
    return (
        f"the part {expression!r} of the formula is not allowed; a formula may use columns, "
        f"arithmetic and the functions {listing(sorted(FUNCTIONS), limit=40)}."
    )


def check_variables(
    parsed: ParsedFormula, columns: Iterable[str], confidential: Sequence[str]
) -> None:
    """Raise ``InputError`` for a confidential or an unknown column of the formula."""
    public = [column for column in columns if column not in confidential]
    for name in parsed.variables:
        if name in confidential:
            raise InputError(
                f"the formula {parsed.text!r} uses {name!r}, which is confidential (an outcome or "
                "the sampling weight); predictors must be public columns."
            )
        if name not in public:
            raise InputError(
                f"the formula {parsed.text!r} uses {name!r}, which is not a column of the data."
                f"{nearest(name, public)}"
            )


def quote(name: str) -> str:
    """Return a column name as a formula writes it.

    Raises ``InputError`` for the few names that the formula language cannot quote.
    """
    if name in ("0", "1") or "`" in name or not re.search(r"\w", name):
        raise InputError(f"the column {name!r} cannot be named in a formula; rename it.")
    return name if name.isidentifier() and name not in FUNCTIONS else f"`{name}`"


def predicting(codes: Mapping[str, IntArray], strata: str | None) -> Mapping[str, IntArray]:
    """Return the codes of the default formula: without strata that are many and sparse.

    ``strata``: those that are no by column. Synthetic strata then do not differ, which makes
    standard errors a little too large, where chains would take minutes and rare levels lose their
    shares.
    """
    if strata is None or codes[strata].max(initial=0) < MANY_STRATA:
        return codes
    cells = np.unique(np.stack(list(codes.values())), axis=1).shape[1]
    if cells <= MANY_CELLS or codes[strata].size >= FEW_RECORDS * cells:
        return codes
    return {name: code for name, code in codes.items() if name != strata}


def default_formula(codes: Mapping[str, IntArray]) -> tuple[str, tuple[str, ...]]:
    """Return main effects of strata and by columns, and all interactions of two of them.

    ``codes``: integer codes 0.. of each variable, (n,), in the order of the terms. Variables with
    one level are left out, and so are those that another determines (a region if there are states),
    whose main effects include theirs. The models shrink interactions, so cells may have any number
    of records; only where X would have more than ``MOST_COLUMNS`` columns of interactions a record
    the largest of them are left out (methods 3), which are returned, too.
    """
    kept: list[str] = []
    for name, code in codes.items():
        if code.size == 0 or code.max() == 0 or any(_determines(codes[k], code) for k in kept):
            continue
        kept = [k for k in kept if not _determines(code, codes[k])] + [name]
    own = {}  # about how many columns each interaction adds to main effects
    for pair in itertools.combinations(kept, 2):
        one, other = (codes[name] for name in pair)
        mains = np.unique(one).size + np.unique(other).size
        own[pair] = max(_cells(one, other) - mains + 1, 1)
    room = MOST_COLUMNS * max((code.size for code in codes.values()), default=0)
    left_out: list[tuple[str, str]] = []
    while own and sum(own.values()) > room:
        largest = max(own.values())
        for pair in [pair for pair, columns in own.items() if columns == largest]:
            left_out.append(pair)
            del own[pair]
    written = {pair: ":".join(map(quote, pair)) for pair in (*own, *left_out)}
    text = " + ".join([*map(quote, kept), *(written[pair] for pair in own)]) or "1"
    return text, tuple(written[pair] for pair in left_out)


def _cells(first: IntArray, second: IntArray) -> int:
    """Return the number of pairs of two codes (n,) that occur."""
    return np.unique(first * (int(second.max()) + 1) + second).size


def _determines(finer: IntArray, coarser: IntArray) -> bool:
    """Return True if every level of ``finer`` is in a single level of ``coarser``."""
    return _cells(finer, coarser) == np.unique(finer).size


@dataclass(frozen=True)
class Interaction:
    """A term with two or more factors: their columns, its text, and its name in a model matrix.

    ``within``: names of the terms within it; ``has_all_within``: True if none is missing.
    """

    names: tuple[str, ...]
    text: str
    term: str
    within: frozenset[str]
    has_all_within: bool

    def cell_sizes(
        self, code: Mapping[str, IntArray], count: IntArray, at: Mapping[str, IntArray]
    ) -> IntArray:
        """Return the number of records (R,) in the cells of rows with the codes ``at``.

        ``count``: (B,) records of the rows with the codes ``code``.
        """
        own, there = (np.stack([codes[name] for name in self.names]) for codes in (code, at))
        both = np.hstack([own, there])
        cell = np.unique(both, axis=1, return_inverse=True)[1].reshape(-1)
        size = np.bincount(cell[: own.shape[1]], weights=count, minlength=int(cell.max()) + 1)
        return size[cell[own.shape[1] :]].astype(np.int64)


def interactions(parsed: ParsedFormula, factors: Collection[str]) -> list[Interaction]:
    """Return the interactions of two or more of these columns, lowest order first."""
    # The intercept is within every term.
    texts = {str(term): frozenset(_factors(term)) - {"1"} for term in parsed.formula}
    found = []
    for term, parts in zip(parsed.formula, parsed.terms, strict=True):
        columns = [names[0] for names, _ in parts if len(names) == 1]
        names = tuple(name for name in columns if name in factors)
        if len(names) < 2:
            continue
        own = texts[str(term)]
        within = {name: each for name, each in texts.items() if each < own}
        lower = {frozenset(each) for each in itertools.combinations(own, len(own) - 1)}
        found.append(Interaction(
            names, ":".join(_factors(term)), str(term), frozenset(within),
            lower <= set(within.values()),
        ))  # fmt: skip
    return sorted(found, key=lambda each: (len(texts[each.term]), each.text))


def shrunken_terms(parsed: ParsedFormula, categorical: Collection[str]) -> dict[str, list[str]]:
    """Return the interactions that the models shrink, and the main effects of each (methods 3).

    By their names in a model matrix. These are terms of two or more categorical factors and nothing
    else, all of whose lower-order terms are in the formula: without these a term also holds main
    effects.
    """
    found: dict[str, list[str]] = {}
    names = {_factors(term): str(term) for term in parsed.formula}
    complete = {each.term for each in interactions(parsed, parsed.variables) if each.has_all_within}
    for term, parts in zip(parsed.formula, parsed.terms, strict=True):
        kinds = [
            coded or (factor.eval_method.value == "lookup" and columns[0] in categorical)
            for factor, (columns, coded) in zip(term.factors, parts, strict=True)
        ]
        if str(term) in complete and all(kinds):
            found[str(term)] = [names[(factor,)] for factor in _factors(term)]
    return found


def without_terms(parsed: ParsedFormula, left_out: Collection[str]) -> ParsedFormula:
    """Return the formula without some terms, by their names in a model matrix; all variables."""
    from formulaic import SimpleFormula  # slow: only where there is a formula

    pairs = zip(parsed.formula, parsed.terms, strict=True)
    kept = [(term, parts) for term, parts in pairs if str(term) not in left_out]
    terms = tuple(parts for _, parts in kept)
    return replace(parsed, formula=SimpleFormula([term for term, _ in kept]), terms=terms)


def without_term(parsed: ParsedFormula, text: str) -> str:
    """Return the formula with a term, by either of its names, replaced by its parts."""
    kept: dict[str, None] = {}
    for term in parsed.formula:
        parts = _factors(term)
        if text not in (":".join(parts), str(term)):
            kept[":".join(parts)] = None
            continue
        lower = itertools.combinations(parts, len(parts) - 1)
        kept.update(dict.fromkeys(":".join(each) for each in lower))
    terms = sorted((each for each in kept if each != "1"), key=lambda each: each.count(":"))
    return " + ".join([*([] if "1" in kept else ["0"]), *terms])


def _factors(term: object) -> tuple[str, ...]:
    return tuple(
        quote(each.expr) if each.eval_method.value == "lookup" else each.expr
        for each in term.factors  # type: ignore[attr-defined]
    )
