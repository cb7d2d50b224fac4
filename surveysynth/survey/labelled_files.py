"""Reading files of Stata, SPSS and SAS: values as codes, with what the file says of its columns.

Missing values of every kind are missing: system-missing ones, Stata's and SAS's ``.a`` to ``.z``,
and the codes that an SPSS file declares as user-missing, whose labels are no levels. Where every
value of a column has a label, the column is of categories, whatever its codes look like.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from surveysynth._support.confidential import Unpickled
from surveysynth._support.readstat import read_with
from surveysynth._support.xml_text import visible, xml_text
from surveysynth.errors import InputError
from surveysynth.survey.columns import as_text, text_column

#: The function of pyreadstat that reads a file, and whose file it is.
_READERS = {
    ".dta": ("read_dta", "Stata"),
    ".sav": ("read_sav", "SPSS"),
    ".xpt": ("read_xport", "SAS transport"),
}
LABELLED_SUFFIXES = tuple(_READERS)
#: Bytes of which a SAS transport file has a whole number.
_XPORT_CARD = 80
_NUMERIC = ("double", "float", "int", "long", "byte", "int8", "int16", "int32")


@dataclass(frozen=True)
class Described:
    """What a file says of a column: its title, and labels by code; empty where it says nothing.

    ``kind``: what its values are, in a word."""

    title: str
    labels: Mapping[str, str]
    kind: str


@dataclass(frozen=True)
class LabelledTable(Unpickled):
    """A file of Stata, SPSS or SAS; ``described`` has every column by name."""

    name: str
    content: bytes = field(repr=False)
    suffix: str
    described: Mapping[str, Described] = field(repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns in file order."""
        return tuple(self.described)

    def read(self, columns: Sequence[str]) -> pd.DataFrame:
        """The named columns; categories are text codes, others in their own types."""
        frame, _ = _read(self.content, self.suffix, self.name, usecols=list(columns))
        return pd.DataFrame({name: self._coded(frame[name], name) for name in columns})

    def _coded(self, column: "pd.Series[Any]", name: str) -> "pd.Series[Any]":
        labels = self.described[name].labels
        if not labels:
            return column
        coded = text_column(column, name)
        if not set(coded.levels) <= set(labels):
            return column
        return pd.Series(pd.Categorical.from_codes(coded.codes, pd.Index(coded.levels, dtype=str)))


def open_labelled(content: bytes, suffix: str, name: str) -> LabelledTable:
    """The columns of a file; its records are read when they are asked for.

    Raises ``InputError`` for a file that cannot be read.
    """
    if suffix == ".xpt" and len(content) % _XPORT_CARD:
        # Such a file does not say how many records it has.
        raise InputError(f"{name} cannot be read as a file of SAS transport: its end is missing.")
    # Only where user-missing values are kept does pyreadstat tell which they are.
    missing = {} if suffix == ".xpt" else {"user_missing": True}
    _, found = _read(content, suffix, name, metadataonly=True, **missing)
    return LabelledTable(
        name, content, suffix, {each: _described(each, found) for each in found.column_names}
    )


def _read(content: bytes, suffix: str, name: str, **options: Any) -> Any:
    """Frame and description from pyreadstat, whose own messages may quote a value."""
    function, program = _READERS[suffix]
    try:
        return read_with(function, content, **options)
    except Exception as error:
        if "encoding" in str(error):
            raise InputError(
                f"{name} has text in another encoding than it says; save it again as UTF-8 (Stata "
                "14 and later, SPSS in Unicode mode)."
            ) from None
        raise InputError(
            f"{name} cannot be read as a file of {program}; it may be damaged, or hold dates "
            "beyond the year 9999."
        ) from None


def _described(name: str, found: Any) -> Described:
    """``found``: the description of a whole file by pyreadstat."""
    numeric = str(found.readstat_variable_types.get(name, "")) in _NUMERIC
    missing = (found.missing_ranges or {}).get(name, ())
    labels = {
        as_text(code.rstrip() if isinstance(code, str) else code, name): _one_line(label)
        for code, label in found.variable_value_labels.get(name, {}).items()
        # Codes of numbers that are letters are Stata's .a to .z.
        if not (numeric and isinstance(code, str)) and not _is_missing(code, missing)
    }
    title = _one_line(found.column_names_to_labels.get(name) or "")
    known = {code: label or visible(code) for code, label in labels.items() if code}
    return Described(title, known, _kind(str(found.original_variable_types.get(name)), numeric))


def _one_line(text: Any) -> str:
    return xml_text(str(text))  # workbooks and figures are XML too


def _is_missing(code: Any, ranges: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a code lies in one of the ranges of user-missing values."""
    try:
        return any(each["lo"] <= code <= each["hi"] for each in ranges)
    except TypeError:  # text beside a number
        return False


def _kind(form: str, numeric: bool) -> str:
    """By the format that values are shown in: ``%td`` of Stata, ``DATE11`` of SPSS."""
    if not numeric:
        return "text"
    dates = ("%t", "%-t", "%d", "DATE", "ADATE", "EDATE", "SDATE", "JDATE", "TIME", "DTIME",
             "DATETIME", "YMDHMS", "MMDDYY", "DDMMYY", "YYMMDD")  # fmt: skip
    return "date or time" if form.upper().startswith(tuple(map(str.upper, dates))) else "number"
