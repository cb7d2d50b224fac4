"""What runs a Stan program: CmdStan through CmdStanPy, or PyStan for development.

The program's data and all of its output are confidential. They live in a private temporary folder
that is deleted afterwards, and nothing that the program or its runner says is passed on: messages
of Stan quote values. What an error tells is which line of the program it came from.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth._support.unpickled import Unpickled
from surveysynth.errors import InputError, RefusedError
from surveysynth.sampling.stan.cache import compiled_program, silenced
from surveysynth.sampling.stan.source import StanSource

#: Chooses the backend of ``default_backend``: "cmdstan" (default) or, for development, "pystan".
BACKEND_VARIABLE = "SURVEYSYNTH_STAN_BACKEND"
#: Stan's adaptation needs some iterations; below this it warns and does not adapt.
MIN_WARMUP = 20
#: Digits that carry a double through CmdStan's text output without loss.
SIGNIFICANT_DIGITS = 17


@dataclass(frozen=True, repr=False)
class StanRun(Unpickled):
    """Draws of every variable by name, (chains, draws, ...), and whether each draw diverged.

    divergent: (chains, draws).
    """

    draws: dict[str, FloatArray]
    divergent: BoolArray

    @property
    def n_divergent(self) -> int:
        """Number of divergent draws."""
        return int(self.divergent.sum())


class StanBackend(Protocol):
    """Compiles and runs Stan programs."""

    def prepare(self, source: StanSource) -> None:
        """Compile the program, or find it compiled; raises ``InputError`` where it cannot."""

    def run(
        self,
        source: StanSource,
        data: Mapping[str, Any],
        *,
        chains: int,
        warmup: int,
        draws: int,
        seed: int,
        adapt_delta: float,
    ) -> StanRun:
        """NUTS; ``seed`` in 1..2**31 - 1, the chains differ.

        Raises ``InputError`` for a program that fails on these data, ``RefusedError`` for one
        that was killed.
        """


def default_backend() -> StanBackend:
    """CmdStan, or the backend that the environment names."""
    name = os.environ.get(BACKEND_VARIABLE, "cmdstan")
    if name == "cmdstan":
        return CmdStanBackend()
    if name == "pystan":
        return PyStanBackend()
    raise InputError(f"{BACKEND_VARIABLE} must be 'cmdstan' or 'pystan', got {name!r}.")


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter, deleted on every way out.

    Raises ``RefusedError`` if it cannot be deleted.
    """
    folder = Path(tempfile.mkdtemp(prefix="surveysynth-"))  # mode 0700
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            raise RefusedError(
                f"The temporary folder {folder} holds confidential data and could not be deleted: "
                "delete it by hand. Nothing is released."
            )


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def write_data(data: Mapping[str, Any], path: Path) -> None:
    """JSON that Stan reads; only this user can read it. Arrays become nested lists."""
    path.touch(mode=0o600)
    plain = {name: _plain(value) for name, value in data.items()}
    path.write_text(json.dumps(plain), encoding="utf-8")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@dataclass(frozen=True)
class CmdStanBackend:
    """CmdStan. With ``executable``, a program compiled beforehand, no CmdStan has to be there."""

    executable: Path | None = None
    cache: Path | None = None

    def prepare(self, source: StanSource) -> None:
        """Compile the program into the cache, unless it is there."""
        self._program(source)

    def _program(self, source: StanSource) -> Path:
        if self.executable is None:
            return compiled_program(source, self.cache)
        if not (self.executable.is_file() and os.access(self.executable, os.X_OK)):
            raise InputError(
                f"The compiled Stan program {self.executable} is not there or may not be executed."
            )
        return self.executable.resolve()

    def run(
        self,
        source: StanSource,
        data: Mapping[str, Any],
        *,
        chains: int,
        warmup: int,
        draws: int,
        seed: int,
        adapt_delta: float,
    ) -> StanRun:
        """One process a chain, as many at once as there are processors."""
        import cmdstanpy

        check_warmup(warmup)
        program = self._program(source)
        with private_folder() as folder, silenced():
            data_file = folder / "data.json"
            write_data(data, data_file)
            try:
                fit = cmdstanpy.CmdStanModel(exe_file=str(program)).sample(
                    data=str(data_file),
                    chains=chains,
                    parallel_chains=min(chains, cores()),
                    force_one_process_per_chain=True,
                    seed=seed,
                    iter_warmup=warmup,
                    iter_sampling=draws,
                    adapt_delta=adapt_delta,
                    output_dir=str(folder),
                    sig_figs=SIGNIFICANT_DIGITS,
                    refresh=warmup + draws,
                    show_progress=False,
                    show_console=False,
                )
                return _read_fit(fit)
            except Exception as error:  # any message of CmdStanPy may quote the console
                console = "".join(
                    path.read_text(errors="replace") for path in folder.glob("*-stdout.txt")
                )
                _raise_failure(source.name, str(error), console)


def _read_fit(fit: Any) -> StanRun:
    by_draw = np.swapaxes(fit.draws(), 0, 1)
    draws = {
        name: np.asarray(variable.extract_reshape(by_draw), dtype=np.float64)
        for name, variable in fit.metadata.stan_vars.items()
    }
    divergent = fit.metadata.method_vars["divergent__"].extract_reshape(by_draw)
    chains, length = by_draw.shape[:2]
    return StanRun(draws, np.asarray(divergent).reshape(chains, length) > 0)


def check_warmup(warmup: int) -> None:
    """Raises ``InputError`` for fewer iterations than adaptation takes."""
    if warmup < MIN_WARMUP:
        raise InputError(f"warmup must be at least {MIN_WARMUP} for a Stan program, got {warmup}.")


def _raise_failure(name: str, error: str, console: str) -> NoReturn:
    """A sentence without a word of what the program said, which can quote confidential values."""
    returned = re.search(r"retcodes=\[([-\d, ]*)\]", error)
    codes = [int(code) for code in returned.group(1).split(",")] if returned else []
    # -1 is also what CmdStanPy sets before a process has run at all.
    killed = sorted({-code for code in codes if code < -1})
    if killed:
        raise RefusedError(
            f"A chain of the Stan program {name!r} was killed (signal {killed[0]}; 9 often means "
            "that memory ran out). Nothing was released. Run it again, with fewer chains or draws "
            "if memory is short."
        ) from None
    raise failed_program(name, error + console) from None


def failed_program(name: str, console: str) -> InputError:
    """What is told of a program that failed: the lines of it that Stan names, nothing else."""
    found = {int(number) for number in re.findall(r"\(in '[^'\n]*', line (\d+)", console)}
    lines = ", ".join(map(str, sorted(found)[:5]))
    where = f" Stan names line {lines} of it (includes in place)." if lines else ""
    return InputError(
        f"The Stan program {name!r} failed on these data.{where} Its own messages can quote "
        "confidential values and are not shown. Check the constraints of its data block and that "
        "the density is finite near its starting points (uniform on -2 to 2, unconstrained)."
    )


@dataclass(frozen=True)
class PyStanBackend:
    """PyStan (the extra ``stan``), for development and tests: it compiles from plain wheels.

    It runs in a process of its own: its messages are dropped there, and so is the copy of every
    fit that it would keep in the user's cache. While it samples, the data pass through a port of
    this machine, so it is not for confidential data on shared machines.
    """

    def prepare(self, source: StanSource) -> None:
        """Compile the program, or find it in the user's cache."""
        with private_folder() as folder:
            _pystan(source, {"prepare": True}, {}, folder)

    def run(
        self,
        source: StanSource,
        data: Mapping[str, Any],
        *,
        chains: int,
        warmup: int,
        draws: int,
        seed: int,
        adapt_delta: float,
    ) -> StanRun:
        """As ``StanBackend.run``."""
        check_warmup(warmup)
        settings = {
            "num_chains": chains,
            "num_warmup": warmup,
            "num_samples": draws,
            "seed": seed,
            "delta": adapt_delta,
        }
        with private_folder() as folder:
            _pystan(source, settings, data, folder)
            with np.load(folder / "draws.npz") as stored:
                values = {name: stored[name] for name in stored.files}
        divergent = values.pop("divergent__")
        return StanRun(values, divergent > 0)


def _pystan(
    source: StanSource, settings: Mapping[str, Any], data: Mapping[str, Any], folder: Path
) -> None:
    """Runs the worker; its files are in ``folder``."""
    (folder / "program.stan").write_text(source.code, encoding="utf-8")
    write_data(settings, folder / "settings.json")
    write_data(data, folder / "data.json")
    beside_the_package = str(Path(__file__).resolve().parents[3])
    search = os.pathsep.join([beside_the_package, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "surveysynth.sampling.stan.worker", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": search},
        check=False,
    )
    if done.returncode == 0:
        return
    if done.returncode < 0:
        raise RefusedError(
            f"The process of the Stan program {source.name!r} was killed (signal "
            f"{-done.returncode}; 9 often means that memory ran out). Nothing was released."
        )
    error = folder / "error.json"
    if not error.is_file():
        raise InputError("PyStan could not be started: install the extra 'stan' of surveysynth.")
    told = json.loads(error.read_text(encoding="utf-8"))
    if told["stage"] == "compile":
        message = re.sub(r"'[^'\n]*[/\\]model_\w+\.stan'", "the program", told["message"])
        raise InputError(f"The Stan program {source.name!r} does not compile:\n{message}")
    raise failed_program(source.name, told["message"])
