"""``surveysynth doctor``: describe this installation, for a bug report."""

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

_LIBRARIES = (
    "surveysynth",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "pydantic",
    "formulaic",
    "great-tables",
    "matplotlib",
    "typer",
    "rich",
    "statsmodels",
    "samplics",
    "cmdstanpy",
    "pystan",
)


def report_lines() -> list[str]:
    """Return versions, processors, threads and compilers; a missing part is not a failure."""
    lines = [
        f"python        {platform.python_version()} ({platform.machine()}, {platform.system()})"
    ]
    lines += [f"{name:<13} {version_of(name)}" for name in _LIBRARIES]
    lines.append(f"cores         {_cores()}")
    lines += [f"{name}={os.environ.get(name, 'not set')}" for name in THREAD_VARIABLES]
    lines.append(f"CmdStan       {_cmdstan()}")
    compiler = shutil.which("g++") or shutil.which("clang++")
    lines.append(f"C++ compiler  {compiler or 'none (needed only for Stan)'}")
    lines.append(f"make          {shutil.which('make') or 'none (needed only for Stan)'}")
    lines.append(f"Stan programs {_programs()}")
    lines.append(f"tables        {_tables()}")
    return lines


def version_of(name: str) -> str:
    """Return the installed version of a distribution, or "not installed"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cmdstan() -> str:
    try:
        import cmdstanpy

        folder = Path(cmdstanpy.cmdstan_path())
        built = (folder / "bin").is_dir()
        return str(folder) if built else f"{folder} (its bin folder is missing: rebuild it)"
    except Exception:  # whatever is wrong with it, the other lines still help
        return (
            "none (needed only for engine = 'cmdstan' and for your own Stan program: "
            "python -m cmdstanpy.install_cmdstan)"
        )


def _programs() -> str:
    from surveysynth._support.resources import stan_directory

    try:
        folder = stan_directory()
    except FileNotFoundError as error:
        return str(error)
    return f"{folder} ({', '.join(sorted(path.stem for path in folder.glob('*.stan')))})"


def _tables() -> str:
    from surveysynth._support.resources import tables_directory

    try:
        return str(tables_directory())
    except FileNotFoundError as error:
        return str(error)
