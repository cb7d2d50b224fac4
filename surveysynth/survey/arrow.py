"""Data of other libraries by the Arrow interface: Polars, DuckDB, pyarrow, GeoArrow and the like.

Whatever has ``__arrow_c_stream__`` is read in its own memory; only columns with a role are copied.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from surveysynth.errors import InputError

#: The method of the Arrow PyCapsule interface.
STREAM = "__arrow_c_stream__"


def arrow_table(given: Any, source: str) -> pa.Table | None:
    """Return data as an Arrow table; None for data that do not have the interface.

    A pyarrow dataset, which has files instead, is scanned. Raises ``InputError`` for a stream that
    cannot be read; its own message may quote a value.
    """
    dataset = type(given).__module__.partition(".")[0] == "pyarrow" and hasattr(given, "to_table")
    if not (hasattr(given, STREAM) or dataset):
        return None
    try:
        if dataset and not hasattr(given, STREAM):
            return given.to_table()
        return pa.RecordBatchReader.from_stream(given).read_all()
    except (pa.ArrowException, OSError, TypeError, ValueError):
        raise InputError(
            f"{source}: this {type(given).__name__} cannot be read as an Arrow table; collect it "
            "first, or pass a pandas DataFrame."
        ) from None


def pandas_of(table: pa.Table, columns: Sequence[str], source: str) -> pd.DataFrame:
    """Return some columns of an Arrow table as pandas has them.

    Raises ``InputError`` for a column whose type pandas does not have.
    """
    chosen = []
    for name in columns:
        column = table.column(name)
        try:
            chosen.append(column.to_pandas())
        except (pa.ArrowException, TypeError, ValueError):
            raise InputError(
                f"{source}: column {name!r} has the type {column.type}, which cannot be read; make "
                "it text, a number, or categories."
            ) from None
    return pd.DataFrame(dict(zip(columns, chosen, strict=True)))
