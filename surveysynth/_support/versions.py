"""Versions of installed distributions, and the settings of threads."""

from importlib.metadata import PackageNotFoundError, version

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def version_of(name: str) -> str:
    """Return the installed version of a distribution, or "not installed"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
