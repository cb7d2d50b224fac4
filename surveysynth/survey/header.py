"""Whether the first line of a file is a header, and what may be said of its names.

The first line of a file without a header is a record. Its cells are read as names of columns, and
no message may show one: what is not there is told with the nearest name only where the line is
surely a header.
"""

import re
from collections.abc import Collection, Iterable, Sequence

from surveysynth._support.messages import nearest

#: Numbers, amounts with a currency, dates and times: nothing but digits and what stands between.
_VALUE = re.compile(r"[\s\d.,:;/+\-–%$€£¥'()]*\d[\s\d.,:;/+\-–%$€£¥'()]*([eE][+\-]?\d+)?\s*")


def is_header(columns: Collection[str], sought: Iterable[str]) -> bool:
    """Whether names of columns are surely names: none looks like a value, and at least half of
    those that are sought stand among them, upper and lower case alike."""
    wanted = {name.casefold().strip() for name in sought}
    there = {str(name).casefold().strip() for name in columns}
    values = any(looks_like_value(name) for name in there)
    return not values and 2 * len(wanted & there) >= len(wanted) > 0


def looks_like_value(name: str) -> bool:
    """Whether a name is a number, a date or an amount rather than a name."""
    if _VALUE.fullmatch(name):
        return True
    try:
        float(name)
    except ValueError:
        return False
    return True


def missing_column(name: str, columns: Sequence[str], sought: Iterable[str]) -> str:
    """``there is no column 'x'.`` and the nearest name, or how many there are.

    ``sought``: all columns that were asked for, by which a header is known.
    """
    absent = f"there is no column {name!r}."
    if is_header(columns, sought):
        return f"{absent}{nearest(name, columns) or f' The data have {_count(len(columns))}.'}"
    return (
        f"{absent} The data have {_count(len(columns))}, whose names are not shown: they may be "
        "values, of a first record in the place of a header. Add the line of names, or correct "
        "the names in the specification."
    )


def _count(columns: int) -> str:
    return f"{columns:,} column" + ("" if columns == 1 else "s")


def repeated_positions(columns: Sequence[str]) -> str:
    """Where names occur more than once, as ``columns 2 and 5``; empty if none does. Blank names
    are no names."""
    first: dict[str, int] = {}
    for position, name in enumerate(columns, start=1):
        if not str(name).strip():
            continue
        if name in first:
            return f"columns {first[name]:,} and {position:,}"
        first[name] = position
    return ""
