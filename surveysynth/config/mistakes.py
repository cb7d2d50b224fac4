"""All mistakes of a file in one error: keys that are still open ("?"), then the others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from surveysynth._support.messages import raise_problems
from surveysynth.config.privacy import without_tag
from surveysynth.config.tables_in_file import as_written, inherited
from surveysynth.config.wording import KEY, OTHER_TYPE, describe, where_of
from surveysynth.errors import InputError

#: The value of a key that a person must fill in. No key accepts it, so validation finds each one.
OPEN = "?"

#: How to fill in a key, with the keys that the answer calls for: one reading is enough.
ANSWERS = {
    "kind": 'for an amount "continuous", or "semicontinuous" with spikes = [0], or for a whole '
    'number "count", all with range = [low, high]; for an answer "binary", or "categorical" with '
    'levels = ["..", ".."]',
    "levels": 'all answers that may occur, such as levels = ["no", "yes"]',
    "range": "the lowest and the highest possible value, such as range = [0, 500000]",
    "transform": 'leave it out and write range = [low, high], or choose "log", "asinh" or '
    '"yeo_johnson"',
    "scale": "about a tenth of a typical value, such as scale = 1000",
    "centre": "a typical value, such as centre = 30000",
    "spread": "a typical standard deviation on the scale of the transform, such as spread = 0.5",
}
_WEIGHT = "the logarithm of a typical weight, population size over records, such as centre = 5.3"

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
    count, lines = len(dict.fromkeys(left)), [*_open_lines(left), *problems]
    raise InputError("\n".join([
        f"{source}: {'1 key is' if count == 1 else f'{count} keys are'} still open, marked "
        f'"{OPEN}". Answers come from public sources, such as a questionnaire or a codebook, '
        "never from the data.",
        *(f"  - {line}" for line in lines),
    ]))  # fmt: skip


def _in_file(place: Location, content: Mapping[str, Any]) -> Location:
    """Return a place without what pydantic calls the types that a value may have."""
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
    """Return the mistakes without those of other types than the one that a value nearly has.

    A key that is a text or a list says of a list with a mistake that it is no text.
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


def _open_lines(left: Sequence[Location]) -> list[str]:
    """Return how to fill in open keys; those with the same answer share a line."""
    places: dict[str, list[str]] = {}
    for place in dict.fromkeys(left):
        places.setdefault(_answer(place), []).append(where_of(place))
    return [f"{', '.join(those)}: {answer}." for answer, those in places.items()]


def _answer(place: Location) -> str:
    key = str(place[-1])
    if place == ("outcomes", "weight", "centre"):
        return _WEIGHT
    return ANSWERS.get(key, f"see {key} in the reference of keys")
