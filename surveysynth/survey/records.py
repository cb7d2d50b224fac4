"""Columns of a frame as codes and numbers, with blank cells found and dealt with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import listing, raise_problems, records
from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.errors import InputError
from surveysynth.survey.checks import MAX_LEVELS, Roles
from surveysynth.survey.columns import (
    ALMOST_A_LEVEL,
    NumberColumn,
    TextColumn,
    level_column,
    looks_numeric,
    number_column,
    text_column,
)
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.unreadable import in_words

PLAIN_NUMBERS = "numbers such as 1234.5, and blank cells where there is none"


@dataclass(frozen=True, repr=False)
class Records(Unpickled):
    """n complete records: ``text`` columns as codes, ``numbers`` (n,) as floats, by name."""

    n: int
    text: Mapping[str, TextColumn]
    numbers: Mapping[str, FloatArray]
    dropped: int

    def public_frame(self, roles: Roles) -> pd.DataFrame:
        """By, strata, psu, predictors, a public weight and public columns; nothing confidential."""
        weight = () if roles.public_weight is None else (roles.public_weight,)
        names = dict.fromkeys([*roles.text, *roles.predictors, *weight, *roles.public_columns])
        data: dict[str, pd.Series[Any]] = {}
        for name in names:
            if name in roles.confidential:
                raise InputError(f"{name!r} is confidential and cannot be a public column.")
            text = self.text.get(name)
            data[name] = text.values() if text is not None else _numbers(self.numbers[name])
        return pd.DataFrame(data, index=pd.RangeIndex(self.n))


def read_records(
    frame: pd.DataFrame,
    roles: Roles,
    missing: str,
    source: str,
    outcomes: Sequence[Outcome] = (),
) -> Records:
    """Read the columns that have a part; raises ``InputError`` for cells that cannot be read.

    ``outcomes``: those of which more is declared than a name; levels become their positions.
    ``missing``: "fail" reports blank cells by column, "drop" leaves those records out and counts
    them. Blank cells of ``public_columns`` without another part stay as they are.
    """
    text: dict[str, TextColumn] = {}
    numbers: dict[str, FloatArray] = {}
    problems: list[str] = []
    levelled = {outcome.name: outcome for outcome in outcomes if not outcome.is_amount}
    numeric = {*roles.confidential, roles.fpc, roles.public_weight} - {None}
    numeric |= {
        name for name in roles.predictors if name not in roles.text and looks_numeric(frame[name])
    }
    for name in roles.needed:
        if name in roles.text or name not in numeric:
            text[name] = text_column(frame[name], name)
        # fpc is arithmetic even where the same column also labels strata.
        if name in levelled:
            numbers[name] = _levels(frame[name], levelled[name], source)
        elif name in numeric:
            column = number_column(frame[name], name)
            numbers[name] = column.values
            if column.wrong:
                problems.append(f"{name!r}: {_unreadable(column)}.")
    raise_problems(f"{source}: expected {PLAIN_NUMBERS}", problems)
    blank = _blank_rows(text, numbers, roles, len(frame))
    if missing == "fail":
        _refuse_blank(blank, source)
    lost = np.logical_or.reduce(list(blank.values())) if blank else np.zeros(len(frame), bool)
    kept = _keep(text, numbers, ~lost)
    if kept.n < 2:
        raise InputError(
            f"{source}: {records(kept.n)} left of {records(len(frame))}"
            + (" after dropping those with blank cells" if kept.dropped else "")
            + "; expected at least 2."
        )
    _check_predictors(kept, roles, source)
    return kept


def _unreadable(column: NumberColumn) -> str:
    """How many cells hold no number, and what kind of text they hold."""
    return f"{records(column.wrong)} with text that is no number ({in_words(column.kinds)})"


def _levels(column: "pd.Series[Any]", outcome: Outcome, source: str) -> FloatArray:
    """Positions (n,) of levels; raises ``InputError`` for cells that hold none of them."""
    read = level_column(column, outcome)
    if read.wrong:
        almost = read.kinds.get(ALMOST_A_LEVEL)
        kinds = f" ({almost:,} of them {ALMOST_A_LEVEL})" if almost else ""
        raise InputError(
            f"{source}: outcome {outcome.name!r}: {records(read.wrong)} with a value that is not "
            f"among its levels, {listing(outcome.levels)}{kinds}. List every level in "
            f"outcomes.{outcome.name}.levels, in order, or correct these records."
        )
    return read.values


def _blank_rows(
    text: Mapping[str, TextColumn], numbers: Mapping[str, FloatArray], roles: Roles, n: int
) -> dict[str, BoolArray]:
    """For each column that has a part in the analysis and blank cells: which rows, (n,)."""
    used = {*roles.text, *roles.predictors, roles.fpc, roles.public_weight}
    shipped_only = set(roles.public_columns) - used
    blank: dict[str, BoolArray] = {}
    for name in roles.needed:
        rows = np.zeros(n, dtype=bool)
        if name in text:
            rows |= text[name].missing
        if name in numbers:
            rows |= np.isnan(numbers[name])
        if name not in shipped_only and rows.any():
            blank[name] = rows
    return blank


def _refuse_blank(blank: Mapping[str, BoolArray], source: str) -> None:
    raise_problems(
        f'{source}: blank or missing cells (set missing = "drop" to leave such records out)',
        [f"{name!r}: {records(int(rows.sum()))}." for name, rows in blank.items()],
    )


def _keep(
    text: Mapping[str, TextColumn], numbers: Mapping[str, FloatArray], rows: BoolArray
) -> Records:
    n = int(rows.sum())
    if n == rows.size:
        return Records(n, text, numbers, 0)
    return Records(
        n,
        {name: column.keep(rows) for name, column in text.items()},
        {name: values[rows] for name, values in numbers.items()},
        rows.size - n,
    )


def _check_predictors(kept: Records, roles: Roles, source: str) -> None:
    """Raise ``InputError`` for a text predictor that is more likely a mistaken number."""
    problems = []
    for name in roles.predictors:
        column = kept.text.get(name)
        if column is None or name in roles.text or len(column.levels) <= MAX_LEVELS:
            continue
        read = number_column(column.values(), name)
        problems.append(
            f"{name!r} is text with {len(column.levels):,} levels, more than {MAX_LEVELS}; "
            f"expected few levels, or {PLAIN_NUMBERS}: {_unreadable(read)}."
        )
    raise_problems(f"{source}: predictors", problems)


def _numbers(values: FloatArray) -> "pd.Series[Any]":
    """Whole numbers as integers, so that they print as in the file."""
    if values.size and np.isfinite(values).all() and (np.abs(values) < 2**53).all():
        whole = values.astype(np.int64)
        if np.array_equal(whole, values):
            return pd.Series(whole)
    return pd.Series(values)
