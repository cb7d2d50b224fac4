"""What the public names say of themselves is complete, and their examples run."""

import doctest
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import surveysynth as ss

#: Modules have no parameters; errors and warnings have no examples.
NAMES = [
    name
    for name, public in ((name, getattr(ss, name)) for name in ss.__all__)
    if not inspect.ismodule(public)
    and not (inspect.isclass(public) and issubclass(public, Exception))
]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def sections_of(text: str) -> dict[str, list[str]]:
    """The sections of a numpydoc docstring: heading to lines, "" for what stands above them."""
    lines = inspect.cleandoc(text).splitlines()
    found: dict[str, list[str]] = {"": []}
    heading = ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line and below == "-" * len(line):
            heading = line
            found[heading] = []
        elif not (set(line) == {"-"} and heading):
            found[heading].append(line)
    return found


def names_in(lines: list[str]) -> list[str]:
    """The names that a section of parameters or attributes explains."""
    entries = [line for line in lines if line and not line.startswith(" ")]
    return [name.strip().lstrip("*") for entry in entries for name in entry.split(",")]


def parameters_of(target: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(target).parameters
    return [name for name in parameters if not name.startswith("_")]


def problems_of(target: Any) -> Iterator[str]:
    """What a docstring of a public function or class lacks."""
    sections = sections_of(inspect.getdoc(target) or "")
    is_class = inspect.isclass(target)
    parts = ["Parameters", "Attributes"] if is_class else ["Parameters"]
    explained = [name for part in parts for name in names_in(sections.get(part, []))]
    taken = parameters_of(target)
    # What a class has of another one may be explained there.
    for base in target.__mro__[1:] if is_class else ():
        lines = sections_of(base.__doc__ or "").get("Attributes", [])
        explained += [name for name in names_in(lines) if name in set(taken) - set(explained)]
    for name in taken:
        if explained.count(name) != 1:
            yield f"{name} is explained {explained.count(name)} times"
    for name in explained:
        if name not in taken:
            yield f"{name} is explained and is not there"
    if not " ".join(sections[""]).rstrip().endswith("."):
        yield "no sentence at the top"
    if not is_class and not {"Returns", "Yields"} & set(sections):
        yield "no Returns"
    if any("Raises ``" in line for lines in sections.values() for line in lines):
        yield "Raises in a sentence"
    for heading in ("Returns", "Yields", "Raises", "Notes", "References"):
        if heading in sections and not any(sections[heading]):
            yield f"{heading} is empty"
    examples = doctest.DocTestParser().get_examples("\n".join(sections.get("Examples", [])))
    if not examples:
        yield "no Examples"


def run_examples(target: Any, name: str) -> str:
    """What the examples of a docstring print otherwise; empty where they do what they say."""
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for each in doctest.DocTestFinder(recurse=False).find(target, name, globs={}):
        runner.run(each, out=told.append)
    return "".join(told)


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_are_complete(name: str) -> None:
    assert list(problems_of(getattr(ss, name))) == []


def test_alternative_constructors_are_complete() -> None:
    assert list(problems_of(ss.Survey.from_frame)) == []


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """In a folder of their own, where a warning is an error."""
    monkeypatch.chdir(tmp_path)
    assert run_examples(getattr(ss, name), name) == ""
    assert list(tmp_path.iterdir()) == []


def test_the_example_of_the_constructor_runs() -> None:
    assert run_examples(ss.Survey.from_frame, "from_frame") == ""


def _whole(one: int, *, other: int = 0) -> int:
    """Adds.

    Parameters
    ----------
    one, other
        Numbers.

    Returns
    -------
    int
        Their sum.

    Examples
    --------
    >>> 1 + 1
    2
    """
    return one + other


def test_the_checks_find_what_they_look_for() -> None:
    text = inspect.getdoc(_whole) or ""
    assert list(problems_of(_whole)) == []
    assert run_examples(_whole, "whole") == ""
    planted = {
        "one, other": ("one", "other is explained 0 times"),
        "    Numbers.": ("    Numbers.\nthird\n    More.", "third is explained and is not there"),
        "Returns\n-------": ("Result\n------", "no Returns"),
        "    Their sum.": ("    Sum. Raises ``InputError``.", "Raises in a sentence"),
        "int\n    Their sum.\n": ("", "Returns is empty"),
        ">>> 1 + 1\n2": ("None.", "no Examples"),
        "Adds.\n\n": ("", "no sentence at the top"),
    }
    for old, (new, told) in planted.items():

        def broken(one: int, *, other: int = 0) -> int:
            return one + other

        assert old in text
        broken.__doc__ = text.replace(old, new)
        assert told in " ".join(problems_of(broken)), old
    _broken = type("Broken", (), {"__doc__": text.replace("\n2", "\n3")})
    assert "Expected" in run_examples(_broken, "broken")
