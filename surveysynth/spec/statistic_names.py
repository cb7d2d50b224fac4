"""Names of statistics in a specification, with their arguments in the form they have everywhere."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticKnownError

from surveysynth.errors import InputError
from surveysynth.estimation.statistics import STATISTICS, statistic_of


def known_name(value: Any, names: Sequence[str]) -> Any:
    """One of the names, refused in the words of a Literal of them."""
    if isinstance(value, str) and value in names:
        return value
    *others, last = map(repr, names)
    expected = f"{', '.join(others)} or {last}" if others else last
    raise PydanticKnownError("literal_error", {"expected": expected})


def statistic_name(value: Any) -> Any:
    """A name of the registry, or one with arguments in the form that they have everywhere."""
    if not (isinstance(value, str) and "(" in value):
        return known_name(value, tuple(STATISTICS))
    try:
        return statistic_of(value).name
    except InputError as error:
        raise ValueError(str(error)) from None


def own_files(names: tuple[str, ...]) -> tuple[str, ...]:
    """Statistics whose files have names of their own."""
    stems = [statistic_of(name).stem.casefold() for name in names]
    for name, stem in zip(names, stems, strict=True):
        if stems.count(stem) > 1:
            raise ValueError(f"{name!r} and another statistic would both write {stem}; leave one.")
    return names
