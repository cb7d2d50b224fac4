"""``surveysynth keys`` and ``surveysynth docs``: what there is to look up.

Imported at the start of every command: what is heavy is imported inside.
"""

import subprocess
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from surveysynth.errors import InputError, SurveySynthError

#: Where a checkout is: around the package, or where the command is run. The wheel has no pages.
_PAGES = Path(__file__).parents[2] / "vignettes"
_HERE = Path("vignettes")
_NEEDED = {"sphinx": "sphinx", "numpydoc": "numpydoc", "myst_parser": "myst-parser",
           "sphinx_gallery": "sphinx-gallery", "furo": "furo",
           "latex2mathml": "latex2mathml"}  # fmt: skip


def keys_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A section, as privacy, or a key, as privacy.m. Without it, all."
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The whole reference, as a page of Markdown.")
    ] = False,
) -> None:
    """Look up a key of a specification: type, default, what it changes, what is public by it."""
    from surveysynth.spec import reference

    text = reference.markdown() if markdown else "\n".join(reference.terminal(name)).rstrip() + "\n"
    print(text, end="")


def docs_command(
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to build; build/site of the checkout otherwise."),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Build, and open nothing.")] = False,
) -> None:
    """Build the documentation, without a network, and open it in a browser.

    Needs a checkout and the extra docs. What has not changed since the last time is not built
    again. A warning is an error.
    """
    found = [each.resolve() for each in (_PAGES, _HERE) if (each / "_site" / "links.py").is_file()]
    if not found:
        raise InputError(
            "the documentation is built from a checkout of the source: run this command in one, "
            "after pip install '.[docs]'."
        )
    pages = found[0]
    missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise InputError(
            f"the documentation needs {', '.join(missing)}: pip install '.[docs]' in "
            f"{pages.parent}."
        )
    target = (out if out is not None else pages.parent / "build" / "site").resolve()
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet",
         "-b", "html", "-d", str(target.with_name(f"{target.name}-doctrees")),
         str(pages), str(target)],
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SurveySynthError("the documentation was not built; Sphinx says above why.")
    first = target / "index.html"
    print(f"Documentation: {first}")
    if not no_open:
        webbrowser.open(first.as_uri())
