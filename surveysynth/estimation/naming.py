"""Names of statistics with arguments, as specifications have them: ``word(argument, argument)``.

An argument is text as it stands, but for text with , : ( ) or ", with " - " or " / " in it or with
spaces at its ends, or that is one of the words ``each`` and ``margin``: such text stands in double
quotes, a double quote in it twice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from surveysynth.errors import InputError

EACH, MARGIN = "each", "margin"
_WORD = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
_SPECIAL = re.compile(r'[,:()"]|\s[-/]\s|^\s|\s$|^$|^(?:each|margin)$')


@dataclass(frozen=True)
class Call:
    """A word and its arguments, each as it was written."""

    word: str
    arguments: tuple[str, ...]


def parse_call(name: str) -> Call | None:
    """The parts of a name with arguments; None for a name without brackets.

    Raises ``InputError`` where brackets or quotes do not match.
    """
    if "(" not in name:
        return None
    found = _WORD.fullmatch(name)
    if found is None:
        raise _wrong(name, "expected a word and its arguments in brackets")
    return Call(found[1], tuple(split(found[2], ",", name)))


def split(text: str, mark: str, name: str) -> list[str]:
    """Parts of a text between marks, a pattern, that stand in no quotes and no brackets.

    Raises ``InputError`` where brackets or quotes do not match; ``name``: for the message.
    """
    parts, start = [], 0
    pattern = re.compile(mark)
    for place in _outside(text, name):
        found = pattern.match(text, place)
        if found and place >= start:
            parts.append(text[start:place].strip())
            start = found.end()
    return [*parts, text[start:].strip()]


def _outside(text: str, name: str) -> Iterator[int]:
    """Places in no quotes and no brackets."""
    depth, quoted = 0, False
    for place, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                raise _wrong(name, "a bracket is closed that was not opened")
            if depth == 0:
                yield place
    if depth or quoted:
        raise _wrong(name, "a quote is not closed" if quoted else "a bracket is not closed")


def unquote(written: str, name: str) -> str:
    """The text that was written. Raises ``InputError`` for text that needs quotes."""
    inner = written[1:-1].replace('""', "")
    if len(written) > 1 and written[0] == written[-1] == '"' and '"' not in inner:
        return written[1:-1].replace('""', '"')
    if _SPECIAL.search(written):
        raise _wrong(name, f"{written!r} is not a name here; text with special signs needs quotes")
    return written


def quote(text: str) -> str:
    """Text as ``unquote`` reads it."""
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if _SPECIAL.search(text) else text


def file_name(*words: str) -> str:
    """Words as the name of a file: letters, digits and underscores."""
    return "_".join(re.findall(r"\w+", " ".join(words)))


def _wrong(name: str, why: str) -> InputError:
    return InputError(f"The statistic {name!r} cannot be read: {why}.")
