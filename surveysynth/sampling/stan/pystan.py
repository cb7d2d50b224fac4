"""PyStan in a process of its own: ``python -m surveysynth.sampling.stan.pystan DIR``.

DIR holds program.stan, settings.json and data.json and receives draws.npz or error.json. PyStan
would keep every fit in the user's cache, draws included; here it keeps them in DIR, which the
caller deletes. Compiled programs are kept across virtual environments.

PyStan's own cache also keys on the interpreter's path, so a new environment would compile all
programs again, about a minute each, and it trusts what it finds. Here the key is what the result
depends on (text, httpstan, Python, compiler, flags, machine), and a kept program is checked against
its hash. PyStan finds the program in its own cache, as a link.
"""

import asyncio
import ctypes
import fcntl
import hashlib
import importlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from surveysynth.sampling.stan.source import cache_directory, digest_of

#: Attempts at the translation to C++, to which PyStan gives one second.
TRANSLATIONS = 20
#: httpstan's own flags without debug information, which many Pythons request: it takes a third of
#: compilation time and memory.
COMPILER_FLAGS = ("-O3", "-std=c++14", "-Wno-sign-compare", "-g0")
#: Environment variables that change what setuptools compiles.
VARIABLES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED")
PROGRAM, HASH = "program.so", "sha256"
#: Logs of stanc and the compiler, without which PyStan does not recognize a program.
LOGS = ("stanc.log", "stderr.log")


def compile_program(code: str, kept: Path | None = None) -> None:
    """Compile a program as PyStan's server does, or find it, so that ``stan.build`` has it.

    kept: the folder of compiled programs (default: the user's cache). PyStan's client is not used:
    it gives up after five minutes. A kept program that changed or does not load is compiled again.
    Raises ``ImportError`` without PyStan, and what the compilers raise.
    """
    httpstan = importlib.import_module("httpstan")
    models, cache = (importlib.import_module(f"httpstan.{name}") for name in ("models", "cache"))
    name = models.calculate_model_name(code)
    folder = (kept or cache_directory() / "pystan") / program_key(code, httpstan.__version__)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Programs load this library from this environment, not from the one that compiled them.
    for library in sorted((models.PACKAGE_DIR / "lib").glob("libtbb.so.*")):
        ctypes.CDLL(str(library))
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling the same program
        directory = cache.model_directory(name)
        if is_sound(folder):
            _link(folder / PROGRAM, directory)
            try:
                models.import_services_extension_module(name)
                return
            except ImportError:  # of another system after all
                pass
        _build(code, name)
        _keep(directory, folder)
        _link(folder / PROGRAM, directory)


def program_key(code: str, version: str) -> str:
    """Return the hexadecimal key of a program compiled here by httpstan ``version``."""
    compiler = shlex.split(os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "g++")[0]
    return digest_of(
        (code, version, sys.version, platform.machine(), sys.platform, _version_of(compiler),
         *COMPILER_FLAGS, *(f"{each}={os.environ.get(each, '')}" for each in VARIABLES))
    )  # fmt: skip


@lru_cache
def _version_of(compiler: str) -> str:
    try:
        done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    except OSError:  # compilation will say so
        return "unknown"
    return done.stdout.partition("\n")[0]


def is_sound(folder: Path) -> bool:
    """Return True if a kept program exists and is unchanged."""
    try:
        state = (folder / PROGRAM).stat()
        written = (folder / HASH).read_text(encoding="ascii")
        return _sha256(folder / PROGRAM, state.st_size, state.st_mtime_ns) == written
    except (OSError, ValueError):
        return False


@lru_cache
def _sha256(path: Path, size: int, modified: int) -> str:
    """Hash a file that has this size and time, once: tests ask for one program many times."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _build(code: str, name: str) -> None:
    """Compile into PyStan's own cache."""
    compiler, models, cache = (
        importlib.import_module(f"httpstan.{each}") for each in ("compile", "models", "cache")
    )
    cache.delete_model_directory(name)
    for attempt in range(TRANSLATIONS):
        try:
            _, messages = compiler.compile(code, f"model_{name.split('/')[1]}")
            cache.dump_stanc_warnings(messages, name)
            output: Any = asyncio.run(
                models.build_services_extension_module(code, list(COMPILER_FLAGS))
            )
            break
        except subprocess.TimeoutExpired:  # after one second: the machine is busy
            if attempt == TRANSLATIONS - 1:
                raise
    cache.dump_services_extension_module_compiler_output(output, name)


def _keep(directory: Path, folder: Path) -> None:
    """Move the program that was built in ``directory`` to ``folder``, whole or not at all."""
    (built,) = directory.glob("*.so")
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder.parent) as building:
        whole = Path(building) / "whole"
        whole.mkdir()
        shutil.move(built, whole / PROGRAM)
        state = (whole / PROGRAM).stat()
        written = _sha256(whole / PROGRAM, state.st_size, state.st_mtime_ns)
        (whole / HASH).write_text(written, encoding="ascii")
        shutil.rmtree(folder, ignore_errors=True)
        whole.rename(folder)


def _link(program: Path, directory: Path) -> None:
    """Link the program, and no other, where PyStan looks, with the logs that it expects."""
    directory.mkdir(parents=True, exist_ok=True)
    for log in LOGS:
        (directory / log).touch()
    link = directory / PROGRAM
    if link.is_symlink() and link.readlink() == program:
        return
    for old in directory.glob("*.so"):
        old.unlink()
    link.symlink_to(program)


def main(folder: Path) -> int:
    """Return 0 when done, 1 with error.json written."""
    warnings.simplefilter("ignore")
    # PyStan leaves its sockets behind; their path must be short, so not in DIR.
    place = "/tmp" if os.path.isdir("/tmp") else None
    with tempfile.TemporaryDirectory(prefix="surveysynth-sockets-", dir=place) as sockets:
        tempfile.tempdir = sockets
        return _run(folder)


def _run(folder: Path) -> int:
    code = (folder / "program.stan").read_text(encoding="utf-8")
    settings: dict[str, Any] = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    stage = "compile"
    try:
        compile_program(code)
        if not settings.get("prepare"):
            stage = "run"
            data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
            np.savez(folder / "draws.npz", **_sample(code, data, settings, folder))
    except ImportError:
        return 1
    except Exception as error:
        failure = {"stage": stage, "message": str(error)}
        (folder / "error.json").write_text(json.dumps(failure), encoding="utf-8")
        return 1
    return 0


def _sample(
    code: str, data: dict[str, Any], settings: dict[str, Any], folder: Path
) -> dict[str, Any]:
    def fit_path(name: str) -> Path:
        return folder / f"{name.replace('/', '_')}.gz"

    importlib.import_module("httpstan.cache").fit_path = fit_path  # type: ignore[attr-defined]
    stan = importlib.import_module("stan")
    model = stan.build(code, data=data, random_seed=settings.pop("seed"))
    fit = model.sample(**settings)
    shape = (settings["num_samples"], settings["num_chains"])
    dimensions = {**dict(zip(fit.param_names, fit.dims, strict=True)), "divergent__": ()}
    return {name: _by_chain(fit[name], (*dims, *shape)) for name, dims in dimensions.items()}


def _by_chain(values: Any, shape: tuple[int, ...]) -> Any:
    """Reshape PyStan's (..., draws x chains), the chain fastest, to (chains, draws, ...)."""
    return np.ascontiguousarray(np.moveaxis(values.reshape(shape), (-1, -2), (0, 1)))


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
