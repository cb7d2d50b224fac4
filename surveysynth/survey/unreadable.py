"""What kind of text stands where a number is expected, told without quoting it.

Whoever has the file at hand finds such cells by their kind; a message that showed one would show a
confidential value.
"""

import datetime
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

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
#: Long texts are told by their beginning.
_LONG = 200

#: What is looked for, in this order, in the whole of a cell without its outer blanks.
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
        # Groups of three, apart from each other by one and the same sign.
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
    """What kind of text, or of other thing, a cell holds that is no number."""
    if isinstance(cell, datetime.date | datetime.time):
        return "with a date" if isinstance(cell, datetime.date) else "with a time"
    if not isinstance(cell, str):
        return "with a cell of another type"
    text = cell.strip()[:_LONG]
    return next((words for words, form in _KINDS if form.fullmatch(text)), "with signs only")


def kinds_of(cells: Iterable[Any]) -> dict[str, int]:
    """How many cells are of each kind, the commonest first."""
    return dict(Counter(map(kind_of, cells)).most_common())


def in_words(kinds: dict[str, int]) -> str:
    """``2 with a thousands separator, 1 with a date``; one kind without its number."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{count:,} {words}" for words, count in kinds.items())
