"""Reading data files whole and without repair: csv and parquet here, others in ``labelled_files``.

What a lenient reader mends in silence (short rows filled with blanks, repeated column names
renamed, codes turned into numbers) is an error here or left as it stands in the file: every cell of
a csv arrives as text.
"""

import codecs
import contextlib
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import nearest_file, records
from surveysynth.errors import InputError
from surveysynth.survey.header import repeated_positions
from surveysynth.survey.labelled_files import LABELLED_SUFFIXES, LabelledTable, open_labelled

SUFFIXES = (".csv", ".parquet", *LABELLED_SUFFIXES)
SUFFIX_WORDS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CHUNK = 1 << 24


class Table(Protocol):
    """A data file whose column names are known and whose columns can be read."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns, distinct unless blank, in file order."""

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """The named columns, one row per record, in file order."""


def open_table(path: Path) -> Table:
    """Open a data file and check its header.

    Raises ``InputError`` for a file that is missing, empty, not readable, not UTF-8, or has no or
    repeated column names, and where what reads it is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a data file ending in {SUFFIX_WORDS}.")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        near = nearest_file(path, SUFFIXES)
        raise InputError(
            f"there is no data file {path}.{near} A path in a specification is relative to its "
            "folder."
        ) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; expected a data file ({SUFFIX_WORDS}).") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise InputError(f"the data file {path} cannot be read: {reason}.") from None
    if not content:
        raise InputError(f"the data file {path} is empty; expected a header and records.")
    if suffix in LABELLED_SUFFIXES:
        return _open_labelled(content, suffix, str(path))
    open_as = _open_parquet if suffix == ".parquet" else _open_csv
    return open_as(content, str(path))


def _check_names(columns: Sequence[str], name: str) -> None:
    if not any(column.strip() for column in columns):
        raise InputError(f"{name}: the first line must hold the column names, and it is blank.")
    repeated = repeated_positions(columns)
    if repeated:
        raise InputError(
            f"{name}: {repeated} have the same name in the first line, which must hold the names "
            "of the columns, each another."
        )


@dataclass(frozen=True)
class _Csv(Unpickled):
    name: str
    content: bytes = field(repr=False)
    columns: tuple[str, ...]
    header_lines: int

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """The named columns as text; raises ``InputError`` for rows of another length."""
        width = len(self.columns)
        bad: list[tuple[int, int]] = []

        def note(row: pa.csv.InvalidRow) -> str:
            bad.append((row.number or 0, row.actual_columns))
            return "skip"

        positions = [self.columns.index(column) for column in columns]
        numbered = [f"{index}" for index in range(width)]
        wanted = [numbered[index] for index in positions]
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(self.content),
                read_options=pa.csv.ReadOptions(
                    use_threads=False, column_names=numbered, skip_rows=self.header_lines
                ),
                parse_options=pa.csv.ParseOptions(
                    newlines_in_values=True,
                    invalid_row_handler=note,
                    # In a file of one column a blank line is a record without a value.
                    ignore_empty_lines=width > 1,
                ),
                convert_options=pa.csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict.fromkeys(wanted, pa.string()),
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowException:
            # The reader's own words would quote the record.
            raise InputError(
                f"{self.name} cannot be parsed as csv; look for a quote that is not closed."
            ) from None
        if bad:
            raise InputError(self._uneven(bad))
        frame: pd.DataFrame = table.to_pandas()
        frame.columns = pd.Index(list(columns))
        return frame

    def _uneven(self, bad: Sequence[tuple[int, int]]) -> str:
        """Message on rows with too few or too many cells; the line is found by a second pass."""
        width = len(self.columns)
        short = sum(cells < width for _, cells in bad)
        kinds = [
            f"{count:,} with too {word}"
            for count, word in ((short, "few"), (len(bad) - short, "many"))
            if count
        ]
        line = self._first_uneven_line()
        return (
            f"{self.name}: {records(len(bad))} {'has' if len(bad) == 1 else 'have'} another number "
            f"of cells than the header's {width} ({' and '.join(kinds)})"
            + (f"; the first is at line {line:,}" if line else "")
            + ". Mend the file; text with commas must be in double quotes."
        )

    def _first_uneven_line(self) -> int | None:
        reader = csv.reader(io.StringIO(self.content.decode("utf-8-sig"), newline=""))
        line = 1
        try:
            for row in reader:
                if row and len(row) != len(self.columns):
                    return line
                line = reader.line_num + 1
        except csv.Error:
            return None
        return None


def _open_csv(content: bytes, name: str) -> _Csv:
    _check_text(content, name)
    # newline="" leaves line ends inside quotes to the csv reader.
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    reader = csv.reader(text)
    try:
        header = next((row for row in reader if row), [])
    except csv.Error:
        raise InputError(f"{name}: the header cannot be parsed as csv.") from None
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise InputError(
            f"{name}: the header has no commas but other separators; save it with commas."
        )
    _check_names(header, name)
    header_lines = reader.line_num
    with contextlib.suppress(csv.Error):
        if not any(row for row in reader):
            raise InputError(f"{name} has a header and no records.")
    if content.count(b'"') % 2:
        _check_quotes(content, name)
    return _Csv(name, content, tuple(header), header_lines)


def _check_text(content: bytes, name: str) -> None:
    """Raise ``InputError`` unless the bytes are UTF-8 without NUL."""
    if content.startswith(_UTF16_MARKS):
        raise InputError(f"{name} is UTF-16 text; save it as UTF-8.")
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    for start in range(0, len(content), _CHUNK):
        chunk = content[start : start + _CHUNK]
        try:
            decoder.decode(chunk, final=start + _CHUNK >= len(content))
        except UnicodeDecodeError as error:
            line += chunk[: max(error.start, 0)].count(b"\n")
            raise InputError(
                f"{name} is not UTF-8 text (first wrong byte at about line {line:,}); save it as "
                "UTF-8."
            ) from None
        line += chunk.count(b"\n")
    if b"\0" in content:
        raise InputError(f"{name} holds NUL bytes, so it is not a text file; save it as UTF-8 csv.")


def _check_quotes(content: bytes, name: str) -> None:
    """Raise ``InputError`` when a quoted cell never ends; an odd count alone may be harmless."""
    reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    line = 1
    try:
        for _ in reader:
            line = reader.line_num + 1
    except csv.Error as error:
        if "end of data" in str(error):
            raise InputError(
                f"{name}: a quote opened in the record at line {line:,} is never closed."
            ) from None


@dataclass(frozen=True)
class _Parquet(Unpickled):
    name: str
    content: bytes = field(repr=False)
    columns: tuple[str, ...]

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """The named columns in their own types."""
        try:
            source = pa.parquet.ParquetFile(pa.BufferReader(self.content))
            table = source.read(columns=list(columns), use_threads=False)
            table.validate(full=True)  # bytes that are not UTF-8 would surface much later
            frame = table.select(list(columns)).to_pandas(ignore_metadata=True)
        except (pa.ArrowException, OSError, ValueError, KeyError):
            raise InputError(f"{self.name} cannot be read as parquet; it may be damaged.") from None
        return pd.DataFrame(frame)


def _open_parquet(content: bytes, name: str) -> _Parquet:
    try:
        schema = pa.parquet.read_schema(pa.BufferReader(content))
        columns = tuple(str(column) for column in schema.names)
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{name} is not a parquet file, or it is damaged.") from None
    _check_names(columns, name)
    return _Parquet(name, content, columns)


def _open_labelled(content: bytes, suffix: str, name: str) -> LabelledTable:
    table = open_labelled(content, suffix, name)
    _check_names(table.columns, name)
    return table
