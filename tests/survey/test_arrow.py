"""Surveys from data of other libraries, by the Arrow interface.

Truth: the same survey from pandas.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

import surveysynth as ss
from surveysynth.errors import InputError
from tests.surveys import CANARY_OUTCOME, good

ROLES: dict[str, Any] = {
    "outcome": "salary", "weight": "weight", "by": ["field", "gender"], "strata": "field",
    "population_size": 10_000, "transforms": ss.Transform("log"),
}  # fmt: skip


class Stream:
    """An object that speaks the protocol, and nothing else; counts how often it is read."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.read = table, 0

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.read += 1
        return self.table.__arrow_c_stream__(requested_schema)


def arrow() -> pa.Table:
    return pa.Table.from_pandas(good(), preserve_index=False)


def dictionary() -> pa.Table:
    """Categories, decimals, several batches, and a column that pandas cannot hold."""
    table = arrow()
    weight = table["weight"].cast(pa.float64())
    weight = pa.array([f"{each:.4f}" for each in weight.to_pylist()]).cast(pa.decimal128(18, 4))
    table = table.set_column(table.column_names.index("weight"), "weight", weight)
    table = table.set_column(
        table.column_names.index("field"), "field", table["field"].dictionary_encode()
    )
    union = pa.UnionArray.from_sparse(
        pa.array([0] * len(table), pa.int8()), [pa.array(range(len(table)))]
    )
    return pa.concat_tables([table[:100], table[100:]]).append_column("odd", union)


def polars() -> Any:
    return pytest.importorskip("polars").DataFrame(arrow())


def duckdb() -> Any:
    survey = arrow()  # found by its name
    assert len(survey)
    return pytest.importorskip("duckdb").sql("SELECT * FROM survey")


@pytest.mark.parametrize(
    "data",
    [arrow, lambda: Stream(arrow()), lambda: pyarrow.dataset.dataset(arrow()), polars, duckdb,
     lambda: pa.RecordBatchReader.from_stream(arrow())],
    ids=["table", "protocol", "dataset", "polars", "duckdb", "reader"],
)  # fmt: skip
def test_the_survey_is_that_of_pandas(data: Any) -> None:
    expected, made = (ss.Survey.from_frame(each, **ROLES) for each in (good(), data()))
    assert repr(made) == repr(expected)
    pd.testing.assert_frame_equal(made.design.frame, expected.design.frame)
    np.testing.assert_array_equal(made.confidential.outcome, expected.confidential.outcome)
    np.testing.assert_array_equal(made.sampling_weight, expected.sampling_weight)


def test_types_of_arrow_and_a_stream_that_is_read_once() -> None:
    stream = Stream(dictionary())
    made = ss.Survey.from_frame(stream, **ROLES)  # the odd column has no role
    assert stream.read == 1
    expected = ss.Survey.from_frame(good(), **ROLES)
    assert repr(made) == repr(expected)
    np.testing.assert_allclose(made.sampling_weight, expected.sampling_weight, atol=1e-4)


def test_mistakes_say_what_to_do_and_show_no_value() -> None:
    with pytest.raises(InputError, match=r"Arrow interface \(Polars, DuckDB, pyarrow\), got list"):
        ss.Survey.from_frame([1, 2], **ROLES)
    with pytest.raises(InputError, match=r"'odd' has the type .*union.* make it text"):
        ss.Survey.from_frame(dictionary(), **{**ROLES, "public_columns": ["odd"]})
    words, place = pa.array([f"x{CANARY_OUTCOME}"] * 240), arrow().column_names.index("salary")
    text = arrow().set_column(place, "salary", words)
    with pytest.raises(InputError) as caught:
        ss.Survey.from_frame(text, **ROLES)
    assert str(CANARY_OUTCOME) not in str(caught.value)

    class Broken:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise ValueError(str(CANARY_OUTCOME))

    with pytest.raises(InputError, match="this Broken cannot be read as an Arrow table") as caught:
        ss.Survey.from_frame(Broken(), **ROLES)
    assert str(CANARY_OUTCOME) not in str(caught.value)
    assert caught.value.__cause__ is None
