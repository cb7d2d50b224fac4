"""Backends that run a Stan program: CmdStan through CmdStanPy, or PyStan for development.

The program's data and all of its output are confidential. They live in a private temporary folder
that is deleted afterwards. Messages of Stan quote values, so nothing that the program or its runner
says is passed on; an error names only the line of the program that it came from.

``StanEngine`` samples a model of the package by its Stan program instead of its own Gibbs sampler:
NUTS on the same weighted sufficient statistics (methods 4).
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from surveysynth._support.confidential import Unpickled, private_folder
from surveysynth._support.resources import stan_directory, version_of
from surveysynth._support.types import DIVERGENT, BoolArray, FloatArray, Theta
from surveysynth.errors import InputError, RefusedError
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.randomness import STAN_SEED_BITS
from surveysynth.sampling.stan import supervisor
from surveysynth.sampling.stan.source import (
    StanProgramSpec,
    StanSource,
    compiled_program,
    program_version,
    silenced,
)

#: Code of a failure where the supervisor itself was killed before it reported a command.
UNKNOWN = -int(signal.SIGTERM)


@dataclass(frozen=True)
class Failure:
    """The position of the command that failed, and its code: negative for a signal."""

    command: int
    code: int


def run_commands(
    commands: Sequence[Sequence[str]],
    folder: Path,
    *,
    at_once: int,
    environment: Mapping[str, str] | None = None,
) -> Failure | None:
    """Run commands, ``at_once`` at a time; the first failure ends the others and is returned.

    ``folder`` is private and the caller deletes it; it gets what commands print, in
    ``console-N.txt``. No command runs or starts after this has returned or raised, Ctrl-C included.
    When this process is killed, the commands are killed and ``folder`` is deleted.
    """
    task = {"commands": [list(command) for command in commands], "at_once": at_once}
    file = folder / "commands.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(task), encoding="utf-8")
    # A separate session: Ctrl-C of a terminal reaches this process alone, which ends the others.
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(supervisor.__file__).resolve()), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )
    try:
        process.wait()
    finally:
        _end(process)
    ended = folder / "ended.json"
    if not ended.is_file():
        return Failure(0, process.returncode if process.returncode < 0 else UNKNOWN)
    failed = json.loads(ended.read_text(encoding="utf-8"))["failed"]
    return None if failed is None else Failure(**failed)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the supervisor and all that it started, unless it ended by itself."""
    if process.returncode is None or process.returncode < 0:
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                subprocess.run(
                    ["taskkill", "/F", "/T", "/PID", str(process.pid)],
                    capture_output=True, check=False,
                )  # fmt: skip
    assert process.stdin is not None  # it was asked for
    process.stdin.close()
    process.wait()


#: Variable that chooses ``default_backend``: "cmdstan" (default) or, for development, "pystan".
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


class StanBackend(Protocol):
    """Interface that compiles and runs Stan programs."""

    def prepare(self, source: StanSource) -> None:
        """Compile the program, or find it compiled, and check that it starts.

        Raises ``InputError`` where it cannot.
        """

    def versions(self, source: StanSource) -> dict[str, str]:
        """Return name and version of what runs the program; raise as ``prepare`` does."""

    def run(
        self,
        source: StanSource,
        data: Mapping[str, Any],
        plan: SamplingPlan,
        *,
        seed: int,
        adapt_delta: float,
    ) -> StanRun:
        """Run NUTS; ``seed`` in 1..2**31 - 1, the chains differ.

        Raises ``InputError`` for a program that fails on these data, ``RefusedError`` for one that
        was killed.
        """


def default_backend() -> StanBackend:
    """Return CmdStan, or the backend that the environment names."""
    name = os.environ.get(BACKEND_VARIABLE, "cmdstan")
    if name == "cmdstan":
        return CmdStanBackend()
    if name == "pystan":
        return PyStanBackend()
    raise InputError(f"{BACKEND_VARIABLE} must be 'cmdstan' or 'pystan', got {name!r}.")


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def write_data(data: Mapping[str, Any], path: Path) -> None:
    """Write a new JSON file that Stan reads and only this user can read; arrays become lists."""
    path.touch(mode=0o600, exist_ok=False)
    plain = {name: _plain(value) for name, value in data.items()}
    path.write_text(json.dumps(plain), encoding="utf-8")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@dataclass(frozen=True)
class CmdStanBackend:
    """CmdStan; with ``executable``, a program compiled beforehand, no CmdStan is needed."""

    executable: Path | None = None
    cache: Path | None = None

    def prepare(self, source: StanSource) -> None:
        """Compile the program into the cache, unless it is there, and start it once."""
        self.versions(source)

    def versions(self, source: StanSource) -> dict[str, str]:
        """Return the version of CmdStan that the compiled program reports."""
        return {"cmdstan": program_version(self._program(source))}

    def _program(self, source: StanSource) -> Path:
        if self.executable is None:
            return compiled_program(source, self.cache)
        if not (self.executable.is_file() and os.access(self.executable, os.X_OK)):
            raise InputError(
                f"The compiled Stan program {self.executable} is not there or may not be executed."
            )
        program_version(self.executable.resolve())
        return self.executable.resolve()

    def run(
        self,
        source: StanSource,
        data: Mapping[str, Any],
        plan: SamplingPlan,
        *,
        seed: int,
        adapt_delta: float,
    ) -> StanRun:
        """Run one process for each chain, as many at once as there are processors."""
        check_warmup(plan)
        program = self._program(source)
        with private_folder() as folder:
            write_data(data, folder / "data.json")
            commands = [
                [
                    str(program), f"id={chain}", "random", f"seed={seed}",
                    "data", f"file={folder / 'data.json'}",
                    "output", f"file={folder / f'draws-{chain}.csv'}",
                    f"refresh={plan.warmup + plan.draws}", f"sig_figs={SIGNIFICANT_DIGITS}",
                    f"profile_file={folder / 'profile.csv'}",
                    "method=sample", f"num_samples={plan.draws}", f"num_warmup={plan.warmup}",
                    "algorithm=hmc", "adapt", "engaged=1", f"delta={adapt_delta}",
                ]
                for chain in range(1, plan.chains + 1)
            ]  # fmt: skip
            failure = run_commands(commands, folder, at_once=cores())
            if failure is not None:
                console = folder / f"console-{failure.command}.txt"
                text = console.read_text(errors="replace") if console.is_file() else ""
                _raise_failure(source.name, failure.code, text)
            try:
                files = [folder / f"draws-{chain + 1}.csv" for chain in range(plan.chains)]
                return _read_draws(files)
            except Exception:  # any message of CmdStanPy may quote what it read
                raise failed_program(source.name, "") from None


def _read_draws(files: Sequence[Path]) -> StanRun:
    """Read what the chains wrote, one file each."""
    import cmdstanpy

    with silenced():
        fit: Any = cmdstanpy.from_csv([str(file) for file in files], method="sample")
        by_draw = np.swapaxes(fit.draws(), 0, 1)
    draws = {
        name: np.asarray(variable.extract_reshape(by_draw), dtype=np.float64)
        for name, variable in fit.metadata.stan_vars.items()
    }
    divergent = fit.metadata.method_vars["divergent__"].extract_reshape(by_draw)
    chains, length = by_draw.shape[:2]
    return StanRun(draws, np.asarray(divergent).reshape(chains, length) > 0)


def check_warmup(plan: SamplingPlan) -> None:
    """Raise ``InputError`` for fewer iterations than adaptation needs."""
    if plan.warmup < MIN_WARMUP:
        raise InputError(
            f"warmup must be at least {MIN_WARMUP} for a Stan program, got {plan.warmup}."
        )


def _raise_failure(name: str, code: int, console: str) -> NoReturn:
    """Raise an error without the program's output, which can quote confidential values."""
    if code < 0:
        raise RefusedError(
            f"A process of the Stan program {name!r} was killed (signal {-code}; 9 often means "
            "that memory ran out). Nothing was released. Run it again, with fewer chains or draws "
            "if memory is short."
        )
    raise failed_program(name, console)


def failed_program(name: str, console: str) -> InputError:
    """Return the error for a program that failed: only the lines of it that Stan names."""
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

    It runs in a process of its own, which drops its messages and the copy of every fit that it
    would keep in the user's cache. While it samples, the data pass through a port of this machine,
    so it is not for confidential data on shared machines.
    """

    def prepare(self, source: StanSource) -> None:
        """Compile the program, or find it in the user's cache."""
        with private_folder() as folder:
            _pystan(source, {"prepare": True}, {}, folder)

    def versions(self, source: StanSource) -> dict[str, str]:
        """Return versions of PyStan and of its server, which contains Stan."""
        return {name: version_of(name) for name in ("pystan", "httpstan")}

    def run(
        self,
        source: StanSource,
        data: Mapping[str, Any],
        plan: SamplingPlan,
        *,
        seed: int,
        adapt_delta: float,
    ) -> StanRun:
        """Run as ``StanBackend.run``."""
        check_warmup(plan)
        settings = {
            "num_chains": plan.chains, "num_warmup": plan.warmup, "num_samples": plan.draws,
            "seed": seed, "delta": adapt_delta,
        }  # fmt: skip
        with private_folder() as folder:
            _pystan(source, settings, data, folder)
            with np.load(folder / "draws.npz") as stored:
                values = {name: stored[name] for name in stored.files}
        divergent = values.pop("divergent__")
        return StanRun(values, divergent > 0)


def _pystan(
    source: StanSource, settings: Mapping[str, Any], data: Mapping[str, Any], folder: Path
) -> None:
    """Run the worker; its files are in ``folder``."""
    (folder / "program.stan").write_text(source.code, encoding="utf-8")
    write_data(settings, folder / "settings.json")
    write_data(data, folder / "data.json")
    beside_the_package = str(Path(__file__).resolve().parents[3])
    search = os.pathsep.join([beside_the_package, *filter(None, [os.environ.get("PYTHONPATH")])])
    failure = run_commands(
        [[sys.executable, "-m", "surveysynth.sampling.stan.pystan", str(folder)]],
        folder,
        at_once=1,
        environment={**os.environ, "PYTHONPATH": search},
    )
    if failure is None:
        return
    error = folder / "error.json"
    if failure.code < 0:
        _raise_failure(source.name, failure.code, "")
    if not error.is_file():
        raise InputError("PyStan could not be started: install the extra 'stan' of surveysynth.")
    report = json.loads(error.read_text(encoding="utf-8"))
    if report["stage"] == "compile":
        message = re.sub(r"'[^'\n]*[/\\]model_\w+\.stan'", "the program", report["message"])
        raise InputError(f"The Stan program {source.name!r} does not compile:\n{message}")
    raise failed_program(source.name, report["message"])


#: The hierarchical priors of the package's models make NUTS diverge at Stan's own 0.8 (methods 4).
ADAPT_DELTA = 0.99
MAX_SEED = 2**STAN_SEED_BITS - 1


def seed_from(rng: np.random.Generator) -> int:
    """Draw a seed for Stan, 1..2**31 - 1."""
    return int(rng.integers(1, MAX_SEED, endpoint=True))


def program_source(spec: StanProgramSpec) -> StanSource:
    """Read a program of the package, its includes in place."""
    folder = stan_directory()
    return StanSource.read(folder / spec.program, [folder])


@dataclass(frozen=True, eq=False)
class StanEngine:
    """NUTS by Stan for any model of the package with a Stan program (``Model.with_engine``).

    ``backend``: ``default_backend()`` unless given. NUTS has no common random numbers: a small
    change of the data changes every draw. Raises ``InputError`` for an adapt_delta outside (0, 1).
    """

    backend: StanBackend = field(default_factory=default_backend)
    adapt_delta: float = ADAPT_DELTA

    def __post_init__(self) -> None:
        if not 0 < self.adapt_delta < 1:
            raise InputError(f"adapt_delta must lie between 0 and 1, got {self.adapt_delta!r}.")

    def prepare(self, spec: StanProgramSpec) -> None:
        """Compile the program unless that is done; raise ``InputError`` where it fails."""
        self.backend.prepare(program_source(spec))

    def versions(self, spec: StanProgramSpec) -> dict[str, str]:
        """Return names and versions of what runs the program."""
        return self.backend.versions(program_source(spec))

    def sample(
        self,
        spec: StanProgramSpec,
        priors: Mapping[str, float],
        stats: object,
        plan: SamplingPlan,
        rng: np.random.Generator,
    ) -> Theta:
        """Draw by NUTS for the statistics of one database: leading axes (1, chains, draws).

        Besides the model's parameters the result holds ``divergent__``, 1 where a draw diverged.
        """
        run = self.backend.run(
            program_source(spec), spec.data(stats, priors), plan, seed=seed_from(rng),
            adapt_delta=self.adapt_delta,
        )  # fmt: skip
        lead = (plan.chains, plan.draws)
        flat = {name: v.reshape(plan.kept, *v.shape[2:]) for name, v in run.draws.items()}
        theta = spec.theta(flat)
        result = {name: v.reshape(1, *lead, *v.shape[1:]) for name, v in theta.items()}
        return {**result, DIVERGENT: run.divergent[None].astype(np.float64)}
