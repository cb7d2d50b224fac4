"""Which draws and variances are published under either kind of inference, and what is said."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.errors import RefusedError
from surveysynth.inference import debias
from surveysynth.inference.debias import DebiasRecord
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.models.base import Model
from surveysynth.release.facts import inference_words
from surveysynth.release.pipeline import release

FAST = 'predictors = "field + gender"\nchains = 4\ndraws = 250\nwarmup = 100'


def published(path: Path, out: Path) -> tuple[dict, str, pd.DataFrame]:
    """privacy.json, README and dossier, and a dataset."""
    result = release(path, out).out / "release"
    record = json.loads((result / "privacy.json").read_text())
    readme, dossier = ((result / name).read_text() for name in ("README.md", "dossier.md"))
    return record, readme + dossier, pd.read_csv(result / "microdata" / "draw_01_rep_01.csv")


@pytest.mark.parametrize("model", ["fbs", "fbp"])
def test_debiased_is_the_default_and_every_file_says_so(
    make_spec: Callable[..., Path], tmp_path: Path, model: str
) -> None:
    from surveysynth.api.start import simulate_survey

    frame = simulate_survey(600, np.random.default_rng(1))
    lines = f'model = "{model}"\n{FAST}\ninference = "debiased"'
    path = make_spec(frame, survey="population_size = 100000", synthesizer=lines,
                     privacy="replicates_per_draw = 1")  # fmt: skip
    record, readme, microdata = published(path, tmp_path / "out")
    debiasing = record["debiasing"]
    assert record["settings"]["inference"] == "debiased"
    assert debiasing["status"] == "debiased"
    shifts = list(zip(debiasing["kinds"], debiasing["shift"], strict=True))
    scales = [shift for kind, shift in shifts if kind == "scale"]
    locations = [shift for kind, shift in shifts if kind == "location"]
    assert (len(scales), len(locations)) == (2, 3 if model == "fbp" else 0)
    assert all(0.02 < shift < 0.3 for shift in scales)
    assert ("and moves means" in readme) == (model == "fbp")
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


def test_a_failure_to_converge_is_refused_and_nothing_is_written(
    make_spec: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stand_in_mechanism: None,
) -> None:
    """Unless inference is as in the papers, which has no debiasing."""

    def no_run(model: Model, databases: list[Database], *_: object, **__: object) -> list[object]:
        return [RefusedError("missed")] * len(databases)

    monkeypatch.setattr(debias, "run_batch", no_run)
    path = make_spec(synthesizer=f'{FAST}\ninference = "debiased"')
    with pytest.raises(RefusedError, match="Debiasing did not converge"):
        release(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    paper = make_spec(synthesizer=f'{FAST}\ninference = "paper"')
    assert published(paper, tmp_path / "paper")[0]["debiasing"]["status"] == "not asked for"


def test_many_factors_are_shortened_and_moves_of_coefficients_are_stated() -> None:
    kinds = ("scale",) * 9 + ("location",)
    shifts = (*np.log(np.linspace(1.1, 1.9, 9)), -0.045)
    words = inference_words(DebiasRecord("debiased", 12, 3, 900, kinds, shifts, shifts))
    assert "scales were multiplied by 9 factors from 1.100 to 1.900." in words
    assert "coefficients of means were moved by up to 0.045" in words
    assert "in 3 rounds." in words
    small = inference_words(DebiasRecord("debiased", 12, 1, 900, ("scale",), (0.03,), (0.01,)))
    assert "in one round." in small
