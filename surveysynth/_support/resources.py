"""Files that come with the package: data, templates of documents, and versions.

A checkout (and an editable install, which points at one) has `tables/` and `stan/` beside the
package; an installed wheel carries them inside. The folder beside the package has precedence,
because building a wheel leaves a copy that may be stale. Templates are Jinja2 and are next to the
modules that fill them in.
"""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = Path(__file__).resolve().parents[1]
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


def tables_directory(package: Path = _PACKAGE) -> Path:
    """Return the folder with the catalog of tables and the published figures.

    Raises ``FileNotFoundError`` when the installation lacks it, which is a defect of the build.
    """
    return _data_folder(package, "tables", "literature")


def stan_directory() -> Path:
    """Return the folder with the Stan programs; their shared functions are in ``functions/``.

    Raises ``FileNotFoundError`` when the installation lacks it, which is a defect of the build.
    """
    return _data_folder(_PACKAGE, "stan", "functions")


def literature_table(name: str) -> Path:
    """Return the path of a published table, for example ``simulation_counts_table4.csv``."""
    return tables_directory() / "literature" / name


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


def render(package: str, name: str, /, **context: Any) -> str:
    """Return the template ``name`` of ``package``, filled in with ``context``.

    ``package`` is a dotted name, usually ``__package__``; ``name`` is a path in its folder, such as
    ``"words/statement.md.j2"``, by which templates include each other, too. Values are escaped only
    in templates whose name ends in ``.html.j2``. Control lines (``{% .. %}``) leave no blank lines
    behind, and the newline at the end of a file is kept.

    Raises ``jinja2.UndefinedError`` if the template uses a name that ``context`` lacks, and
    ``jinja2.TemplateNotFound`` if the package has no such template.
    """
    return environment(package).get_template(name).render(context)


@cache
def environment(package: str) -> "Environment":
    """Return the settings that all templates of a package share, shared by all callers."""
    # Imported here: it takes 0.05 s, which a command that writes no document should not wait for.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    with as_file(files(package)) as folder:
        loader = FileSystemLoader(Path(folder))
    return Environment(
        loader=loader,
        undefined=StrictUndefined,
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def version_of(name: str) -> str:
    """Return the installed version of a distribution, or "not installed"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
