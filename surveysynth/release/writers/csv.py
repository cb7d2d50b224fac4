"""Tables and microdata as csv (or parquet), unrounded: a reader gets back the same doubles.

Spreadsheet programs run text that begins with = + - or @ as a formula. In csv files an apostrophe
before it keeps it text; ``plain_text`` takes it away again. Numbers stay as they are.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from surveysynth.config.tables_section import Format
from surveysynth.release.tables.layout import TableSet
from surveysynth.release.tables.table import ReleaseTable, stacked_frame

if TYPE_CHECKING:
    import pandas as pd

RecordsFormat = Literal["csv", "parquet"]
#: Those of Stata and SPSS are written by ``microdata``.
MicrodataFormat = Literal["csv", "parquet", "dta", "sav"]

#: The second half are the full-width forms, which spreadsheets treat alike.
_FORMULA = re.compile("'*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def safe_text(text: str) -> str:
    """Return text that no spreadsheet reads as a formula; the mapping is one to one."""
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def plain_text(field: str) -> str:
    """Return the text that ``safe_text`` made ``field`` from."""
    return field[1:] if field.startswith("'") and _FORMULA.match(field) else field


def write(shown: TableSet, folder: Path, made: Format) -> None:
    """Write one file per statistic."""
    for statistic, tables in shown.tables.items():
        write_table(tables, folder / made.file_of(statistic))


def write_table(tables: Sequence[ReleaseTable], path: Path) -> None:
    """Write the tables of one statistic; missing numbers are empty fields, text is UTF-8."""
    frame = _safe(stacked_frame(tables))
    frame.to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def write_records(frame: "pd.DataFrame", path: Path, file_format: RecordsFormat) -> None:
    """Write a frame without its index.

    Arrow writes doubles in the fewest digits that read back exactly, ten times as fast as pandas.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if file_format == "csv":
        frame = _safe(frame)
    # The pandas metadata would name library versions and column types that differ by machine.
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    if file_format == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        pyarrow.csv.write_csv(table, path, options)


def _safe(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the frame with safe texts and headings; most need no change and are not copied."""
    texts = {
        name: frame[name]
        for name in frame.columns
        if frame[name].dtype.kind == "O" or frame[name].dtype == "str"
    }
    changed = {
        name: column.map(lambda value: safe_text(value) if isinstance(value, str) else value)
        for name, column in texts.items()
        if any(isinstance(v, str) and safe_text(v) != v for v in column.unique())
    }
    headings = {name: safe_text(str(name)) for name in frame.columns}
    return frame.assign(**{str(k): v for k, v in changed.items()}).rename(columns=headings)
