"""Which draws and variances are published under either kind of inference, and what is said."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.inference.debias import DebiasRecord
from surveysynth.release.facts import inference_words
from surveysynth.release.pipeline import release

FAST = 'predictors = "field + gender"\nchains = 4\ndraws = 250\nwarmup = 100'


def published(path: Path, out: Path) -> tuple[dict, str, pd.DataFrame]:
    result = release(path, out).out / "release"
    record = json.loads((result / "privacy.json").read_text())
    readme = (result / "README.md").read_text()
    return record, readme, pd.read_csv(result / "microdata" / "draw_01_rep_01.csv")


@pytest.mark.parametrize("model", ["fbs", "fbp"])
def test_debiased_is_the_default_and_every_file_says_so(
    make_spec: Callable[..., Path], tmp_path: Path, model: str
) -> None:
    from surveysynth.evaluation.studies.example import simulate_survey

    frame = simulate_survey(600, np.random.default_rng(1))
    lines = f'model = "{model}"\n{FAST}\ninference = "debiased"'
    path = make_spec(frame, survey="population_size = 100000", synthesizer=lines,
                     privacy="replicates_per_draw = 1")  # fmt: skip
    record, readme, microdata = published(path, tmp_path / "out")
    debiasing = record["debiasing"]
    assert record["settings"]["inference"] == "debiased"
    assert debiasing["status"] == "debiased"
    assert len(debiasing["log_shift"]) == 2
    assert all(0.02 < shift < 0.3 for shift in debiasing["log_shift"])
    assert "debiased draws" in readme
    assert "were released, and then debiased" in readme
    assert any("debiased draws" in paragraph for paragraph in record["statement"])
    drawn = np.log(microdata["weight_for_variance"])
    assert drawn.std() > 1.1 * np.log(microdata["weight"]).std()
    same = (microdata["salary"] == microdata["salary_for_variance"]).all()
    assert same == (model == "fbs")


def test_paper_inference_publishes_one_pair_and_warns(
    make_spec: Callable[..., Path], tmp_path: Path, stand_in_mechanism: None
) -> None:
    record, readme, microdata = published(make_spec(), tmp_path / "out")
    assert record["debiasing"]["status"] == "not asked for"
    assert "cover less than they say" in readme
    assert [name for name in microdata if name.endswith("_for_variance")] == []


def test_a_failure_to_converge_is_a_warning() -> None:
    words = inference_words(
        DebiasRecord("not converged", databases=9, rounds=2, reason="it swings")
    )
    assert words.startswith("WARNING: DEBIASING DID NOT CONVERGE (it swings)")
    assert "as they were released" in words
