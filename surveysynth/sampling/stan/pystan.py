"""PyStan in a process of its own: ``python -m surveysynth.sampling.stan.pystan DIR``.

DIR holds program.stan, settings.json and data.json and receives draws.npz or error.json. PyStan
would keep every fit in the user's cache, draws included; here it keeps them in DIR, which the
caller deletes. Compiled programs stay in PyStan's own cache.
"""

import asyncio
import fcntl
import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

#: Attempts at the translation to C++, to which PyStan gives one second.
TRANSLATIONS = 20
#: httpstan's own flags without debug information, which many Pythons request: it takes a third of
#: compilation time and memory.
COMPILER_FLAGS = ("-O3", "-std=c++14", "-Wno-sign-compare", "-g0")


def compile_program(code: str) -> None:
    """Compile a program as PyStan's server does, or find it, so that ``stan.build`` has it.

    PyStan's client is not used: it gives up after five minutes. Raises ``ImportError`` without
    PyStan, and what the compilers raise.
    """
    compiler, models, cache = (
        importlib.import_module(f"httpstan.{each}") for each in ("compile", "models", "cache")
    )
    name = models.calculate_model_name(code)
    lock = cache.model_directory(name).with_suffix(".lock")
    lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # another process may be compiling the same program
        with suppress(KeyError, ImportError):  # not there, or damaged
            models.import_services_extension_module(name)
            return
        cache.delete_model_directory(name)
        for attempt in range(TRANSLATIONS):
            try:
                _, messages = compiler.compile(code, f"model_{name.split('/')[1]}")
                output: Any = asyncio.run(
                    models.build_services_extension_module(code, list(COMPILER_FLAGS))
                )
                break
            except subprocess.TimeoutExpired:  # after one second: the machine is busy
                if attempt == TRANSLATIONS - 1:
                    raise
        # PyStan recognizes a program by these.
        cache.dump_stanc_warnings(messages, name)
        cache.dump_services_extension_module_compiler_output(output, name)


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
