"""Read data files as they are, without repairs: csv, parquet, and files of Stata, SPSS, and SAS.

A lenient reader silently fills short rows with blanks, renames repeated columns, and turns codes
into numbers. Here these are errors: every csv cell is read as text, whose forms ``cells`` unites.

All kinds of missing values are missing: system-missing ones, ``.a`` to ``.z`` of Stata and SAS, and
the codes that an SPSS file declares as user-missing, whose labels are not levels. If every value of
a column has a label, the column is categorical, whatever its codes look like.

pyreadstat's C library ends the whole program on some damaged files. So the same call runs in a
separate process first: if that dies, the file is damaged.
"""

import codecs
import contextlib
import csv
import io
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.csv

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import BACKSLASH, nearest_file, records, visible, xml_text
from surveysynth.errors import InputError
from surveysynth.survey.columns import repeated_positions, text_column, text_of

#: The pyreadstat function that reads a file, and the program that writes such files.
_READERS = {
    ".dta": ("read_dta", "Stata"),
    ".sav": ("read_sav", "SPSS"),
    ".xpt": ("read_xport", "SAS transport"),
}

LABELLED_SUFFIXES = tuple(_READERS)

#: The size of a SAS transport file is a multiple of this number of bytes.
_XPORT_CARD = 80

_NUMERIC = ("double", "float", "int", "long", "byte", "int8", "int16", "int32")
#: Beginnings of display formats of dates and times, as ``%td`` or ``DATE11``.
_DATES = ("%T", "%-T", "%D", "DATE", "ADATE", "EDATE", "SDATE", "JDATE", "TIME", "DTIME",
          "YMDHMS", "MMDDYY", "DDMMYY", "YYMMDD")  # fmt: skip
SUFFIXES = (".csv", ".parquet", *LABELLED_SUFFIXES)
SUFFIX_WORDS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

#: The program of the process that tries a file: it reads bytes from a pipe and dumps no core.
_TRIAL = """
import contextlib, io, json, sys
with contextlib.suppress(ImportError, OSError, ValueError):
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
function, sys.path[:], options = json.loads(sys.argv[1])
import pyreadstat
content = io.BytesIO(sys.stdin.buffer.read())
with contextlib.suppress(Exception):
    getattr(pyreadstat, function)(content, output_format="dict", **options)
print("alive")
"""


class Table(Protocol):
    """A data file whose column names are known and whose columns can be read."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns, distinct unless blank, in file order."""

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return the named columns, one row per record, in file order."""


def open_table(path: Path) -> Table:
    """Open a data file and check its header.

    Raises ``InputError`` for a file that is missing, empty, not readable, not UTF-8, or has no or
    repeated column names, and if a package to read it is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a data file ending in {SUFFIX_WORDS}.")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if not str(path).isprintable():
            raise InputError(f"there is no data file {str(path)!r}; {BACKSLASH}.") from None
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
        raise InputError(f"{name}: the first line is blank; it must contain the column names.")
    repeated = repeated_positions(columns)
    if repeated:
        raise InputError(
            f"{name}: {repeated} have the same name in the first line; give each column a name of "
            "its own."
        )


@dataclass(frozen=True)
class _Csv(Unpickled):
    name: str
    content: bytes = field(repr=False)
    columns: tuple[str, ...]
    header_lines: int

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return the named columns as text; raise ``InputError`` for rows of another length."""
        width = len(self.columns)
        cells: list[int] = []  # of rows of another length

        def note(row: pa.csv.InvalidRow) -> str:
            cells.append(row.actual_columns)
            return "skip"

        wanted = [str(self.columns.index(column)) for column in columns]
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(self.content),
                read_options=pa.csv.ReadOptions(
                    use_threads=False, column_names=list(map(str, range(width))),
                    skip_rows=self.header_lines,
                ),
                parse_options=pa.csv.ParseOptions(
                    newlines_in_values=True,
                    invalid_row_handler=note,
                    # In a file with one column a blank line is a record without a value.
                    ignore_empty_lines=width > 1,
                ),
                convert_options=pa.csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict.fromkeys(wanted, pa.string()),
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowException:
            # The reader's own message would quote the record.
            raise InputError(
                f"{self.name} cannot be parsed as csv; check for a quote that is not closed."
            ) from None
        if cells:
            raise InputError(self._uneven(cells))
        frame: pd.DataFrame = table.to_pandas()
        frame.columns = pd.Index(list(columns))
        return frame

    def _uneven(self, cells: Sequence[int]) -> str:
        """Return the message about rows with so many cells; a second pass finds the first line."""
        width, line, place = len(self.columns), 1, ""
        short = sum(each < width for each in cells)
        kinds = [
            f"{count:,} with too {word}"
            for count, word in ((short, "few"), (len(cells) - short, "many"))
            if count
        ]
        reader = _csv_reader(self.content)
        with contextlib.suppress(csv.Error):
            for row in reader:
                if row and len(row) != width:
                    place = f"; the first is at line {line:,}"
                    break
                line = reader.line_num + 1
        return (
            f"{self.name}: {records(len(cells))} {'does' if len(cells) == 1 else 'do'} not have "
            f"the header's {width} cells ({' and '.join(kinds)}){place}. Correct the file; text "
            "with commas must be in double quotes."
        )


def _csv_reader(content: bytes, *, strict: bool = False) -> Any:
    # newline="" leaves line ends inside quotes to the csv reader.
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")
    return csv.reader(text, strict=strict)


def _open_csv(content: bytes, name: str) -> _Csv:
    _check_text(content, name)
    reader = _csv_reader(content)
    try:
        header: list[str] = next((row for row in reader if row), [])
    except csv.Error:
        raise InputError(f"{name}: the header cannot be parsed as csv.") from None
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise InputError(
            f"{name}: the names in the first line are not separated by commas; save the file as "
            "comma-separated values."
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
    for number, line in enumerate(io.BytesIO(content), start=1):
        try:
            line.decode()
        except UnicodeDecodeError:
            raise InputError(
                f"{name} is not UTF-8 text (first wrong byte at about line {number:,}); save it "
                "as UTF-8."
            ) from None
    if b"\0" in content:
        raise InputError(f"{name} has NUL bytes, so it is not a text file; save it as UTF-8 csv.")


def _check_quotes(content: bytes, name: str) -> None:
    """Raise ``InputError`` when a quoted cell never ends; an odd number of quotes can be valid."""
    reader = _csv_reader(content, strict=True)
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
        """Return the named columns in their own types."""
        from pyarrow import parquet  # slow: only where there is such a file

        try:
            source = parquet.ParquetFile(pa.BufferReader(self.content))
            table = source.read(columns=list(columns), use_threads=False)
            table.validate(full=True)  # finds bytes that are not UTF-8
            frame = table.select(list(columns)).to_pandas(ignore_metadata=True)
        except (pa.ArrowException, OSError, ValueError, KeyError):
            raise InputError(f"{self.name} cannot be read as parquet; it may be damaged.") from None
        return pd.DataFrame(frame)


def _open_parquet(content: bytes, name: str) -> _Parquet:
    from pyarrow import parquet  # slow: only where there is such a file

    try:
        schema = parquet.read_schema(pa.BufferReader(content))
        columns = tuple(str(column) for column in schema.names)
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{name} is not a parquet file, or it is damaged.") from None
    _check_names(columns, name)
    return _Parquet(name, content, columns)


@dataclass(frozen=True)
class Described:
    """The description of a column in a file: its title, and labels by code; either may be empty.

    ``kind``: the type of the values, in a word; ``single``: whether they are numbers in single
    precision, which are doubles when they are read.
    """

    title: str
    labels: Mapping[str, str]
    kind: str
    single: bool = False


@dataclass(frozen=True)
class LabelledTable(Unpickled):
    """A file of Stata, SPSS, or SAS; ``described`` has every column by name."""

    name: str
    content: bytes = field(repr=False)
    suffix: str
    described: Mapping[str, Described] = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns in file order."""
        return tuple(self.described)

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return the named columns: categories as text codes, others in their own types."""
        frame, _ = _read(self.content, self.suffix, self.name, usecols=list(columns))
        return pd.DataFrame({name: self._coded(frame[name], name) for name in columns})

    def _coded(self, column: "pd.Series[Any]", name: str) -> "pd.Series[Any]":
        if self.described[name].single:
            column = column.astype("float32")
        labels = self.described[name].labels
        if not labels:
            return column
        coded = text_column(column, name, labels)
        if not set(coded.levels) <= set(labels):
            return column
        return pd.Series(pd.Categorical.from_codes(coded.codes, pd.Index(coded.levels, dtype=str)))


def _open_labelled(content: bytes, suffix: str, name: str) -> LabelledTable:
    """Describe the columns; records are read later."""
    if suffix == ".xpt" and len(content) % _XPORT_CARD:
        # Such a file does not store its number of records.
        raise InputError(f"{name} cannot be read as a SAS transport file: its end is missing.")
    # pyreadstat only reports user-missing values if it keeps them.
    missing = {} if suffix == ".xpt" else {"user_missing": True}
    _, found = _read(content, suffix, name, metadataonly=True, **missing)
    _check_names(found.column_names, name)
    return LabelledTable(
        name, content, suffix, {each: _described(each, found) for each in found.column_names}
    )


def _read(content: bytes, suffix: str, name: str, **options: Any) -> Any:
    """Return frame and description from pyreadstat, whose own messages may quote a value."""
    function, program = _READERS[suffix]
    try:
        return read_with(function, content, **options)
    except Exception as error:
        if "encoding" in str(error):
            raise InputError(
                f"{name} has text that is not in its declared encoding; save it again as UTF-8 "
                "(Stata 14 and later, SPSS in Unicode mode)."
            ) from None
        raise InputError(
            f"{name} cannot be read as a file of {program}; it may be damaged, or hold dates "
            "beyond the year 9999."
        ) from None


def read_with(function: str, content: bytes, **options: Any) -> Any:
    """Return frame and description by a function of pyreadstat.

    Raises ``ValueError`` if reading would end this process, and what pyreadstat raises.
    """
    import pyreadstat

    if not _survives(function, content, options):
        raise ValueError("the process that tried to read the file died.")
    return getattr(pyreadstat, function)(io.BytesIO(content), **options)


def _survives(function: str, content: bytes, options: dict[str, Any]) -> bool:
    """Return True if the call ends, with or without an error."""
    if not sys.executable:  # Python embedded in another program: no process can be started
        return True
    done = subprocess.run(
        [sys.executable, "-I", "-c", _TRIAL, json.dumps([function, sys.path, options])],
        input=content, capture_output=True, check=False,
    )  # fmt: skip
    # A process that could not start or import ends with status 1; the file may be fine.
    return done.stdout.strip() == b"alive" or done.returncode == 1


def _described(name: str, found: Any) -> Described:
    """Describe a column; ``found``: the description of the whole file by pyreadstat."""
    stored = str(found.readstat_variable_types.get(name, ""))
    form = str(found.original_variable_types.get(name)).upper()
    numeric = stored in _NUMERIC
    kind = "text" if not numeric else "date or time" if form.startswith(_DATES) else "number"
    missing = (found.missing_ranges or {}).get(name, ())
    labels = {
        text_of(code, name): xml_text(str(label))  # workbooks and figures are XML
        for code, label in found.variable_value_labels.get(name, {}).items()
        # Codes of numbers that are letters are Stata's .a to .z.
        if not (numeric and isinstance(code, str)) and not any(
            isinstance(code, str) is isinstance(each["lo"], str)
            and each["lo"] <= code <= each["hi"]
            for each in missing
        )
    }
    known = {code: label or visible(code) for code, label in labels.items() if code}
    title = xml_text(str(found.column_names_to_labels.get(name) or ""))
    return Described(title, known, kind, single=stored == "float" and kind == "number")
