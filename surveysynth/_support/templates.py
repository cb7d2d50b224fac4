"""Text of documents from Jinja2 templates that lie beside the modules that fill them in."""

from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(package: str, name: str, /, **context: Any) -> str:
    """Return the template ``name`` of ``package``, filled in with ``context``.

    ``package`` is a dotted name, usually ``__package__``. ``name`` is a path inside the folder of
    that package, for example ``"words/statement.md.j2"``; templates include and import each other
    by such paths. Values are escaped only in templates whose name ends in ``.html.j2``. Control
    lines (``{% .. %}``) leave no blank lines behind, and the newline at the end of a file is kept.

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
        autoescape=_is_html,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _is_html(name: str | None) -> bool:
    """Return True for a template of HTML, in which every value is escaped."""
    return name is not None and name.endswith(".html.j2")
