"""Taylor estimates against svy and samplics (``golden/other_programs.json``) and R's survey: all
designs of ``golden/taylor_survey.R``, cells and margins. Rejects another design's numbers."""

import json

import pandas as pd
import pytest

from tests.long_runs.other_programs import RESULTS, cases, differences, ours

CLOSE = 1e-9
#: Designs with lonely PSUs in which svy has rules of its own.
APART = {
    "lonely clusters, certainty", "lonely records, adjust", "lonely clusters, adjust",
    "lonely clusters with fpc, adjust", "lonely clusters with fpc, average",
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    return differences()


def test_every_program_has_the_same_estimates(found: pd.DataFrame) -> None:
    assert set(found["program"]) == {"R survey", "R survey, calibrated", "svy", "samplics"}
    assert (found["estimate"] < CLOSE).all()
    assert (found["rows"] >= 10).all()


@pytest.mark.parametrize("program", ["R survey", "R survey, calibrated", "samplics"])
def test_standard_errors_are_the_same_in_every_design(found: pd.DataFrame, program: str) -> None:
    own = found[found["program"] == program]
    assert (own["se"] < CLOSE).all()
    assert own["design"].nunique() == (5 if program == "samplics" else len(cases()))


def test_svy_differs_where_psus_are_lonely_and_nowhere_else(found: pd.DataFrame) -> None:
    own = found[found["program"] == "svy"].groupby("design")["se"].max()
    assert set(own.index[own > CLOSE]) == APART
    assert (own[[name for name in own.index if not name.startswith("lonely")]] < CLOSE).all()


def test_another_design_is_found_out() -> None:
    kept = {each["name"]: each for each in json.loads(RESULTS.read_text())["cases"]}
    case = next(each for each in cases() if each["name"] == "unstratified")
    mine = ours(case, "mean", "plain")["se"]
    theirs = pd.DataFrame(kept["stratified"]["svy"]["mean"], index=["estimate", "se"]).T["se"]
    gap = (theirs.reindex(mine.index) / mine - 1.0).abs()
    assert gap.max() > 0.01
