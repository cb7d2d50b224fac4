"""The documentation does what it says: its code runs, its links lead somewhere."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
# A vignette in a folder of its own needs Stan, and is run by the tests of Stan.
VIGNETTES = sorted((ROOT / "vignettes").glob("*.md"))
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "tests" / "README.md",
    *sorted((ROOT / "vignettes").rglob("*.md")),
]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document: its language, its text, and its first line's number."""

    document: Path
    language: str
    text: str
    line: int


def blocks_of(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    return [
        Block(document, found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in BLOCK.finditer(text)
    ]


def run_shell(text: str) -> None:
    """Run commands as a reader would who has activated the virtual environment of the tests."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def run_blocks(blocks: list[Block]) -> None:
    """Run shell and Python blocks in order, Python in one namespace."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        if block.language == "sh":
            run_shell(block.text)
        elif block.language == "python":
            # Line numbers of the document in a traceback.
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(block.document), "exec"), namespace)


@pytest.mark.parametrize("vignette", VIGNETTES, ids=lambda path: path.stem)
def test_vignette_runs(vignette: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of(vignette)
    assert {"sh", "python"} <= {block.language for block in blocks}
    monkeypatch.chdir(tmp_path)
    run_blocks(blocks)


def test_there_is_a_vignette() -> None:
    assert "survey_to_release" in {path.stem for path in VIGNETTES}


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command but for the installation, then the Python program on its files."""
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(README)
    command = next(block.text for block in blocks if block.language == "sh")
    steps = [step.strip() for step in command.split("&&")]
    assert steps[:2] == ["python3 -m venv .venv", ".venv/bin/pip install ."]
    assert len(steps) == 4
    run_shell(" && ".join(step.removeprefix(".venv/bin/") for step in steps[2:]))
    assert len(pd.read_csv("out/release/tables/counts.csv")) == 27
    assert len(pd.read_csv("out/release/tables/means.csv")) == 27
    run_blocks([block for block in blocks if block.language == "python"])


def test_readme_specification_is_the_example_s(tmp_path: Path) -> None:
    """What the README shows as a specification is one, with the example's settings."""
    from surveysynth.spec.spec import load_spec
    from surveysynth.studies.example import write_example

    spec = load_spec(write_example(tmp_path, n=100)[1])
    for document in (README, ROOT / "vignettes" / "survey_to_release.md"):
        (shown,) = [block.text for block in blocks_of(document) if block.language == "toml"]
        path = tmp_path / "shown.toml"
        path.write_text(shown, encoding="utf-8")
        loaded = load_spec(path)
        for section in ("survey", "synthesizer", "privacy"):
            assert getattr(loaded, section) == getattr(spec, section), (document, section)
        assert loaded.tables.by == spec.tables.by
        assert loaded.tables.statistics == spec.tables.statistics


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [target for target in files if not (document.parent / target).exists()] == []


def test_every_test_file_names_its_independent_truth() -> None:
    """tests/README.md has one row for each test file, and none for a file that is gone."""
    folder = ROOT / "tests"
    table = (folder / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+\.py)` \| (.*) \|$", table, re.MULTILINE)
    named = [name for name, _ in rows]
    assert len(named) == len(set(named))
    assert set(named) == {path.relative_to(folder).as_posix() for path in folder.rglob("test_*.py")}
    assert all(len(truth) > 10 for _, truth in rows)
