"""The page of ten surveys. Truth: the golden summaries that were measured; their specifications."""

import json
import tomllib
from pathlib import Path

import pytest

from surveysynth.config.spec import load_spec
from tests.long_runs.ten_surveys import files, summary

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "vignettes" / "will_it_work.md").read_text(encoding="utf-8")
SPECS = sorted((ROOT / "tests" / "long_runs" / "ten_surveys").glob("*.toml"))


def test_the_table_is_that_of_the_golden() -> None:
    golden = json.loads(summary.GOLDEN.read_text(encoding="utf-8"))
    lines = summary.table(golden)
    assert len(lines) == len(files.FILES) + 2
    assert "\n".join(lines) in PAGE
    worse = json.loads(summary.GOLDEN.read_text(encoding="utf-8"))
    worse["nhis"]["10.8"]["statistics"]["share"]["median distance"] += 0.1
    assert "\n".join(summary.table(worse)) not in PAGE


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= 110


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_specification_is_valid_and_of_a_file(path: Path) -> None:
    assert load_spec(path).privacy.mechanism == "noisy_statistics"
    data = tomllib.loads(path.read_text(encoding="utf-8"))["survey"]["data"]
    assert Path(data).stem in {each.name for each in (*files.FILES, files.UNSEEN)}
