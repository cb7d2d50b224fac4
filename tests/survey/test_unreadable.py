"""Kinds of text that is no number, against cells whose kind a person sees at a glance."""

import datetime
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.survey.columns import (
    ALMOST_A_LEVEL,
    in_words,
    kind_of,
    kinds_of,
    level_column,
    number_column,
)
from surveysynth.survey.outcome import Outcome

CELLS = {
    "with a thousands separator": [
        "1,234", "12,345.60", "-1,234,567", "1.234.567", "1.234.567,89", "1 234", "12 345,5",
        "1\u202f234", "1\u00a0234.5", "1'234", "1_000", " 1,234 ",
    ],
    "with a decimal comma": ["12,5", "0,123", "1234,567", ",5", "-3,14", "1,5e3"],
    "with a percent sign": ["12%", "12.5 %", "3,5%"],
    "with a currency": ["$1,200", "1.200 €", "£5", "USD 30", "30 eur", "CHF 1'000"],
    "with a date": [
        "2020-01-31", "31.12.2020", "1/2/99", "01/2020", "5 Jan 2020", "Jan-2020",
        "March 3, 2021", "2020-01-31T10:00:00", "2020-01-31 10:00", datetime.date(2020, 1, 31),
        datetime.datetime(2020, 1, 31, 10),
    ],
    "with a time": ["10:30", "10:30:05", "9:15 pm", datetime.time(10, 30)],
    "with a comparison sign": ["<5", ">= 100", "~20", "≤3"],
    "with a range": ["10-20", "10 – 20", "10 to 20", "1,000-2,000"],
    "with brackets": ["(1,234)", "(12)", "[3]"],
    "with words or a unit beside digits": ["31 kg", "12k", "about 30", "3rd", "x1"],
    "with words": ["refused", "n.a.", "don't know", "Ünbekannt", "日本"],
    "with other signs beside digits": ["1;2", "12*", "1-2-3-4", "#3"],
    "with signs only": ["-", "*", "?", "—", "€"],
    "with a cell of another type": [[1], object()],
}  # fmt: skip


@pytest.mark.parametrize("kind", CELLS)
def test_kinds_by_example(kind: str) -> None:
    assert {kind_of(cell) for cell in CELLS[kind]} == {kind}


@given(st.lists(st.text() | st.dates() | st.sampled_from(CELLS["with a range"]), max_size=30))
def test_every_cell_is_of_one_kind_that_quotes_nothing(cells: list[object]) -> None:
    kinds = kinds_of(cells)
    assert sum(kinds.values()) == len(cells)
    assert set(kinds) <= set(CELLS)
    assert list(kinds.values()) == sorted(kinds.values(), reverse=True)


def test_a_column_counts_what_it_cannot_read_and_reads_the_rest() -> None:
    cells = ["1.5", "1,234", "2,345", "", "NA", "2020-01-31", "3e2"]
    column = number_column(pd.Series(cells, dtype="str"), "income")
    assert column.wrong == 3
    assert in_words(column.kinds) == "2 with a thousands separator, 1 with a date"
    read = column.values.tolist()
    assert [read[0], read[6]] == [1.5, 300.0]
    assert all(math.isnan(value) for value in read[1:6])


def test_levels_that_differ_in_case_are_counted() -> None:
    outcome = Outcome("insured", "categorical", levels=("no", "yes"))
    column = level_column(pd.Series(["no", "yes", "Yes", " no", "maybe"]), outcome)
    assert column.wrong == 2
    assert column.kinds == {ALMOST_A_LEVEL: 1}
