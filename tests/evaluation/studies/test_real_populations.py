"""Frames of real populations: specifications, checks of what is fetched, and the model's law there.

Truths: rows and classes written out by hand; files and frames that are not what they should be; a
frame of log-normal cells, whose law is known.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth.config.spec import load_spec
from surveysynth.evaluation.studies.population import Population, SamplingDesign
from surveysynth.survey.transforms import Transform
from tests.long_runs.real_populations.__main__ import (
    BEGIN,
    CURVES,
    DEFAULTS,
    END,
    GOLDEN,
    HERE,
    LAW,
    PAGE,
    SETTINGS,
    curves_page,
    kept,
    law_page,
    page,
)
from tests.long_runs.real_populations.curves import curves_study
from tests.long_runs.real_populations.frames import FRAMES, PPS, Frame, Source, classes
from tests.long_runs.real_populations.law import Units, estimates, own_estimates


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


@pytest.mark.parametrize("name", DEFAULTS)
def test_settings_change_mechanism_and_epsilon_alone(name: str) -> None:
    made = SETTINGS[name].specification(FRAMES["wages"])
    base = SETTINGS["noisy_10.8"].specification(FRAMES["wages"])
    privacy = made.pop("privacy")
    assert privacy == {
        "mechanism": SETTINGS[name].mechanism, "epsilon": SETTINGS[name].epsilon
    }  # fmt: skip
    assert made == {key: value for key, value in base.items() if key != "privacy"}


@pytest.mark.parametrize("name", FRAMES)
def test_a_learned_transform_is_declared_by_its_range_alone(name: str, tmp_path: Path) -> None:
    frame = FRAMES[name]
    outcomes = SETTINGS["learned_10.8"].specification(frame)["outcomes"]
    assert outcomes[frame.outcome].keys() <= {"kind", "spikes", "range"}
    assert outcomes[frame.outcome]["range"] == list(frame.range)
    others = SETTINGS["noisy_10.8"].specification(frame)["outcomes"]
    assert {k: v for k, v in outcomes.items() if k != frame.outcome} == {
        k: v for k, v in others.items() if k != frame.outcome
    }


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
    right = Frame(lambda raw: pd.DataFrame({"amount": [1.0, 2.0]}), 2, "amount", 3.0, PPS, (0, 9))
    assert len(right.made(tmp_path)) == 2
    for wrong in (replace(right, units=3), replace(right, total=3.1)):
        with pytest.raises(SystemExit, match="expected"):
            wrong.made(tmp_path)


def log_normal_units() -> Units:
    """Cells with means and SDs of their own on the log scale, drawn as fourth roots."""
    rng, n = np.random.default_rng(4), 80_000
    by = pd.DataFrame({"a": rng.choice(list("xyz"), n), "b": rng.choice(["u", "v"], n)})
    cell = by.groupby(["a", "b"]).ngroup().to_numpy()
    mean = np.array([1.0, 1.2, 2.0, 2.9, 3.0, 3.1])[cell]
    amount = np.exp(mean + np.array([0.2, 0.9, 0.4, 0.5, 0.3, 0.6])[cell] * rng.normal(size=n))
    return Units(amount, Transform("log"), (), 1e-2 * amount**0.25, by)


def test_right_law_has_no_bias_and_wrong_ones_do() -> None:
    units = log_normal_units()
    truth = own_estimates(units, np.arange(units.amount.size), np.ones(units.amount.size))

    def worst(statistic: str, *, interactions: bool, by_cell: bool) -> float:
        found = estimates(units, interactions=interactions, by_cell=by_cell)[statistic]
        return float(np.abs(found / truth[statistic] - 1.0).max())

    for statistic in ("count", "mean", "median"):
        right = worst(statistic, interactions=True, by_cell=True)
        assert right < 0.04  # a ridge, and a finite frame
        assert worst(statistic, interactions=False, by_cell=True) > 3.0 * right
        assert worst(statistic, interactions=True, by_cell=False) > 3.0 * right


def test_law_keeps_spikes_as_they_are() -> None:
    units = log_normal_units()
    zero = np.random.default_rng(5).random(units.amount.size) < 0.6
    units = replace(units, amount=np.where(zero, 0.0, units.amount), spikes=(0.0,))
    found = estimates(units, interactions=True, by_cell=True)
    assert found["median"][0] < 1e-6
    assert abs(found["mean"][0] / units.amount.mean() - 1.0) < 0.02


@pytest.mark.slow
def test_learned_curves_of_strata_that_lie_far_apart() -> None:
    """Log-normal cells: the logarithm is right. Strata whose medians differ by factors of e, and
    spreads by up to four, need curves of their own; no transform at all is worse."""
    units = log_normal_units()
    frame = units.by.assign(y=units.amount, size=units.draws, unit=np.arange(units.draws.size))
    population = Population(frame, ("y",), ("a", "b"), "a", "size")
    design = SamplingDesign("pps_wr", n=1500)
    found = curves_study(units, population, design, (0.0, 1e4), 1)
    mean, median = (
        {name: each[statistic]["median_row"] for name, each in found.items()}
        for statistic in ("mean", "median")
    )
    assert mean["declared"] < 1.05
    assert mean["all, 10.8"] < 1.2
    assert median["declared"] < 1.1
    assert median["strata, 10.8"] < 0.8 * median["all, 10.8"]
    plain = replace(units, transform=Transform("identity"))
    none = curves_study(plain, population, design, (0.0, 1e4), 1)["declared"]
    assert median["all, 10.8"] < 0.6 * none["median"]["median_row"]


def test_one_curve_is_as_good_as_a_careful_declaration() -> None:
    found, text = kept(CURVES), PAGE.read_text(encoding="utf-8")
    assert len(found) == 9
    for line in curves_page(found):
        assert line in text
    for each in found.values():
        for epsilon in ("10.8", "3.6"):
            one, strata = each[f"all, {epsilon}"]["mean"], each[f"strata, {epsilon}"]["mean"]
            assert one["median_row"] <= 1.05 * each["declared"]["mean"]["median_row"]
            assert one["median_row"] <= 1.05 * strata["median_row"]
    assert found["enterprises"]["strata, 10.8"]["mean"]["worst_row"] > 10.0


def test_planted_defaults_are_wrong() -> None:
    made = SETTINGS["planted_10.8"].specification(FRAMES["wages"])["synthesizer"]
    assert made["predictors"] == "region + city + school"
    assert made["covariance_by"] == []
    assert "planted_10.8" not in DEFAULTS


def test_page_puts_the_sample_beside_each_release() -> None:
    line = {
        "statistic": "mean", "outcome": "acres", "method": "sample", "coverage": 0.94,
        "worst": 0.9, "rmse_ratio": 1.0, "length_ratio": 1.0,
    }  # fmt: skip
    release = {**line, "method": "release", "coverage": 0.71, "worst": None, "rmse_ratio": 1.31}
    count = {**line, "statistic": "count", "outcome": "", "coverage": 0.95}
    counted = {**count, "method": "release", "coverage": 0.9}
    other = [{**each, "outcome": "farms"} for each in (line, release)]
    made = page({
        "counties": {"noisy_3.6": {"samples": 100, "tables": [line, release]}},
        "communes": {
            "planted_10.8": {"samples": 40, "tables": [count, counted, line, release, *other]},
            "learned_10.8": {"samples": 39, "tables": [line, release]},
        },
    })  # fmt: skip
    mean = "0.71 (0.94), -, 1.31, 1.00"
    assert made[2:] == [
        f"| counties | noisy statistics, 3.6 | 100 | - | {mean} | - |",
        "| communes: acres | noisy statistics, 10.8, one covariance, main effects | 40 "
        f"| 0.90 (0.95), 0.90, 1.00, 1.00 | {mean} | - |",
        f"| communes: farms |  |  |  | {mean} | - |",
    ]


def test_page_of_the_documentation_has_the_committed_laws() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = json.loads(LAW.read_text(encoding="utf-8"))
    assert set(found) == set(FRAMES)
    for line in law_page(found):
        assert line in text
    for name, frame in FRAMES.items():
        assert f"| {name} | {frame.units:,} | {int(frame.design['n']):,} |" in text


def test_page_of_the_documentation_has_the_kept_coverage() -> None:
    """And by noisy statistics counts cover as the sample's own, and means with the defaults.

    Within .02 of 100 samples, by the root more of fewer; where the sample's own cover less than
    .95, all up to that is as good."""
    found, text = kept(GOLDEN), PAGE.read_text(encoding="utf-8")
    assert found
    shown = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown.splitlines() == page(found)
    lines = {
        (frame, setting, line["method"], line["statistic"]): line
        for frame, settings in found.items()
        for setting, made in settings.items() for line in made["tables"]
    }  # fmt: skip
    missed = set()
    for (frame, setting, method, statistic), line in lines.items():
        sample = lines[frame, setting, "sample", statistic]
        judged = statistic == "count" and "pseudo" not in setting
        judged |= statistic == "mean" and setting in ("noisy_10.8", "noisy_3.6")
        if method != "sample" and judged:
            error = 0.02 * (100 / found[frame][setting]["samples"]) ** 0.5
            own = sample["coverage"]
            if not own - error < line["coverage"] < max(own, 0.95) + error:
                missed.add((frame, setting, statistic))
    assert not missed
    wrong, right = (
        lines["fares", setting, "release", "mean"]["coverage"]
        for setting in ("planted_10.8", "noisy_10.8")
    )
    assert wrong < right - 0.1
