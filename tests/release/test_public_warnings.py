"""Warnings before a release, from public columns alone. Truth: records and kinds counted by hand;
files that differ in their outcomes alone warn alike."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth import cli
from surveysynth.errors import PublicWarning
from surveysynth.models.general_location.layout import default_columns
from surveysynth.release.check import Kind, Warned, design_warnings, warn_of_design
from tests.surveys import MakeSpec, make_survey, small_survey


def with_three_alone(n: int = 240) -> pd.DataFrame:
    """Three records in a field of their own."""
    frame = small_survey(n)
    frame.loc[:2, "field"] = "z"
    return frame


def of_spikes(n: int, at: float = 0.0) -> ss.Survey:
    frame = small_survey(n)
    frame["salary"] = np.where(np.arange(n) % 9 == 0, at, frame["salary"])
    spikes = ss.Outcome("salary", "semicontinuous", spikes=(0.0, 150.0))
    return make_survey(frame, outcome=None, outcomes=spikes)


def warned(design: ss.PublicDesign, kind: Kind) -> tuple[Warned, ...]:
    return tuple(each for each in design_warnings(design) if each.kind is kind)


def test_a_pooled_level_is_named_with_its_records() -> None:
    design = make_survey(with_three_alone()).design
    assert warned(design, Kind.FORMULA) == ()
    text = "\n".join(map(str, warned(design.pooled(20.0), Kind.FORMULA)))
    assert "z (3 records) of field" in text
    assert warned(make_survey(small_survey()).design.pooled(20.0), Kind.FORMULA) == ()


def test_an_interaction_that_the_default_leaves_out_is_named() -> None:
    frame = small_survey(200)
    frame["state"] = [f"s{i % 40:02d}" for i in range(200)]
    design = make_survey(frame, by=["state", "gender"]).design
    assert design.matrix.left_out
    text = "\n".join(map(str, warned(design, Kind.FORMULA)))
    assert all(term in text for term in design.matrix.left_out)
    assert "Make these columns coarser" in text


def test_many_strata_that_are_no_predictors_are_named() -> None:
    frame = small_survey(600)
    frame["layer"] = [f"s{i % 60:02d}" for i in range(600)]
    design = make_survey(frame, by=["gender"], strata="layer").design
    assert not design.strata_in_cells
    (text,) = warned(design, Kind.FORMULA)
    assert "The strata (layer) are many" in str(text)
    assert default_columns(design) == ("gender",)
    kept = make_survey(frame, by=["gender"], strata="layer", predictors="layer + gender").design
    assert kept.strata_in_cells
    assert warned(kept, Kind.FORMULA) == ()
    assert default_columns(kept) == ("layer", "gender")


def test_spikes_warn_where_equal_shares_are_few_whatever_the_shares_are() -> None:
    # Two spikes and other values: 3 kinds, of 50 records each from 150 on.
    text = "\n".join(map(str, warned(of_spikes(149).design, Kind.FEW_RECORDS)))
    assert "'salary' has 3 kinds of values (other, 0, 150) and 149 records: 50 of each" in text
    other = warned(of_spikes(149, at=150.0).design, Kind.FEW_RECORDS)
    assert warned(of_spikes(149).design, Kind.FEW_RECORDS) == other
    assert warned(of_spikes(150).design, Kind.FEW_RECORDS) == ()
    assert warned(make_survey(small_survey(30)).design, Kind.FEW_RECORDS) == ()


def test_each_reason_has_its_category() -> None:
    design = of_spikes(149).design
    with pytest.warns(ss.FewRecordsWarning, match="3 kinds of values"):
        warn_of_design(design)
    with pytest.warns(ss.FormulaCutWarning, match="of field"):
        warn_of_design(make_survey(with_three_alone()).design.pooled(20.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_design(make_survey(small_survey()).design)
    for category in (ss.FewRecordsWarning, ss.FormulaCutWarning):
        assert issubclass(category, PublicWarning)


@pytest.mark.usefixtures("stand_in_mechanism")
def test_a_command_says_them_on_stderr(
    make_spec: MakeSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec(with_three_alone(), survey="population_size = 30000")
    assert cli.main(["release", str(spec), "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    (line,) = [each for each in captured.err.splitlines() if "WARNING" in each]
    assert line.startswith("surveysynth: WARNING: The model's formula was cut")
    assert "z (3 records) of field" in line
