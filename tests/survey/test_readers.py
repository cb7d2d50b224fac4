"""Every reader on the same surveys, and on damaged files. Truth: the frame that the files were
written from; exit codes of the contract, a planted amount and listings of the folder."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings

import surveysynth as ss
from tests.long_runs.readers import RESULT
from tests.survey.reader_inputs import (
    Damage,
    Input,
    damages,
    differences,
    inputs,
    wrong_after,
)

FEW = {"suppress_health_check": list(HealthCheck), "database": None, "derandomize": True}


@settings(max_examples=20, **FEW)
@given(made=inputs())
def test_files_of_every_format_are_one_survey(tmp_path: Path, made: Input) -> None:
    assert differences(made, tmp_path, Counter()) == []


@settings(max_examples=12, **FEW)
@given(damage=damages)
def test_damaged_files_are_refused_in_plain_words(
    tmp_path: Path, capsys: Any, damage: Damage
) -> None:
    assert wrong_after(damage, tmp_path, capsys, Counter()) == []


def test_two_thousand_surveys_were_one_in_every_format() -> None:
    """The long run, ``python -m tests.long_runs.readers``."""
    kept = json.loads(RESULT.read_text(encoding="utf-8"))
    assert kept["failures"] == []
    assert kept["seen"]["frame"] == kept["seen"]["surveys"] + kept["seen"]["refused"] >= 2000
    assert all(kept["seen"][name] >= 500 for name in ("x.dta", "x.sav", "x.xpt", "x.parquet"))


def test_a_reader_that_loses_something_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"by": ["1.50", "2"] * 12, "y": range(1, 25), "weight": 2.0})
    roles = {"by": "by", "outcomes": [ss.Outcome("y")], "weight": "weight", "population_size": 99}
    made = Input(frame, roles, (".csv",))
    assert differences(made, tmp_path, Counter()) == []
    cut = {"pandas.csv": lambda f, path: f.assign(by=f["by"].astype(float)).to_csv(path)}
    monkeypatch.setattr("tests.survey.reader_inputs.WRITERS", cut)
    assert len(differences(made, tmp_path, Counter())) == 1
