"""Stan programs: includes resolved, what a program declares, and the cache of compiled ones.

Each is compiled once, never next to its source. The key is the program's text with its includes,
the CmdStan that compiles it (version and place, since a compiled program loads libraries from
there) and the machine.
"""

import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
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


INSTALL_COMMAND = "python -m cmdstanpy.install_cmdstan"
EXECUTABLE_SUFFIX = ".exe" if sys.platform == "win32" else ""
#: Lines of the compiler's message that are shown.
MESSAGE_LINES = 20
#: Time limit for a program to report its version.
START_SECONDS = 60


def cache_directory(
    environment: Mapping[str, str] = os.environ, system: str = sys.platform
) -> Path:
    """Return the user's cache folder for compiled programs, by the custom of the platform."""
    if system == "win32":
        base = environment.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif system == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        given = environment.get("XDG_CACHE_HOME", "")
        base = given if os.path.isabs(given) else str(Path.home() / ".cache")
    return Path(base) / "surveysynth" / "stan"


@contextmanager
def silenced() -> Iterator[None]:
    """Silence CmdStanPy's log, which would quote what compilers and, worse, programs print."""
    logger = logging.getLogger("cmdstanpy")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def cmdstan_location() -> tuple[Path, str]:
    """Return folder and version of CmdStan; raise ``InputError`` that says how to install it."""
    import cmdstanpy

    try:
        folder = Path(cmdstanpy.cmdstan_path())
        makefile = (folder / "makefile").read_text(encoding="utf-8", errors="replace")
    except (ValueError, OSError):
        raise InputError(
            "A Stan program needs CmdStan, which is not installed: run "
            f"'{INSTALL_COMMAND}' (it needs a C++ compiler and make), or set CMDSTAN to the "
            "folder of an installation. Or install the extra 'stan' of surveysynth, which has "
            "PyStan, and set SURVEYSYNTH_STAN_BACKEND=pystan. The engine 'embedded' needs neither."
        ) from None
    found = re.search(r"^CMDSTAN_VERSION\s*:?=\s*(\S+)", makefile, re.MULTILINE)
    return folder, found.group(1) if found else "unknown"


def digest_of(parts: Sequence[str]) -> str:
    """Return the hexadecimal digest of texts in this order, each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()[:32]


def compiled_program(source: StanSource, cache: Path | None = None) -> Path:
    """Return the executable of a program, compiled with CmdStan unless the cache has it.

    Compilation happens in a folder of its own that is renamed when complete, so processes that
    compile the same program at once do no harm. A program that no longer starts is compiled again.
    Raises ``InputError`` without CmdStan, and for a program that does not compile, with the
    compiler's message.
    """
    cmdstan, version = cmdstan_location()
    cache = cache or cache_directory()
    key = (source.name, source.code, str(cmdstan), version, platform.machine(), sys.platform)
    folder = cache / f"{source.name}-{digest_of(key)}"
    executable = folder / f"{source.name}{EXECUTABLE_SUFFIX}"
    if executable.is_file():
        try:
            program_version(executable)
            return executable
        except InputError:  # damaged, or a library that it loads is gone: once more
            shutil.rmtree(folder, ignore_errors=True)
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
    except OSError as error:
        raise InputError(
            f"The cache folder for compiled Stan programs, {cache}, cannot be written: "
            f"{error.strerror}. Set XDG_CACHE_HOME to a folder that can."
        ) from None
    try:
        _compile(source, building)
        try:
            building.rename(folder)
        except OSError:
            # Another process was faster; its program is the same.
            if not executable.is_file():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return executable


def program_version(executable: Path) -> str:
    """Start a compiled program to ask for the version of its CmdStan.

    Raises ``InputError`` for one that does not start, or that CmdStan did not make.
    """
    state = executable.stat()
    return _asked_version(executable, state.st_size, state.st_mtime_ns)


@lru_cache
def _asked_version(executable: Path, size: int, modified: int) -> str:
    """Ask a file of this size and time once, since every fit needs the answer."""
    try:
        done = subprocess.run(
            [str(executable), "info"], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=START_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _does_not_start(executable, f"no answer in {START_SECONDS} s") from None
    except OSError as error:
        raise _does_not_start(executable, error.strerror or "no reason given") from None
    if done.returncode:
        code = done.returncode
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        # The system's loader wrote this, before any data were read.
        said = done.stderr.decode(errors="replace").strip().splitlines()[:1]
        raise _does_not_start(executable, ": ".join([ended, *said]))
    parts = dict(
        re.findall(r"^\s*stan_version_(\w+)\s*=\s*(\d+)", done.stdout.decode(), re.MULTILINE)
    )
    if "major" not in parts:
        raise _does_not_start(executable, "it does not answer 'info' as CmdStan's programs do")
    return ".".join(parts.get(part, "0") for part in ("major", "minor", "patch"))


def _does_not_start(executable: Path, why: str) -> InputError:
    return InputError(
        f"The compiled Stan program {executable} does not start on this machine ({why}). It may "
        "have been compiled for another, or miss a library of the CmdStan that compiled it: "
        "compile it again with a CmdStan of this machine. The engine 'embedded' needs none."
    )


def _compile(source: StanSource, folder: Path) -> None:
    import cmdstanpy

    path = folder / f"{source.name}.stan"
    path.write_text(source.code, encoding="utf-8")
    with silenced():
        try:
            cmdstanpy.compile_stan_file(str(path))
        except (ValueError, RuntimeError, OSError) as error:
            message = compiler_message(str(error), folder)
            raise InputError(
                f"The Stan program {source.name!r} does not compile (lines count in the program "
                f"with its includes in place):\n{message}"
            ) from None


def compiler_message(console: str, folder: Path) -> str:
    """Return the lines that explain the error, without the temporary folder and make's lines."""
    lines = console.replace(f"{folder}{os.sep}", "").splitlines()
    noise = re.compile(r"\s*((mingw32-)?make\b|Command \[|exited with code|error during process)")
    lines = [line.rstrip() for line in lines if not noise.match(line)]
    start = next((i for i, line in enumerate(lines) if re.search(r"\b(E|e)rror\b", line)), 0)
    shown = [line for line in lines[start:] if line.strip()][:MESSAGE_LINES]
    return "\n".join(shown) or "the compiler gave no message."
