"""Comparisons of outcomes of several kinds: which tables and figures there are, and of what. Truth:
weighted shares worked out here; noise of an epsilon so large that it vanishes."""

from pathlib import Path

import numpy as np
import pytest

from surveysynth.config.build import read_survey
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.evaluation.compare.comparison import Comparison, ModelRun, _with_model
from surveysynth.evaluation.compare.folder import densities, make_pictures
from surveysynth.evaluation.laplace import Noise
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.figure_style import draw
from tests.surveys import small_survey, spec_text, write_survey

SECTIONS = """
[outcomes.benefit]
kind = "semicontinuous"
spikes = [0]
center = 30000
spread = 0.5
[outcomes.employed]
kind = "binary"
[outcomes.sector]
kind = "categorical"
levels = ["x", "y", "z"]
"""


@pytest.fixture
def spec_path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(4)
    frame = small_survey()
    n = len(frame)
    frame = frame.assign(
        benefit=np.where(rng.random(n) < 0.5, 0.0, frame["salary"]),
        sector=rng.choice(["x", "y"], n),
    )
    tables = 'statistics = ["count", "mean", "proportion"]'
    text = spec_text(
        tables=tables, survey="population_size = 30000",
        privacy='epsilon = 1e9\nmechanism = "noisy_statistics"'
    )
    path = write_survey(tmp_path / "in", frame, text)
    path.write_text(path.read_text().replace('outcome = "salary"\n', "") + SECTIONS)
    return path


def test_noise_is_made_of_what_has_a_number(spec_path: Path) -> None:
    spec = load_spec(spec_path)
    survey = read_survey(spec)
    noise = Noise(spec, survey)
    keys = [("count", None), ("mean", "benefit"), ("proportion", "employed")]
    assert list(noise.sample) == keys
    values, weight = survey.confidential.outcome, survey.confidential.sampling_weight
    share = np.average(values[:, 1], weights=weight)
    assert noise.sample["proportion", "employed"]["estimate"][0] == pytest.approx(share, rel=1e-12)
    tables = noise.laplace("paper", np.random.default_rng(1))
    assert list(tables) == keys
    noisy = tables["proportion", "employed"]["estimate"][0]
    assert noisy == pytest.approx(share, abs=1e-5)
    with pytest.raises(InputError, match=r"outcomes.sector.kind: model 'fbp'"):
        _with_model(spec, "fbp")
    assert _with_model(spec, "fbs").synthesizer.model == "fbs"


def test_figures_are_of_amounts_at_no_spike(spec_path: Path) -> None:
    spec = load_spec(spec_path)
    survey = read_survey(spec)
    values, weight = survey.confidential.outcome, survey.confidential.sampling_weight
    assert weight is not None
    dataset = SyntheticDataset(1, 1, values, weight, values, weight)
    runs = {"fbs": ModelRun("FBS", spec, dataset)}
    sample = {key: {"sample": table.assign(rmse=table["se"]), "fbs": table.assign(rmse=table["se"])}
              for key, table in Noise(spec, survey).sample.items()}  # fmt: skip
    comparison = Comparison(spec, survey, "paper", sample, runs)
    names = [picture.name for picture in make_pictures(comparison)]
    assert names == ["rmse", "densities"]
    # Bars of every outcome's categories; of the amount, the density of what is at no spike too.
    bars, panel, *others = draw(densities, comparison).axes
    assert panel.get_title("left") == "Weighted histogram at no spike"
    titles = [each.get_title("left") for each in (bars, *others)]
    assert titles == ["Weighted shares", "Weighted shares: employed", "Weighted shares: sector"]
    regular = np.log(values[values[:, 0] > 0, 0])
    left, right = panel.get_xlim()
    assert left > regular.min() - np.ptp(regular)
    assert right < regular.max() + np.ptp(regular)
