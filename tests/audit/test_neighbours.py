"""Which records are replaced, and by what: worked out beside the module."""

import numpy as np
import pandas as pd
import pytest

from surveysynth.survey.survey import Survey
from tests.audit.cases import EXAMPLES, KINDS, frame_of
from tests.audit.neighbours import (
    CHANGES,
    RECODED,
    Change,
    apart,
    changed,
    changes_for,
    places,
)
from tests.surveys import clustered_survey, make_survey


@pytest.fixture(scope="module")
def kinds():
    return next(each for each in EXAMPLES if each.outcomes == KINDS).case(300, 2).survey


def test_places_are_what_they_are_called():
    frame = clustered_survey().iloc[:-7]
    survey = make_survey(frame, psu="school", lonely_psu="adjust")
    found = places(survey)
    assert set(found) == {
        "typical", "smallest cell", "highest leverage", "smallest stratum", "smallest PSU",
    }  # fmt: skip
    at = {name: frame.iloc[records[0]] for name, records in found.items()}
    assert all(records.size == 1 for records in found.values())
    schools, fields = frame["school"].value_counts(), frame["field"].value_counts()
    cells = frame[["field", "gender"]].value_counts()
    assert schools[at["smallest PSU"]["school"]] == schools.min()
    assert fields[at["smallest stratum"]["field"]] == fields.min()
    assert cells[tuple(at["smallest cell"][["field", "gender"]])] == cells.min()
    assert cells[tuple(at["typical"][["field", "gender"]])] == cells.max()
    x = pd.get_dummies(frame[["field", "gender"]], drop_first=True).to_numpy(float)
    x = np.column_stack([np.ones(len(x)), x])
    hat = np.diag(x @ np.linalg.inv(x.T @ x) @ x.T)
    assert hat[found["highest leverage"][0]] == pytest.approx(hat.max())


def test_a_record_of_two_kinds_is_replaced_once():
    one, two = np.array([4]), np.array([9])
    assert {k: v.tolist() for k, v in apart({"a": one, "b": two, "c": one}).items()} == {
        "a, c": [4], "b": [9],
    }  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_change_moves_one_record_as_far_as_it_says(change):
    survey = make_survey()
    record = np.array([17])
    made = changed(survey, record, change)
    others = np.arange(survey.design.n) != 17
    for new, old in (
        (made.outcome, survey.confidential.outcome),
        (made.sampling_weight, survey.confidential.sampling_weight),
    ):
        assert np.array_equal(new[others], old[others])
    ratio = made.sampling_weight[17] / survey.confidential.sampling_weight[17]
    assert ratio == pytest.approx(change.factor)
    x = survey.design.matrix.x_cells[survey.design.matrix.cell]
    z = np.log(survey.confidential.outcome[:, 0])
    residual = z - x @ np.linalg.solve(x.T @ x, x.T @ z)
    moved = np.log(made.outcome[17, 0]) - (z - residual)[17]
    expected = residual[17] if change.sds is None else change.sds * np.std(residual)
    assert moved == pytest.approx(expected)


def test_replaced_records_are_valid(kinds):
    """A survey with any of them is read as any other is."""
    frame = frame_of(300, 2)
    salary, benefit, employed = kinds.confidential.outcome.T
    for change in changes_for(kinds.design):
        made = changed(kinds, np.array([30]), change)
        columns = dict(zip(["salary", "benefit", "employed"], made.outcome.T, strict=True))
        again = Survey.from_frame(
            frame.assign(**columns, weight=made.sampling_weight), outcomes=KINDS,
            weight="weight", by=("field", "gender"), strata="field",
        )  # fmt: skip
        assert np.array_equal(again.confidential.outcome, made.outcome)
        if change.recode:
            assert made.outcome[30, 2] != employed[30]
            assert (made.outcome[30, 1] == 0) != (benefit[30] == 0)
        else:
            assert made.outcome[30, 2] == employed[30]
    assert salary.min() > 0


def test_counts_stay_counts():
    case = next(each for each in EXAMPLES if each.model == "poisson").case(200, 1)
    for change in CHANGES:
        made = changed(case.survey, np.array([5]), change, count=True).outcome[5, 0]
        assert made == round(made)
        assert made >= 0


def test_changes_that_mean_nothing_are_left_out(kinds):
    one = next(each for each in EXAMPLES if each.name == "fbs")
    public = next(each for each in EXAMPLES if each.name == "fbs, public weights")
    names = {each.name for each in changes_for(one.case(200, 1).survey.design)}
    assert names == {change.name for change in CHANGES}
    assert not any("weight" in each.name for each in changes_for(public.case(200, 1).survey.design))
    assert set(RECODED) <= set(changes_for(kinds.design))
    assert len(changes_for(kinds.design, few=True)) < len(changes_for(kinds.design))
    assert Change(2.0, 50.0).name == "outcome +2 SD, weight x 50"
