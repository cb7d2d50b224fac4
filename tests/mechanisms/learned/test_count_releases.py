"""Releases with a count, alone and beside other kinds, against the means of the sample."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.release.pipeline import rebuild
from tests.mechanisms.learned.count_cases import count_frame

SPEC = """
spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
population_size = 120000
{survey}
[synthesizer]
outcome = {outcomes}
predictors = "{predictors}"
[outcomes.visits]
kind = "count"
range = [0, 40]
{others}
[privacy]
mechanism = "noisy_statistics"
epsilon = 10.8
m = 10
replicates_per_draw = 2
[tables]
by = {by}
statistics = ["count", "mean", "median"]
"""


@pytest.mark.parametrize(
    ("outcomes", "by", "survey"),
    [
        (["visits"], ["region"], ""),
        (["visits"], ["sex"], 'psu = "unit"'),
        pytest.param(["visits", "insured", "income"], ["sex"], "", marks=pytest.mark.slow),
    ],
)
def test_releases_have_whole_counts_and_the_means_of_the_sample(
    tmp_path: Path, outcomes: list[str], by: list[str], survey: str
) -> None:
    frame = count_frame(1000)
    frame.to_csv(tmp_path / "survey.csv", index=False)
    others = '[outcomes.insured]\nkind = "binary"\n' * ("insured" in outcomes)
    others += "[outcomes.income]\nrange = [0, 2000000]\n" * ("income" in outcomes)
    (tmp_path / "spec.toml").write_text(SPEC.format(
        outcomes=json.dumps(outcomes), predictors=" * ".join(by), by=json.dumps(by),
        others=others, survey=survey,
    ))  # fmt: skip
    ss.release(
        tmp_path / "spec.toml", tmp_path / "out", ledger=tmp_path / "ledger.jsonl", seed=2
    )
    release = tmp_path / "out" / "release"
    made = pd.concat([pd.read_csv(path) for path in (release / "microdata").glob("*.csv")])
    assert made["visits"].dtype == np.int64
    assert made["visits"].between(0, 40).all()
    sample, synthetic = frame.groupby(by), made.groupby(by)
    se = sample["visits"].std() / np.sqrt(sample.size())
    apart = (synthetic["visits"].mean() - sample["visits"].mean()) / se
    assert np.sqrt((apart**2).mean()) < 2.5
    zeros = frame["visits"].eq(0).mean()
    assert made["visits"].eq(0).mean() == pytest.approx(zeros, abs=0.07)
    codebook = json.loads((release / "codebook.json").read_text())
    (column,) = [each for each in codebook["columns"] if each["name"] == "visits"]
    assert column["type"] == "integer"
    assert column["declared"]["kind"] == "count"
    assert "rounded_to" not in column
    assert rebuild(release, tmp_path / "again").different == ()
