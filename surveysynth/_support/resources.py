"""Find the data files that come with the package.

A checkout (and an editable install, which points at one) has `tables/` and `stan/` beside the
package; an installed wheel carries them inside. The folder beside the package wins, since building
a wheel leaves a copy behind that may be stale.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def tables_directory(package: Path = _PACKAGE) -> Path:
    """Return the folder with the catalogue of tables and the published figures.

    Raises ``FileNotFoundError`` when the installation lacks it, which is a defect of the build.
    """
    return _data_folder(package, "tables", "literature")


def stan_directory(package: Path = _PACKAGE) -> Path:
    """Return the folder with the Stan programs; their shared functions are in ``functions/``.

    Raises ``FileNotFoundError`` when the installation lacks it, which is a defect of the build.
    """
    return _data_folder(package, "stan", "functions")


def _data_folder(package: Path, name: str, inner: str) -> Path:
    """Return ``name``, with its folder ``inner``: beside the package in a checkout, else inside."""
    checkout = package.parent
    # Any project may put a folder of that name beside its packages; ours has a pyproject.toml.
    if (checkout / "pyproject.toml").is_file() and (checkout / name / inner).is_dir():
        return checkout / name
    if (package / name / inner).is_dir():
        return package / name
    raise FileNotFoundError(
        f"the folder {name}/{inner} is missing from this installation of surveysynth; "
        "reinstall it from a complete wheel."
    )


def literature_table(name: str, package: Path = _PACKAGE) -> Path:
    """Return the path of a published table, for example ``simulation_counts_table4.csv``."""
    return tables_directory(package) / "literature" / name
