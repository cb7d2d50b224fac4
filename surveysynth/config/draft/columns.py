"""The parts of a data file that may be read: column names, types, and levels of public columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from surveysynth._support.messages import raise_problems
from surveysynth.errors import InputError
from surveysynth.survey.columns import looks_like_value, text_column
from surveysynth.survey.files import LabelledTable, Table, open_table
from surveysynth.survey.formula import quote
from surveysynth.survey.records import LEAST_RECORDS, level_problems

#: Names for the row over all levels; the first that is not a level is used.
_MARGINS = ("All", "Total", "Overall", "All levels", "Sum of all levels")
_TYPES = (
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_dictionary, "categories"),
    (pa.types.is_temporal, "date or time"),
    (lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind), "number"),
    (pa.types.is_decimal, "number"),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "text"),
)


@dataclass(frozen=True)
class PublicLevels:
    """Levels of a public column in natural order, and a name for its margin that is not a level.

    ``rare``: the number of levels with so few records that they may be values of another column; if
    there are any, no level is written. ``title`` and ``labels``: those of the file, if any.
    """

    levels: tuple[str, ...]
    margin: str
    rare: int = 0
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DataFile:
    """A data file: ``names`` of all columns, and ``types`` by name (empty for csv)."""

    path: Path
    names: tuple[str, ...]
    types: Mapping[str, str]
    table: Table

    def levels(self, name: str) -> PublicLevels:
        """Return the levels of a public column; no other column is read.

        Raises ``InputError`` if they cannot define rows of a table.
        """
        column = text_column(self.table.read([name])[name], name)
        quote(name)
        title, labels = self._called(name, column.levels)
        taken = {*column.levels, *labels.values()}
        free = [margin for margin in _MARGINS if margin not in taken]
        margin = free[0] if free else _MARGINS[0]
        raise_problems(
            str(self.path), level_problems({name: column}, (name,), {}, {name: margin})
        )
        counts = np.bincount(column.codes[~column.missing], minlength=len(column.levels))
        rare = int(np.count_nonzero(counts < LEAST_RECORDS))
        return PublicLevels(() if rare else column.levels, margin, rare, title, labels)

    def _called(self, name: str, levels: tuple[str, ...]) -> tuple[str, Mapping[str, str]]:
        """Return title and labels of the levels in the file; no labels if two are the same."""
        if not isinstance(self.table, LabelledTable):
            return "", {}
        found = self.table.described[name]
        labels = {level: found.labels.get(level, level) for level in levels}
        return found.title, labels if len(set(labels.values())) == len(labels) else {}


def open_data(path: Path) -> DataFile:
    """Open a data file for its column names, and their types if the file has them.

    Raises ``InputError`` as ``open_table`` does, and if the first line looks like a record: its
    values would be mistaken for names, shown, and written into a specification.
    """
    table = open_table(path)
    values = sum(map(looks_like_value, table.columns))
    raise_problems(
        str(path),
        [
            f"{values:,} of {len(table.columns):,} names in the first line look like values "
            "(numbers, dates). Write the names of the columns into the first line, and use "
            "names with letters."
        ]
        if values
        else [],
    )
    types = (
        {name: "categories" if each.labels else each.kind for name, each in table.described.items()}
        if isinstance(table, LabelledTable)
        else _types(path)
    )
    return DataFile(path, table.columns, types, table)


def _types(path: Path) -> dict[str, str]:
    """Return the types of a parquet file in words, from its schema, which has no cells."""
    if path.suffix.lower() != ".parquet":
        return {}
    try:
        schema = pa.parquet.read_schema(path)
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(f"{path} is not a parquet file, or it is damaged.") from None
    return {
        entry.name: next((word for holds, word in _TYPES if holds(entry.type)), "another type")
        for entry in schema
    }
