"""Microdata as files of Stata and SPSS: numbers with labels of columns and of values.

In both programs labels of values belong to numbers. A column of levels is written as its codes
where these are whole numbers, and as positions from 1 on where they are not; ``codebook.json`` has
both.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth._support.messages import listing
from surveysynth.errors import InputError
from surveysynth.survey.files import read_with

if TYPE_CHECKING:
    import pandas as pd

PROGRAMS: dict[str, str] = {"dta": "Stata", "sav": "SPSS"}

#: Bytes that a file has room for. Of Stata 80 characters, which may take four bytes each.
_TITLE_BYTES = {"dta": 80, "sav": 255}
_LABEL_BYTES = {"dta": 32_000, "sav": 120}
_FILE_LABEL_BYTES = 64
_NAME_BYTES = {"dta": 32, "sav": 64}
_RESERVED = {
    "dta": frozenset({
        "_all", "_b", "byte", "_coef", "_cons", "double", "float", "if", "in", "int", "long", "_n",
        "_N", "_pi", "_pred", "_rc", "_skip", "strL", "using", "with",
    }),
    "sav": frozenset({
        "all", "and", "by", "eq", "ge", "gt", "le", "lt", "ne", "not", "or", "to", "with",
    }),
}  # fmt: skip
_STRING_TYPE = re.compile(r"str\d+")
#: Stata keeps the highest ones for missing values.
_LARGEST = 2_147_483_620


@dataclass(frozen=True)
class LabelledColumn:
    """A column in a file of Stata or SPSS.

    values: the number of each code, empty for columns of numbers and for texts that stay; labels:
    of these numbers; nominal: whether the column classifies.
    """

    title: str
    values: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[int, str] = field(default_factory=dict)
    nominal: bool = False


def values_of(codes: Sequence[str], *, positions: bool) -> dict[str, int]:
    """Return the number of each code: the code itself where all are whole numbers.

    Otherwise its place from 1 on with ``positions``, and nothing without.
    """
    if all(_is_whole(code) for code in codes):
        return {code: int(code) for code in codes}
    return {code: place for place, code in enumerate(codes, start=1)} if positions else {}


def _is_whole(code: str) -> bool:
    """Return True for a whole number as programs write it: "01" and "+1" are none."""
    return bool(re.fullmatch(r"0|-?[1-9]\d{0,9}", code)) and abs(int(code)) <= _LARGEST


def check_names(names: Sequence[str], file_format: str) -> None:
    """Raise ``InputError`` for names of columns that the program does not take; names are public.

    ``file_format``: any of the microdata; csv and parquet take every name.
    """
    if file_format not in PROGRAMS:
        return
    program = PROGRAMS[file_format]
    refused = [name for name in names if not _is_name(name, file_format)]
    if refused:
        first = "a letter or _" if file_format == "dta" else "a letter"
        raise InputError(
            f'tables.microdata = "{file_format}": {listing(refused)} cannot be the name of a '
            f"column of {program}: expected {first}, then letters, digits and _, at most "
            f"{_NAME_BYTES[file_format]}, and no word of its language. Rename the column, or take "
            "csv or parquet."
        )
    folded = [name.casefold() for name in names]
    same = [name for name in names if folded.count(name.casefold()) > 1]
    if same and file_format == "sav":
        raise InputError(
            f'tables.microdata = "sav": {listing(same)} are one name to SPSS, which does not tell '
            "capital letters from small ones. Rename a column, or take another format."
        )


def _is_name(name: str, file_format: str) -> bool:
    if len(name.encode()) > _NAME_BYTES[file_format] or not name.isidentifier():
        return False
    if file_format == "sav":
        return name.casefold() not in _RESERVED["sav"] and not name.startswith("_")
    return name not in _RESERVED["dta"] and not _STRING_TYPE.fullmatch(name)


def write_labelled(
    frame: "pd.DataFrame",
    path: Path,
    file_format: str,
    columns: Mapping[str, LabelledColumn],
    title: str,
) -> None:
    """Write a frame without its index; ``columns`` has every one of it, ``title`` is the file's.

    Labels that a file has no room for are cut.
    """
    import pyreadstat

    numbers = {
        name: _numbered(frame[name], each.values) for name, each in columns.items() if each.values
    }
    coded = frame.assign(**numbers)
    shared: dict[str, Any] = {
        "file_label": cut(title, _FILE_LABEL_BYTES),
        "column_labels": {
            name: cut(each.title, _TITLE_BYTES[file_format]) for name, each in columns.items()
        },
        "variable_value_labels": {
            name: {
                value: cut(label, _LABEL_BYTES[file_format]) for value, label in each.labels.items()
            }
            for name, each in columns.items()
            if each.labels
        },
    }
    if file_format == "dta":
        pyreadstat.write_dta(coded, str(path), **shared)
        return
    measures = {name: "nominal" if each.nominal else "scale" for name, each in columns.items()}
    pyreadstat.write_sav(coded, str(path), variable_measure=measures, row_compress=True, **shared)


def cut(text: str, size: int) -> str:
    """Cut the text to one line of at most ``size`` bytes of UTF-8, without half a character."""
    return " ".join(text.split()).encode()[:size].decode(errors="ignore")


def _numbered(column: "pd.Series[str]", values: Mapping[str, int]) -> "pd.Series[Any]":
    """Replace codes by their numbers; blank cells are missing."""
    numbers = column.map(dict(values))
    return numbers.astype("float64" if numbers.isna().any() else "int32")


def read_labelled(path: Path, file_format: str) -> "pd.DataFrame":
    """Return the columns of such a file, values as numbers and texts.

    Raises what pyreadstat raises for a damaged file.
    """
    frame: pd.DataFrame = read_with(f"read_{file_format}", path.read_bytes())[0]
    return frame
