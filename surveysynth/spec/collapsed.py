"""The key ``other`` of a table: levels of by columns that are taken together in rows of their own.

    other = { region = ["N", "NE"] }                  # a row labelled "other"
    other = { region = { "North" = ["N", "NE"] } }    # labels of your own
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from surveysynth._support.messages import listing, nearest
from surveysynth._support.xml_text import has_control
from surveysynth.spec.sections import as_tuple

OTHER = "other"
OtherRows: TypeAlias = dict[str, dict[str, tuple[str, ...]]]
"""Levels by column and by the label of their row."""

_EXAMPLE = (
    'for example other = { region = ["N", "NE"] }, or with a label '
    'other = { region = { "North" = ["N", "NE"] } }'
)


def check_other(value: Any) -> OtherRows:
    """Return levels by column and label; raise ``ValueError`` with a line for each mistake."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a table of columns and levels; {_EXAMPLE}.")
    problems: list[str] = []
    made = {}
    for column, given in value.items():
        groups = given if isinstance(given, Mapping) else {OTHER: given}
        if not groups:
            problems.append(f"{column}: no levels are given; {_EXAMPLE}.")
        for label, levels in groups.items():
            problems += _group_problems(column, label, levels)
        made[str(column)] = {str(label): as_tuple(levels) for label, levels in groups.items()}
    if problems:
        raise ValueError("\n".join(problems))
    return made


def _group_problems(column: str, label: str, levels: Any) -> list[str]:
    if not label.strip() or has_control(label):
        return [f"{column}: expected labels of printable text, got {label!r}."]
    here, given = f"{column}: the row {label!r}", as_tuple(levels)
    if not (isinstance(given, tuple) and all(isinstance(each, str) for each in given)):
        return [f"{here} needs a list of levels as texts in quotes; {_EXAMPLE}."]
    if len(set(given)) < len(given) or len(given) < 2:
        return [f"{here} needs two or more different levels, got {listing(given) or 'none'}."]
    return []


def other_problems(other: OtherRows, by: Sequence[str], *, study: bool) -> list[str]:
    """Return columns whose levels cannot be taken together, since they define no rows."""
    if study and other:
        return [
            "tables.other: a study of a population has rows of single levels; leave the key out, "
            "or add a column with the levels taken together."
        ]
    return [
        f"tables.other: {name!r} is not among tables.by: "
        f"{listing(by) if by else 'there are none'}.{nearest(name, by)} Rows take levels of by "
        "columns together."
        for name in other
        if name not in by
    ]
