"""Levels of public columns that hardly any record has: values that may have slipped in.

A by column is public, and its levels are published as they stand in the file. A level of one record
may be an amount that was typed into the wrong column. Where levels are declared
([labels.COLUMN] levels) such a record is refused; where they are not, a warning counts them, and
``surveysynth check`` does not print them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from surveysynth.release.tables.labels import ColumnLabel, Labels
from surveysynth.survey.records import LEAST_RECORDS, MAX_LEVELS

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign

#: In the place of such a level where cells are listed.
NOT_SHOWN = "(rare level, not shown)"


def rare_levels(spec: "Spec", design: "PublicDesign") -> dict[str, tuple[str, ...]]:
    """Undeclared levels with fewer than ``LEAST_RECORDS`` records, by public column.

    Not of units, of columns of numbers, nor of columns with so many levels that they are names or
    notes of records.
    """
    rare = {}
    for name in map(str, design.frame):
        label = spec.labels.get(name)
        numbers = pd.api.types.is_numeric_dtype(design.frame[name])
        if numbers or name == design.psu_name or (label is not None and label.levels):
            continue
        counts = design.frame[name].astype("str").value_counts()
        counts = counts[counts.index != ""]
        found = tuple(map(str, counts.index[counts < LEAST_RECORDS]))
        if found and len(counts) <= MAX_LEVELS:
            rare[name] = found
    return rare


def rare_level_warnings(rare: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """One for each column, without a level."""
    return tuple(
        f"{name!r} has {_count(len(levels))} of fewer than {LEAST_RECORDS} records, published as "
        "written in the file. A value of another column that slipped in would be one: look at the "
        f"file, and list the right ones in [labels.{name}] levels, which refuses all others."
        for name, levels in rare.items()
    )


def without_rare(labels: Labels, rare: Mapping[str, tuple[str, ...]]) -> Labels:
    """Labels that show no rare level."""
    columns = dict(labels.columns)
    for name, levels in rare.items():
        given = columns.get(name, ColumnLabel())
        hidden = dict.fromkeys(levels, NOT_SHOWN)
        columns[name] = replace(given, levels={**given.levels, **hidden})
    return Labels(columns)


def _count(levels: int) -> str:
    return f"{levels:,} level" + ("" if levels == 1 else "s")
