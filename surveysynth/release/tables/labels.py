"""Labels that readers see instead of column names and codes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from surveysynth.config.sections import LabelSection
from surveysynth.survey.where import Relation, folded, parse_where


@dataclass(frozen=True)
class Labels:
    """Labels of all columns, as a specification has them; others are shown by their names."""

    columns: Mapping[str, LabelSection] = field(default_factory=dict)

    def of(self, column: str) -> LabelSection:
        """Return the column's labels, or the defaults."""
        return self.columns.get(column, LabelSection())

    def title(self, column: str) -> str:
        """Return the column's title, or its name."""
        return self.of(column).title or column

    def titled_with_unit(self, column: str) -> str:
        """Return the title followed by its unit in brackets, if there is one."""
        unit = self.of(column).unit
        return f"{self.title(column)} ({unit})" if unit else self.title(column)

    def level(self, column: str, code: str) -> str:
        """Return the label of a code, or the code itself."""
        return self.of(column).levels.get(code, code)


def span(counts: Iterable[int]) -> str:
    """Write the range of at least one count: ``12``, or ``4 to 12``."""
    found = list(counts)
    least, most = min(found), max(found)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words: ``a``, ``a and b``, ``a, b and c``; ``last`` stands before the last one."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


_WORDS = {
    "==": "is", "!=": "is not", "<": "below", "<=": "at most", ">": "above", ">=": "at least",
    "in": "is", "not in": "is not",
}  # fmt: skip


def where_words(where: str, labels: Labels) -> str:
    """Write a condition in words, such as ``Age at least 18 and Field is Biology or Physics``."""

    def relation(each: Relation) -> tuple[str, str]:
        codes = [value if isinstance(value, str) else f"{value:.15g}" for value in each.values]
        values = listed([labels.level(each.column, code) for code in codes], "or")
        return f"{labels.title(each.column)} {_WORDS[each.operator]} {values}", ""

    def negated(part: tuple[str, str]) -> tuple[str, str]:
        return f"not ({part[0]})", ""

    def joined(word: str, parts: list[tuple[str, str]]) -> tuple[str, str]:
        texts = [f"({text})" if inner else text for text, inner in parts]
        return f" {word} ".join(texts), word

    return folded(parse_where(where), relation, negated, joined)[0]
