"""Codes for no answer. Truth: the same file with blank cells in their place."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.build import read_survey
from surveysynth.config.spec import parse_spec
from surveysynth.errors import InputError
from surveysynth.survey.survey import Survey

TEXT = """
[survey]
data = "{name}"
weight = "weight"
population_size = 4000
missing = "{missing}"
[synthesizer]
outcome = ["income", "smokes", "health"]
[outcomes.income]
range = [0, 500000]
missing_codes = [-9, 999999]
[outcomes.smokes]
kind = "binary"
levels = ["2", "1"]
missing_codes = [-9]
[outcomes.health]
kind = "categorical"
levels = ["1", "2", "3"]
missing_codes = [8, 9.0]
[privacy]
mechanism = "noisy_statistics"
epsilon = 3.6
[tables]
by = ["region"]
statistics = ["count"]
"""


def coded(n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    income = rng.gamma(2.0, 20_000.0, n).round()
    return pd.DataFrame({
        "region": rng.choice(["n", "s"], n),
        "income": rng.choice([-9.0, 999_999.0, np.nan], n),
        "smokes": rng.choice([-9, 1, 2], n),
        "health": rng.choice([1, 2, 3, 8, 9], n),
        "weight": 20.0,
    }).assign(income=lambda f: f["income"].where(rng.random(n) < 0.3, income))  # fmt: skip


def survey(folder: Path, frame: pd.DataFrame, missing: str, name: str = "survey.csv") -> Survey:
    path = folder / name
    (frame.to_csv if name.endswith("csv") else frame.to_parquet)(path, index=False)
    spec = parse_spec(TEXT.format(name=name, missing=missing), folder / "spec.toml")
    return read_survey(spec)


@pytest.mark.parametrize("missing", ["drop", "model"])
@pytest.mark.parametrize("name", ["survey.csv", "survey.parquet"])
def test_a_code_is_a_blank_cell(tmp_path: Path, missing: str, name: str) -> None:
    frame = coded()
    blank = frame.assign(
        income=frame["income"].where(~frame["income"].isin([-9, 999_999])),
        smokes=frame["smokes"].where(frame["smokes"] > 0),
        health=frame["health"].where(frame["health"] < 8),
    )
    (tmp_path / "blank").mkdir()
    found = survey(tmp_path, frame, missing, name)
    truth = survey(tmp_path / "blank", blank, missing)
    assert found.design.n == truth.design.n
    assert (found.design.dropped > 0) == (missing == "drop")
    np.testing.assert_array_equal(found.confidential.outcome, truth.confidential.outcome)


def test_missing_says_what_becomes_of_codes_and_no_code_is_a_level(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"income\.missing_codes: survey\.missing must say"):
        survey(tmp_path, coded(), "fail")
    both = TEXT.replace("missing_codes = [8, 9.0]", "missing_codes = [3]")
    with pytest.raises(InputError, match="missing_codes: '3' is one of the levels"):
        parse_spec(both.format(name="survey.csv", missing="drop"), tmp_path / "spec.toml")
