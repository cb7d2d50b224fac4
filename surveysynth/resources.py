"""Where the data files that travel with the package are.

A checkout (and an editable install, which points at one) has `tables/` beside the package; an
installed wheel carries it inside. The folder beside the package wins, since building a wheel
leaves a copy behind that may be stale.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def tables_directory(package: Path = _PACKAGE) -> Path:
    """The folder with the catalogue of tables and the published figures.

    Raises ``FileNotFoundError`` when the installation lacks it, which is a defect of the build.
    """
    checkout = package.parent
    # Any project may put a folder named `tables` beside its packages; ours has a pyproject.toml.
    if (checkout / "pyproject.toml").is_file() and (checkout / "tables" / "literature").is_dir():
        return checkout / "tables"
    inside = package / "tables"
    if (inside / "literature").is_dir():
        return inside
    raise FileNotFoundError(
        "the folder tables/literature is missing from this installation of surveysynth; "
        "reinstall it from a complete wheel."
    )


def literature_table(name: str, package: Path = _PACKAGE) -> Path:
    """Path of one published table, for example ``simulation_counts_table4.csv``."""
    return tables_directory(package) / "literature" / name
