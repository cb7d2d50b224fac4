"""List the claims of the pages and the results behind them: ``python -m tests.evidence``.

``tests/golden/evidence.json`` has a record for each result of a study: the commit and date of the
code that made it, its samples, a digest of its content, and two digests of what it measures. A
result is *current* if the modules of its law (``LAWS``) are the same up to comments, docstrings,
and imports; *unmoved* if they were edited and the catalog's releases by this law, with a fixed
seed, gave the same numbers then; *older* otherwise.

After a study, ``--record ID .. --commit C`` writes its records. An ID is a file in ``tests/golden``
or a part of it, such as ``real_populations.json#fares/noisy_10.8``.
"""

import argparse
import ast
import csv
import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
REGISTER = GOLDEN / "evidence.json"
_SHARED = ("estimation", "inference", "mechanisms/base.py", "sampling", "survey/design_matrix.py",
           "survey/transforms.py")  # fmt: skip
_NOISY = ("mechanisms/learned", "mechanisms/noisy_statistics", "models/general_location")
_PSEUDO = ("mechanisms/pseudo_posterior", "models", "survey/pooling.py")
_BY_PSEUDO = ("employment_by_region", "hours_by_sector", "salaries_by_field")
#: What a study measures: modules of the package, and entries of the catalog in ``tables/``.
LAWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "noisy": ((*_SHARED, *_NOISY), ("consumers_by_tenure",)),
    "pseudo": ((*_SHARED, *_PSEUDO), _BY_PSEUDO),
    "both": ((*_SHARED, *_NOISY, *_PSEUDO), ("consumers_by_tenure", *_BY_PSEUDO)),
    "tables": (("estimation",), ()),
    "files": (("survey", "release"), ()),
    "package": (("",), ()),
}
#: Types of constants and names in a syntax tree.
PLAIN = (str, bytes, int, float, bool)
#: Files whose parts have records of their own: two levels of keys, or a column of a csv file.
PARTS: dict[str, str | bool] = {"real_populations.json": True, "strict_study_summary.csv": "part"}


@dataclass(frozen=True)
class Claim:
    """Words on a page and the results behind them."""

    page: str
    words: str
    results: tuple[str, ...]


def records() -> dict[str, dict[str, Any]]:
    """Return the records by ID."""
    found: dict[str, dict[str, Any]] = json.loads(REGISTER.read_text(encoding="utf-8"))
    return found


def claims() -> list[Claim]:
    """Return the claims of ``claims.csv``; patterns of IDs are spelled out."""
    known = records()
    with (GOLDEN / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Claim(row["page"], row["words"], tuple(
            name for wanted in row["results"].split() for name in known if fnmatchcase(name, wanted)
        ))
        for row in rows
    ]  # fmt: skip


def sources(commit: str | None = None) -> dict[str, bytes]:
    """Return modules of the package and tables of the catalog, here or at a commit."""
    if commit is None:
        paths = [*ROOT.glob("surveysynth/**/*.py"), *ROOT.glob("tables/*/expected/*.csv")]
        return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}
    command = ["git", "archive", commit, "surveysynth", "tables"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        files = {each.name: archive.extractfile(each) for each in archive if each.isfile()}
        return {name: file.read() for name, file in files.items() if file}


def digest(texts: Iterable[str]) -> str:
    """Return 12 digits for some texts, whatever their order."""
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:12]


@cache
def statements(source: bytes) -> tuple[str, ...]:
    """Return the statements of a module without comments, docstrings, and imports.

    Nodes and constants are listed, because ``ast.dump`` differs between versions of Python.
    """
    found = []
    for statement in ast.parse(source).body:
        nodes = list(ast.walk(statement))
        prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        words = [
            f"{type(node).__name__}{[v for _, v in ast.iter_fields(node) if type(v) in PLAIN]}"
            for node in nodes if not (isinstance(node, ast.Constant) and id(node) in prose)
        ]  # fmt: skip
        if not isinstance(statement, ast.Import | ast.ImportFrom | ast.Expr):
            found.append(" ".join(words))
    return tuple(found)


def measured(law: str, files: dict[str, bytes]) -> dict[str, str]:
    """Return the digests of the modules of a law and of the catalog's tables by it."""
    rooms, entries = LAWS[law]
    inside = tuple(f"surveysynth/{room}" for room in rooms)
    code = [
        each for name, content in files.items() if name.endswith(".py") and name.startswith(inside)
        for each in statements(content)
    ]  # fmt: skip
    tables = tuple(f"tables/{entry}/expected/" for entry in entries)
    kept = [
        f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in files.items()
        if name.startswith(tables) and name.endswith(".csv")
    ]  # fmt: skip
    return {"code": digest(code), "tables": digest(kept) if kept else ""}


def state_of(record: dict[str, Any], now: dict[str, str]) -> str:
    """Return current, unmoved, or older."""
    if now["code"] == record["code"]:
        return "current"
    return "unmoved" if now["tables"] and now["tables"] == record["tables"] else "older"


def contents(name: str) -> dict[str, str]:
    """Return the texts of a file, or of its parts, by ID."""
    text, by = (GOLDEN / name).read_text(encoding="utf-8"), PARTS.get(name)
    if by is None:
        return {name: text}
    if isinstance(by, str):
        rows = list(csv.DictReader(text.splitlines()))
        return {
            f"{name}#{part}": json.dumps([row for row in rows if row[by] == part])
            for part in dict.fromkeys(row[by] for row in rows)
        }
    every = json.loads(text).items()
    return {f"{name}#{a}/{b}": json.dumps(v) for a, inner in every for b, v in inner.items()}


def record(results: Iterable[str], commit: str, law: str | None, samples: int | None) -> None:
    """Write the records of results that the code of a commit made."""
    every, files = records(), sources(commit)
    show = ["git", "show", "-s", "--format=%h %cs", "--abbrev=8", commit]
    made, on = subprocess.check_output(show, cwd=ROOT, text=True).split()
    for result in results:
        before, content = every.get(result, {}), contents(result.partition("#")[0])[result]
        own = law or before.get("law") or "noisy"
        counted = re.search(r'"samples": (\d+)', content) if "#" in result else None
        every[result] = {
            "commit": made, "date": on, "law": own, "content": digest([content]),
            "samples": int(counted[1]) if counted else samples or before.get("samples"),
            **measured(own, files),
        }  # fmt: skip
    lines = (f"{json.dumps(name)}: {json.dumps(every[name])}" for name in sorted(every))
    REGISTER.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def listing(today: date) -> Iterator[str]:
    """Yield each claim, then its results: ID, commit, age, state, samples."""
    known, files = records(), sources()
    now = {law: measured(law, files) for law in LAWS}
    for claim in claims():
        yield f"{claim.page}: {claim.words}"
        for name in claim.results:
            own = known[name]
            age = (today - date.fromisoformat(own["date"])).days
            samples = f", {own['samples']} samples" if own["samples"] else ""
            state = state_of(own, now[own["law"]])
            yield f"    {name}: commit {own['commit']}, {age} days, {state}{samples}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", nargs="+", metavar="ID", help="write records of these results")
    parser.add_argument("--commit", default="HEAD", help="whose code made them")
    parser.add_argument("--law", choices=list(LAWS), help="what they measure")
    parser.add_argument("--samples", type=int, help="if the result does not say")
    given = parser.parse_args()
    if given.record:
        record(given.record, given.commit, given.law, given.samples)
    else:
        print("\n".join(listing(date.today())))


if __name__ == "__main__":
    main()
