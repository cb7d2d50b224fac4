"""The catalog of release specifications in ``tables/``, each with the tables that it must give.

    python -m tests.catalog [--update]

rebuilds every one with a fixed seed, which marks the files as a test, and compares. Numbers may
differ by ``TOLERANCE``: libraries order sums and round elementary functions in their own ways,
differences of about 1e-16. Survey data changed by 1e-14 at random changed no published number of
three entries by more than 1.2e-9 (degrees of freedom; 1.5e-10 standard errors), while a change of
method moves the first digits. Trajectories of the posterior under noise do not forgive 1e-16, so
releases are made with the ``ARITHMETIC`` of every x86 processor since 2015; on others that entry
differs. ``NOISE`` is for the standard errors of numbers that are known, which are zero but for
rounding.
"""

import argparse
import difflib
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from surveysynth._support.resources import tables_directory
from surveysynth.config.tables_section import TABLES_FOLDER
from surveysynth.errors import InputError
from surveysynth.release.folder import RELEASE

SPEC_NAME, EXPECTED_NAME = "spec.toml", "expected"
SEED = 1
TOLERANCE = 1e-7
NOISE = 1e-8
#: No kernels and loops that newer processors alone have.
ARITHMETIC = {
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4,AVX512_ICL,AVX512_SPR",
    "OMP_NUM_THREADS": "1",
}

#: Groups of thousands count as numbers of their own: what is rounded for readers is exact.
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """One specification rebuilt: lines of a diff, empty where everything is as expected."""

    name: str
    differences: tuple[str, ...]


def entries(root: Path) -> list[Path]:
    """Folders of the catalog; raises ``InputError`` where there are none."""
    found = sorted(path.parent for path in root.glob(f"*/{SPEC_NAME}"))
    if not found:
        raise InputError(f"{root} holds no folder with a {SPEC_NAME}.")
    return found


def check(root: Path | None = None, say: Say = print) -> list[Outcome]:
    """Rebuild every entry and compare; ``say`` is called with each entry's name and result."""
    outcomes = []
    for entry in entries(tables_directory() if root is None else root):
        with _rebuilt(entry) as folder:
            differences = tuple(_differences(entry / EXPECTED_NAME, folder))
        say(f"{entry.name}: {'differs' if differences else 'as expected'}")
        outcomes.append(Outcome(entry.name, differences))
    return outcomes


def update(root: Path | None = None, say: Say = print) -> None:
    """Replace what is expected by what is made now, to be read before it is kept."""
    for entry in entries(tables_directory() if root is None else root):
        with _rebuilt(entry) as folder:
            shutil.rmtree(entry / EXPECTED_NAME, ignore_errors=True)
            shutil.copytree(folder, entry / EXPECTED_NAME)
        say(f"{entry.name}: written")


@contextmanager
def _rebuilt(entry: Path) -> Iterator[Path]:
    """Make the tables folder of an entry anew, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="surveysynth-catalog-") as folder:
        out, ledger = Path(folder) / "out", Path(folder) / "ledger.jsonl"
        command = [sys.executable, "-W", "ignore", "-m", "surveysynth", "release"]
        options = [entry / SPEC_NAME, "--out", out, "--ledger", ledger, "--seed", str(SEED)]
        subprocess.run(
            [*command, *options], check=True, capture_output=True, env=os.environ | ARITHMETIC
        )
        yield out / RELEASE / TABLES_FOLDER


def _differences(expected: Path, made: Path) -> Iterator[str]:
    found = ((folder, path) for folder in (expected, made) for path in folder.rglob("*.*"))
    names = sorted({str(path.relative_to(folder)) for folder, path in found})
    for name in names:
        if not (expected / name).is_file():
            yield f"{name}: made, but not expected"
        elif not (made / name).is_file():
            yield f"{name}: expected, but not made"
        else:
            texts = [(folder / name).read_text(encoding="utf-8") for folder in (expected, made)]
            yield from diff(name, *texts)


def diff(name: str, expected: str, made: str) -> list[str]:
    """Lines of a unified diff without those that agree within the tolerance."""
    wanted, got = expected.splitlines(), made.splitlines()
    if len(wanted) == len(got):
        # Lines that agree are taken as they were expected, so that they do not show.
        got = [w if agree(w, g) else g for w, g in zip(wanted, got, strict=True)]
    names = f"expected/{name}", f"made/{name}"
    return list(difflib.unified_diff(wanted, got, *names, lineterm="", n=0))


def agree(expected: str, made: str) -> bool:
    """Return True if two lines have the same text and, within the tolerance, the same numbers."""
    if _NUMBER.sub("#", expected) != _NUMBER.sub("#", made):
        return False
    pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(made), strict=True)
    return all(_close(*pair) for pair in pairs)


def _close(expected: str, made: str) -> bool:
    if expected == made:
        return True
    wanted, got = (float(text.replace("−", "-")) for text in (expected, made))
    return math.isclose(wanted, got, rel_tol=TOLERANCE, abs_tol=NOISE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or with ``--update`` keep what is made now; return 1 where tables differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.catalog", description=__doc__)
    parser.add_argument("--update", action="store_true", help="keep what is made now")
    if parser.parse_args(arguments).update:
        update()
        return 0
    differing = [each for each in check() if each.differences]
    for outcome in differing:
        print("\n".join([f"{outcome.name}:", *outcome.differences]))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
