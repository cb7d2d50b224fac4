"""The condition of a subpopulation as an expression in the README's programs, in both languages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surveysynth.release.documents.programs import Language, Subset, python_literal, r_literal
from surveysynth.release.folder.microdata import VARIANCE_SUFFIX
from surveysynth.release.writers.csv import safe_text
from surveysynth.survey.where import Relation, Value, columns_of, folded, parse_where

if TYPE_CHECKING:
    from surveysynth.release.facts import ReleaseFacts

Renamed = Mapping[str, str]
"""Columns with another name in a pair for variances."""


@dataclass(frozen=True)
class _Syntax:
    """A language's literals, columns (as numbers or as text), membership, and negation."""

    literal: Callable[[Any], str]
    column: Callable[[str, bool], str]
    among: Callable[[str, str], str]
    negation: str


def where_code(
    facts: "ReleaseFacts", where: str, language: Language, renamed: Renamed | None = None
) -> str:
    """Return an expression that selects records: a Series in pandas, a vector in R."""
    syntax = _SYNTAX[language]
    # Levels "0" and "1" are numbers in the files, which may read as 1.0 where they are not csv.
    binary = [
        o.name for o in facts.design.outcomes
        if facts.microdata_format != "csv" and o.kind == "binary" and not o.is_labelled
    ]  # fmt: skip

    def relation(each: Relation) -> str:
        made_number = each.column in binary and not each.of_numbers
        number = each.of_numbers or made_number
        column = syntax.column(syntax.literal(_column(facts, each, renamed)), number)
        given = _values(facts, each)
        values = [syntax.literal(float(value) if made_number else value) for value in given]
        if "in" in each.operator:
            found = syntax.among(column, ", ".join(values))
            return found if each.operator == "in" else f"{syntax.negation}{found}"
        return f"({column} {each.operator} {values[0]})"

    return folded(
        parse_where(where), relation, lambda part: f"{syntax.negation}({part})", _joined
    )


def where_columns(where: str | None) -> tuple[str, ...]:
    """Return the columns of a condition, if there is one."""
    return () if where is None else columns_of(parse_where(where))


def pair_columns(facts: "ReleaseFacts") -> Renamed:
    """Return synthetic columns of outcomes and the columns for their variances, as in the files."""
    written = _written(facts)
    return {written(n): written(n + VARIANCE_SUFFIX) for n in facts.design.outcome_names}


def subset_of(
    facts: "ReleaseFacts", where: str | None, of_pair: Renamed, numbers: Sequence[str]
) -> Subset | None:
    """Return the subpopulation of a table in the programs.

    of_pair: synthetic columns and the columns for their variances; numbers: outcomes that the
    programs read as numbers.
    """
    if where is None:
        return None
    written, columns = _written(facts), where_columns(where)
    labelled = [each.name for each in facts.design.outcomes if each.is_labelled]
    texts = [written(name) for name in columns if name in labelled or name not in numbers]
    own = any(written(name) in of_pair for name in columns)

    def code(renamed: Renamed | None) -> dict[Language, str]:
        return {each: where_code(facts, where, each, renamed) for each in _SYNTAX}

    others = [of_pair[name] for name in texts if name in of_pair]
    return Subset(code(None), code(of_pair) if own else None, (*texts, *others))


def _joined(word: str, parts: list[str]) -> str:
    sign = {"and": " & ", "or": " | "}[word]
    return f"({sign.join(parts)})"


def _column(facts: "ReleaseFacts", relation: Relation, renamed: Renamed | None) -> str:
    column = _written(facts)(relation.column)
    return (renamed or {}).get(column, column)


def _values(facts: "ReleaseFacts", relation: Relation) -> list[Value]:
    """Return literals as the files have them."""
    written = _written(facts)
    return [written(each) if isinstance(each, str) else each for each in relation.values]


def _written(facts: "ReleaseFacts") -> Callable[[str], str]:
    """Return the function for texts and headings in the files: csv files have no formulas."""
    return safe_text if facts.microdata_format == "csv" else str


_SYNTAX: dict[Language, _Syntax] = {
    "python": _Syntax(
        python_literal, lambda name, number: f"data[{name}].astype({'float' if number else 'str'})",
        lambda column, values: f"{column}.isin([{values}])", "~",
    ),
    "r": _Syntax(
        r_literal,
        lambda name, number: f"as.{'numeric' if number else 'character'}(data[[{name}]])",
        lambda column, values: f"({column} %in% c({values}))", "!",
    ),
}  # fmt: skip
