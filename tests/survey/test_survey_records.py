"""Records, parts and designs that cannot be used, made one at a time; and cell by cell reading.

No message may hold a confidential value: each is searched for the planted canaries.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.survey.columns import number_column, text_column
from surveysynth.survey.transforms import Transform
from tests.survey.messages import csv_bytes, file_message, message, read_bytes
from tests.surveys import CANARY_OUTCOME, CANARY_WEIGHT, good, make_survey


@pytest.mark.parametrize(
    ("column", "value", "parts"),
    [
        ("weight", np.nan, ["'weight'", "1 record", "blank or missing", "drop"]),
        ("weight", np.inf, ["weight", "1 record with an infinite value"]),
        ("weight", -np.inf, ["weight", "1 record with an infinite value", "negative"]),
        ("weight", f"{CANARY_WEIGHT} kg", ["'weight'", "(with words or a unit next to digits)"]),
        ("salary", np.nan, ["'salary'", "1 record", "blank or missing"]),
        ("salary", "NaN", ["'salary'", "1 record", "blank or missing"]),
        ("salary", np.inf, ["salary", "1 record with an infinite value"]),
        ("salary", "1e999", ["salary", "1 record with an infinite value"]),
        ("salary", -CANARY_OUTCOME, ["salary", "1 record where log(salary)"]),
        ("gender", "", ["'gender'", "1 record", "blank"]),
        ("gender", "  ", ["'gender'", "1 record", "blank"]),
        ("field", "", ["'field'", "1 record", "blank"]),
        ("field", "All", ["'field'", "'All'", "margin"]),
        ("gender", "m", ["'gender' has 2 levels", "in another case"]),
        ("field", "05", ["1 of 5 strata has one record", "lonely_psu"]),
    ],
)
def test_one_bad_cell(tmp_path: Path, column: str, value: Any, parts: list[str]) -> None:
    frame = good().astype({column: object})
    frame.loc[11, column] = value
    in_memory = message(frame)
    in_file = file_message(tmp_path, csv_bytes(frame))
    for part in parts:
        assert part in in_memory
        assert part in in_file


def test_missing_answers_and_wrong_numbers_are_listed_together() -> None:
    frame = good()
    frame.loc[[1, 2], "salary"] = np.nan
    frame.loc[[2, 5, 6], "weight"] = 0.0
    frame.loc[[8], "salary"] = -CANARY_OUTCOME
    text = message(frame)
    for part in ("3 problems", "'salary': 2 records", "3 records with a value of zero",
                 "1 record where log(salary)"):  # fmt: skip
        assert part in text


def test_drop_counts_and_leaves_out_what_is_blank(tmp_path: Path) -> None:
    frame = good()
    frame.loc[[1, 2], "salary"] = np.nan
    frame.loc[[2, 3], "gender"] = None
    frame.loc[[4], "weight"] = np.nan
    frame.loc[[5], "field"] = " "
    frame.loc[[6], "note"] = None  # shipped only: stays
    kept = frame.drop(index=[1, 2, 3, 4, 5])
    for survey in (
        make_survey(frame, missing="drop", public_columns=["note"]),
        read_bytes(
            tmp_path, csv_bytes(frame), survey='missing = "drop"\npublic_columns = ["note"]'
        ),
    ):
        assert survey.design.dropped == 5
        assert survey.design.n == 235
        np.testing.assert_array_equal(survey.confidential.outcome[:, 0], kept["salary"])
        assert survey.design.frame["gender"].tolist() == kept["gender"].tolist()
        assert survey.design.frame["note"].tolist() == kept["note"].fillna("").tolist()
        assert list(survey.design.frame.index) == list(range(235))


def test_drop_may_leave_too_few() -> None:
    assert "240 records after" in message(good().assign(gender=""), missing="drop")


def test_a_level_that_only_dropped_records_have_is_gone() -> None:
    frame = good()
    frame.loc[0, ["field", "salary"]] = ["09", np.nan]
    assert make_survey(frame, missing="drop").design.levels["field"] == ("01", "02", "03", "04")


@pytest.mark.parametrize(
    ("transform", "cells"),
    [
        (Transform(), {"salary": 5.0}),
        (Transform("identity"), {"salary": 0.0}),
        (Transform("asinh", scale=1e12), {"salary": 3.0}),
        (Transform("identity", scale=1e20), {}),  # it vanishes under its scale
    ],
)
def test_a_constant_outcome(transform: Transform, cells: dict[str, float]) -> None:
    text = message(good().assign(**cells), transforms=transform)
    assert "constant" in text
    assert "scale" in text


@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_a_weight_that_is_a_function_of_x(noise: float) -> None:
    rng = np.random.default_rng(8)
    frame = good()
    frame["weight"] = np.exp(frame["field"].astype(float) + noise * rng.normal(size=len(frame)))
    text = message(frame)
    assert "weight 'weight' is (nearly) a function of the predictors" in text
    assert "public" in text
    noisy = np.exp(frame["field"].astype(float) + 0.05 * rng.normal(size=len(frame)))
    assert make_survey(frame.assign(weight=noisy)).design.n == 240


def test_an_outcome_that_is_a_function_of_x() -> None:
    frame = good()
    text = message(frame.assign(salary=frame["field"].astype(float)), transforms=Transform("asinh"))
    assert "outcome 'salary' is (nearly) a function of the predictors" in text


def test_outcomes_that_are_functions_of_each_other() -> None:
    frame = good().assign(tax=lambda f: 0.3 * f["salary"])
    text = message(frame, outcome=["salary", "tax"])
    assert "function of the others" in text
    frame = good().assign(salary=lambda f: 100 / f["weight"])
    assert "function of the others" in message(frame)


def test_saturated_predictors() -> None:
    text = message(good(8).assign(age=range(8)), predictors="C(age)", by=[], strata=None)
    assert "nothing is left" in text


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"by": ["field", "salary"]}, ["by: 'salary'", "confidential"]),
        ({"strata": "weight"}, ["strata: 'weight'", "confidential"]),
        ({"psu": "salary"}, ["psu: 'salary'", "confidential"]),
        ({"fpc": "weight"}, ["fpc: 'weight'", "confidential"]),
        ({"public_columns": ["weight"]}, ["public_columns: 'weight'", "confidential"]),
        ({"predictors": "field*gender + log(salary)"}, ["predictors: 'salary'", "confidential"]),
        ({"predictors": "field*gender + agee"}, ["no column 'agee'", "Did you mean 'age'"]),
        ({"predictors": "field*gender + note"}, ["'note'", "240 levels", "not a number"]),
        ({"predictors": "gender"}, ["strata 'field'"]),
        ({"by": ["field", "field"]}, ["by: 'field' is repeated"]),
        ({"outcome": ["salary", "salary"]}, ["outcome: 'salary' is repeated"]),
        ({"outcome": []}, ["at least one"]),
        ({"outcome": "weight"}, ["also an outcome"]),
        ({"weight": None, "statistics": ["count"]}, ["sampling weights"]),
        ({"population_size": 0}, ["population_size", "above zero"]),
        ({"population_size": math.nan}, ["population_size", "finite"]),
        ({"lonely_psu": "merge"}, ["lonely_psu", "certainty", "'merge'"]),
        ({"design_effect": 0.5, "psu": "school"}, ["design_effect", "between 1 and 1000", "0.5"]),
        ({"design_effect": float("nan"), "psu": "school"}, ["design_effect", "nan"]),
        ({"missing": "impute"}, ["'fail', 'drop' or 'model'", "'impute'"]),
        ({"transforms": [Transform(), Transform()]}, ["transforms", "got 2"]),
        ({"margin_labels": {"gender": "F"}}, ["'gender'", "'F'", "margin"]),
        ({"binary_for": ["proportion"]}, ["0 and 1", "240 records"]),
    ],
)
def test_parts_and_settings_that_do_not_fit(changes: dict[str, Any], parts: list[str]) -> None:
    text = message(good(), **changes)
    for part in parts:
        assert part in text


def test_proportions_need_an_untransformed_0_1_outcome() -> None:
    binary = good().assign(salary=lambda f: (f["salary"] > f["salary"].median()) * 1.0)
    survey = make_survey(binary, transforms=Transform("identity"), binary_for=["proportion"])
    assert survey.design.transforms[0].kind == "identity"
    text = message(binary, transforms=Transform("asinh"), binary_for=["proportion"])
    assert "identity" in text
    binary.loc[7, "salary"] = CANARY_OUTCOME
    text = message(binary, transforms=Transform("identity"), binary_for=["proportion"])
    assert "1 record with another value" in text


def test_frames_that_are_none() -> None:
    with pytest.raises(InputError, match="DataFrame"):
        make_survey({"salary": [1.0]})  # type: ignore[arg-type]
    doubled = pd.concat([good(), good()[["salary"]]], axis=1)
    assert "columns 8 and 9 have the same name" in message(doubled)


def test_a_weight_may_be_absent_for_api_users() -> None:
    survey = make_survey(good(), weight=None)
    assert survey.confidential.sampling_weight is None
    assert survey.design.weight_name is None


@pytest.mark.parametrize("rule", ["remove", "certainty", "adjust", "average"])
def test_lonely_strata_are_taken_by_the_other_rules(rule: str) -> None:
    frame = good()
    frame.loc[11, "field"] = "05"
    assert make_survey(frame, lonely_psu=rule).design.lonely_psu == rule


def test_strata_of_one_psu_are_lonely() -> None:
    frame = good()
    frame.loc[frame["field"] == "02", "school"] = "a"
    assert "1 of 4 strata has one PSU" in message(frame, psu="school")
    assert "the sample has one PSU" in message(frame.assign(school="a"), psu="school", strata=None)


def test_fpc_as_sizes_counts_psus_or_records() -> None:
    sizes = {"01": 120, "02": 240, "03": 600, "04": 60}
    frame = good().assign(fraction=lambda f: f["field"].map(sizes))
    assert make_survey(frame, fpc="fraction").design.fpc is not None
    np.testing.assert_allclose(
        make_survey(frame, fpc="fraction").design.fpc, [60 / 120, 60 / 240, 60 / 600, 1.0]
    )
    np.testing.assert_allclose(
        make_survey(frame, fpc="fraction", psu="school").design.fpc,
        [3 / 120, 3 / 240, 3 / 600, 3 / 60],
    )
    whole = make_survey(frame.assign(fraction=2400), fpc="fraction", by=[], strata=None)
    np.testing.assert_allclose(whole.design.fpc, [0.1])


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"01": 120, "02": 240, "03": 600, "04": 59}, "1 of 4 strata have a population size below"),
        ({"01": 0.5, "02": 240, "03": 600, "04": 600}, "1 of 4 strata"),
        ({"01": -0.1, "02": 0.1, "03": 0.1, "04": 0.1}, "none negative"),
        ({"01": np.inf, "02": 240, "03": 600, "04": 600}, "finite"),
    ],
)
def test_fpc_out_of_range(values: dict[str, float], part: str) -> None:
    frame = good().assign(fraction=lambda f: f["field"].map(values))
    assert part in message(frame, fpc="fraction")


def test_fpc_must_be_constant_in_a_stratum() -> None:
    frame = good()
    frame.loc[0, "fraction"] = 0.2
    assert "varies within 1 of 4 strata" in message(frame, fpc="fraction")


def test_codes_stay_as_they_are_written() -> None:
    column = text_column(pd.Series(["01203", "1203", "10", "9", "01203"]), "psu")
    assert column.levels == ("9", "10", "01203", "1203")
    assert column.values().tolist() == ["01203", "1203", "10", "9", "01203"]


def test_predictors_with_leading_zeros_are_categories() -> None:
    frame = good().assign(code=np.array(["01", "2"])[np.arange(240) // 120])
    assert "code[T.2]" in make_survey(frame, predictors="field*gender + code").design.matrix.columns
    numbers = frame.assign(code=frame["code"].str.lstrip("0"))
    assert "code" in make_survey(numbers, predictors="field*gender + code").design.matrix.columns


@given(
    st.lists(
        st.none() | st.floats() | st.integers() | st.booleans() | st.text("xyz \n"), min_size=1
    )
)
def test_any_cells_are_text_or_missing(cells: list[Any]) -> None:
    column = text_column(pd.Series(cells, dtype=object), "x")
    assert column.codes.shape == (len(cells),)
    assert all(level.strip() for level in column.levels)
    for cell, text in zip(cells, column.values(), strict=True):
        if isinstance(cell, str):
            assert text == " ".join(cell.split())


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_numbers_written_as_text_are_the_same_numbers(values: list[float]) -> None:
    for dtype in ("str", "object"):
        column = number_column(pd.Series([repr(v) for v in values], dtype=dtype), "x")
        assert column.wrong == 0
        np.testing.assert_array_equal(column.values, values)


@given(st.lists(st.text(), min_size=1))
def test_text_is_a_number_missing_or_counted(cells: list[str]) -> None:
    column = number_column(pd.Series(cells, dtype="str"), "x")
    assert column.wrong + np.isfinite(column.values).sum() <= len(cells)
    again = number_column(pd.Series(cells, dtype=object), "x")
    assert again.wrong == column.wrong
    np.testing.assert_array_equal(again.values, column.values)


def test_a_fraction_of_exactly_one_is_a_fraction() -> None:
    frame = good()
    fractions = dict.fromkeys(frame["field"].unique(), 0.5)
    fractions[frame["field"].iloc[0]] = 1.0
    design = make_survey(frame.assign(f=frame["field"].map(fractions)), fpc="f").design
    assert design.fpc is not None
    assert sorted(design.fpc) == [0.5] * (len(fractions) - 1) + [1.0]
