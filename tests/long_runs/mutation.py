"""Mutation testing: find the wrong changes of the package that its tests miss.

    python -m tests.long_runs.mutation

``mutations.toml`` lists small semantic changes, each with the tests that must fail. An entry names
a function (``module:qualified.name``) and a text within it, not a file or a line: a function that
moves to another module needs no edit of the list. The module counts only where several modules
define that name; a test file is found by its name. Each change is made in a temporary copy of the
tree, where its tests must fail; they must pass without it. Truths are "independent" (an identity,
a formula by hand, another implementation, a simulation) or "kept" (numbers that an update would
overwrite). The result is ``tests/golden/mutation.json``; ``--only`` writes none.

On systems that fork, the test processes share imports of other packages and import the changed
package afresh: a change then costs little more than its tests.
"""

import argparse
import ast
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "surveysynth"
LIST = Path(__file__).with_name("mutations.toml")
RESULT = ROOT / "tests" / "golden" / "mutation.json"
#: What a test needs of the tree.
COPIED = ("surveysynth", "tests", "stan", "tables", "vignettes", "pyproject.toml", "README.md",
          ".github", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "CITATION.cff")  # fmt: skip
#: Of other packages, imported once.
SHARED = ("numpy", "scipy.stats", "scipy.special", "scipy.linalg", "pandas", "pydantic",
          "formulaic", "hypothesis", "hypothesis.strategies", "pytest", "xdist.plugin", "typer",
          "pyarrow", "statsmodels.api")  # fmt: skip
SECONDS = 1200
TRUTHS = ("independent", "kept")
PASSED, FAILED = 0, 1
OPTIONS = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "--assert=plain")


@dataclass(frozen=True)
class Mutation:
    """One change: ``old``, a text that occurs once in a function, to ``new``; one of its tests must
    fail."""

    name: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]
    truth: str = "independent"


def mutations(path: Path = LIST) -> list[Mutation]:
    """Read the list; raise ``ValueError`` for an invalid entry."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]
    found = [Mutation(**{**each, "tests": tuple(each["tests"])}) for each in entries]
    for each in found:
        if each.truth not in TRUTHS or not each.tests or each.old == each.new:
            raise ValueError(f"{each.name}: truth is one of {TRUTHS}, with tests and a change")
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise ValueError("two mutations have the same name")
    return found


def definitions(text: str) -> dict[str, list[tuple[int, int]]]:
    """Map qualified names of functions, classes and constants to their lines, from 0, end excluded.

    Constants are names assigned at the top of a module or class.
    """
    found: dict[str, list[tuple[int, int]]] = {}

    def add(body: Sequence[ast.stmt], prefix: str, constants: bool) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                names, inner = [node.name], isinstance(node, ast.ClassDef)
                add(node.body, f"{prefix}{node.name}.", inner)
            elif constants and isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                first = node.lineno
                names = [each.id for each in targets if isinstance(each, ast.Name)]
            else:
                continue
            for name in names:
                found.setdefault(prefix + name, []).append((first - 1, node.end_lineno or first))

    add(ast.parse(text).body, "", constants=True)
    return found


@cache
def _files_of_definitions(package: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*.py")):
        for name in definitions(path.read_text(encoding="utf-8")):
            files.setdefault(name, []).append(path.relative_to(package.parent))
    return files


def file_of(mutation: Mutation, tree: Path = ROOT) -> Path:
    """Return the file, relative to the tree, that defines the function.

    Raises ``ValueError`` unless there is exactly one.
    """
    module, _, name = mutation.function.partition(":")
    found = _files_of_definitions(tree / PACKAGE).get(name, [])
    if len(found) > 1:
        ending = "." + module
        found = [f for f in found if ("." + ".".join(f.with_suffix("").parts)).endswith(ending)]
    if len(found) != 1:
        raise ValueError(f"{mutation.name}: {len(found)} files define {mutation.function}")
    return found[0]


def changed(text: str, mutation: Mutation) -> str:
    """Make the change in the text of a module; raise ``ValueError`` unless it fits in one place of
    the function."""
    name = mutation.function.partition(":")[2]
    lines = text.splitlines(keepends=True)
    places = definitions(text).get(name, [])
    counts = ["".join(lines[start:end]).count(mutation.old) for start, end in places]
    if sum(counts) != 1:
        raise ValueError(
            f"{mutation.name}: {sum(counts)} places in {mutation.function}, expected 1"
        )
    start, end = places[counts.index(1)]
    function = "".join(lines[start:end]).replace(mutation.old, mutation.new)
    return "".join([*lines[:start], function, *lines[end:]])


def path_of_test(test: str, tree: Path = ROOT) -> str:
    """Complete a test, ``file.py`` or ``file.py::name``, with the folder of its file."""
    file, colons, name = test.partition("::")
    found = [*(tree / "tests").rglob(file)]
    if len(found) != 1:
        raise ValueError(f"{test}: {len(found)} files of this name in tests/")
    return f"{found[0].relative_to(tree)}{colons}{name}"


@contextmanager
def copied() -> Iterator[Path]:
    """Copy the tree to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="surveysynth-mutation-") as name:
        tree = Path(name)
        for part in COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, tree / part)
        yield tree


def run_tests(
    tree: Path, tests: Sequence[str], limit: float = SECONDS
) -> tuple[int, float, str]:
    """Return pytest's exit code (negative: killed after ``limit`` seconds), the seconds, and the
    test that failed first."""
    tests = [path_of_test(test, tree) for test in tests]
    begun = time.monotonic()
    log = tree / "log.txt"
    child = os.fork() if hasattr(os, "fork") else 0
    if child == 0:
        _test_here(tree, tests, log)
    code = _waited(child, begun + limit)
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return code, time.monotonic() - begun, failed[0] if failed else ""


def _waited(child: int, end: float) -> int:
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -int(signal.SIGKILL)


def _test_here(tree: Path, tests: Sequence[str], log: Path) -> None:
    """Become the process of the tests, and end."""
    code = 3
    try:
        os.setsid()
        os.chdir(tree)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for name in [n for n in sys.modules if n.split(".")[0] in ("surveysynth", "tests")]:
            del sys.modules[name]
        sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
        os.environ["PYTHONPATH"] = str(tree)
        sys.dont_write_bytecode = True
        import pytest

        code = int(pytest.main([*OPTIONS, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def try_mutation(tree: Path, mutation: Mutation) -> dict[str, Any]:
    """Make one change, run its tests, undo it, and report."""
    where = file_of(mutation)
    file = tree / where
    text = file.read_text(encoding="utf-8")
    file.write_text(changed(text, mutation), encoding="utf-8")
    try:
        code, seconds, by = run_tests(tree, mutation.tests)
    finally:
        file.write_text(text, encoding="utf-8")
    # A test that hangs has noticed too; a broken collection (2 and up) says nothing of the change.
    killed = code == FAILED or code < 0
    return {
        **asdict(mutation), "file": where.as_posix(), "killed": killed, "by": by, "code": code,
        "seconds": round(seconds, 1),
    }  # fmt: skip


def _shown(free: "Queue[Path]", mutation: Mutation) -> dict[str, Any]:
    """Try a change in a free tree and print a line about it."""
    tree = free.get()
    result = try_mutation(tree, mutation)
    free.put(tree)
    what = "killed" if result["killed"] else "SURVIVED"
    by = result["by"] or result["code"]
    print(f"{what:9}{result['seconds']:7.1f} s  {mutation.name}  {by}", flush=True)
    return result


def _kept(listed: Sequence[Mutation]) -> dict[str, dict[str, Any]]:
    """Return results, by name, of listed changes that were killed last time."""
    last = json.loads(RESULT.read_text(encoding="utf-8"))["results"]
    now = {each.name: json.loads(json.dumps(asdict(each))) for each in listed}
    return {
        each["name"]: each
        for each in last
        if each["killed"] and now.get(each["name"], {}).items() <= each.items()
        and each["name"] in now
    }


def unchanged(tree: Path, listed: Sequence[Mutation]) -> list[str]:
    """Return the tests that fail without any change."""
    tests = sorted({test for each in listed for test in each.tests})
    if run_tests(tree, tests, 10 * SECONDS)[0] == PASSED:
        return []
    codes = {test: run_tests(tree, [test])[0] for test in tests}
    return [test for test, code in codes.items() if code != PASSED]


def summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Count the killed changes, by kind of truth."""
    killed = [each for each in results if each["killed"]]
    independent = [each for each in killed if each["truth"] == "independent"]
    return {
        "mutations": len(results),
        "killed": len(killed),
        "killed_by_an_independent_truth": len(independent),
        "survivors": sorted(each["name"] for each in results if not each["killed"]),
    }


def main() -> int:
    """Return 0 if an independent truth kills nine of ten changes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="names that hold this text; writes no result")
    parser.add_argument("--unchecked", action="store_true", help="no run of the tree as it is")
    parser.add_argument("--again", action="store_true", help="what is new or survived last time")
    parser.add_argument("--workers", type=int, default=1, help="changes tried side by side")
    given = parser.parse_args()
    for name in SHARED:
        __import__(name)
    everything = mutations()
    kept = _kept(everything) if given.again else {}
    listed = [
        each for each in everything if given.only in each.name and each.name not in kept
    ]
    with ThreadPoolExecutor(given.workers) as pool, ExitStack() as trees:
        free: Queue[Path] = Queue()
        for _ in range(given.workers):
            free.put(trees.enter_context(copied()))
        results = list(pool.map(lambda each: _shown(free, each), listed))
        tree = free.get()
        if not given.unchecked and (failing := unchanged(tree, listed)):
            print("without any change these fail: " + ", ".join(failing))
            return 1
    found = {**kept, **{each["name"]: each for each in results}}
    results = [found[each.name] for each in everything if each.name in found]
    counts = summary(results)
    print(json.dumps(counts, indent=1))
    if not given.only:
        made = {"date": datetime.now(UTC).date().isoformat(), "python": platform.python_version(),
                **{name: version(name) for name in ("numpy", "scipy", "pytest")}}  # fmt: skip
        RESULT.write_text(
            json.dumps({**made, **counts, "results": results}, indent=1) + "\n", encoding="utf-8"
        )
    return 0 if counts["killed_by_an_independent_truth"] >= 0.9 * counts["mutations"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
