"""Turning a column of any type into codes of text levels or into numbers.

Codes stay as they are written ("01203" keeps its zero). Text that is not a number is reported by
count, since the column may be confidential.
"""

import datetime
import decimal
import math
import numbers
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.formula import natural_order
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.unreadable import kinds_of

#: Words that stand for a missing number in files of other programs (compared without case).
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "."})
_LEADING_ZERO = re.compile(r"\s*[+-]?0[0-9]")
_WITH_DIGIT_GROUPS = "_"


@dataclass(frozen=True, repr=False)
class TextColumn(Unpickled):
    """``codes`` (n,) into ``levels`` (natural order); -1 where the cell is blank."""

    codes: IntArray
    levels: tuple[str, ...]

    @property
    def missing(self) -> BoolArray:
        """(n,) whether the cell is blank."""
        return self.codes < 0

    def values(self) -> "pd.Series[str]":
        """The column as text, blank cells as an empty text."""
        levels = np.array([*self.levels, ""], dtype=object)
        return pd.Series(levels[self.codes], dtype="str")

    def keep(self, rows: BoolArray) -> "TextColumn":
        """The chosen rows; levels that do not occur in them are left out."""
        codes = self.codes[rows]
        used = np.zeros(len(self.levels) + 1, dtype=bool)
        used[codes] = True
        used = used[:-1]
        renumber = np.append(np.cumsum(used) - 1, -1)
        levels = tuple(level for level, present in zip(self.levels, used, strict=True) if present)
        return TextColumn(renumber[codes].astype(np.int64), levels)


@dataclass(frozen=True, repr=False)
class NumberColumn(Unpickled):
    """``values`` (n,), NaN where missing; ``wrong``: cells that hold no number, ``kinds``: how many
    of them hold what kind of text."""

    values: FloatArray
    wrong: int
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def missing(self) -> BoolArray:
        """(n,) whether the cell is blank."""
        missing: BoolArray = np.isnan(self.values)
        return missing


def text_column(series: "pd.Series[Any]", name: str) -> TextColumn:
    """Codes of a column read as text; whole numbers lose a decimal point ("1.0" as float is "1").

    Raises ``InputError`` when cells hold lists or other things that are no plain values.
    """
    try:
        raw, found = pd.factorize(series)
    except TypeError:
        raise InputError(f"column {name!r}: expected text or numbers in its cells.") from None
    texts = [as_text(value, name) for value in found]
    levels = natural_order({text for text in texts if text})
    position = {level: index for index, level in enumerate(levels)}
    renumber = np.array([*(position.get(text, -1) for text in texts), -1], dtype=np.int64)
    return TextColumn(renumber[raw], levels)


def as_text(value: Any, name: str) -> str:
    """A cell as text; blank cells and missing values as an empty one."""
    if isinstance(value, str):
        return value if value.strip() else ""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real | decimal.Decimal):
        number = float(value)
        if math.isnan(number):
            return ""
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise InputError(f"column {name!r}: expected text or numbers in its cells.")


def number_column(series: "pd.Series[Any]", name: str) -> NumberColumn:
    """A column as numbers; blank cells and the usual words for missing become NaN.

    Raises ``InputError`` when the type of the column cannot hold numbers.
    """
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        series = series.astype(dtype.categories.dtype)
        dtype = series.dtype
    if pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_numeric_dtype(dtype):
        if pd.api.types.is_complex_dtype(dtype):
            raise InputError(f"column {name!r}: expected real numbers.")
        return NumberColumn(series.to_numpy(dtype=np.float64, na_value=np.nan), 0)
    if pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        raise InputError(
            f"column {name!r}: expected numbers, got a column of dates or times; name another, or "
            "make a number of it (an age, a year)."
        )
    if pd.api.types.is_string_dtype(dtype) and not pd.api.types.is_object_dtype(dtype):
        quick = _parse_quickly(series)
        if quick is not None:
            return NumberColumn(quick, 0)
    parsed = [_as_number(value) for value in series]
    wrong = [cell for cell, value in zip(series, parsed, strict=True) if value is None]
    values = np.array([np.nan if value is None else value for value in parsed], dtype=np.float64)
    return NumberColumn(values, len(wrong), kinds_of(wrong))


def _parse_quickly(series: "pd.Series[Any]") -> FloatArray | None:
    """All cells at once, or ``None`` when one of them needs a closer look."""
    try:
        text = pa.array(series, type=pa.large_string(), from_pandas=True)
        blank = pa.compute.equal(text, "")
        values = pa.compute.cast(
            pa.compute.if_else(blank, pa.scalar(None, pa.large_string()), text), pa.float64()
        )
    except pa.ArrowException:
        return None
    parsed: FloatArray = values.to_numpy(zero_copy_only=False).astype(np.float64)
    return parsed


def _as_number(value: Any) -> float | None:
    """A cell as a number, NaN when missing, ``None`` when it holds something else."""
    if value is None or value is pd.NA or value is pd.NaT:
        return math.nan
    if isinstance(value, str):
        if value.strip().casefold() in MISSING_WORDS:
            return math.nan
        if _WITH_DIGIT_GROUPS in value:
            return None
    elif not isinstance(value, numbers.Real | decimal.Decimal | np.bool_):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


#: What some cells hold that is not among the levels.
ALMOST_A_LEVEL = "a level in other letters or with outer blanks"
#: Words for 0 and 1 in the cells of a binary outcome without levels (compared without case).
_TRUTH = {"false": 0.0, "true": 1.0}


def level_column(series: "pd.Series[Any]", outcome: Outcome) -> NumberColumn:
    """A column of levels as their positions, NaN where missing; ``wrong``: cells with something
    that is not among the levels of the outcome.

    The usual words for missing are that unless they are levels. Without levels of its own a binary
    outcome is 0 and 1, or true and false. Raises ``InputError`` as ``text_column`` does.
    """
    text = text_column(series, outcome.name)
    found = [_position(level, outcome) for level in text.levels]
    positions = np.array([*(-1.0 if each is None else each for each in found), np.nan])
    values = positions[text.codes]
    folded = {level.strip().casefold() for level in outcome.levels}
    almost = [each in folded for each in (level.strip().casefold() for level in text.levels)]
    count = int(np.count_nonzero((values < 0) & np.array([*almost, False])[text.codes]))
    kinds = {ALMOST_A_LEVEL: count} if count else {}
    return NumberColumn(values, int(np.count_nonzero(values < 0)), kinds)


def _position(text: str, outcome: Outcome) -> float | None:
    """That of the level written in a cell: NaN where it says missing, None where it is another."""
    if text in outcome.levels:
        return float(outcome.levels.index(text))
    if text.strip().casefold() in MISSING_WORDS:
        return math.nan
    if outcome.is_labelled:
        return None
    number = _TRUTH.get(text.strip().casefold(), _as_number(text))
    return number if number in (0.0, 1.0) else None


def has_text_categories(series: "pd.Series[Any]") -> bool:
    """Whether the type of a column is of categories that are text."""
    dtype = series.dtype
    return isinstance(dtype, pd.CategoricalDtype) and not pd.api.types.is_numeric_dtype(
        dtype.categories.dtype
    )


def looks_numeric(series: "pd.Series[Any]") -> bool:
    """Whether a predictor is a number: a numeric type, or text of which every filled cell is one.

    Text with leading zeros ("01") is a code, not a number; true and false are categories, and so is
    what the file itself keeps as categories with names.
    """
    if pd.api.types.is_bool_dtype(series.dtype) or has_text_categories(series):
        return False
    if pd.api.types.is_numeric_dtype(series.dtype):
        return True
    if pd.api.types.is_string_dtype(series.dtype) and not pd.api.types.is_object_dtype(
        series.dtype
    ):
        quick = _parse_quickly(series)
        if quick is not None:
            coded = bool(series.str.match(_LEADING_ZERO.pattern, na=False).any())
            return bool(np.isfinite(quick).any()) and not coded
    try:
        found = pd.unique(series.dropna())
    except TypeError:
        return False
    parsed = [_as_number(value) for value in found if not isinstance(value, bool | np.bool_)]
    coded = any(isinstance(value, str) and _LEADING_ZERO.match(value) for value in found)
    finite = [value for value in parsed if value is not None and not math.isnan(value)]
    return len(parsed) == len(found) and None not in parsed and bool(finite) and not coded
