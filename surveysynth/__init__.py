"""Private survey tables from synthetic microdata, with a stated epsilon.

``__init__.pyi`` lists the public names. Each is imported when it is first used, so that ``import
surveysynth`` does not import pandas.
"""

from importlib import import_module
from typing import Any

import lazy_loader

_get, _names, __all__ = lazy_loader.attach_stub(__name__, __file__)

# The first import of a subpackage binds its name here, so bind it now and give it to the function.
import_module("surveysynth.release")
globals().pop("release", None)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        return version("surveysynth")
    if name not in __all__:
        raise AttributeError(f"module 'surveysynth' has no attribute {name!r}")
    return _get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_names(), "__version__"})
