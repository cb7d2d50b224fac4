"""Cache of compiled Stan programs: each is compiled once, never next to its source.

The key is the program's text with its includes, the CmdStan that compiles it (version and place,
since a compiled program loads libraries from there) and the machine.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from surveysynth.errors import InputError
from surveysynth.sampling.stan.source import StanSource

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
