"""All mistakes of a file in one error, in words: keys still open ("?"), then the others."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import ErrorDetails

from surveysynth._support.messages import BACKSLASH, nearest, nearest_file, raise_problems
from surveysynth.config.privacy import PROMISES, without_tag
from surveysynth.config.tables_section import as_written, inherited
from surveysynth.errors import InputError
from surveysynth.survey.files import SUFFIXES

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

#: Kinds of mistakes that say of a value only that it has another type.
OTHER_TYPE = frozenset(_TYPE_WORDS) - {"finite_number", "int_parsing_size"}
#: A part of a place: the key itself is wrong.
KEY = "[key]"

_PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")

#: Descriptions of required sections and keys, for messages that report them missing.
REQUIRED = {
    "survey": "it names the data file and the columns of the sampling design.",
    "survey.data": 'the data file, such as data = "survey.csv".',
    "synthesizer": "it names the outcomes and the model.",
    "synthesizer.outcome": 'the confidential columns, such as outcome = "salary", or a section '
    "[outcomes.NAME] for each.",
    "privacy.mechanism": "\n    ".join(
        ["the two mechanisms promise different things, and neither is the default. Write one of",
         *(f'mechanism = "{name}"  # {promise}' for name, promise in PROMISES.items())]
    ),
}  # fmt: skip

_LIMIT_WORDS = {
    "greater_than": ("gt", "a number greater than"),
    "greater_than_equal": ("ge", "a number not less than"),
    "less_than": ("lt", "a number less than"),
    "less_than_equal": ("le", "a number not greater than"),
}


def expected(kind: str, context: Mapping[str, Any]) -> str:
    """Return the expected value in words, from the kind of a mistake and its context."""
    if kind == "literal_error":
        return f"one of {context['expected']}".replace("one of 1", "1")
    if kind in _LIMIT_WORDS:
        key, words = _LIMIT_WORDS[kind]
        return f"{words} {context[key]:g}"
    if kind in ("too_short", "string_too_short"):
        return "at least one entry" if kind == "too_short" else "a text that is not empty"
    return _TYPE_WORDS.get(kind, "another value")


def without_quotes(kind: str, key: str, value: Any) -> str:
    """Return the remedy for a number in quotes."""
    if kind not in ("float_type", "int_type") or not isinstance(value, str):
        return ""
    plain = re.sub(r"(?<=\d)[,_ '](?=\d{3}\b)", "", value.strip())
    return f" Write {key} = {plain}, without quotes." if _PLAIN_NUMBER.fullmatch(plain) else ""


def where_of(location: tuple[int | str, ...]) -> str:
    """Return ``section.key[3]`` (entries counted from 1), as a file has it."""
    where = ""
    for part in location:
        if isinstance(part, int):
            where += f"[{part + 1}]"
        elif part != KEY:
            where += f".{part}" if where else str(part)
    return where


def shown(value: Any, limit: int = 60) -> str:
    """Return a value roughly as in the file; cut it if it is long."""
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


def describe(
    details: ErrorDetails,
    location: tuple[int | str, ...],
    known_keys: Callable[[tuple[int | str, ...]], str],
) -> list[str]:
    """Describe a mistake in one line or more; location: its place in the file."""
    kind = details["type"]
    where = where_of(location)
    context: Mapping[str, Any] = details.get("ctx", {})
    if kind == "value_error":
        lines = str(context["error"]).split("\n")
        return [f"{where}: {line}" if where else line for line in lines]
    if kind == "extra_forbidden":
        section = len(location) == 1 and isinstance(details["input"], Mapping)
        what = "section" if section else "key"
        return [f"{where}: unknown {what}.{known_keys(location)}"]
    if kind == "missing":
        what = "section" if len(location) == 1 else "key"
        words = f": {REQUIRED[where]}" if where in REQUIRED else "."
        return [f"{where}: missing; this {what} is required{words}"]
    hint = ""
    if kind == "literal_error" and isinstance(details["input"], str):
        hint = nearest(details["input"], re.findall(r"'([^']*)'", str(context["expected"])))
    hint += without_quotes(kind, str(location[-1]), details["input"])
    return [f"{where}: expected {expected(kind, context)}, got {shown(details['input'])}.{hint}"]


def why_not_toml(error: Exception, text: str) -> str:
    """Return why a text cannot be parsed as TOML, with the remedy for common mistakes."""
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    line = re.search(r"at line (\d+)", reason)
    if line and re.search(r'"[^"]*\\', text.splitlines()[int(line[1]) - 1]):
        return f"line {line[1]}: {BACKSLASH}"
    if "'\\n'" in reason:
        reason += "; the line ends inside quotes: close them"
    return reason


def read_text(path: Path) -> str:
    """Return the text of a specification file; raise ``InputError`` for another kind of file."""
    if path.suffix.lower() in SUFFIXES:
        # The parser quotes text in its messages, which may be confidential here.
        raise InputError(
            f"{path} is a data file; expected a specification (TOML), which surveysynth init "
            "writes for it."
        )
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8."
        ) from None
    except FileNotFoundError:
        near = nearest_file(path, (".toml",))
        raise InputError(
            f"there is no specification file {path}.{near} surveysynth init DATA writes one for a "
            "data file."
        ) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; expected a specification file (TOML).") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise InputError(f"the specification file {path} cannot be read: {reason}.") from None


#: The value of a key that a person must fill in. No key accepts it, so validation finds each one.
OPEN = "?"

#: How to fill in a key, with the keys that the answer calls for: one reading is enough.
ANSWERS = {
    "kind": '"continuous" for an amount, "semicontinuous" with spikes = [0] for one that is often '
    'zero, or "count" for a whole number, each with range = [low, high]; "binary" for yes or no, '
    'or "categorical" with levels = ["..", ".."]',
    "levels": 'all answers that may occur, such as levels = ["no", "yes"]',
    "range": "the lowest and the highest possible value, such as range = [0, 500000]",
    "transform": 'leave it out and write range = [low, high], or choose "log", "asinh" or '
    '"yeo_johnson"',
    "scale": "about a tenth of a typical value, such as scale = 1000",
    "center": "a typical value, such as center = 30000",
    "spread": "a typical standard deviation on the scale of the transform, such as spread = 0.5",
    "design_effect": "the factor by which clustering raises variances, from an earlier report on "
    "the survey, such as design_effect = 1.5",
}
_WEIGHT = "the logarithm of a typical weight, population size over records, such as center = 5.3"

Location = tuple[int | str, ...]
Mistake = tuple[ErrorDetails, Location]


def raise_mistakes(
    source: str,
    errors: Sequence[ErrorDetails],
    content: Mapping[str, Any],
    known_keys: Callable[[Location], str],
) -> None:
    """Raise one ``InputError`` for all mistakes of ``content``, each at its place in the file."""
    found = _of_one_type([
        (details, _in_file(as_written(location, content), content))
        for details in errors
        if not inherited(location := without_tag(details["loc"]), content)
    ])  # fmt: skip
    left = [place for details, place in found if details["input"] == OPEN]
    problems = [
        line
        for details, place in found
        if place not in left
        for line in describe(details, place, known_keys)
    ]
    if not left:
        raise_problems(source, problems)
        return
    places: dict[str, list[str]] = {}  # those with the same answer share a line
    for place in dict.fromkeys(left):
        key = str(place[-1])
        answer = ANSWERS.get(key, f"see {key} in the reference of keys")
        if place == ("outcomes", "weight", "center"):
            answer = _WEIGHT
        places.setdefault(answer, []).append(where_of(place))
    count = len(dict.fromkeys(left))
    lines = [*(f"{', '.join(those)}: {words}." for words, those in places.items()), *problems]
    raise InputError("\n".join([
        f"{source}: {'1 key is' if count == 1 else f'{count} keys are'} still open, marked "
        f'"{OPEN}". Answers come from public sources, such as a questionnaire or a codebook, '
        "never from the data.",
        *(f"  - {line}" for line in lines),
    ]))  # fmt: skip


def _in_file(place: Location, content: Mapping[str, Any]) -> Location:
    """Return a place without pydantic's names of the types that a value may have."""
    value: Any = content
    kept: list[int | str] = []
    for part in place:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and isinstance(part, int):
            value = value[part] if part < len(value) else None
        elif value is not None and part != KEY:
            continue  # a text or a list has no keys
        kept.append(part)
    return tuple(kept)


def _of_one_type(found: Sequence[Mistake]) -> list[Mistake]:
    """Return the mistakes, without those about types other than the one that a value nearly has.

    For a key that may be a text or a list, a faulty list is also reported as not a text.
    """
    return [
        (details, place)
        for details, place in found
        if details["type"] not in OTHER_TYPE
        or not any(
            other["type"] not in OTHER_TYPE and there[: len(place)] == place
            for other, there in found
        )
    ]
