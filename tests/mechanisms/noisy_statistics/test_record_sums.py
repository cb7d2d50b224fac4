"""Addends of records. Truth: who has an answer adds to other sums than who has none."""

from pathlib import Path

import numpy as np
import pandas as pd

from surveysynth.config.build import model_of, noisy_settings_of, read_survey
from surveysynth.config.spec import parse_spec
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    record_sums,
    release_statistics,
)
from surveysynth.survey.survey import Confidential

TEXT = """
[survey]
data = "survey.csv"
weight = "weight"
missing = "model"
[synthesizer]
outcome = ["pay"]
[outcomes.pay]
centre = 20000
spread = 0.5
[outcomes.weight]
centre = 1
spread = 0.5
[privacy]
mechanism = "noisy_statistics"
epsilon = 5
[tables]
by = ["region"]
statistics = ["count"]
"""


def test_a_dataset_may_have_no_record_of_a_set_of_amounts_in_a_group(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({
        "region": np.repeat(["n", "s"], 30), "pay": 20_000.0 * rng.lognormal(0.0, 0.4, 60),
        "weight": 3.0,
    })  # fmt: skip
    frame.loc[:2, "pay"] = np.nan
    frame.to_csv(tmp_path / "survey.csv", index=False)
    spec = parse_spec(TEXT, tmp_path / "spec.toml")
    survey = read_survey(spec)
    design, own = survey.design, survey.confidential
    model = model_of(spec).under_noise().of(design)
    statistics = release_statistics(
        model, design, own, noisy_settings_of(spec), SeededNoise(rng)
    )  # fmt: skip
    addends = record_sums(model, design, statistics, own)
    answered = Confidential(np.nan_to_num(own.outcome, nan=20_000.0), own.sampling_weight)
    filled = record_sums(model, design, statistics, answered)
    # Those who had answered add the same, and nobody adds to the sums of those without an answer.
    np.testing.assert_allclose(filled[3:], addends[3:])
    of_others = (addends[3:] == 0).all(axis=0) & (addends[:3] != 0).any(axis=0)
    assert of_others.any()
    assert (filled[:, of_others] == 0).all()
