"""Stan programs as text: includes resolved, and what a program declares."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError

_INCLUDE = re.compile(r'\s*#include\s+(?:"([^"]+)"|<([^>]+)>|([^\s"<>]+))\s*(?://.*|/\*.*)?$')
_TOKENS = re.compile(r'"[^"\n]*"|//[^\n]*|/\*|\*/')
_COMMENTS = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_BLOCK_HEAD = re.compile(
    r"\b(functions|transformed\s+data|data|transformed\s+parameters|parameters|model|"
    r"generated\s+quantities)\s*\{"
)
_DECLARATION = re.compile(r"(?:array\s+)?([A-Za-z]\w*)\s+([A-Za-z]\w*(?:\s*,\s*[A-Za-z]\w*)*)\s*$")
_STATEMENT_WORDS = frozenset(
    {"for", "foreach", "while", "if", "else", "return", "print", "reject", "break", "continue"}
)


@dataclass(frozen=True)
class StanSource:
    """A Stan program: ``name`` for files and messages, ``code`` without includes. Public."""

    name: str
    code: str

    @classmethod
    def read(cls, path: Path, include_dirs: Sequence[Path] = ()) -> "StanSource":
        """Read the program in a file; raise ``InputError`` as ``flattened_source`` does."""
        name = re.sub(r"\W", "_", path.stem)
        # The C++ compiler refuses a model name that starts with a digit.
        name = name if name[:1].isalpha() else f"program_{name}"
        return cls(name, flattened_source(path, include_dirs))


def flattened_source(path: Path, include_dirs: Sequence[Path] = ()) -> str:
    """Return the text of a program with every ``#include`` replaced by the file it names.

    Names are looked up in the program's own folder, then in ``include_dirs``, as the compiler does.
    Raises ``InputError`` for a file that is missing or not text, and for files that include each
    other.
    """
    return _flatten(path, [path.parent, *include_dirs], ())


def _flatten(path: Path, folders: Sequence[Path], including: tuple[Path, ...]) -> str:
    path = path.resolve()
    if path in including:
        chain = " -> ".join(each.name for each in (*including[including.index(path) :], path))
        raise InputError(f"Stan files include each other in a circle: {chain}.")
    lines, in_comment = [], False
    for line in _read(path).splitlines():
        found = None if in_comment else _INCLUDE.match(line)
        if found:
            name = next(group for group in found.groups() if group)
            inner = _find(name, folders, path)
            lines.append(_flatten(inner, folders, (*including, path)))
        else:
            lines.append(line)
        in_comment = _ends_in_comment(line, in_comment)
    return "\n".join(lines) + ("\n" if not including else "")


def _find(name: str, folders: Sequence[Path], included_by: Path) -> Path:
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        f"The Stan file {included_by} includes {name!r}, which is not in "
        f"{' or '.join(str(folder) for folder in folders)}."
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"There is no Stan program {path}.") from None
    except UnicodeDecodeError:
        raise InputError(f"The Stan program {path} is not UTF-8 text.") from None
    except OSError as error:
        raise InputError(f"The Stan program {path} cannot be read: {error.strerror}.") from None


def _ends_in_comment(line: str, inside: bool) -> bool:
    """Return True if a block comment is open at the end of the line."""
    position = 0
    while True:
        if inside:
            end = line.find("*/", position)
            if end < 0:
                return True
            inside, position = False, end + 2
        found = _TOKENS.search(line, position)
        if found is None:
            return False
        inside, position = found.group() == "/*", found.end()


def declared_names(source: StanSource) -> dict[str, tuple[str, ...]]:
    """Return the top-level names of each block, in order: {"data": ("n", "y"), ...}.

    It reads declarations, not the language: the compiler decides about a program.
    """
    # Without comments and without the content of strings.
    code = _COMMENTS.sub(
        lambda found: '""' if found.group().startswith('"') else " ", source.code
    )
    result: dict[str, tuple[str, ...]] = {}
    position = 0
    while found := _BLOCK_HEAD.search(code, position):
        end = _closing_brace(code, found.end())
        name = " ".join(found.group(1).split())
        result[name] = () if name == "functions" else _names(code[found.end() : end])
        position = end
    return result


def _closing_brace(code: str, position: int) -> int:
    depth = 1
    for index in range(position, len(code)):
        depth += {"{": 1, "}": -1}.get(code[index], 0)
        if depth == 0:
            return index
    return len(code)


def _names(block: str) -> tuple[str, ...]:
    """Return declared names among the statements of a block outside inner braces."""
    text = re.sub(r"<[^<>;]*>", " ", block)
    for opening, closing, between in (("{", "}", ";"), ("[", "]", " "), ("(", ")", " ")):
        pattern = re.compile(rf"\{opening}[^\{opening}\{closing}]*\{closing}")
        while pattern.search(text):
            text = pattern.sub(between, text)
    names: list[str] = []
    for statement in text.split(";"):
        found = _DECLARATION.match(" ".join(statement.split("=")[0].split()))
        if found and found.group(1) not in _STATEMENT_WORDS:
            names += [name.strip() for name in found.group(2).split(",")]
    return tuple(names)


@dataclass(frozen=True)
class StanProgramSpec:
    """The Stan program of a model: a file of ``stan/``, its data and its parameters.

    data(stats, priors): the program's data for the statistics of one database, JSON-ready;
    theta(draws): the program's parameters by name, (S, ...), as the model's Theta.
    """

    program: str
    data: Callable[[Any, Mapping[str, float]], dict[str, Any]]
    theta: Callable[[Mapping[str, FloatArray]], Theta]
