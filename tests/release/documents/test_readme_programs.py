"""The programs that a README prints, run as a data user would. Truth: the published tables, which
the package estimated by other code; 1e-9."""

import contextlib
import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from surveysynth.inference import synthesis as synthesis_module
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.documents.readme import r_literal
from surveysynth.release.pipeline import release
from surveysynth.release.writers.csv import plain_text
from tests.surveys import NOISY, MakeSpec, lonely_survey, small_survey, spec_text, write_survey

pytestmark = pytest.mark.usefixtures("stand_in_mechanism")

RATIO = "population_size = 30000"
NAMES = ["=1+1", "it's a 'g'", 'pay "x" \\ `z`', "@weight"]


def program_of(folder: Path, language: str) -> str:
    """The one block of a language in the README."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(rf"```{language}\n(.*?)\n```", readme, re.DOTALL)
    return str(program)


def run_python(folder: Path) -> tuple[float, ...]:
    """Estimate and standard error that the Python program prints."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(program_of(folder, "python"), "README.md", "exec"), {"__name__": "__main__"})
    return tuple(map(float, printed.getvalue().split()))


def run_r(folder: Path) -> tuple[float, ...]:
    """The same from the R program."""
    script = folder.parent / "example.R"
    script.write_text(program_of(folder, "r"), encoding="utf-8")
    done = subprocess.run(
        ["Rscript", "--vanilla", str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return tuple(map(float, done.stdout.split()))


@cache
def has_r() -> bool:
    return shutil.which("Rscript") is not None


@cache
def has_haven() -> bool:
    """Whether R is there, with the package that reads files of Stata and SPSS."""
    asked = ["Rscript", "-e", "quit(status = !requireNamespace('haven', quietly = TRUE))"]
    return has_r() and subprocess.run(asked, capture_output=True, check=False).returncode == 0


def results(folder: Path, *, r: bool = True) -> list[tuple[float, ...]]:
    """What the programs print: that in Python and, unless ``r`` is False or R is missing, in R."""
    return [run_python(folder), *([run_r(folder)] if r and has_r() else [])]


def published(folder: Path) -> tuple[float, ...]:
    """The numbers of the row of a table that the README says its programs recompute."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    ((table, row),) = re.findall(r"`(tables/\w+)` \(data row (\d+)\)", readme)
    record = pd.read_csv(folder / f"{table}.csv", keep_default_na=False).iloc[int(row) - 1]
    return float(record["estimate"]), float(record["se"])


def assert_recomputes(folder: Path, *, r: bool, error: float = 1e-9) -> None:
    """``error``: of the standard error, relative."""
    estimate, se = published(folder)
    assert se > 0
    for numbers in results(folder, r=r):
        assert numbers[0] == pytest.approx(estimate, rel=1e-9)
        assert numbers[1:] == pytest.approx((se,), rel=error)


@pytest.mark.skipif(not has_r(), reason="Rscript is not installed: programs run in Python only")
def test_programs_run_in_r(make_spec: MakeSpec, tmp_path: Path) -> None:
    """Shown as skipped where no test of this file runs a program in R."""
    release(make_spec(), tmp_path / "out")
    assert_recomputes(tmp_path / "out" / "release", r=True)


@pytest.fixture
def separate_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variances from values that differ from those of the estimates."""
    ordinary = synthesis_module.synthesize

    def with_pair(*arguments: Any, **named: Any) -> Iterator[SyntheticDataset]:
        for dataset in ordinary(*arguments, **named):
            outcome, weight = dataset.outcome**1.1, dataset.weight[::-1].copy()
            yield replace(dataset, variance_outcome=outcome, variance_weight=weight)

    monkeypatch.setattr(synthesis_module, "synthesize", with_pair)


@pytest.mark.parametrize(
    ("lines", "frame"),
    [
        ({"survey": RATIO}, None),
        ({"survey": 'fpc = "fraction"'}, None),
        ({"survey": RATIO, "tables": 'statistics = ["count"]'}, None),
        ({"tables": 'statistics = ["count"]'}, None),
        ({"privacy": "m = 1\nreplicates_per_draw = 1"}, None),
        ({"data": "survey.parquet"}, None),
        ({"survey": f'{RATIO}\nlonely_psu = "remove"'}, "lonely"),
        ({"survey": f'{RATIO}\nlonely_psu = "adjust"'}, "lonely"),
        ({"survey": 'lonely_psu = "average"', "tables": 'statistics = ["count"]'}, "lonely"),
        ({"survey": f'{RATIO}\nlonely_psu = "average"'}, "lonely"),
    ],
)
def test_programs_recompute_a_published_number(
    make_spec: MakeSpec, tmp_path: Path, lines: dict[str, str], frame: str | None
) -> None:
    spec = make_spec(lonely_survey() if frame else None, **lines)
    release(spec, tmp_path / "out")
    # R reads parquet files with a package of its own, which need not be there.
    assert_recomputes(tmp_path / "out" / "release", r="parquet" not in lines.get("data", ""))


@pytest.mark.parametrize("statistic", ["mean", "count"])
def test_programs_take_variances_from_a_pair_of_their_own(
    make_spec: MakeSpec, tmp_path: Path, separate_pair: None, statistic: str
) -> None:
    release(
        make_spec(survey=RATIO, tables=f'statistics = ["{statistic}"]'), tmp_path / "out"
    )
    folder = tmp_path / "out" / "release"
    assert_recomputes(folder, r=True)
    codebook = json.loads((folder / "codebook.json").read_text())
    assert codebook["variance_pair"]["outcomes"] == ["salary_for_variance"]
    assert codebook["synthetic_columns"][2:] == ["salary_for_variance", "weight_for_variance"]
    # A program that took them from the other pair would not agree.
    for language in ("python", "r"):
        assert "VARIANCE_WEIGHT" in program_of(folder, language)
    readme = (folder / "README.md").read_text()
    for name in ("weight", "salary"):
        readme = readme.replace(f'"{name}_for_variance"', f'"{name}"').replace(
            f"'{name}_for_variance'", f"'{name}'")  # fmt: skip
    (folder / "README.md").write_text(readme)
    expected = published(folder)
    for numbers in results(folder):
        assert numbers[0] == pytest.approx(expected[0], rel=1e-9)
        assert numbers[1] != pytest.approx(expected[1], rel=1e-6)


#: An amount and an answer, for the mechanism that takes answers.
KINDS = """outcome = ["salary", "employed"]
[outcomes.salary]
center = 22000
spread = 0.6
[outcomes.employed]
kind = "binary"
"""


@pytest.mark.parametrize(
    ("model", "more"), [("fbs", 'fpc = "fraction"'), ("fbp", "population_size = 30000")]
)
def test_programs_sum_within_primary_sampling_units(
    make_spec: MakeSpec, tmp_path: Path, model: str, more: str
) -> None:
    frame = small_survey()
    # Labels repeat from stratum to stratum; the third stratum has a single unit.
    frame["psu"] = np.where(frame["field"] == "c", 1, np.arange(len(frame)) // 20 % 4)
    survey = f'psu = "psu"\nlonely_psu = "adjust"\n{more}'
    kinds = f"model = '{model}'\n{KINDS.partition('[outcomes.employed]')[0]}".replace(
        ', "employed"', ""
    )
    weight = "[outcomes.weight]\ncenter = 4\nspread = 0.6\n"
    spec = make_spec(frame, survey=survey, synthesizer=kinds + weight, privacy=NOISY)
    release(spec, tmp_path / "out")
    assert_recomputes(tmp_path / "out" / "release", r=True)


@pytest.mark.parametrize(
    ("survey", "statistic"),
    [
        (f'{RATIO}\nfpc = "fraction"', "mean"),
        (RATIO, "count"),
        ('lonely_psu = "average"', "count"),
    ],
)
def test_programs_multiply_by_a_declared_design_effect(
    make_spec: MakeSpec, tmp_path: Path, survey: str, statistic: str
) -> None:
    frame = small_survey()
    frame["psu"] = np.where(frame["field"] == "c", frame.index % 2, np.arange(len(frame)) // 20 % 4)
    effect = 'psu = "psu"\ndesign_effect = 2.25\n'
    tables = f'statistics = ["{statistic}"]'
    release(make_spec(frame, survey=effect + survey, tables=tables), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    assert_recomputes(folder, r=True)
    # Without the factor the standard error is two thirds, but for what varies between draws.
    readme = (folder / "README.md").read_text()
    (folder / "README.md").write_text(readme.replace("DESIGN_EFFECT * ", ""))
    for numbers in results(folder):
        assert numbers[0] == pytest.approx(published(folder)[0], rel=1e-9)
        assert numbers[1] < 0.9 * published(folder)[1]


def test_programs_bear_odd_names_and_codes(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    group, stratum, outcome, weight = NAMES
    frame = small_survey().rename(
        columns={"gender": group, "field": stratum, "salary": outcome, "weight": weight}
    )
    frame[group] = frame[group].map({"f": "=cmd|' /C calc'!A0", "m": "NA"})
    frame[stratum] = frame[stratum].map({"a": "-1", "b": "+x", "c": "Ünï `c`"})
    text = spec_text(
        survey=f"weight = {json.dumps(weight)}\nstrata = {json.dumps(stratum)}",
        synthesizer=f"outcome = {json.dumps(outcome)}\ninference = 'paper'",
        tables=f"by = [{json.dumps(group)}, {json.dumps(stratum)}]",
        # NA is missing unless it is listed.
        labels=f'[labels.{json.dumps(group)}.levels]\n'
        '"=cmd|\' /C calc\'!A0" = "=cmd|\' /C calc\'!A0"\n"NA" = "NA"\n',
    )
    write_survey(folder, frame, text)
    release(folder / "spec.toml", tmp_path / "out")
    public = tmp_path / "out" / "release"
    assert_recomputes(public, r=True)
    for path in sorted(public.rglob("*.csv")):
        cells = pd.read_csv(path, dtype=str, header=None, keep_default_na=False)
        # No cell that a spreadsheet would run: text is marked, numbers are numbers.
        starts = [c for c in cells.to_numpy().ravel() if c[:1] in tuple("=+-@")]
        assert all(re.fullmatch(r"[+-]?[\d.]+(e[+-]\d+)?", c) for c in starts)
        assert plain_text(cells.iloc[0, 0]) in (group, stratum)


def test_example_is_a_number_that_is_published(make_spec: MakeSpec, tmp_path: Path) -> None:
    frame = small_survey()
    # The first interior cell has few records and is withheld.
    frame = frame[(frame["field"] != "a") | (frame["gender"] == "m") | (frame.index < 45)]
    limits = "flags = { suppress = { n = 15 } }"
    release(make_spec(frame, tables=limits), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    means = pd.read_csv(folder / "tables" / "means.csv")
    assert means[~means["is_margin"]]["estimate"].isna().iloc[0]
    assert_recomputes(folder, r=False)
    release(make_spec(frame, tables="flags = { suppress = { n = 1000 } }"), tmp_path / "all")
    readme = (tmp_path / "all" / "release" / "README.md").read_text()
    assert "withheld as unreliable" in readme
    assert np.isfinite(run_python(tmp_path / "all" / "release")).all()


def test_another_cell_and_no_outcome_are_another_number(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    """As the README says: all programs of a release are one."""
    release(make_spec(survey=RATIO), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    readme = (folder / "README.md").read_text()
    python, r = (program_of(folder, language) for language in ("python", "r"))
    changed = re.sub(r"CELL = .*\nOUTCOME, ", "CELL = {'field': 'b'}\nOUTCOME, ", python)
    changed = changed.replace("WEIGHT = 'salary'", "WEIGHT = None")
    in_r = re.sub(r"CELL <- .*", 'CELL <- c(field = "b")', r)
    in_r = re.sub(r'OUTCOME <- "salary"', "OUTCOME <- NULL", in_r)
    (folder / "README.md").write_text(readme.replace(python, changed).replace(r, in_r))
    counts = pd.read_csv(folder / "tables" / "counts.csv")
    row = counts[(counts["field"] == "b") & (counts["gender"] == "All")].iloc[0]
    for numbers in results(folder):
        assert numbers == pytest.approx((row["estimate"], row["se"]), rel=1e-9)


def test_programs_count_where_no_table_has_counts_or_means(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    release(make_spec(tables='statistics = ["median"]'), tmp_path / "out")
    folder = tmp_path / "out" / "release"
    data = pd.read_csv(next((folder / "microdata").iterdir()))
    assert "No table of all records has counts or means" in (folder / "README.md").read_text()
    for estimate, error in results(folder):
        assert estimate == pytest.approx(data["weight"].sum(), rel=0.2)
        assert error > 0


@example("\\x60")
@example("\\`")
@given(st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=8))
def test_a_text_of_r_cannot_end_the_block_it_stands_in(text: str) -> None:
    written = r_literal(text)
    assert "`" not in written
    assert "\n" not in written
    # A backslash that is escaped itself begins no x60.
    assert json.loads(re.sub(r"(?<!\\)((?:\\\\)*)\\x60", r"\1`", written)) == text
