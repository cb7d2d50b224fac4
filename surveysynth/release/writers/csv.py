"""Tables and microdata as csv (or parquet), unrounded: a reader gets back the same doubles."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from surveysynth.release.table import ReleaseTable, stacked_frame

if TYPE_CHECKING:
    import pandas as pd

MicrodataFormat = Literal["csv", "parquet"]


def write_table(tables: Sequence[ReleaseTable], path: Path) -> None:
    """Write the tables of one statistic; missing numbers are empty fields, text is UTF-8."""
    stacked_frame(tables).to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def write_records(frame: "pd.DataFrame", path: Path, file_format: MicrodataFormat) -> None:
    """Write a frame without its index.

    Arrow writes doubles in the fewest digits that read back exactly, ten times as fast as pandas.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    # The pandas metadata would name library versions and column types that differ by machine.
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    if file_format == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        pyarrow.csv.write_csv(table, path, options)
