"""Python functions that a declaration names, ``file.py:function``."""

import importlib.util
from collections.abc import Callable
from typing import Any

from surveysynth.errors import InputError
from surveysynth.models.own_stan.file import FUNCTION, ProgramFile

Function = Callable[..., Any]


def load_function(declared: ProgramFile, reference: str) -> Function:
    """The function of ``file.py:function``; the file's code is run."""
    found = FUNCTION.match(reference)
    assert found is not None  # checked when the declaration was read
    path = declared.beside(found["file"])
    spec = importlib.util.spec_from_file_location(f"surveysynth_program_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InputError(f"{declared.path}: there is no file {path}.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        function = getattr(module, found["function"])
    except AttributeError:
        raise InputError(f"{path} has no function {found['function']!r}.") from None
    except Exception as error:
        raise InputError(f"{path} cannot be run: {type(error).__name__}: {error}.") from None
    if not callable(function):
        raise InputError(f"{found['function']!r} in {path} is not a function.")
    return function  # type: ignore[no-any-return]
