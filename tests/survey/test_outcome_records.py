"""Outcomes of several kinds read from frames: cells by hand, and messages that quote no cell.

Truth: positions and counts worked out from the cells as they were made."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.models import get_model
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform
from tests.survey.messages import varied
from tests.surveys import CANARIES, CANARY_OUTCOME, good

DEGREE = Outcome("degree", "categorical", levels=("none", "school", "university", "abroad"))
WORKS = Outcome("works", "binary", levels=("no", "yes"))
SMOKES = Outcome("smokes", "binary")
ASINH = Transform("asinh", scale=1e4)
BENEFIT = Outcome("benefit", "semicontinuous", Transform("log"), (0.0, 90_000.0), upper=80_000.0)


def frame_of(n: int = 240) -> pd.DataFrame:
    """The sound survey with outcomes of every kind, of which two levels have no record."""
    rng = np.random.default_rng(5)
    frame = good(n).drop(index=7).reset_index(drop=True)
    size = len(frame)
    return frame.assign(
        degree=rng.choice(["none", "school", "university"], size),
        works=rng.choice(["no", "yes"], size),
        smokes=rng.integers(0, 2, size),
        benefit=np.where(rng.random(size) < 0.6, 0.0, rng.uniform(1.0, 70_000.0, size)),
    )


def survey_of(frame: pd.DataFrame, *outcomes: Outcome, **more: Any) -> Survey:
    settings: dict[str, Any] = {"weight": "weight", "by": ["field", "gender"], **more}
    return Survey.from_frame(frame, outcomes=outcomes, **settings)


def refusal(frame: pd.DataFrame, *outcomes: Outcome, **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        survey_of(frame, *outcomes, **more)
    text = str(caught.value)
    assert not any(canary in text for canary in (*CANARIES, "s3cret"))
    return text


def test_levels_become_their_positions_and_amounts_stay() -> None:
    frame = frame_of()
    survey = survey_of(frame, DEGREE, WORKS, SMOKES, BENEFIT)
    outcome = survey.confidential.outcome
    known = {"none": 0, "school": 1, "university": 2}
    np.testing.assert_array_equal(outcome[:, 0], frame["degree"].map(known))
    np.testing.assert_array_equal(outcome[:, 1], frame["works"] == "yes")
    np.testing.assert_array_equal(outcome[:, 2], frame["smokes"])
    np.testing.assert_array_equal(outcome[:, 3], frame["benefit"])
    assert "degree (categorical: none, school, university, abroad)" in repr(survey)
    assert "benefit, as log(benefit) (semicontinuous, spikes at 0, 90,000, to 80,000)" in repr(
        survey
    )


TAX = Outcome("tax", "semicontinuous", Transform("log"), spikes=(0.0,), split=0.0, lower=-9_000.0)


def taxed(frame: pd.DataFrame, **cells: Any) -> pd.DataFrame:
    rng = np.random.default_rng(6)
    kind = rng.choice(3, len(frame))
    amount = rng.uniform(1.0, 8_000.0, len(frame))
    return frame.assign(tax=np.select([kind == 0, kind == 1], [amount, -amount], 0.0), **cells)


def test_each_side_of_a_split_is_looked_at_by_itself() -> None:
    frame = taxed(frame_of())
    np.testing.assert_array_equal(survey_of(frame, TAX).confidential.outcome[:, 0], frame["tax"])
    below = (frame["tax"] < 0).cumsum() == 1
    text = refusal(frame.assign(tax=frame["tax"].mask(below, -9_001.0)), TAX)
    assert "1 record outside the declared range" in text
    assert "9001" not in text.replace(",", "")
    # Not at a spike, a value at the split lies above it, where the log of zero is not.
    assert "where log(tax) does not exist" in refusal(
        frame, Outcome("tax", "semicontinuous", Transform("log"), split=0.0)
    )
    # Where it exists, and without a record in between, no spike is needed.
    survey_of(frame, Outcome("tax", "semicontinuous", ASINH, split=0.0))


@pytest.mark.parametrize(
    "cells",
    [
        [0, 1], [0.0, 1.0], ["0", "1"], [False, True], ["False", "TRUE"], [" 0", "1.0"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [None, object, "category"])
def test_0_and_1_in_many_guises(cells: list[Any], dtype: Any) -> None:
    frame = frame_of()
    positions = frame["smokes"].to_numpy()
    column = pd.Series([cells[each] for each in positions])
    frame["smokes"] = column if dtype is None else column.astype(dtype)
    read = survey_of(frame, SMOKES).confidential.outcome[:, 0]
    np.testing.assert_array_equal(read, positions)


def test_codes_are_levels_as_they_are_written() -> None:
    frame = frame_of()
    expected = frame["works"] == "yes"
    levels = Outcome("works", "binary", levels=("2", "10"))
    for cells in (np.where(expected, 10, 2), np.where(expected, 10.0, 2.0)):
        read = survey_of(frame.assign(works=cells), levels).confidential.outcome[:, 0]
        np.testing.assert_array_equal(read, expected)
    truth = Outcome("works", "binary", levels=("False", "True"))
    read = survey_of(frame.assign(works=expected), truth).confidential.outcome[:, 0]
    np.testing.assert_array_equal(read, expected)


@pytest.mark.parametrize(
    ("outcome", "cell", "parts"),
    [
        (DEGREE, "s3cret", ["2 records", "not among its levels", "'university'", "degree.levels"]),
        (DEGREE, CANARY_OUTCOME, ["2 records", "not among its levels"]),
        (DEGREE, "None", ["2 records"]),
        (WORKS, "s3cret", ["2 records", "'no', 'yes'"]),
        (SMOKES, 31415, ["2 records", "'0', '1'"]),
        (SMOKES, 0.5, ["2 records"]),
        (SMOKES, "s3cret", ["2 records"]),
        (BENEFIT, CANARY_OUTCOME, ["2 records outside", "to 80,000", "top code is a spike"]),
        (BENEFIT, -31415.0, ["2 records where log(benefit)", "spikes = [0]"]),
        (BENEFIT, np.inf, ["2 records with an infinite value"]),
        (BENEFIT, "s3cret", ["2 records with text that is not a number"]),
    ],
)
def test_values_outside_what_is_declared_are_counted_and_not_quoted(
    outcome: Outcome, cell: Any, parts: list[str]
) -> None:
    frame = frame_of()
    frame[outcome.name] = frame[outcome.name].astype(object)
    frame.loc[[3, 9], outcome.name] = cell
    text = refusal(frame, outcome)
    for part in parts:
        assert part in text


@given(
    st.lists(st.sampled_from(["none", "school", "abroad", "", "NA", "s3cret", "S3cret", 7, 0.5]),
             min_size=2, max_size=20),
)  # fmt: skip
@settings(deadline=None)
def test_any_cells_of_levels_are_positions_or_a_count(cells: list[Any]) -> None:
    frame = pd.DataFrame({"degree": pd.Series(cells, dtype=object), "weight": 2.0})
    levels = DEGREE.levels
    wrong = sum(cell not in (*levels, "", "NA") for cell in cells)
    blank = sum(cell in ("", "NA") for cell in cells)
    known = [float(levels.index(cell)) for cell in cells if cell in levels]
    by_hand: dict[str, Any] = {"by": [], "missing": "drop"}
    if wrong:
        assert f"{wrong:,} record" in refusal(frame, DEGREE, **by_hand)
    elif len(known) < 2:
        assert "expected at least 2" in refusal(frame, DEGREE, **by_hand)
    else:
        survey = survey_of(frame, DEGREE, **by_hand)
        assert survey.confidential.outcome[:, 0].tolist() == known
        assert survey.design.dropped == blank


def test_blank_cells_are_missing_whatever_the_kind() -> None:
    for outcome in (DEGREE, WORKS, SMOKES, BENEFIT):
        frame = frame_of()
        frame[outcome.name] = frame[outcome.name].astype(object)
        frame.loc[[3, 9, 11], outcome.name] = ["", None, "NA"]
        assert f"'{outcome.name}': 3 records" in refusal(frame, outcome)
        survey = survey_of(frame, outcome, missing="drop")
        assert survey.design.dropped == 3
    lettered = Outcome("degree", "categorical", levels=("NA", "none", "school", "university"))
    frame = frame_of()
    frame.loc[3, "degree"] = "NA"  # a level of that name is one
    assert survey_of(frame, lettered).confidential.outcome[3, 0] == 0.0


def test_an_amount_needs_a_hundredth_of_its_spread_of_its_own() -> None:
    """Log salary about what gender and field tell, by 0.5% and by 2% of an SD that is above one."""
    frame = frame_of()
    level = np.where(frame["gender"] == "F", 2.0, 5.0) + frame["field"].eq("01")
    own = np.random.default_rng(1).standard_normal(len(frame)) * level.std()

    def survey_with(share: float) -> Survey:
        amount = np.exp(level + share * own)
        return survey_of(frame.assign(salary=amount), Outcome("salary"))

    with pytest.raises(InputError, match=r"'salary' is \(nearly\) a function"):
        varied(survey_with(0.005))
    varied(survey_with(0.02))


def test_names_or_outcomes_and_not_both() -> None:
    frame = frame_of()
    for given_twice in ({"outcome": "salary", "outcomes": WORKS}, {}):
        with pytest.raises(InputError, match="either names as outcome"):
            Survey.from_frame(frame, weight="weight", **given_twice)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got str; give names as outcome"):
        Survey.from_frame(frame, outcomes=["salary"], weight="weight")  # type: ignore[list-item]
    with pytest.raises(InputError, match="every Outcome has its own"):
        Survey.from_frame(frame, outcomes=WORKS, transforms=Transform(), weight="weight")
    alone = Survey.from_frame(frame, outcomes=WORKS, weight="weight")
    assert alone.design.outcomes == (WORKS,)


@pytest.mark.parametrize("model", ["fbs", "fbp", "normal", "poisson"])
def test_models_of_amounts_do_not_take_positions_for_them(model: str) -> None:
    for outcome in (SMOKES, Outcome("salary", transform=ASINH, upper=1e9)):
        survey = survey_of(frame_of(), outcome, population_size=1e5)
        with pytest.raises(InputError, match=r"'noisy_statistics'"):
            get_model(model).records(survey.design, survey.confidential)


def test_amounts_under_yeo_johnson_reach_the_model_transformed() -> None:
    frame = frame_of()
    transform = Transform("yeo_johnson", scale=1e4, power=0.4)
    survey = survey_of(frame, Outcome("salary", transform=transform))
    records = get_model("fbs").records(survey.design, survey.confidential)
    scaled = frame["salary"].to_numpy() / 1e4
    by_hand = ((1.0 + scaled) ** 0.4 - 1.0) / 0.4
    np.testing.assert_allclose(np.sort(records.z[:, 0]), np.sort(by_hand), rtol=1e-12)
