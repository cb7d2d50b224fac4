"""The recipe "Adding a synthesizer" of the documentation, followed to the letter in a copy of the
package: its file and its line are all that it takes from the specification to the release."""

import difflib
import filecmp
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import surveysynth

PACKAGE = Path(surveysynth.__file__).parent
CHECKOUT = PACKAGE.parent
REGISTRY = "models/__init__.py"
NEW = ("models/plain.py",)

# Everything in one new process, which imports the copy.
COMMANDS = """
import contextlib, io, json, sys
from surveysynth import cli
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
    answers.append([code, out.getvalue(), err.getvalue()])
json.dump([cli.__file__, answers], sys.stdout)
"""

SPEC = """
spec_version = 1
[survey]
data = "example/survey.csv"
weight = "weight"
strata = "field"
population_size = 100000
[synthesizer]
model = "plain"
outcome = "salary"
predictors = "field"
warmup = 100
draws = 150
priors = { PRIOR = 2.0 }
[privacy]
mechanism = "pseudo_posterior"
epsilon = 30
[tables]
by = ["field"]
statistics = ["count", "mean"]
formats = ["csv"]
"""


def blocks() -> list[str]:
    """The recipe's blocks of code, in their order: a file and a line of the registry."""
    text = (CHECKOUT / "vignettes" / "technical" / "extending.md").read_text(encoding="utf-8")
    recipe = text.partition("## Adding a synthesizer")[2].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", recipe, re.DOTALL)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__")
    package = Path(shutil.copytree(PACKAGE, root / "surveysynth", ignore=ignored))
    shutil.copy(CHECKOUT / "pyproject.toml", root)
    for name in ("stan", "tables"):
        (root / name).symlink_to(CHECKOUT / name)
    *files, line = blocks()
    for name, content in zip(NEW, files, strict=True):
        (package / name).write_text(content, encoding="utf-8")
    registry = (package / REGISTRY).read_text(encoding="utf-8")
    opening = "_REGISTRY = {\n"
    assert registry.count(opening) == 1
    registry = registry.replace(opening, opening + line)
    (package / REGISTRY).write_text(registry, encoding="utf-8")
    return package


@pytest.fixture(scope="module")
def answers(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """What example, check, release and a mistyped prior answer, run in the folder returned."""
    folder = tmp_path_factory.mktemp("run")
    spec, wrong = folder / "plain.toml", folder / "wrong.toml"
    commands = [
        ["example", str(folder / "example"), "--n", "500", "--seed", "1"],
        ["check", str(spec), "--verbose"],
        ["release", str(spec), "--out", str(folder / "out"), "--seed", "2"],
        ["check", str(wrong)],
    ]
    spec.write_text(SPEC.replace("PRIOR", "coefficient_sd"), encoding="utf-8")
    wrong.write_text(SPEC.replace("PRIOR", "shap"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps(commands), capture_output=True, text=True, check=False, cwd=folder,
        env={"PYTHONPATH": str(copy.parent), "HOME": str(folder), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran, answers = json.loads(done.stdout)
    assert Path(ran).is_relative_to(copy)
    return folder, answers


def test_it_takes_one_file_and_one_line(copy: Path) -> None:
    mine = {str(path.relative_to(copy)) for path in copy.rglob("*.py")}
    before = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")}
    assert mine - before == set(NEW)
    _, changed, missing = filecmp.cmpfiles(PACKAGE, copy, sorted(before), shallow=False)
    assert (changed, missing) == ([REGISTRY], [])
    lines = [(root / REGISTRY).read_text(encoding="utf-8").split("\n") for root in (PACKAGE, copy)]
    different = [each for each in difflib.ndiff(*lines) if not each.startswith("  ")]
    assert different == ['+     "plain": "plain.Plain",']


def test_check_knows_it(answers: tuple[Path, list[list[str]]]) -> None:
    code, out, err = answers[1][1]
    assert (code, err) == (0, "")
    assert "Model: plain, predictors field" in out
    assert out.startswith("OK to release.")


def test_a_mistyped_prior_is_named(answers: tuple[Path, list[list[str]]]) -> None:
    code, out, err = answers[1][3]
    assert (code, out) == (2, "")
    assert "priors: unknown name 'shap' for model 'plain'. Did you mean 'shape'?" in err


def test_its_release_is_of_the_survey(answers: tuple[Path, list[list[str]]]) -> None:
    folder, results = answers
    assert results[2][0] == 0, results[2][2]
    release = folder / "out" / "release"
    facts = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
    assert (facts["model"], facts["settings"]["priors"]) == ("plain", {"coefficient_sd": 2.0})
    # The model has outcome and weight independent within a field: means of records, unweighted.
    survey = pd.read_csv(folder / "example" / "survey.csv", dtype={"field": str})
    truth = np.log(survey["salary"]).groupby(survey["field"]).agg(["mean", "var", "size"])
    estimate = pd.read_csv(release / "tables" / "means.csv", dtype={"field": str})
    cells = estimate[~estimate["is_margin"]].set_index("field")
    expected = np.exp(truth["mean"] + truth["var"] / 2)
    z = (cells["estimate"] - expected) / cells["se"]
    assert len(z) == len(truth)
    assert np.abs(z).max() < 4
    assert np.corrcoef(cells["estimate"], expected)[0, 1] > 0.8
