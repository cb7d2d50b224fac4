"""The condition of a subpopulation as readers see it, with titles and labels."""

from surveysynth.release.tables.labels import Labels
from surveysynth.survey.where import Relation, Value, folded, parse_where

_WORDS = {
    "==": "is", "!=": "is not", "<": "below", "<=": "at most", ">": "above", ">=": "at least",
    "in": "is", "not in": "is not",
}  # fmt: skip


def where_words(where: str, labels: Labels) -> str:
    """A condition in words, such as ``Age at least 18 and Field is Biology or Physics``."""

    def relation(each: Relation) -> tuple[str, str]:
        values = [_shown(labels, each.column, value) for value in each.values]
        several = _or(values)
        return f"{labels.title(each.column)} {_WORDS[each.operator]} {several}", ""

    def negated(part: tuple[str, str]) -> tuple[str, str]:
        return f"not ({part[0]})", ""

    def joined(word: str, parts: list[tuple[str, str]]) -> tuple[str, str]:
        texts = [f"({text})" if inner else text for text, inner in parts]
        return f" {word} ".join(texts), word

    return folded(parse_where(where), relation, negated, joined)[0]


def _shown(labels: Labels, column: str, value: Value) -> str:
    code = value if isinstance(value, str) else f"{value:.15g}"
    return labels.level(column, code)


def _or(values: list[str]) -> str:
    return " or ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)
