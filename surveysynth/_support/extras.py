"""Libraries of the package's extras: there, or an error that says how to install them."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from surveysynth.errors import InputError

#: The extra of each library.
EXTRAS = {"pyreadstat": "formats", "odf": "formats"}


def check_installed(module: str, what: str) -> None:
    """Raise ``InputError`` naming the extra where a library is not installed; ``what`` needs it."""
    if find_spec(module) is None:
        extra = EXTRAS[module]
        raise InputError(
            f"{what} needs the extra {extra!r}, which is not installed: "
            f'pip install "surveysynth[{extra}]".'
        )


def import_extra(module: str, what: str) -> Any:
    """The library; raises ``InputError`` as ``check_installed`` does."""
    check_installed(module, what)
    return import_module(module)
