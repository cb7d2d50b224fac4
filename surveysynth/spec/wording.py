"""How mistakes of a specification are put: places, values and types in the reader's words."""

import re
from collections.abc import Mapping
from typing import Any

from surveysynth._support.messages import nearest

_TYPE_WORDS = {
    "string_type": "a text in quotes",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of usual size",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table of keys",
    "model_type": "a section of keys",
    "model_attributes_type": "a section of keys",
    "finite_number": "a finite number",
}

_PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")

#: What to write where a section or key is missing that is required.
REQUIRED = {
    "survey": "it names the data file and the columns of the sampling design",
    "survey.data": 'the data file, such as data = "survey.csv"',
    "synthesizer": "it names the outcomes and the model",
    "synthesizer.outcome": 'the confidential columns, such as outcome = "salary", or a section '
    "[outcomes.NAME] for each",
}

_LIMIT_WORDS = {
    "greater_than": ("gt", "a number greater than"),
    "greater_than_equal": ("ge", "a number not less than"),
    "less_than": ("lt", "a number less than"),
    "less_than_equal": ("le", "a number not greater than"),
}


def nearest_choice(value: Any, context: Mapping[str, Any]) -> str:
    """The choice nearest to a word that is none of them."""
    choices = re.findall(r"'([^']*)'", str(context["expected"]))
    return nearest(value, choices) if isinstance(value, str) else ""


def expected(kind: str, context: Mapping[str, Any]) -> str:
    """What would have been right, from the kind of a mistake and its context."""
    if kind == "literal_error":
        return f"one of {context['expected']}".replace("one of 1", "1")
    if kind in _LIMIT_WORDS:
        key, words = _LIMIT_WORDS[kind]
        return f"{words} {context[key]:g}"
    if kind in ("too_short", "string_too_short"):
        return "at least one entry" if kind == "too_short" else "a text that is not empty"
    return _TYPE_WORDS.get(kind, "another value")


def without_quotes(kind: str, key: str, value: Any) -> str:
    """The remedy for a number in quotes."""
    if kind not in ("float_type", "int_type") or not isinstance(value, str):
        return ""
    plain = re.sub(r"(?<=\d)[,_ '](?=\d{3}\b)", "", value.strip())
    return f" Write {key} = {plain}, without quotes." if _PLAIN_NUMBER.fullmatch(plain) else ""


def where_of(location: tuple[int | str, ...]) -> str:
    """``section.key[3]`` (entries counted from 1), as the reader would write it."""
    where = ""
    for part in location:
        if isinstance(part, int):
            where += f"[{part + 1}]"
        elif part != "[key]":
            where += f".{part}" if where else str(part)
    return where


def shown(value: Any, limit: int = 60) -> str:
    """A value as the reader wrote it, about; long ones are cut."""
    if isinstance(value, dict):
        return "a table of keys"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**limit:
        return "a very large number"
    text = repr(value) if isinstance(value, str | int | float) else str(value)
    return text if len(text) <= limit else text[:limit] + "..."
