"""Fuzzed specifications and survey files: refused in plain words, with nothing written or shown.

Truth: exit codes 2 and 3 by the contract, canaries, and the folders as they were.
"""

from pathlib import Path

import pytest

from surveysynth import cli
from tests.release.fuzzing import CANARIES, make_case, survey


def outcome_of(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is wrong with how the case of a seed ends; empty where nothing is."""
    case = make_case(seed, folder)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    # Preview and release take turns; a case that is sound after all is refused by its epsilon.
    wanted = ["release", "--out", str(folder / "out")] if seed % 3 else ["check"]
    code = cli.main([wanted[0], str(case.spec), *wanted[1:]])
    said = capsys.readouterr()
    problems = [f"exit {code}"] if code not in (2, 3) else []
    problems += ["a canary is shown" for each in CANARIES if each in said.out + said.err]
    problems += ["no word"] if not said.err.startswith("surveysynth: ") else []
    problems += ["a traceback"] if "Traceback" in said.err or "defect" in said.err else []
    if {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} != before:
        problems.append("files differ")
    if any(path.is_dir() for path in folder.iterdir()):
        problems.append("a folder is left")
    return f"{seed} {case.done}: {problems} {said.err[-300:]}" if problems else ""


def run(seeds: range, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    found = []
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        found.append(outcome_of(seed, folder, capsys))
    return [each for each in found if each]


def test_a_few_fuzzed_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(range(60), tmp_path, capsys) == []


@pytest.mark.slow
def test_a_thousand_fuzzed_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(range(60, 1060), tmp_path, capsys) == []


def test_the_canaries_are_in_the_files(tmp_path: Path) -> None:
    """Without them the search would find nothing whatever is shown."""
    text = survey().to_csv()
    assert "73194" in text
    assert "13729" in text
    shown = 0
    for seed in range(60):
        folder = tmp_path / str(seed)
        folder.mkdir()
        make_case(seed, folder)
        shown += "73194" in (folder / "survey.csv").read_bytes().decode("latin-1")
    assert shown > 40
