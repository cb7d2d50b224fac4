"""The text of a cell, and its number: one rule for csv, frames, Arrow, Stata, SPSS, and SAS.

What the same value looks like depends on the program that wrote it: 1 or 1.0, True or TRUE, a date
with or without midnight, an accent as one sign or two, NA or nothing. Here each has one text, so
that the files of one survey are the same survey. Codes otherwise stay as written: "01203" and
"1.50" are not numbers here.
"""

import datetime
import decimal
import math
import numbers
import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pandas as pd

from surveysynth.errors import InputError

#: Words for a missing value in files of other programs (compared without case).
_MISSING = re.compile(r"|na|n/a|#n/a|<na>|nan|null|\.[a-z_]?", re.IGNORECASE)
#: Numbers as programs write them, whose users would write 1 or 100000000000000000.
_WHOLE = re.compile(r"-?(0|[1-9]\d*)\.0")
_SCIENTIFIC = re.compile(r"-?\d(\.\d+)?e[+-]\d{2,3}")
_PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d*)?", re.ASCII)
_DATE_AND_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(.*)")
_MIDNIGHT = re.compile(r"00:00(:00(\.0+)?)?")
_WITH_DIGIT_GROUPS = "_"


def written(value: Any, name: str = "") -> str:
    """Return a cell as its file has it, with single blanks and composed letters; "" without value.

    Raises ``InputError``, which calls the column ``name``, for lists and other things in a cell.
    """
    if isinstance(value, str):
        return " ".join(unicodedata.normalize("NFC", value).split())
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, decimal.Decimal):
        return "" if value.is_nan() else f"{value:f}"
    if isinstance(value, numbers.Real):
        shortest = str(value) if isinstance(value, np.float32 | np.float16) else repr(float(value))
        return "" if math.isnan(value) else shortest
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise InputError(f"column {name!r}: expected text or numbers in its cells.")


def text_of(value: Any, name: str = "") -> str:
    """Return the one text of a cell, whatever program wrote it; "" without value.

    Words for missing values are texts here: they may be levels. Raises as ``written``.

    Examples
    --------
    >>> from surveysynth.survey.cells import text_of
    >>> [text_of(each) for each in (1.0, "1.0", "01", "TRUE", "2026-05-01 00:00:00")]
    ['1', '1', '01', 'True', '2026-05-01']
    """
    text = written(value, name)
    if _WHOLE.fullmatch(text):
        return text[:-2] if text != "-0.0" else "0"
    if text.casefold() in ("true", "false"):
        return text.capitalize()
    if _SCIENTIFIC.fullmatch(text):
        number = float(text)
        return str(int(number)) if number.is_integer() else repr(number)
    if match := _DATE_AND_TIME.fullmatch(text):
        day, time, zone = match.groups()
        return day if _MIDNIGHT.fullmatch(time) and not zone else f"{day} {time}{zone}"
    return text


def is_missing(text: str) -> bool:
    """Return True for an empty text, and a word for a missing value."""
    return _MISSING.fullmatch(text.strip()) is not None


def alike(text: str) -> str:
    """Return a key that is the same for texts that a reader cannot tell apart.

    They differ in case, in signs that are invisible or drawn alike, or are one number.
    """
    shown = unicodedata.normalize("NFKC", text_of(text))
    visible = "".join(sign for sign in shown if unicodedata.category(sign) != "Cf")
    return _value(" ".join(visible.split())).casefold()


def _value(text: str) -> str:
    """Return a plain number in one form: 1.5 for 1.50."""
    if not _PLAIN_NUMBER.fullmatch(text):
        return text
    return f"{decimal.Decimal(text):f}".rstrip("0").rstrip(".") if "." in text else text


def level_among(declared: Collection[str]) -> Callable[[str], str]:
    """Return a function from the text of a cell to its level; "" for a missing one.

    A declared level is found in any form of the same text or number, unless another has it too, and
    is one even if it is a word for a missing value.
    """
    exact = set(declared)
    forms: dict[str, str] = {}
    for one in exact:
        for form in {text_of(one), _value(one)}:
            forms[form] = "" if form in forms else one  # of two levels: neither

    def level(text: str) -> str:
        if text in exact:
            return text
        made = text_of(text)
        found = forms.get(made) or forms.get(_value(made))
        return found or ("" if is_missing(made) else made)

    return level


def number_of(value: Any) -> float | None:
    """Return a cell as a number, NaN when missing, ``None`` when it holds something else."""
    text = isinstance(value, str)
    if value is None or value is pd.NA or value is pd.NaT or (text and is_missing(value)):
        return math.nan
    if text and _WITH_DIGIT_GROUPS in value:
        return None
    if isinstance(value, np.float32 | np.float16):
        value = str(value)
    elif not text and not isinstance(value, numbers.Real | decimal.Decimal | np.bool_):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def with_double_numbers(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return single-precision numbers as those that they show: 0.1, not 0.10000000149011612."""
    kind = getattr(series.dtype, "numpy_dtype", series.dtype)
    if kind not in (np.float32, np.float16):
        return series
    values = series.to_numpy(dtype=kind, na_value=np.nan)
    return pd.Series(values.astype(str).astype(np.float64), index=series.index)
