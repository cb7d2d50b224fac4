"""Run PyStan once in a process of its own: ``python -m surveysynth.sampling.stan.worker DIR``.

DIR holds program.stan, settings.json and data.json and receives draws.npz or error.json. PyStan
would keep every fit in the user's cache, draws included; here it keeps them in DIR, which the
caller deletes.
"""

import importlib
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from surveysynth.sampling.stan.pystan import compile_program


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
