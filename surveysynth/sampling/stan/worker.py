"""One run of PyStan in a process of its own: ``python -m surveysynth.sampling.stan.worker DIR``.

DIR holds program.stan, settings.json and data.json and receives draws.npz or error.json. PyStan
would keep every fit in the user's cache, draws and all: here it keeps them in DIR, which the caller
deletes.
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
from pathlib import Path
from typing import Any

import numpy as np

#: PyStan gives the translation to C++ one second.
TRANSLATIONS = 20
#: httpstan's own flags, and no debug information, which many Pythons ask for: without it a program
#: compiles in two thirds of the time and of the memory.
COMPILER_FLAGS = ("-O3", "-std=c++14", "-Wno-sign-compare", "-g0")


def main(folder: Path) -> int:
    """0 done; 1 with error.json written."""
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
        _compile(code)
        if not settings.get("prepare"):
            stage = "run"
            data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
            np.savez(folder / "draws.npz", **_sample(code, data, settings, folder))
    except ImportError:
        return 1
    except Exception as error:
        told = {"stage": stage, "message": str(error)}
        (folder / "error.json").write_text(json.dumps(told), encoding="utf-8")
        return 1
    return 0


def _compile(code: str) -> None:
    """Compile as PyStan's server does, without it: its client gives up after five minutes."""
    compiler, models, cache = (
        importlib.import_module(f"httpstan.{name}") for name in ("compile", "models", "cache")
    )
    name = models.calculate_model_name(code)
    directory = cache.model_directory(name)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be compiling the same program
        try:
            models.import_services_extension_module(name)
            return
        except KeyError:
            cache.delete_model_directory(name)
        for attempt in range(TRANSLATIONS):
            try:
                _, messages = compiler.compile(code, f"model_{name.split('/')[1]}")
                cache.dump_stanc_warnings(messages, name)
                output = asyncio.run(
                    models.build_services_extension_module(code, list(COMPILER_FLAGS))
                )
                break
            except subprocess.TimeoutExpired:  # after one second: the machine is busy
                if attempt == TRANSLATIONS - 1:
                    raise
        cache.dump_services_extension_module_compiler_output(output, name)


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
    """PyStan's (..., draws x chains), the chain running fastest, to (chains, draws, ...)."""
    return np.ascontiguousarray(np.moveaxis(values.reshape(shape), (-1, -2), (0, 1)))


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
