"""Interactions of a formula, and cells of theirs with too few records for something of their own
(methods 2.10).

In a cell of few records the columns of an interaction take the values that least squares over its
larger cells, weighted by their records, predicts from the columns of the terms within it: of
``field:gender`` those of ``field`` and ``gender``. What is not determined by the larger cells (the
main effect of a field all of whose cells are small) may be anything, since X has it as a column.
So the cell keeps its main effects, and the interaction stays what it is in all others; the span of
X does not depend on how levels are coded.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.survey.formula import ParsedFormula, quote


@dataclass(frozen=True)
class Interaction:
    """A term with two or more factors: their columns, its text, its name in a model matrix, and
    those of the terms within it; ``has_all_within``: whether these are all that there can be."""

    names: tuple[str, ...]
    text: str
    term: str
    within: frozenset[str]
    has_all_within: bool

    def cell_sizes(
        self, code: Mapping[str, IntArray], count: IntArray, at: Mapping[str, IntArray]
    ) -> IntArray:
        """Records (R,) of the cells that rows with the codes ``at`` lie in; ``count`` (B,) of the
        rows with the codes ``code``."""
        own, there = (np.stack([codes[name] for name in self.names]) for codes in (code, at))
        both = np.hstack([own, there])
        cell = np.unique(both, axis=1, return_inverse=True)[1].reshape(-1)
        size = np.bincount(cell[: own.shape[1]], weights=count, minlength=int(cell.max()) + 1)
        return size[cell[own.shape[1] :]].astype(np.int64)


def interactions(parsed: ParsedFormula, factors: Collection[str]) -> list[Interaction]:
    """Those of two or more of these columns, of lowest order first."""
    # The intercept lies within every term.
    texts = {str(term): frozenset(_factors(term)) - {"1"} for term in parsed.formula}
    found = []
    for term, parts in zip(parsed.formula, parsed.terms, strict=True):
        columns = [names[0] for names, _ in parts if len(names) == 1]
        names = tuple(name for name in columns if name in factors)
        if len(names) < 2:
            continue
        own = texts[str(term)]
        within = {name: each for name, each in texts.items() if each < own}
        lower = {frozenset(each) for each in combinations(own, len(own) - 1)}
        found.append(Interaction(
            names, ":".join(_factors(term)), str(term), frozenset(within),
            lower <= set(within.values()),
        ))  # fmt: skip
    return sorted(found, key=lambda each: (len(texts[each.term]), each.text))


def without_small_cells(
    parsed: ParsedFormula,
    terms: Sequence[str],
    rows: FloatArray,
    code: Mapping[str, IntArray],
    count: IntArray,
    least: float,
) -> tuple[FloatArray, dict[str, tuple[int, int]], BoolArray]:
    """Rows (R, K) of X whose small cells have nothing of their own; of each interaction that has
    such cells how many, and of how many records; and which rows (R,) lie in one.

    ``terms``: of the K columns; ``code``: (R,) of each factor; ``count``: (R,) records, 0 for rows
    that are only looked at.
    """
    made, found, columns = rows.copy(), {}, np.asarray(terms)
    in_one = np.zeros(len(rows), dtype=bool)
    for each in interactions(parsed, code):
        small = each.cell_sizes(code, count, code) < least
        if not small.any():
            continue
        within = np.isin(columns, list(each.within))
        own = columns == each.term
        made[np.ix_(small, own)] = _predicted(made[:, within], made[:, own], count, small)
        of_records = small & (count > 0)
        in_one |= of_records
        if of_records.any():
            cells = np.unique(np.stack([code[name][of_records] for name in each.names]), axis=1)
            found[each.text] = (cells.shape[1], int(count[of_records].sum()))
    return made + 0.0, found, in_one


def _predicted(
    within: FloatArray, own: FloatArray, count: IntArray, small: BoolArray
) -> FloatArray:
    """Columns ``own`` in the small cells, from those ``within`` by least squares over others."""
    large = ~small & (count > 0)
    if not large.any():
        return np.zeros((int(small.sum()), own.shape[1]))
    length = np.sqrt((within**2).sum(axis=0))
    scaled = within / np.where(length > 0, length, 1.0)
    root = np.sqrt(count[large])[:, None]
    solved = np.linalg.lstsq(root * scaled[large], root * own[large], rcond=1e-10)[0]
    return np.asarray(scaled[small] @ solved)


def without_term(parsed: ParsedFormula, text: str) -> str:
    """The formula with a term's own parts of one factor less in place of it."""
    kept: dict[str, None] = {}
    for term in parsed.formula:
        parts = _factors(term)
        if ":".join(parts) != text:
            kept[":".join(parts)] = None
            continue
        lower = combinations(parts, len(parts) - 1)
        kept.update(dict.fromkeys(":".join(each) for each in lower))
    terms = sorted((each for each in kept if each != "1"), key=lambda each: each.count(":"))
    return " + ".join([*([] if "1" in kept else ["0"]), *terms])


def _factors(term: object) -> tuple[str, ...]:
    return tuple(
        quote(each.expr) if each.eval_method.value == "lookup" else each.expr
        for each in term.factors  # type: ignore[attr-defined]
    )
