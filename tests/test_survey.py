"""Reading and validating surveys: tables written by hand, and what the file itself says.

Bad files are made here one at a time. No message may hold a confidential value, so every one of
them is searched for the planted canaries.
"""

import csv
import io
import math
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surveysynth._columns import number_column, text_column
from surveysynth.errors import InputError
from surveysynth.spec import Spec, parse_spec
from surveysynth.survey import Survey, read_survey
from surveysynth.transforms import Transform

CANARY_OUTCOME = 987654.321
CANARY_WEIGHT = 31415.9265
CANARIES = ("987654", "31415", "canary")

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "ce2015q3.csv"
needs_real_data = pytest.mark.skipif(
    not REAL.is_file(), reason="../shared/data/ce2015q3.csv is not beside this checkout"
)


def good(n: int = 240, seed: int = 3) -> pd.DataFrame:
    """A sound survey with one canary record; fields 01..04 in unequal shares, two genders."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "field": np.array(["01", "02", "03", "04"])[np.arange(n) % 4],
        "gender": np.array(["M", "F"])[(np.arange(n) // 4) % 2],
        "school": np.array(["a", "b", "c"])[(np.arange(n) // 8) % 3],
        "age": rng.integers(20, 60, n),
        "fraction": 0.1,
        "note": [f"note, {i}" for i in range(n)],
        "weight": np.exp(rng.normal(3, 0.5, n)),
        "salary": np.exp(rng.normal(10, 0.5, n)),
    })  # fmt: skip
    frame.loc[7, ["weight", "salary"]] = [CANARY_WEIGHT, CANARY_OUTCOME]
    return frame


def from_frame(frame: pd.DataFrame, **changes: Any) -> Survey:
    settings: dict[str, Any] = {
        "outcome": "salary",
        "weight": "weight",
        "by": ["field", "gender"],
        "strata": "field",
    }
    return Survey.from_frame(frame, **{**settings, **changes})


def message(frame: pd.DataFrame, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        from_frame(frame, **changes)
    return checked(caught.value)


def checked(error: InputError, folder: Path | None = None) -> str:
    """The message, after a search for canaries; the folder of the test may be named after one."""
    text = str(error) if folder is None else str(error).replace(str(folder), "")
    for canary in CANARIES:
        assert canary not in text
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    return text


def make_spec(folder: Path, data: str = "survey.csv", survey: str = "", **sections: str) -> Spec:
    return parse_spec(
        f"""
        [survey]
        data = "{data}"
        weight = "weight"
        strata = "field"
        {survey}
        [synthesizer]
        outcome = "salary"
        {sections.get("synthesizer", "")}
        [tables]
        by = ["field", "gender"]
        {sections.get("tables", "")}
        {sections.get("labels", "")}
        """,
        folder / "spec.toml",
    )


def csv_bytes(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False).encode()


def read_bytes(folder: Path, content: bytes, **changes: str) -> Survey:
    (folder / "survey.csv").write_bytes(content)
    return read_survey(make_spec(folder, **changes))


def file_message(folder: Path, content: bytes, **changes: str) -> str:
    with pytest.raises(InputError) as caught:
        read_bytes(folder, content, **changes)
    return checked(caught.value, folder)


def record_lines(n: int = 40) -> list[str]:
    """Header and records of a small sound csv without quoted cells."""
    return csv_bytes(good(n).drop(columns="note")).decode().splitlines()


def joined(lines: list[str], end: str = "\n") -> bytes:
    return (end.join(lines) + end).encode()


# What is read ------------------------------------------------------------------------------------


def test_csv_is_read_as_the_file_says(tmp_path: Path) -> None:
    frame = good()
    survey = read_bytes(
        tmp_path,
        csv_bytes(frame),
        survey='psu = "school"\nfpc = "fraction"\npublic_columns = ["note"]',
        synthesizer='predictors = "field * gender + age"',
    )
    design, confidential = survey.design, survey.confidential
    rows = list(csv.DictReader(io.StringIO(csv_bytes(frame).decode())))
    assert design.n == len(rows) == 240
    assert set(design.frame) == {"field", "gender", "school", "age", "note"}
    for name in ("field", "gender", "school", "note"):
        assert design.frame[name].tolist() == [row[name] for row in rows]
    assert design.frame["age"].tolist() == [int(row["age"]) for row in rows]
    assert confidential.outcome[:, 0].tolist() == [float(row["salary"]) for row in rows]
    assert confidential.sampling_weight is not None
    assert confidential.sampling_weight.tolist() == [float(row["weight"]) for row in rows]
    assert design.levels == {"field": ("01", "02", "03", "04"), "gender": ("F", "M")}
    assert design.predictors == ("field", "gender", "age")
    assert design.dropped == 0
    assert design.strata is not None
    assert design.strata.tolist() == [int(row["field"]) - 1 for row in rows]
    assert design.psu is not None
    assert len(set(zip(design.psu, design.strata, strict=True))) == np.unique(design.psu).size
    assert design.fpc is not None
    assert design.fpc.tolist() == [0.1] * 4


def test_parquet_and_frame_give_the_same_as_csv(tmp_path: Path) -> None:
    frame = good().assign(field=lambda f: f["field"].astype(int))
    frame.to_parquet(tmp_path / "survey.parquet")
    (tmp_path / "survey.csv").write_bytes(csv_bytes(frame))
    read = [
        read_survey(make_spec(tmp_path, data=name)) for name in ("survey.csv", "survey.parquet")
    ]
    floats = frame.assign(field=lambda f: f["field"].astype(float))
    categories = frame.astype({"field": "category", "gender": "category"})
    read += [from_frame(frame), from_frame(floats), from_frame(categories)]
    first = read[0]
    for other in read[1:]:
        pd.testing.assert_frame_equal(other.design.frame, first.design.frame)
        assert other.design.levels == first.design.levels == {
            "field": ("1", "2", "3", "4"), "gender": ("F", "M"),
        }  # fmt: skip
        np.testing.assert_array_equal(other.confidential.outcome, first.confidential.outcome)
        np.testing.assert_array_equal(other.design.matrix.x_cells, first.design.matrix.x_cells)


def test_numbers_are_read_to_the_last_bit(tmp_path: Path) -> None:
    frame = good()
    survey = read_bytes(tmp_path, csv_bytes(frame))
    np.testing.assert_array_equal(survey.confidential.outcome[:, 0], frame["salary"])
    np.testing.assert_array_equal(survey.confidential.sampling_weight, frame["weight"])


def test_quoted_cells_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    notes = ['a, "quoted" word', "two\nlines", "two\r\nlines, more", '"', "", "plain"]
    frame = good().assign(note=[notes[i % len(notes)] for i in range(240)])
    for end in ("\n", "\r\n"):
        content = frame.to_csv(index=False, lineterminator=end).encode()
        survey = read_bytes(tmp_path, content, survey='public_columns = ["note"]')
        assert survey.design.frame["note"].tolist() == frame["note"].tolist()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"\xef\xbb\xbf" + content,
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content.rstrip(b"\n"),
        lambda content: content + b"\n\n",
        lambda content: content.replace(b"salary", b'"salary"', 1),
        lambda content: b"\n" + content,
        lambda content: content.replace(b"note,", b'"no\nte",', 1),
    ],
)  # fmt: skip
def test_harmless_variations_of_a_csv(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    frame = good().assign(note="x")
    survey = read_bytes(tmp_path, change(csv_bytes(frame)))
    np.testing.assert_array_equal(survey.confidential.outcome[:, 0], frame["salary"])


def test_labels_fix_the_order_of_levels(tmp_path: Path) -> None:
    labels = (
        '[labels.field]\nlevels = { "04" = "D", "03" = "C", "02" = "B", "05" = "E", "01" = "A" }'
    )
    design = read_bytes(tmp_path, csv_bytes(good()), labels=labels).design
    # A labelled level without records stays: its cells are empty, which is no error.
    assert design.levels["field"] == ("04", "03", "02", "05", "01")
    assert "field[T.05]" not in design.matrix.columns


def test_a_psu_label_in_two_strata_is_two_psus() -> None:
    survey = from_frame(good(), psu="school")
    pairs = good()[["field", "school"]].drop_duplicates()
    assert survey.design.psu is not None
    assert survey.design.psu.max() + 1 == len(pairs) == 12


def test_by_may_be_empty_and_strata_absent() -> None:
    design = from_frame(good(), by=[], strata=None).design
    assert design.matrix.columns == ("Intercept",)
    assert (design.strata, design.psu, design.fpc) == (None, None, None)


def test_several_outcomes_keep_their_order() -> None:
    frame = good().assign(tax=lambda f: f["age"] * 10.0 - 300)
    frame["tax"] += np.random.default_rng(1).normal(size=len(frame)) * 100
    survey = from_frame(
        frame, outcome=["salary", "tax"], transforms=[Transform(), Transform("asinh", scale=100)]
    )
    np.testing.assert_array_equal(survey.confidential.outcome, frame[["salary", "tax"]])
    assert survey.design.transforms == (Transform(), Transform("asinh", scale=100))


def test_the_frame_given_is_not_changed() -> None:
    frame = good()
    before = frame.copy(deep=True)
    from_frame(frame, public_columns=["note"])
    pd.testing.assert_frame_equal(frame, before)
    frame["salary"] += 1  # nor is it shared: it stays writable


# What stays confidential -------------------------------------------------------------------------


def test_text_of_a_survey_shows_no_confidential_value() -> None:
    survey = from_frame(good(), public_columns=["note"])
    for text in (repr(survey), str(survey), repr(survey.confidential), f"{survey.confidential}"):
        assert not any(canary in text for canary in CANARIES)
    assert "240" in repr(survey.confidential)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(survey)


def test_the_public_half_holds_no_outcome_and_no_weight() -> None:
    public = pickle.dumps(from_frame(good(), public_columns=["note"], psu="school").design)
    for value in (CANARY_OUTCOME, CANARY_WEIGHT):
        assert np.float64(value).tobytes() not in public
        assert str(value).encode() not in public
        assert np.float64(math.log(value)).tobytes() not in public


def test_confidential_arrays_are_read_only() -> None:
    confidential = from_frame(good()).confidential
    with pytest.raises(ValueError, match="read-only"):
        confidential.outcome[0, 0] = 1.0


# Files that cannot be used -----------------------------------------------------------------------


def test_absent_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no data file"):
        read_survey(make_spec(tmp_path))
    (tmp_path / "survey.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_survey(make_spec(tmp_path))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "is empty"),
        (b"\n\n", "column names"),
        (b"field,gender,weight,salary", "no records"),
        (b"field,gender,weight,salary\n\n", "no records"),
        (b"field;gender;weight;salary\n1;M;2;3\n", "separators"),
        ("field,gender,weight,salary\n1,ü,2,3\n".encode("latin-1"), "not UTF-8"),
        ("field,gender,weight,salary\n1,M,2,3\n".encode("utf-16"), "UTF-16"),
        (b"field,gender,weight,salary\n1,M,\0,3\n", "NUL"),
        (b"field,gender,weight,salary,salary\n1,M,2,3,4\n", "'salary' occurs more than once"),
        (b'field,gender,weight,salary\n1,M,2,3\n1,"M,2,3\n1,F,2,3\n', "line 3 is never closed"),
    ],
)
def test_files_that_are_no_table(tmp_path: Path, content: bytes, part: str) -> None:
    assert part in file_message(tmp_path, content)


def test_wrong_byte_far_into_the_file_is_located(tmp_path: Path) -> None:
    lines = record_lines()
    lines[30] += "\udcff"
    content = ("\n".join(lines)).encode("utf-8", "surrogateescape")
    assert "line 31" in file_message(tmp_path, content)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({5: lambda line: line.rsplit(",", 1)[0]}, ["1 record has", "1 with too few", "line 6"]),
        ({5: lambda line: line + ",1"}, ["1 record has", "1 with too many", "line 6"]),
        (
            {9: lambda line: line[:3], 12: lambda line: line + ",,", 20: lambda line: "canary"},
            ["3 records have", "2 with too few and 1 with too many", "line 10"],
        ),
    ],
)
def test_short_and_long_rows(
    tmp_path: Path, changes: dict[int, Callable[[str], str]], parts: list[str]
) -> None:
    lines = record_lines()
    for index, change in changes.items():
        lines[index] = change(lines[index])
    text = file_message(tmp_path, joined(lines))
    for part in [*parts, "header's 7"]:
        assert part in text


def test_line_of_a_short_row_counts_line_ends_inside_quotes(tmp_path: Path) -> None:
    lines = [line + ',"x\ny"' for line in record_lines()]
    lines[0] = lines[0].replace('"x\ny"', "note")
    lines[3] = lines[3].replace(',"x\ny"', "")
    assert "line 6" in file_message(tmp_path, joined(lines))


def test_missing_columns_name_the_nearest(tmp_path: Path) -> None:
    renamed = good().rename(columns={"salary": "Salery", "gender": "sex"})
    text = file_message(tmp_path, csv_bytes(renamed))
    assert "outcome: there is no column 'salary'. Did you mean 'Salery'?" in text
    assert "by: there is no column 'gender'. Columns: 'field', 'sex'" in text


def test_labels_of_an_unknown_column(tmp_path: Path) -> None:
    text = file_message(tmp_path, csv_bytes(good()), labels='[labels.gendr]\ntitle = "Gender"')
    assert "labels.gendr" in text
    assert "Did you mean 'gender'" in text


def test_levels_that_the_labels_leave_out(tmp_path: Path) -> None:
    text = file_message(
        tmp_path, csv_bytes(good()), labels='[labels.gender]\nlevels = {M = "Men", Fe = "Women"}'
    )
    assert "labels.gender.levels" in text
    assert "'F'" in text


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 canary PAR1", b"a,b\n1,2\n"])
def test_damaged_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "survey.parquet").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_survey(make_spec(tmp_path, data="survey.parquet"))
    checked(caught.value)


def test_truncated_parquet(tmp_path: Path) -> None:
    good().to_parquet(tmp_path / "whole.parquet")
    content = (tmp_path / "whole.parquet").read_bytes()
    damaged = content[:40] + b"\xff" * 400 + content[440:]
    (tmp_path / "survey.parquet").write_bytes(damaged)
    with pytest.raises(InputError) as caught:
        read_survey(make_spec(tmp_path, data="survey.parquet"))
    checked(caught.value)


def test_parquet_text_that_is_not_utf8(tmp_path: Path) -> None:
    good().assign(gender=["canary", "F"] * 120).to_parquet(
        tmp_path / "whole.parquet", compression=None
    )
    content = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "survey.parquet").write_bytes(content.replace(b"canary", b"can\xffry"))
    with pytest.raises(InputError, match="damaged") as caught:
        read_survey(make_spec(tmp_path, data="survey.parquet"))
    checked(caught.value)


def test_columns_of_lists_or_dates() -> None:
    frame = good()
    frame["gender"] = [[1, 2]] * len(frame)
    assert "'gender'" in message(frame)
    frame = good()
    frame["salary"] = pd.Timestamp("2024-01-01")
    assert "dates" in message(frame)


# Records that cannot be used ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "parts"),
    [
        ("weight", 0.0, ["weight", "1 record with a value of zero"]),
        ("weight", -CANARY_WEIGHT, ["weight", "1 record with a negative value"]),
        ("weight", np.nan, ["'weight'", "1 record", "blank or missing", "drop"]),
        ("weight", np.inf, ["weight", "1 record with an infinite value"]),
        ("weight", -np.inf, ["weight", "1 record with an infinite value", "negative"]),
        ("weight", "canary", ["'weight'", "1 record with text that is no number"]),
        ("weight", f"{CANARY_WEIGHT} kg", ["'weight'", "1 record with text that is no number"]),
        ("weight", "1_000", ["'weight'", "1 record with text that is no number"]),
        ("salary", np.nan, ["'salary'", "1 record", "blank or missing"]),
        ("salary", "NaN", ["'salary'", "1 record", "blank or missing"]),
        ("salary", "NA", ["'salary'", "1 record", "blank or missing"]),
        ("salary", np.inf, ["salary", "1 record with an infinite value"]),
        ("salary", "1e999", ["salary", "1 record with an infinite value"]),
        ("salary", "canary", ["'salary'", "1 record with text that is no number"]),
        ("salary", "987654,321", ["'salary'", "1 record with text that is no number"]),
        ("salary", 0.0, ["salary", "1 record where log(salary)", "transform_shift", "asinh"]),
        ("salary", -CANARY_OUTCOME, ["salary", "1 record where log(salary)"]),
        ("gender", "", ["'gender'", "1 record", "blank"]),
        ("gender", "  ", ["'gender'", "1 record", "blank"]),
        ("field", "", ["'field'", "1 record", "blank"]),
        ("field", "All", ["'field'", "'All'", "margin"]),
        ("gender", "M ", ["'gender'", "'M'", "'M '", "blanks"]),
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


def test_counts_by_column_are_listed_together() -> None:
    frame = good()
    frame.loc[[1, 2], "salary"] = np.nan
    frame.loc[[2, 3, 4], "gender"] = None
    text = message(frame)
    assert "'salary': 2 records" in text
    assert "'gender': 3 records" in text


def test_drop_counts_and_leaves_out_what_is_blank(tmp_path: Path) -> None:
    frame = good()
    frame.loc[[1, 2], "salary"] = np.nan
    frame.loc[[2, 3], "gender"] = None
    frame.loc[[4], "weight"] = np.nan
    frame.loc[[5], "field"] = " "
    frame.loc[[6], "note"] = None  # shipped only: stays
    kept = frame.drop(index=[1, 2, 3, 4, 5])
    for survey in (
        from_frame(frame, missing="drop", public_columns=["note"]),
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
    assert from_frame(frame, missing="drop").design.levels["field"] == ("01", "02", "03", "04")


@pytest.mark.parametrize(
    ("transform", "value"),
    [
        (Transform(), 5.0),
        (Transform("identity"), 0.0),
        (Transform("asinh", scale=1e12), 3.0),
    ],
)
def test_a_constant_outcome(transform: Transform, value: float) -> None:
    assert "constant" in message(good().assign(salary=value), transforms=transform)


def test_an_outcome_that_vanishes_under_its_scale_is_constant() -> None:
    text = message(good(), transforms=Transform("identity", scale=1e20))
    assert "constant" in text
    assert "transform_scale" in text


@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_a_weight_that_is_a_function_of_x(noise: float) -> None:
    rng = np.random.default_rng(8)
    frame = good()
    frame["weight"] = np.exp(frame["field"].astype(float) + noise * rng.normal(size=len(frame)))
    text = message(frame)
    assert "weight 'weight' is (nearly) a function of the predictors" in text
    assert "public" in text
    noisy = np.exp(frame["field"].astype(float) + 0.05 * rng.normal(size=len(frame)))
    assert from_frame(frame.assign(weight=noisy)).design.n == 240


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


# Roles -------------------------------------------------------------------------------------------


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
        ({"predictors": "field*gender + note"}, ["'note'", "240 levels", "no number"]),
        ({"predictors": "gender"}, ["strata 'field'"]),
        ({"by": ["field", "field"]}, ["by: 'field' is repeated"]),
        ({"outcome": ["salary", "salary"]}, ["outcome: 'salary' is repeated"]),
        ({"outcome": []}, ["at least one"]),
        ({"outcome": "weight"}, ["also an outcome"]),
        ({"by": ["note"]}, ["'note'", "240 levels", "200"]),
        ({"by": ["absent"]}, ["by: there is no column 'absent'"]),
        ({"weight": None, "statistics": ["count"]}, ["sampling weights"]),
        ({"population_size": 0}, ["population_size", "above zero"]),
        ({"population_size": math.nan}, ["population_size", "finite"]),
        ({"population_size": 239}, ["population_size is 239", "240 records"]),
        ({"lonely_psu": "merge"}, ["lonely_psu", "certainty", "'merge'"]),
        ({"missing": "impute"}, ["'fail' or 'drop'", "'impute'"]),
        ({"transforms": [Transform(), Transform()]}, ["transforms", "got 2"]),
        ({"margin_labels": {"gender": "F"}}, ["'gender'", "'F'", "margin"]),
        ({"statistics": ["proportion"]}, ["0 and 1", "240 records"]),
    ],
)
def test_parts_and_settings_that_do_not_fit(changes: dict[str, Any], parts: list[str]) -> None:
    text = message(good(), **changes)
    for part in parts:
        assert part in text


def test_proportions_need_an_untransformed_0_1_outcome() -> None:
    binary = good().assign(salary=lambda f: (f["salary"] > f["salary"].median()) * 1.0)
    survey = from_frame(binary, transforms=Transform("identity"), statistics=["proportion"])
    assert survey.design.transforms[0].kind == "identity"
    text = message(binary, transforms=Transform("asinh"), statistics=["proportion"])
    assert "identity" in text
    binary.loc[7, "salary"] = CANARY_OUTCOME
    text = message(binary, transforms=Transform("identity"), statistics=["proportion"])
    assert "1 record with another value" in text


def test_frames_that_are_none() -> None:
    with pytest.raises(InputError, match="DataFrame"):
        from_frame({"salary": [1.0]})  # type: ignore[arg-type]
    doubled = pd.concat([good(), good()[["salary"]]], axis=1)
    assert "'salary' occurs more than once" in message(doubled)


def test_a_weight_may_be_absent_for_api_users() -> None:
    survey = from_frame(good(), weight=None)
    assert survey.confidential.sampling_weight is None
    assert survey.design.weight_name is None


# Strata, PSUs, fpc -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["remove", "certainty", "adjust", "average"])
def test_lonely_strata_are_taken_by_the_other_rules(rule: str) -> None:
    frame = good()
    frame.loc[11, "field"] = "05"
    assert from_frame(frame, lonely_psu=rule).design.lonely_psu == rule


def test_strata_of_one_psu_are_lonely() -> None:
    frame = good()
    frame.loc[frame["field"] == "02", "school"] = "a"
    assert "1 of 4 strata has one PSU" in message(frame, psu="school")
    assert "the sample has one PSU" in message(frame.assign(school="a"), psu="school", strata=None)


def test_fpc_as_sizes_counts_psus_or_records() -> None:
    sizes = {"01": 120, "02": 240, "03": 600, "04": 60}
    frame = good().assign(fraction=lambda f: f["field"].map(sizes))
    assert from_frame(frame, fpc="fraction").design.fpc is not None
    np.testing.assert_allclose(
        from_frame(frame, fpc="fraction").design.fpc, [60 / 120, 60 / 240, 60 / 600, 1.0]
    )
    np.testing.assert_allclose(
        from_frame(frame, fpc="fraction", psu="school").design.fpc,
        [3 / 120, 3 / 240, 3 / 600, 3 / 60],
    )
    whole = from_frame(frame.assign(fraction=2400), fpc="fraction", by=[], strata=None)
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


# Columns -----------------------------------------------------------------------------------------


def test_codes_stay_as_they_are_written() -> None:
    column = text_column(pd.Series(["01203", "1203", "10", "9", "01203"]), "psu")
    assert column.levels == ("9", "10", "01203", "1203")
    assert column.values().tolist() == ["01203", "1203", "10", "9", "01203"]


def test_predictors_with_leading_zeros_are_categories() -> None:
    frame = good().assign(code=np.array(["01", "2"])[np.arange(240) // 120])
    assert "code[T.2]" in from_frame(frame, predictors="field*gender + code").design.matrix.columns
    numbers = frame.assign(code=frame["code"].str.lstrip("0"))
    assert "code" in from_frame(numbers, predictors="field*gender + code").design.matrix.columns


@given(st.lists(st.none() | st.floats() | st.integers() | st.booleans() | st.text(), min_size=1))
def test_any_cells_are_text_or_missing(cells: list[Any]) -> None:
    column = text_column(pd.Series(cells, dtype=object), "x")
    assert column.codes.shape == (len(cells),)
    assert all(level.strip() for level in column.levels)
    for cell, text in zip(cells, column.values(), strict=True):
        if isinstance(cell, str):
            assert text == (cell if cell.strip() else "")


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


# Properties --------------------------------------------------------------------------------------


def outcome_of(folder: Path, content: bytes) -> Survey | None:
    try:
        return read_bytes(folder, content)
    except InputError as error:
        checked(error)
        return None


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_any_bytes_as_csv(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    assert outcome_of(tmp_path_factory.mktemp("csv"), content) is None


HEADER = "field,gender,weight,salary\n"
CELL = st.sampled_from(
    ["1", "2", "M", "F", "3.5", "-1", "0", "", " ", '"', '""', '"1,2"', '"a\nb"', "NA", "inf",
     "1e400", "987654.321", "canary", "\r", "\n", ",", ";", "\t", "é", "All"]
)  # fmt: skip
ROW = st.lists(CELL, min_size=1, max_size=6).map(",".join)


@given(st.lists(ROW, max_size=12).map("\n".join))
@settings(deadline=None, max_examples=300)
def test_any_rows_as_csv(tmp_path_factory: pytest.TempPathFactory, body: str) -> None:
    outcome_of(tmp_path_factory.mktemp("csv"), (HEADER + body).encode())


@given(st.binary(max_size=40), st.integers(0, 10_000))
@settings(deadline=None, max_examples=200)
def test_a_sound_csv_with_bytes_put_in(
    tmp_path_factory: pytest.TempPathFactory, put_in: bytes, position: int
) -> None:
    content = csv_bytes(good(80))
    position %= len(content)
    survey = outcome_of(
        tmp_path_factory.mktemp("csv"), content[:position] + put_in + content[position:]
    )
    if survey is not None:
        assert np.isfinite(survey.confidential.outcome).all()
        assert survey.confidential.sampling_weight is not None
        assert (survey.confidential.sampling_weight > 0).all()


@given(st.integers(0, 4000), st.binary(min_size=1, max_size=20))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_parquet_with_bytes_changed(
    tmp_path_factory: pytest.TempPathFactory, position: int, put_in: bytes
) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    good(40).to_parquet(folder / "survey.parquet")
    content = (folder / "survey.parquet").read_bytes()
    position %= len(content)
    changed = content[:position] + put_in + content[position + len(put_in) :]
    (folder / "survey.parquet").write_bytes(changed)
    try:
        read_survey(make_spec(folder, data="survey.parquet"))
    except InputError as error:
        checked(error)


@given(
    st.dictionaries(
        st.sampled_from(["field", "gender", "weight", "salary", "age"]),
        st.tuples(
            st.integers(0, 79),
            st.none() | st.floats() | st.text(max_size=5) | st.booleans() | st.just("canary"),
        ),
    ),
    st.sampled_from(["fail", "drop"]),
)
@settings(deadline=None, max_examples=200)
def test_any_cells_in_a_frame(changes: dict[str, tuple[int, Any]], missing: str) -> None:
    frame = good(80).astype(object)
    for column, (row, value) in changes.items():
        public_word = value == "canary" and column not in ("weight", "salary")
        frame.loc[row, column] = "x" if public_word else value
    try:
        survey = from_frame(frame, missing=missing, predictors="field * gender + age")
    except InputError as error:
        checked(error)
    else:
        assert survey.design.n + survey.design.dropped == 80
        assert np.isfinite(survey.confidential.outcome).all()


# The real file and a large one -------------------------------------------------------------------


def real_spec(**changes: str) -> Spec:
    return parse_spec(
        f"""
        [survey]
        data = "{REAL.as_posix()}"
        weight = "weight"
        population_size = 128_400_000
        {changes.get("survey", 'missing = "drop"')}
        [synthesizer]
        {changes.get("synthesizer", 'outcome = "income"')}
        [tables]
        by = ["region", "sex"]
        """
    )


INCOME = 'outcome = "income"\ntransform = "asinh"\ntransform_scale = 10_000'


@needs_real_data
def test_real_survey_equals_the_file() -> None:
    survey = read_survey(real_spec(synthesizer=INCOME))
    with REAL.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kept = [row for row in rows if row["region"]]
    assert (len(rows), survey.design.n, survey.design.dropped) == (6481, 6206, 275)
    assert survey.design.levels["region"] == ("Midwest", "Northeast", "South", "West")
    assert survey.design.matrix.formula == "region + sex + region:sex"
    assert survey.design.frame["region"].tolist() == [row["region"] for row in kept]
    np.testing.assert_array_equal(
        survey.confidential.outcome[:, 0], [float(row["income"]) for row in kept]
    )


@needs_real_data
def test_real_survey_messages() -> None:
    with pytest.raises(InputError, match="'region': 275 records"):
        read_survey(real_spec(survey="", synthesizer=INCOME))
    with pytest.raises(InputError, match=r"records where log\(income\)"):
        read_survey(real_spec())


@needs_real_data
def test_real_psu_codes_keep_their_zeros() -> None:
    survey = read_survey(real_spec(survey='missing = "drop"\npsu = "psu"', synthesizer=INCOME))
    assert "01203" in set(survey.design.frame["psu"])
    assert survey.design.psu is not None
    assert survey.design.psu.max() + 1 == survey.design.frame["psu"].nunique()


def test_a_million_records_are_read_in_seconds(tmp_path: Path) -> None:
    frame = good().drop(columns="note")
    body = csv_bytes(frame).split(b"\n", 1)[1]
    repeats = 4167
    content = b"field,gender,school,age,fraction,weight,salary\n" + body * repeats
    (tmp_path / "survey.csv").write_bytes(content)
    spec = make_spec(tmp_path, survey='psu = "school"\nfpc = "fraction"')
    started = time.monotonic()
    survey = read_survey(spec)
    assert time.monotonic() - started < 20  # about 2.5 on one core of 2025
    assert survey.design.n == 240 * repeats
