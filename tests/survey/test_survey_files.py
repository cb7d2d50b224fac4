"""Files that cannot be used, made one at a time; hypothesis changes their bytes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from surveysynth.config.build import read_survey
from surveysynth.errors import InputError
from surveysynth.survey.survey import Survey
from tests.survey.messages import (
    checked,
    csv_bytes,
    file_message,
    joined,
    make_spec,
    message,
    read_bytes,
    record_lines,
)
from tests.surveys import good, make_survey


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
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
        ("field,gender,weight,salary\n1,M,2,3\n".encode("utf-16"), "UTF-16"),
        (b"field,gender,weight,salary\n1,M,\0,3\n", "NUL"),
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
        ({5: lambda line: line + ",1"}, ["1 record does not have", "1 with too many", "line 6"]),
        (
            {9: lambda line: line[:3], 12: lambda line: line + ",,", 20: lambda line: "canary"},
            ["3 records do not have", "2 with too few and 1 with too many", "line 10"],
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
    assert "by: there is no column 'gender'. The data have 8 columns." in text
    assert "'sex'" not in text


def test_labels_of_an_unknown_column(tmp_path: Path) -> None:
    text = file_message(tmp_path, csv_bytes(good()), labels='[labels.gendr]\ntitle = "Gender"')
    assert "labels.gendr" in text
    assert "Did you mean 'gender'" in text


def test_damaged_parquet(tmp_path: Path) -> None:
    good().assign(gender=["canary", "F"] * 120).to_parquet(
        tmp_path / "whole.parquet", compression=None
    )
    whole = (tmp_path / "whole.parquet").read_bytes()
    for content in (
        b"", b"PAR1", b"PAR1 canary PAR1", b"a,b\n1,2\n", whole[:40] + b"\xff" * 400 + whole[440:],
        whole.replace(b"canary", b"can\xffry"),  # text that is not UTF-8
    ):  # fmt: skip
        (tmp_path / "survey.parquet").write_bytes(content)
        with pytest.raises(InputError, match=r"damaged|empty") as caught:
            read_survey(make_spec(tmp_path, data="survey.parquet"))
        checked(caught.value, tmp_path)


def test_columns_of_lists_or_dates() -> None:
    frame = good()
    frame["gender"] = [[1, 2]] * len(frame)
    assert "'gender'" in message(frame)
    frame = good()
    frame["salary"] = pd.Timestamp("2024-01-01")
    assert "dates" in message(frame)


def outcome_of(folder: Path, content: bytes) -> Survey | None:
    try:
        return read_bytes(folder, content)
    except InputError as error:
        checked(error)
        return None


HEADER = "field,gender,weight,salary\n"
CELL = st.sampled_from(
    ["1", "2", "M", "F", "3.5", "-1", "0", "", " ", '"', '""', '"1,2"', '"a\nb"', "NA", "inf",
     "1e400", "987654.321", "canary", "\r", "\n", ",", ";", "\t", "é", "All"]
)  # fmt: skip
ROW = st.lists(CELL, min_size=1, max_size=6).map(",".join)


@given(st.lists(ROW, max_size=12).map("\n".join))
@settings(deadline=None, max_examples=100)
def test_any_rows_as_csv(tmp_path_factory: pytest.TempPathFactory, body: str) -> None:
    outcome_of(tmp_path_factory.mktemp("csv"), (HEADER + body).encode())


@given(st.binary(max_size=40), st.integers(0, 10_000))
@settings(deadline=None, max_examples=100)
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
@example({"age": (0, 1.4e154)}, "fail")
@settings(deadline=None, max_examples=100)
def test_any_cells_in_a_frame(changes: dict[str, tuple[int, Any]], missing: str) -> None:
    frame = good(80).astype(object)
    for column, (row, value) in changes.items():
        public_word = value == "canary" and column not in ("weight", "salary")
        frame.loc[row, column] = "x" if public_word else value
    try:
        survey = make_survey(frame, missing=missing, predictors="field * gender + age")
    except InputError as error:
        checked(error)
    else:
        assert survey.design.n + survey.design.dropped == 80
        assert np.isfinite(survey.confidential.outcome).all()
