"""Tests of the documentation: its code runs, its links lead to files."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TECHNICAL = ROOT / "vignettes" / "technical"
#: Pages whose blocks run: the guide, and these of the technical report. The tests of Stan run the
#: page of a Stan program, and those of the recipes the page on extending.
VIGNETTES = [
    *sorted((ROOT / "vignettes").glob("*.md")),
    TECHNICAL / "real_survey.md",
    TECHNICAL / "risk_measures.md",
]
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / ".github").glob("*.md")),
    ROOT / "tests" / "README.md",
    *sorted((ROOT / "vignettes").rglob("*.md")),
]

#: Reference pages with the languages of their blocks; the other pages have shell blocks too.
REFERENCE: dict[str, set[str]] = {
    "glossary": set(), "index": set(),
    "limits": set(), "validated": set(), "protection": set(), "comparison": set(),
    "will_it_work": set(), "tables": {"sh", "python"},
    "software": {"python", "r"},
}  # fmt: skip
#: Pages that go on in the folder of the first release, which README and quick start make.
CONTINUED = {"quick_start", "release_folder", "good_enough"}
FIRST_RELEASE = pytest.mark.xdist_group("first release")
METHODS = TECHNICAL / "methods.md"
STRICT = TECHNICAL / "strict.md"
POSTERIOR = TECHNICAL / "posterior.md"
#: The pages that comments cite, by the word before a number; two pages share the second numbering.
CITED_PAGES = {"methods": [METHODS], "strict": [STRICT, POSTERIOR]}
SOURCES = [
    path
    for folder, kind in (("surveysynth", "*.py"), ("stan", "*.stan"), ("tests", "*.py"))
    for path in sorted((ROOT / folder).rglob(kind))
]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
NUMBERED = re.compile(r"^#{2,3} (\d+(?:\.\d+)?)\.? (.+)$", re.MULTILINE)
# "methods 3", "methods 3, 5 and 8", "methods 2-4", "methods 3, clusters", also over two lines.
_NUMBER = r"\d+(?:\.\d+)?"
CITED = {
    page: re.compile(
        rf"\b{page}\s+({_NUMBER}(?:(?:\s*,\s*|\s+and\s+|-){_NUMBER})*)(,\s+clusters\b)?"
    )
    for page in CITED_PAGES
}


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


def run_blocks(blocks: list[Block], done: Collection[str] = ()) -> None:
    """Run shell and Python blocks in order, Python in one namespace; leave out commands done."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        if block.language == "sh":
            run_shell("\n".join(line for line in block.text.splitlines() if line not in done))
        elif block.language == "python":
            # Line numbers of the document in a traceback.
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(block.document), "exec"), namespace)


@pytest.mark.pages
@pytest.mark.parametrize(
    "vignette", [pytest.param(p, id=p.stem) for p in VIGNETTES if p.stem not in CONTINUED]
)
def test_vignette_runs(vignette: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(runnable(vignette))


@FIRST_RELEASE
@pytest.mark.pages
@pytest.mark.parametrize("page", sorted(CONTINUED))
def test_vignette_goes_on(
    page: str, first_release: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, printed = first_release
    blocks = runnable(ROOT / "vignettes" / f"{page}.md")
    done = {typed.removesuffix(" --yes"): output for typed, output in printed.items()}
    monkeypatch.chdir(folder)
    run_blocks(blocks, done)
    # What the page shows below a command is what it printed.
    for block, shown in pairwise(blocks):
        if shown.language == "text" and (output := done.get(block.text.strip())):
            assert masked(output) == masked(shown.text), block.text


def runnable(vignette: Path) -> list[Block]:
    """Return the blocks of a page, which has those of its languages."""
    blocks = blocks_of(vignette)
    expected = REFERENCE.get(vignette.stem, {"sh", "python"})
    assert expected <= {block.language for block in blocks}
    return blocks


def test_there_is_a_vignette() -> None:
    assert "quick_start" in {path.stem for path in VIGNETTES}


def masked(text: str) -> list[str]:
    """Return the lines of an output, digits masked: noise and guesses differ from run to run."""
    lines = re.sub(r"\d[\d,.]*\d|\d", "#", text).strip().splitlines()
    return [re.sub(r" # notes?\.", "", line) for line in lines]


def output_of(words: list[str], folder: Path) -> str:
    """Run a command of the package in ``folder``; return what it printed, with relative paths."""
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{folder}{os.sep}", "")


def readme_session() -> list[tuple[str, str]]:
    """Return the commands that the README shows, each with what it prints."""
    (session,) = (block.text for block in blocks_of(README) if block.language == "console")
    parts = [part.partition("\n") for part in session.split("$ ")[1:]]
    return [(typed, printed) for typed, _, printed in parts]


@pytest.fixture(scope="module")
def first_release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder in which the commands of the README ran, and what each printed."""
    folder = tmp_path_factory.mktemp("first_release")
    return folder, {typed: output_of(typed.split(), folder) for typed, _ in readme_session()}


@FIRST_RELEASE
@pytest.mark.pages
def test_readme_runs(first_release: tuple[Path, dict[str, str]]) -> None:
    """The first command but for the installation; each command shown prints what is shown."""
    folder, output = first_release
    command = next(block.text for block in blocks_of(README) if block.language == "sh")
    steps = [step.strip().removeprefix(".venv/bin/") for step in command.split("&&")]
    assert steps[:2] == ["python3 -m venv .venv", "pip install ."]
    shown = readme_session()
    assert set(steps[2:]) < {typed for typed, _ in shown}
    assert len(shown) == 4
    for typed, printed in shown:
        assert masked(output[typed]) == masked(printed), typed
    assert masked("OK to release.") != masked("Released.")
    release = folder / "out" / "release"
    for statistic in ("counts", "means"):
        assert len(pd.read_csv(release / "tables" / f"{statistic}.csv")) == 27
    privacy = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
    assert privacy["guarantee"] == "zero-concentrated differential privacy"


def test_the_readme_s_second_specification_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "`ex/spec_pseudo_posterior.toml`" in README.read_text(encoding="utf-8")
    run_shell("surveysynth example ex --n 400")
    run_shell("surveysynth release ex/spec_pseudo_posterior.toml --out papers")
    release = tmp_path / "papers" / "release"
    privacy = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
    assert privacy["guarantee"] == "asymptotic differential privacy"
    assert len(pd.read_csv(release / "tables" / "means.csv")) == 27


def test_readme_specification_is_the_example_s(tmp_path: Path) -> None:
    """The specification in the README is valid, with the example's settings."""
    from surveysynth.api.start import write_example
    from surveysynth.config.spec import load_spec

    spec = load_spec(write_example(tmp_path, n=100)[1])
    for document in (README, ROOT / "vignettes" / "quick_start.md"):
        shown = next(block.text for block in blocks_of(document) if block.language == "toml")
        path = tmp_path / "shown.toml"
        path.write_text(shown, encoding="utf-8")
        loaded = load_spec(path)
        for section in ("survey", "synthesizer", "privacy", "outcomes"):
            assert getattr(loaded, section) == getattr(spec, section), (document, section)
        assert loaded.table.by == spec.table.by
        assert loaded.table.statistics == spec.table.statistics


def test_the_example_s_second_specification_is_the_first_with_another_privacy(
    tmp_path: Path,
) -> None:
    """As the README and the quick start say."""
    from surveysynth.api.start import write_example
    from surveysynth.config.spec import load_spec

    written = write_example(tmp_path / "ex", n=100)[1]
    papers = load_spec(written.with_name("spec_pseudo_posterior.toml"))
    first = load_spec(written)
    assert (papers.survey, papers.synthesizer, papers.table) == (
        first.survey, first.synthesizer, first.table
    )  # fmt: skip
    assert papers.outcomes == {}
    assert not papers.privacy.rebuildable
    assert first.privacy.rebuildable


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    files = [target.partition("#")[0] for target in targets if "://" not in target]
    assert [target for target in files if not (document.parent / target).exists()] == []


def anchors_of(text: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a document."""
    plain = BLOCK.sub("", text)
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(plain))
    return {title.strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_anchors_are_headings(document: Path) -> None:
    for target in LINK.findall(document.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        if anchor and "://" not in target:
            page = document.parent / file if file else document
            assert anchor in anchors_of(page.read_text(encoding="utf-8")), target


def unknown_sections(text: str, page: str, word: str = "methods") -> list[str]:
    """Return the numbers that ``text`` cites by ``word`` and that are no section of ``page``."""
    sections = dict(NUMBERED.findall(page))
    unknown = []
    for numbers, clusters in CITED[word].findall(text):
        cited = re.findall(_NUMBER, numbers)
        unknown += [number for number in cited if number not in sections]
        titles = [title for each, title in sections.items() if each.startswith(f"{cited[-1]}.")]
        if clusters and "Clusters" not in titles:
            unknown.append(f"{cited[-1]}, clusters")
    return unknown


def cited_text(word: str) -> str:
    """Return the pages that a word cites, as one text."""
    return "\n".join(page.read_text(encoding="utf-8") for page in CITED_PAGES[word])


@pytest.mark.parametrize("word", CITED_PAGES)
def test_numbers_of_sections_are_unique(word: str) -> None:
    numbers = [number for number, _ in NUMBERED.findall(cited_text(word))]
    assert len(numbers) == len(set(numbers)) > 10


@pytest.mark.parametrize("word", CITED_PAGES)
def test_cited_sections_exist(word: str) -> None:
    page = cited_text(word)
    found = {
        path.relative_to(ROOT).as_posix(): unknown_sections(path.read_text("utf-8"), page, word)
        for path in SOURCES
    }
    assert {name: unknown for name, unknown in found.items() if unknown} == {}


def test_sections_that_the_glossary_names_exist() -> None:
    text = (ROOT / "vignettes" / "glossary.md").read_text(encoding="utf-8")
    brackets = re.findall(rf"\(({_NUMBER}(?:, {_NUMBER})*)\)", text)
    named = {number for each in brackets for number in each.split(", ")}
    assert len(named) > 20
    assert named <= {number for number, _ in NUMBERED.findall(METHODS.read_text("utf-8"))}


def test_citations_of_the_methods_are_found_and_judged() -> None:
    methods = METHODS.read_text(encoding="utf-8")
    # In parts, since this file is looked at too.
    word = "methods"
    planted = f"({word} 9) {word} 2, 3.5 and 8.7; {word}\n3-10, ({word} 5, clusters) {word}."
    assert unknown_sections(planted, methods) == ["9", "8.7", "10", "5, clusters"]
    assert unknown_sections(f"({word} 8.3) {word} 2 and 4 ({word} 3, clusters)", methods) == []
    assert unknown_sections(f"{word} 4", methods.replace("## 4. ", "## ")) == ["4"]
    texts = [path.read_text(encoding="utf-8") for path in SOURCES]
    for page, least in (("methods", 100), ("strict", 8)):  # the patterns find what the code says
        assert sum(len(CITED[page].findall(text)) for text in texts) > least
    other = "strict"
    strict = cited_text(other)
    assert unknown_sections(f"({other} 1 and 9) {other} 11; {word} 77", strict, other) == ["11"]


@pytest.mark.parametrize(("page", "least"), [(METHODS, 20), (STRICT, 9), (POSTERIOR, 9)])
def test_formulas_survive_markdown(page: Path, least: int) -> None:
    """GitHub removes a backslash before punctuation, and takes dollars only between blanks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    displayed = re.findall(r"^\$\$\n(.*?)^\$\$$", text, re.MULTILINE | re.DOTALL)
    assert len(displayed) > least
    lines = re.sub(r"^\$\$\n.*?^\$\$$", "", text, flags=re.M | re.S).splitlines()
    inline = []
    for line in lines:
        assert line.count("$") % 2 == 0, line
        found = list(re.finditer(r"\$[^$]+\$", line))
        inline += [each[0] for each in found]
        for each in found:
            before, after = line[: each.start()][-1:], line[each.end() :][:1]
            assert before in ("", " ", "("), line
            assert after in ("", *" .,;:)"), line
    for formula in [*displayed, *inline]:
        assert not re.search(r"\\[^A-Za-z]|[<>*]", formula), formula
        assert formula.count("{") == formula.count("}"), formula


def test_every_test_file_names_its_independent_truth() -> None:
    """tests/README.md has one row for each test file, and none for a file that is gone."""
    folder = ROOT / "tests"
    table = (folder / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+\.py)` \| (.*) \|$", table, re.MULTILINE)
    named = [name for name, _ in rows]
    assert len(named) == len(set(named))
    assert set(named) == {path.relative_to(folder).as_posix() for path in folder.rglob("test_*.py")}
    assert all(len(truth) > 10 for _, truth in rows)
