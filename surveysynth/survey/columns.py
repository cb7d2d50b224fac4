"""Cells, and columns of any type as codes of text levels or as numbers; names of columns.

What the same value looks like depends on the program that wrote it: 1 or 1.0, True or TRUE, a date
with or without midnight, an accent as one sign or two, NA or nothing. Here each has one text, so
that the files of one survey are the same survey, whether csv, frames, Arrow, Stata, SPSS, or SAS.
Codes otherwise stay as written: "01203" and "1.50" are not numbers here.

Text that is not a number is reported by count and kind, never quoted, since the column may be
confidential. A column name that may be a value is not quoted either: the first line of a file
without a header is a record.
"""

import contextlib
import datetime
import decimal
import math
import numbers
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import nearest
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.outcome import Outcome

#: Words for a missing value in files of other programs (compared without case).
_MISSING = re.compile(r"|na|n/a|#n/a|<na>|nan|null|\.[a-z_]?", re.IGNORECASE)
#: Numbers as programs write them, whose users would write 1 or 100000000000000000.
_WHOLE = re.compile(r"-?(0|[1-9]\d*)\.0")
_SCIENTIFIC = re.compile(r"-?\d(\.\d+)?e[+-]\d{2,3}")
_PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d*)?", re.ASCII)
_DATE_AND_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(.*)")
_MIDNIGHT = re.compile(r"00:00(:00(\.0+)?)?")
_LEADING_ZERO = re.compile(r"\s*[+-]?0[0-9]")


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
    >>> from surveysynth.survey.columns import text_of
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
    if text and "_" in value:
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


@dataclass(frozen=True, repr=False)
class TextColumn(Unpickled):
    """A column as ``codes`` (n,) into ``levels`` (natural order); -1 where the cell is missing.

    ``words``: the number of cells with a word such as NA instead; ``spellings``: the number of
    texts that are other forms of a level, such as 1 and 1.0.
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
    """Read a column as text, as ``level_among`` finds ``declared`` and other levels.

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


def number_column(
    series: "pd.Series[Any]", name: str, missing_codes: Collection[float] = ()
) -> NumberColumn:
    """Read a column as numbers; blank cells and the usual words for missing become NaN.

    So do ``missing_codes``. Raises ``InputError`` when the type of the column cannot hold numbers.
    """
    if missing_codes:
        found = number_column(series, name)
        blank = np.isin(found.values, list(missing_codes))
        return replace(found, values=np.where(blank, np.nan, found.values))
    if isinstance(series.dtype, pd.CategoricalDtype):  # a missing cell is no category
        found = number_column(pd.Series(series.cat.categories), name)
        values = np.append(found.values, np.nan)[series.cat.codes.to_numpy()]
        wrong = [cell for cell in series if number_of(cell) is None] if found.wrong else []
        return NumberColumn(values, len(wrong), kinds_of(wrong))
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
    if (quick := _parse_quickly(series)) is not None:
        return NumberColumn(quick, 0)
    parsed = [number_of(value) for value in series]
    wrong = [cell for cell, value in zip(series, parsed, strict=True) if value is None]
    values = np.array([np.nan if value is None else value for value in parsed], dtype=np.float64)
    return NumberColumn(values, len(wrong), kinds_of(wrong))


def _parse_quickly(series: "pd.Series[Any]") -> FloatArray | None:
    """Parse cells of text at once; return ``None`` when one of them needs a closer look."""
    if pd.api.types.is_object_dtype(series.dtype) or not pd.api.types.is_string_dtype(series.dtype):
        return None
    try:
        text = pa.array(series, type=pa.large_string(), from_pandas=True)
        blank = pa.compute.equal(text, "")
        values = pa.compute.cast(
            pa.compute.if_else(blank, pa.scalar(None, pa.large_string()), text), pa.float64()
        )
    except pa.ArrowException:
        return None
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


#: The kind of a cell that is almost a level.
ALMOST_A_LEVEL = "a level in another case, or in characters that look the same"


def level_column(
    series: "pd.Series[Any]", outcome: Outcome, missing_codes: Collection[float] = ()
) -> NumberColumn:
    """Read a column of levels as their positions, NaN where missing or one of the codes for it.

    ``wrong`` counts cells that hold none of the levels. A binary outcome without levels has 0 and
    1, or true and false. Raises ``InputError`` as ``text_column`` does.
    """
    codes = [text_of(float(code), outcome.name) for code in missing_codes]
    text = text_column(series, outcome.name, (*outcome.levels, *codes))
    position = {} if outcome.is_labelled else {"False": 0.0, "True": 1.0}
    position |= {level: float(place) for place, level in enumerate(outcome.levels)}
    position |= dict.fromkeys(codes, math.nan)
    values = np.array([*(position.get(level, -1.0) for level in text.levels), np.nan])[text.codes]
    known = {alike(level) for level in outcome.levels}
    almost = np.array([*(alike(level) in known for level in text.levels), False])[text.codes]
    wrong, close = (int(np.count_nonzero(each)) for each in (values < 0, (values < 0) & almost))
    return NumberColumn(values, wrong, {ALMOST_A_LEVEL: close} if close else {})


def looks_numeric(series: "pd.Series[Any]") -> bool:
    """Return True for a numeric type, or for text of which every filled cell is a number.

    Text with leading zeros ("01") is a code, not a number. True and false are categories, and so is
    whatever the file itself stores as categories with names.
    """
    dtype, of = series.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype) and not of.is_numeric_dtype(dtype.categories.dtype):
        return False
    if of.is_bool_dtype(dtype) or of.is_numeric_dtype(dtype):
        return not of.is_bool_dtype(dtype)
    if (quick := _parse_quickly(series)) is not None:
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
        ("with words or a unit next to digits", r"(?=.*\d)(?=.*[^\W\d_]).*"),
        ("with words", r".*[^\W\d_].*"),
        ("with other signs next to digits", r".*\d.*"),
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
    with contextlib.suppress(ValueError):
        float(name)
        return True
    return _VALUE.fullmatch(name) is not None


def missing_column(name: str, columns: Sequence[str], sought: Iterable[str]) -> str:
    """Return ``there is no column 'x'.`` and the nearest name, or the number of columns.

    ``sought``: all columns that the caller names, from which a header is recognized.
    """
    absent = f"there is no column {name!r}."
    if is_header(columns, sought):
        others = f" The data have {_count(len(columns))}. Correct the name, or add the column."
        return f"{absent}{nearest(name, columns) or others}"
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
