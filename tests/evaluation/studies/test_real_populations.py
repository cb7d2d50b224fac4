"""Frames of real populations: their specifications, and the checks of what is fetched.

Truths: rows and classes written out by hand; files and frames that are not what they should be.
"""

import hashlib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from surveysynth.spec.spec import load_spec
from tests.long_runs.real_populations.__main__ import HERE, SETTINGS, keep, kept, page
from tests.long_runs.real_populations.frames import FRAMES, PPS, Frame, Source, classes


@pytest.mark.parametrize("name", list(FRAMES))
def test_specification_fits_its_frame(name: str) -> None:
    frame, spec = FRAMES[name], load_spec(HERE / f"{name}.toml")
    assert spec.survey.population_size == frame.units
    assert frame.outcome == spec.synthesizer.outcome[0]
    assert {"count", "mean", "median"} < set(spec.table.statistics)
    assert int(frame.design["n"]) / frame.units < 0.35
    # What is judged are the defaults: nothing about the model is chosen.
    assert spec.synthesizer.predictors is None
    assert spec.synthesizer.covariance_by is None
    assert not spec.synthesizer.priors


@pytest.mark.parametrize("name", list(SETTINGS))
def test_settings_change_mechanism_and_epsilon_alone(name: str) -> None:
    made = SETTINGS[name].specification(FRAMES["wages"])
    base = SETTINGS["noisy_10.8"].specification(FRAMES["wages"])
    privacy = made.pop("privacy")
    assert privacy == {
        "mechanism": SETTINGS[name].mechanism, "epsilon": SETTINGS[name].epsilon
    }  # fmt: skip
    assert made == {key: value for key, value in base.items() if key != "privacy"}


def test_classes_begin_at_their_ends() -> None:
    made = classes(pd.Series([0.0, 9.9, 10.0, 19.0, 20.0]), (10, 20), ("a", "b", "c"))
    assert made.tolist() == ["a", "a", "b", "b", "c"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.rda").write_bytes(b"right")
    source = Source("data.rda", hashlib.sha256(b"right").hexdigest())
    assert source.fetch(tmp_path) == tmp_path / "data.rda"
    (tmp_path / "data.rda").write_bytes(b"wrong")
    with pytest.raises(SystemExit, match="expected SHA-256"):
        source.fetch(tmp_path)


def test_another_frame_is_refused(tmp_path: Path) -> None:
    right = Frame(lambda raw: pd.DataFrame({"amount": [1.0, 2.0]}), 2, "amount", 3.0, PPS)
    assert len(right.made(tmp_path)) == 2
    for wrong in (replace(right, units=3), replace(right, total=3.1)):
        with pytest.raises(SystemExit, match="expected"):
            wrong.made(tmp_path)


def test_page_puts_the_sample_beside_each_release(tmp_path: Path) -> None:
    line = {
        "statistic": "mean", "outcome": "acres", "method": "sample", "coverage": 0.94,
        "worst": 0.9, "rmse_ratio": 1.0, "length_ratio": 1.0, "bias": 0.0, "absolute_bias": 0.1,
    }  # fmt: skip
    release = {**line, "method": "release", "coverage": 0.71, "worst": None, "bias": -0.82}
    keep(tmp_path / "found.json", "counties", "noisy_3.6", {"tables": [line, release]})
    keep(tmp_path / "found.json", "communes", "noisy_3.6", {"tables": [line, line]})
    found = kept(tmp_path / "found.json")
    assert list(found) == ["counties", "communes"]
    lines = page(found)
    assert len(lines) == 3
    assert lines[2] == (
        "| counties | noisy statistics, 3.6 | mean acres | 0.71 (0.94) | - | 1.00 | 1.00 "
        "| -0.82 (0.10) |"
    )
