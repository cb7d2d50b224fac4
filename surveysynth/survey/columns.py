"""Columns of any type as codes of text levels or as numbers, and their names.

``cells`` has the rule for a single cell. Text that is not a number is reported by count and kind,
never quoted, since the column may be confidential. Nor is a column name quoted that may be a value:
the first line of a file without a header is a record.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import nearest
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.cells import (
    alike,
    level_among,
    number_of,
    text_of,
    with_double_numbers,
    written,
)
from surveysynth.survey.outcome import Outcome

_LEADING_ZERO = re.compile(r"\s*[+-]?0[0-9]")


@dataclass(frozen=True, repr=False)
class TextColumn(Unpickled):
    """A column as ``codes`` (n,) into ``levels`` (natural order); -1 where the cell is missing.

    ``words``: how many cells have a word such as NA instead; ``spellings``: how many texts are
    several forms of one level, as 1 and 1.0.
    """

    codes: IntArray
    levels: tuple[str, ...]
    words: int = 0
    spellings: int = 0

    @property
    def missing(self) -> BoolArray:
        """(n,) True where the cell is missing."""
        return self.codes < 0

    def values(self) -> "pd.Series[str]":
        """Return the column as text; blank cells are an empty text."""
        levels = np.array([*self.levels, ""], dtype=object)
        return pd.Series(levels[self.codes], dtype="str")

    def keep(self, rows: BoolArray) -> "TextColumn":
        """Return the chosen rows, without levels that do not occur in them."""
        codes = self.codes[rows]
        used = np.zeros(len(self.levels) + 1, dtype=bool)
        used[codes] = True
        used = used[:-1]
        renumber = np.append(np.cumsum(used) - 1, -1)
        levels = tuple(level for level, present in zip(self.levels, used, strict=True) if present)
        return TextColumn(renumber[codes].astype(np.int64), levels)


@dataclass(frozen=True, repr=False)
class NumberColumn(Unpickled):
    """A column as ``values`` (n,), NaN where missing.

    ``wrong``: how many cells hold no number; ``kinds``: how many hold each kind of text.
    """

    values: FloatArray
    wrong: int
    kinds: dict[str, int] = field(default_factory=dict)


def natural_order(levels: Iterable[str]) -> tuple[str, ...]:
    """Sort levels as numbers if all of them look like numbers, otherwise as text."""
    found = list(levels)
    try:
        values = {level: float(level) for level in found}
    except ValueError:
        return tuple(sorted(found))
    if not all(map(math.isfinite, values.values())):
        return tuple(sorted(found))
    return tuple(sorted(found, key=lambda level: (values[level], level)))


def encode(values: "pd.Series[str]") -> tuple[IntArray, tuple[str, ...]]:
    """Return codes (n,) of a text column and its levels in natural order."""
    raw, found = pd.factorize(values)
    levels = natural_order(str(level) for level in found)
    position = {level: index for index, level in enumerate(levels)}
    renumber = np.array([position[str(level)] for level in found], dtype=np.int64)
    return (renumber[raw] if renumber.size else raw.astype(np.int64)), levels


def text_column(
    series: "pd.Series[Any]", name: str, declared: Collection[str] = ()
) -> TextColumn:
    """Read a column as text, as ``cells.level_among`` finds ``declared`` and other levels.

    Raises ``InputError`` when cells hold lists or other things that are not plain values.
    """
    try:
        raw, found = pd.factorize(with_double_numbers(series))
    except TypeError:
        raise InputError(f"column {name!r}: expected text or numbers in its cells.") from None
    level_of = level_among(declared)
    # Programs write numbers alike in a whole column: only text can have two forms.
    texts = [(written if isinstance(each, str) else text_of)(each, name) for each in found]
    level_of_each = [level_of(text) for text in texts]
    forms = Counter(dict(zip(texts, level_of_each, strict=True)).values())
    levels = natural_order(filter(None, forms))
    position = {level: index for index, level in enumerate(levels)}
    renumber = np.array([*(position.get(level, -1) for level in level_of_each), -1], dtype=np.int64)
    word = [bool(text) and not level for text, level in zip(texts, level_of_each, strict=True)]
    return TextColumn(
        renumber[raw], levels, int(np.count_nonzero(np.array([*word, False])[raw])),
        sum(forms[level] for level in levels if forms[level] > 1 and level not in declared),
    )  # fmt: skip


def number_column(series: "pd.Series[Any]", name: str) -> NumberColumn:
    """Read a column as numbers; blank cells and the usual words for missing become NaN.

    Raises ``InputError`` when the type of the column cannot hold numbers.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        return _of_categories(series, name)
    series = with_double_numbers(series)
    dtype = series.dtype
    if pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_numeric_dtype(dtype):
        if pd.api.types.is_complex_dtype(dtype):
            raise InputError(f"column {name!r}: expected real numbers.")
        return NumberColumn(series.to_numpy(dtype=np.float64, na_value=np.nan), 0)
    if pd.api.types.is_datetime64_any_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        raise InputError(
            f"column {name!r}: expected numbers, got dates or times; name another column, or "
            "convert this one to numbers (an age, a year)."
        )
    if pd.api.types.is_string_dtype(dtype) and not pd.api.types.is_object_dtype(dtype):
        quick = _parse_quickly(series)
        if quick is not None:
            return NumberColumn(quick, 0)
    parsed = [number_of(value) for value in series]
    wrong = [cell for cell, value in zip(series, parsed, strict=True) if value is None]
    values = np.array([np.nan if value is None else value for value in parsed], dtype=np.float64)
    return NumberColumn(values, len(wrong), kinds_of(wrong))


def _of_categories(series: "pd.Series[Any]", name: str) -> NumberColumn:
    """Read a column of categories by the numbers of these; a missing one is no category."""
    codes = series.cat.codes.to_numpy()
    found = number_column(pd.Series(series.cat.categories), name)
    values = np.append(found.values, np.nan)[codes]
    wrong = [cell for cell in series if number_of(cell) is None] if found.wrong else []
    return NumberColumn(values, len(wrong), kinds_of(wrong))


def _parse_quickly(series: "pd.Series[Any]") -> FloatArray | None:
    """Parse all cells at once; return ``None`` when one of them needs a closer look."""
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


#: The kind of a cell that is almost a level.
ALMOST_A_LEVEL = "a level in another case, or with other signs that look the same"
#: Texts for 0 and 1 in the cells of a binary outcome without levels.
_TRUTH = {"False": 0.0, "True": 1.0}


def level_column(series: "pd.Series[Any]", outcome: Outcome) -> NumberColumn:
    """Read a column of levels as their positions, NaN where missing.

    ``wrong`` counts cells that hold none of the levels. A binary outcome without levels has 0 and
    1, or true and false. Raises ``InputError`` as ``text_column`` does.
    """
    text = text_column(series, outcome.name, outcome.levels)
    found = [_position(level, outcome) for level in text.levels]
    positions = np.array([*(-1.0 if each is None else each for each in found), np.nan])
    values = positions[text.codes]
    known = {alike(level) for level in outcome.levels}
    almost = [alike(level) in known for level in text.levels]
    count = int(np.count_nonzero((values < 0) & np.array([*almost, False])[text.codes]))
    kinds = {ALMOST_A_LEVEL: count} if count else {}
    return NumberColumn(values, int(np.count_nonzero(values < 0)), kinds)


def _position(text: str, outcome: Outcome) -> float | None:
    """Return the position of a cell's level, None where it is no level."""
    if text in outcome.levels:
        return float(outcome.levels.index(text))
    return None if outcome.is_labelled else _TRUTH.get(text)


def has_text_categories(series: "pd.Series[Any]") -> bool:
    """Return True if the column has a type of text categories."""
    dtype = series.dtype
    return isinstance(dtype, pd.CategoricalDtype) and not pd.api.types.is_numeric_dtype(
        dtype.categories.dtype
    )


def looks_numeric(series: "pd.Series[Any]") -> bool:
    """Return True for a numeric type, or for text of which every filled cell is a number.

    Text with leading zeros ("01") is a code, not a number. True and false are categories, and so is
    whatever the file itself stores as categories with names.
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
    parsed = [number_of(value) for value in found if not isinstance(value, bool | np.bool_)]
    coded = any(isinstance(value, str) and _LEADING_ZERO.match(value) for value in found)
    finite = [value for value in parsed if value is not None and not math.isnan(value)]
    return len(parsed) == len(found) and None not in parsed and bool(finite) and not coded

_NUMBER = r"[+-]?\d+([.,]\d+)?"

_MONTH = (
    r"(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|"
    r"oct(ober)?|nov(ember)?|dec(ember)?)"
)

_TIME = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*([ap]\.?m\.?|z)?"

_DATE = (
    rf"(\d{{1,4}}([-/.])\d{{1,2}}\2\d{{1,4}}|\d{{1,2}}/\d{{4}}|"
    rf"\d{{0,2}}[-. ]*{_MONTH}[-., ]*\d{{1,4}}([-., ]+\d{{2,4}})?)([T ]\s*{_TIME})?"
)

#: Long texts are classified by their beginning.
_LONG = 200

#: Kinds in the order in which they are tried, on a whole cell without outer blanks.
_KINDS = tuple(
    (words, re.compile(pattern, re.IGNORECASE | re.DOTALL))
    for words, pattern in (
        ("with a percent sign", rf"{_NUMBER}\s*[%‰]"),
        ("with a currency", r"(?=.*\d).*([$€£¥₹]|\b(usd|eur|gbp|chf|cad|aud|jpy|cny|inr)\b).*"),
        ("with a date", _DATE),
        ("with a time", _TIME),
        ("with a comparison sign", r"([<>≤≥~]=?|≈)\s*\S+"),
        ("with a range", r"\d[\d.,]*\s*([-–]|to)\s*\d[\d.,]*"),
        ("with brackets", r"\(.*\)|\[.*\]"),
        # Groups of three digits, with the same sign between all of them.
        ("with a thousands separator",
         r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(\.\d*)?|[+-]?[1-9]\d{0,2}(?:\.\d{3})+(,\d*)?"
         r"|[+-]?[1-9]\d{0,2}([ _'’\u00a0\u2009\u202f])\d{3}(?:\3\d{3})*([.,]\d*)?"
         r"|[+-]?[\d_]+(\.\d*)?"),
        ("with a decimal comma", r"[+-]?\d*,\d+(e[+-]?\d+)?"),
        ("with words or a unit beside digits", r"(?=.*\d)(?=.*[^\W\d_]).*"),
        ("with words", r".*[^\W\d_].*"),
        ("with other signs beside digits", r".*\d.*"),
    )
)  # fmt: skip


def kind_of(cell: Any) -> str:
    """Return the kind of text, or of other content, in a cell that holds no number."""
    if isinstance(cell, datetime.date | datetime.time):
        return "with a date" if isinstance(cell, datetime.date) else "with a time"
    if not isinstance(cell, str):
        return "with a cell of another type"
    text = cell.strip()[:_LONG]
    return next((words for words, form in _KINDS if form.fullmatch(text)), "with signs only")


def kinds_of(cells: Iterable[Any]) -> dict[str, int]:
    """Count the cells of each kind, the most common first."""
    return dict(Counter(map(kind_of, cells)).most_common())


def in_words(kinds: dict[str, int]) -> str:
    """Return ``2 with a thousands separator, 1 with a date``; a single kind has no number."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{count:,} {words}" for words, count in kinds.items())

#: Numbers, amounts with a currency, dates, and times: digits and the signs between them.
_VALUE = re.compile(r"[\s\d.,:;/+\-–%$€£¥'()]*\d[\s\d.,:;/+\-–%$€£¥'()]*([eE][+\-]?\d+)?\s*")


def is_header(columns: Collection[str], sought: Iterable[str]) -> bool:
    """Return True if column names are surely names, not values.

    None may look like a value, and at least half of the names ``sought`` must occur, in any case.
    """
    wanted = {name.casefold().strip() for name in sought}
    there = {str(name).casefold().strip() for name in columns}
    values = any(looks_like_value(name) for name in there)
    return not values and 2 * len(wanted & there) >= len(wanted) > 0


def looks_like_value(name: str) -> bool:
    """Return True for a number, a date, or an amount."""
    if _VALUE.fullmatch(name):
        return True
    try:
        float(name)
    except ValueError:
        return False
    return True


def missing_column(name: str, columns: Sequence[str], sought: Iterable[str]) -> str:
    """Return ``there is no column 'x'.`` and the nearest name, or the number of columns.

    ``sought``: all columns that the caller names, from which a header is recognized.
    """
    absent = f"there is no column {name!r}."
    if is_header(columns, sought):
        return f"{absent}{nearest(name, columns) or f' The data have {_count(len(columns))}.'}"
    return (
        f"{absent} The data have {_count(len(columns))}, whose names are not shown: the first line "
        "may be a record instead of a header. Add a line of names, or correct the names in the "
        "specification."
    )


def _count(columns: int) -> str:
    return f"{columns:,} column" + ("" if columns == 1 else "s")


def repeated_positions(columns: Sequence[str]) -> str:
    """Return where a name occurs twice, as ``columns 2 and 5``; empty if none does.

    Blank names do not count.
    """
    first: dict[str, int] = {}
    for position, name in enumerate(columns, start=1):
        if not str(name).strip():
            continue
        if name in first:
            return f"columns {first[name]:,} and {position:,}"
        first[name] = position
    return ""
