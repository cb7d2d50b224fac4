"""The vignette of a model of one's own, block by block. Truth: the survey's own estimates."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.sampling.stan.backends import BACKEND_VARIABLE

VIGNETTE = Path(__file__).parents[2] / "vignettes" / "technical" / "student_t"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_vignette(folder: Path) -> None:
    """Python blocks in one namespace, commands by this Python."""
    shutil.copytree(VIGNETTE, folder, dirs_exist_ok=True)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, text in BLOCK.findall((folder / "README.md").read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(text, "README.md", "exec"), namespace)
        else:
            words = text.split()
            assert words[:2] == ["surveysynth", "release"]
            done = subprocess.run(
                [sys.executable, "-m", *words], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
    check_means(folder)


def check_means(folder: Path) -> None:
    """Published means lie within five standard errors (of both) of the survey's own."""
    survey = pd.read_csv(folder / "survey.csv")
    published = pd.read_csv(folder / "out/release/tables/means.csv").set_index("region")
    for region, rows in survey.groupby("region"):
        mean = np.average(rows["income"], weights=rows["weight"])
        error = np.hypot(published["se"][region], rows["income"].std() / len(rows) ** 0.5)
        assert abs(published["estimate"][region] - mean) < 5 * error


@pytest.mark.slow
@pytest.mark.pystan
def test_with_pystan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BACKEND_VARIABLE, "pystan")
    monkeypatch.chdir(tmp_path)
    run_vignette(tmp_path)


@pytest.mark.cmdstan
def test_with_cmdstan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    run_vignette(tmp_path)


def test_links_lead_somewhere() -> None:
    text = (VIGNETTE / "README.md").read_text(encoding="utf-8")
    assert [
        name
        for name in re.findall(r"\]\(([^)]+)\)", text)
        if not (VIGNETTE / name.split("#")[0]).exists()
    ] == []
