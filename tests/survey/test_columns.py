"""Cells and columns. Truth: the texts that a strategy builds its values from, and that the files of
all formats, and the frame that they were written from, have the same columns; each value's text is
said by hand, and so is the kind of text that is not a number, which a person sees at a glance."""

import datetime
import decimal
import math
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth.errors import InputError
from surveysynth.survey import files
from surveysynth.survey.columns import (
    ALMOST_A_LEVEL,
    alike,
    in_words,
    is_missing,
    kind_of,
    kinds_of,
    level_column,
    number_column,
    text_column,
    text_of,
)
from surveysynth.survey.files import SUFFIXES, open_table
from surveysynth.survey.outcome import Outcome

SPLIT = unicodedata.normalize("NFD", "Łódź")


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ((1, 1.0, "1.0", " 1 ", np.float32(1), np.int8(1), decimal.Decimal("1.0")), "1"),
        ((0.1, "0.1", np.float32(0.1), decimal.Decimal("0.1")), "0.1"),
        ((1e16, "1e+16", "10000000000000000", 10**16), "10000000000000000"),
        (("01",), "01"),
        (("1.50", decimal.Decimal("1.50")), "1.50"),
        ((-0.0, "-0.0", 0), "0"),
        ((True, np.True_, "TRUE", "true", "True"), "True"),
        (("Łódź", SPLIT, f"{SPLIT}\u00a0", "\tŁódź\n"), "Łódź"),
        (("New York", "New  York", "New\u00a0York"), "New York"),
        (
            (
                datetime.date(2026, 5, 1), datetime.datetime(2026, 5, 1),
                pd.Timestamp("2026-05-01"), "2026-05-01", "2026-05-01 00:00:00",
                "2026-05-01T00:00:00.000",
            ),
            "2026-05-01",
        ),
        ((pd.Timestamp("2026-05-01 13:30"), "2026-05-01T13:30:00"), "2026-05-01 13:30:00"),
        (("", "  ", "\u00a0", float("nan"), np.float32("nan"), decimal.Decimal("NaN")), ""),
    ],
)  # fmt: skip
def test_forms_of_one_value_have_one_text(cells: tuple[Any, ...], text: str) -> None:
    assert {text_of(cell) for cell in cells} == {text}


def test_words_for_a_missing_value_are_missing_unless_they_are_levels() -> None:
    words = ["NA", "n/a", "#N/A", "<NA>", "NaN", "null", ".", ".a", ".Z", ""]
    assert all(map(is_missing, words))
    assert not any(map(is_missing, ["None", "NAT", "-", "0", "missing", ".5"]))
    cells = pd.Series([*words, "x"], dtype="str")
    column = text_column(cells, "country")
    assert (column.levels, column.missing.sum(), column.words) == (("x",), 10, 9)
    column = text_column(cells, "country", ("NA", "x"))
    assert (column.levels, column.missing.sum(), column.words) == (("NA", "x"), 9, 8)
    assert number_column(pd.Series([*words[:-1], "2"]), "y").wrong == 0
    outcome = Outcome("y", "categorical", levels=("NA", "x"))
    assert level_column(cells, outcome).values.tolist()[0] == 0.0
    assert level_column(cells, outcome).wrong == 0


@pytest.mark.parametrize("cells", [["1", "1.0"], ["a", "A"], ["a", "a\u200b"], ["1.5", "1.50"],
                                   ["２", "2"], ["2026-01-01", "2026-01-01 00:00"]])  # fmt: skip
def test_what_looks_the_same_is_one_level_or_named(cells: list[str]) -> None:
    frame = pd.DataFrame({"by": cells * 20, "y": np.arange(40.0) + 1, "w": np.arange(40.0) + 1})
    given: dict[str, Any] = {"outcome": "y", "weight": "w", "population_size": 1e4}
    for roles in ({"by": "by"}, {"strata": "by"}):
        with pytest.raises(InputError, match="'by' has 2 levels that look the same"):
            ss.Survey.from_frame(frame, **roles, **given)
    assert alike(cells[0]) == alike(cells[1])
    order = {"by": list(dict.fromkeys(cells))}
    assert ss.Survey.from_frame(frame, by="by", level_order=order, **given).design.levels == {
        "by": tuple(order["by"])
    }


def test_levels_are_found_in_any_form_of_their_number() -> None:
    cells = pd.Series(["1", "1.0", "1.00", "01", "2"], dtype="str")
    assert text_column(cells, "x", ("1", "2")).values().tolist() == ["1", "1", "1", "01", "2"]
    assert text_column(cells, "x", ("1.0", "2")).values().tolist() == ["1.0"] * 3 + ["01", "2"]
    assert level_column(cells, Outcome("x", "binary", levels=("1", "2"))).wrong == 1
    both = text_column(cells, "x", ("1", "1.0", "2"))
    assert both.values().tolist() == ["1", "1.0", "1.00", "01", "2"]


@given(st.one_of(st.text(), st.floats(), st.integers(), st.booleans(), st.dates(), st.datetimes()))
def test_a_text_is_its_own_text(cell: Any) -> None:
    text = text_of(cell)
    assert text_of(text) == text
    assert alike(text) == alike(alike(text))


def test_categories_of_numbers_are_numbers_and_may_be_missing() -> None:
    rooms = [None if i % 5 == 0 else i % 3 for i in range(20)]
    expected = np.array([np.nan if each is None else each for each in rooms])
    for kind in ("Int64", "Float32", "category", "object"):
        values = number_column(pd.Series(rooms, dtype=kind), "rooms").values
        np.testing.assert_array_equal(values, expected)
    flags = pd.Series(pd.Categorical([None, True, False]))
    np.testing.assert_array_equal(number_column(flags, "x").values, [np.nan, 1.0, 0.0])
    mixed = number_column(pd.Series(pd.Categorical(["1", "1,000", None, "1,000"])), "x")
    assert (mixed.wrong, mixed.kinds) == (2, {"with a thousands separator": 2})


def _to_labelled(write: Callable[..., None]) -> Callable[[pd.DataFrame, Path], None]:
    return lambda frame, path: write(frame, str(path))


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "pandas.csv": lambda frame, path: frame.to_csv(path, index=False),
    "r.csv": lambda frame, path: frame.to_csv(path, index=False, na_rep="NA"),
    "arrow.csv": lambda frame, path: pa.csv.write_csv(pa.Table.from_pandas(frame), path),
    "x.parquet": lambda frame, path: frame.to_parquet(path),
    "x.dta": _to_labelled(pyreadstat.write_dta),
    "x.sav": _to_labelled(pyreadstat.write_sav),
    "x.xpt": _to_labelled(pyreadstat.write_xport),
}
WORDS = st.text("abcdeäöŁ ", min_size=1, max_size=8).map(lambda t: " ".join(t.split()))
TEXTS = WORDS.filter(lambda text: text and not is_missing(text)).map(
    lambda text: unicodedata.normalize("NFC", text)
)
#: A kind of levels: how their texts are made, their values in a frame, and the files that can have
#: such values: no true and false in those of Stata, SPSS and SAS, and the writer makes doubles.
TEXT_FILES = (".csv", ".parquet")
KINDS: dict[str, tuple[st.SearchStrategy[str], Callable[[list[str]], Any], tuple[str, ...]]] = {
    "texts": (
        TEXTS, lambda t: [unicodedata.normalize("NFD", f" {each}") for each in t], SUFFIXES
    ),
    "codes": (st.integers(-99, 10**6).map(str), lambda t: [float(each) for each in t], SUFFIXES),
    "halves": (
        st.integers(0, 99).map(lambda k: f"{k}.5"), lambda t: [float(e) for e in t], SUFFIXES
    ),
    "single": (
        st.integers(0, 99).map(lambda k: f"{k}.3"), lambda t: np.array(t, dtype=np.float32),
        TEXT_FILES,
    ),
    "flags": (st.sampled_from(["True", "False"]), lambda t: [e == "True" for e in t], TEXT_FILES),
    "days": (
        st.dates(datetime.date(1990, 1, 1), datetime.date(2030, 1, 1)).map(str),
        lambda t: [datetime.date.fromisoformat(each) for each in t], SUFFIXES,
    ),
}  # fmt: skip
EXAMPLES = {"suppress_health_check": [HealthCheck.function_scoped_fixture], "database": None}


@st.composite
def surveys(draw: st.DrawFn) -> tuple[pd.DataFrame, list[str | None], tuple[str, ...]]:
    """A frame, the texts of its column "by" (None: missing), and the files that can have it."""
    texts, values_of, suffixes = KINDS[kind := draw(st.sampled_from(list(KINDS)))]
    chosen = draw(st.lists(texts, min_size=2, max_size=2, unique_by=alike))
    cells: list[str | None] = [chosen[i // 4 % 2] for i in range(24)]
    column = pd.Series(values_of([str(each) for each in cells]))
    if draw(st.booleans()) and kind != "flags":  # pandas has no missing flag
        cells[::6] = [None] * 4
        column[::6] = None
    salary = [(i + 1) / 10 for i in range(24)]
    return pd.DataFrame({"by": column, "salary": salary, "weight": salary}), cells, suffixes


def every_format(
    frame: pd.DataFrame, suffixes: tuple[str, ...], folder: Path
) -> Iterator[tuple[str, Any]]:
    """The frame, and what is read of every file that is made from it."""
    yield from {"frame": frame, "arrow": pa.Table.from_pandas(frame)}.items()
    for name, write in WRITERS.items():
        if name.endswith(suffixes):
            write(frame, folder / name)
            yield name, open_table(folder / name).read(list(frame))


@settings(max_examples=12, **EXAMPLES)
@given(given_survey=surveys())
def test_columns_of_every_format_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_survey: Any
) -> None:
    monkeypatch.setattr(files, "_survives", lambda *_: True)  # a process for each file
    frame, cells, suffixes = given_survey
    levels = tuple(sorted({text for text in cells if text is not None}))
    outcome = Outcome("by", "categorical", levels=levels)
    positions = [np.nan if text is None else levels.index(text) for text in cells]
    for name, read in every_format(frame, suffixes, tmp_path):
        made = read.to_pandas() if name == "arrow" else read
        assert text_column(made["by"], "by").values().tolist() == [e or "" for e in cells], name
        np.testing.assert_array_equal(level_column(made["by"], outcome).values, positions)
        assert number_column(made["salary"], "salary").values == pytest.approx(frame["salary"])


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
    "with words or a unit next to digits": ["31 kg", "12k", "about 30", "3rd", "x1"],
    "with words": ["refused", "n.a.", "don't know", "Ünbekannt", "日本"],
    "with other signs next to digits": ["1;2", "12*", "1-2-3-4", "#3"],
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
