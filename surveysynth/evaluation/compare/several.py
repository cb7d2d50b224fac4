"""Frames of several tables of one release below each other, and apart again.

Comparisons look at all rows of a statistic together, whichever table they are of; pages show each
table by itself.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from surveysynth.estimation.statistics import TABLE

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec

Key: TypeAlias = tuple[str, str | None]
"""A statistic and an outcome by their names, None for counts."""


def stacked(spec: "Spec", tables: Mapping[str, Mapping[Key, pd.DataFrame]]) -> (
    dict[Key, pd.DataFrame]
):
    """The frames of all tables, by name, as one for each key; by columns that a table does not have
    are empty."""
    if not spec.named_tables:
        (alone,) = tables.values()
        return dict(alone)
    keys = dict.fromkeys(key for frames in tables.values() for key in frames)
    return {
        key: _below_each_other(
            spec, {name: frames[key] for name, frames in tables.items() if key in frames}
        )
        for key in keys
    }


def _below_each_other(spec: "Spec", frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    parts = [frame.assign(**{TABLE: name}) for name, frame in frames.items()]
    whole = pd.concat(parts, ignore_index=True)
    by = [name for name in spec.by if name in whole]
    whole = whole.fillna(dict.fromkeys(by, ""))
    first = [TABLE, *by]
    return whole[[*first, *(name for name in whole if name not in first)]]


def by_table(spec: "Spec", frame: pd.DataFrame) -> "Iterator[tuple[Spec, pd.DataFrame]]":
    """The rows of each table that a stacked frame has, with its own by columns and its
    specification."""
    for each in spec.each_table:
        if not spec.named_tables:
            yield each, frame
            continue
        rows = frame[frame[TABLE] == each.table.name].reset_index(drop=True)
        others = [name for name in spec.by if name not in each.table.by and name in rows]
        if len(rows):
            yield each, rows.drop(columns=[TABLE, *others])
