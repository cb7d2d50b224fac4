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
from surveysynth.survey.columns import (
    ALMOST_A_LEVEL,
    NumberColumn,
    TextColumn,
    in_words,
    level_column,
    looks_numeric,
    number_column,
    text_column,
)
from surveysynth.survey.declaration import Roles
from surveysynth.survey.outcome import Outcome, zero_one

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

#: More levels than this in a by variable is taken for a mistake (an identifier, an amount).
MAX_LEVELS = 200

#: A level of fewer records than this may be a value that slipped in from another column.
LEAST_RECORDS = 3


def check_by_levels(
    columns: Mapping[str, TextColumn],
    by: Sequence[str],
    orders: Mapping[str, Sequence[str]],
    margins: Mapping[str, str],
    source: str,
) -> None:
    """Raise ``InputError`` for by variables whose levels cannot make a table."""
    problems = []
    for name in by:
        levels = columns[name].levels
        margin = margins.get(name, "All")
        if len(levels) > MAX_LEVELS:
            problems.append(
                f"by: {name!r} has {len(levels):,} levels, more than {MAX_LEVELS}; expected a "
                "variable with few levels (group it into classes first)."
            )
            continue
        if margin in (*levels, *orders.get(name, ())):
            problems.append(
                f"by: {name!r} has a level {margin!r}, which is the name of its margin; set "
                f'another name: [labels.{name}] margin = "Total".'
            )
        trimmed = [level.strip() for level in levels]
        padded = sum(trimmed.count(level) > 1 for level in trimmed)
        if padded:
            problems.append(
                f"by: {name!r} has {padded} levels that differ only in outer blanks; mend the file."
            )
        if name in orders and (undeclared := undeclared_levels(columns[name], orders[name])):
            problems.append(f"labels.{name}.levels: {undeclared}")
    raise_problems(source, problems)


def undeclared_levels(column: TextColumn, declared: Sequence[str]) -> str:
    """How many records have a level that is not declared, or nothing if none has. A level may be
    a value of another column that slipped into this one: it is not shown."""
    known = np.array([*(level in declared for level in column.levels), True])
    outside = int(np.count_nonzero(~known[column.codes]))
    if not outside:
        return ""
    levels = int(np.count_nonzero(~known))
    have = "has" if outside == 1 else "have"
    return (
        f"{records(outside)} {have} a level that is not listed ({levels:,} such in the data; not "
        "shown, since they may be values of another column). List every level, or correct these "
        "records."
    )


def check_weight(weight: FloatArray, name: str, source: str) -> None:
    """Raise ``InputError`` for weights that are not finite and positive (none is NaN here)."""
    problems = [
        f"{records(int(count))} {words}"
        for count, words in (
            (np.count_nonzero(np.isinf(weight)), "with an infinite value"),
            (np.count_nonzero(weight < 0), "with a negative value"),
            (np.count_nonzero(weight == 0), "with a value of zero"),
        )
        if count
    ]
    if problems:
        raise InputError(
            f"{source}: weight {name!r}: {', '.join(problems)}; expected finite numbers above "
            "zero. Correct these records or take them out of the file."
        )


def check_outcome(values: FloatArray, outcome: Outcome, source: str) -> None:
    """Raise ``InputError`` for amounts that are infinite, outside declared bounds, or outside the
    domain of the transform. Levels are checked where they are read."""
    if not outcome.is_amount:
        return
    name = outcome.name
    infinite = int(np.count_nonzero(np.isinf(values)))
    if infinite:
        raise InputError(
            f"{source}: outcome {name!r}: {records(infinite)} with an infinite value; expected "
            "finite numbers."
        )
    beyond = int(np.count_nonzero(outcome.outside(values)))
    if beyond:
        raise InputError(
            f"{source}: outcome {name!r}: {records(beyond)} outside what is declared "
            f"({outcome.public_words}); correct them, or declare bounds that hold for everyone "
            "(a top code is a spike)."
        )
    category = outcome.category(values)
    for side in outcome.sides:
        regular, formula = values[category == side], outcome.formula(side)
        outside = outcome.violations(regular, side)
        if outside:
            raise InputError(
                f"{source}: outcome {name!r}: {records(outside)} where {formula} does "
                "not exist (the argument is zero or negative); set a public transform_shift large "
                "enough, transform = 'asinh' or 'yeo_johnson' with a public scale, or, where "
                "values pile up at zero, kind = 'semicontinuous' with spikes = [0]."
            )
        with np.errstate(over="ignore"):
            transformed = outcome.forward(regular, side)
        if not np.isfinite(transformed).all():
            raise InputError(
                f"{source}: outcome {name!r}: values become infinite under {formula}; "
                "choose another transform_scale."
            )


def check_varying(values: FloatArray, outcome: Outcome, source: str) -> None:
    """Raise ``InputError`` for an outcome, checked as above, that is constant.

    A level or a spike without records is fine: its coefficients keep their prior.
    """
    what = f"{source}: outcome {outcome.name!r}"
    if not outcome.is_amount:
        if np.ptp(values) == 0:
            raise InputError(
                f"{what} has one and the same level in every record; nothing can be modelled. "
                "Choose another outcome."
            )
        return
    category = outcome.category(values)
    for side in outcome.sides:
        regular, where = values[category == side], outcome.side_name(side)
        if regular.size == 0:
            raise InputError(
                f"{what} has no record {where}, so that no amount there can be modelled. Leave "
                "split out, or declare another."
                if where
                else f"{what} lies at its spikes in every record, so that no amount can be "
                "modelled. Declare other spikes, or make it binary."
            )
        transformed = outcome.forward(regular, side)
        spread = float(np.ptp(transformed))
        if spread <= 1e-9 * max(1.0, float(np.abs(transformed).max())):
            but = f" {where}" if where else " but for its spikes" * bool(outcome.spikes)
            raise InputError(
                f"{what} is constant after its transform{but};"
                " nothing can be modelled. Choose another outcome (or another transform_scale)."
            )


def check_binary(values: FloatArray, outcome: Outcome, statistic: str, source: str) -> None:
    """Raise ``InputError`` unless the outcome is 0/1, as a statistic needs, and untransformed."""
    other = int(np.count_nonzero((values != 0) & (values != 1)))
    if other:
        raise InputError(
            f"{source}: the statistic {statistic!r} needs an outcome of 0 and 1; {outcome.name!r} "
            f"has {records(other)} with another value."
        )
    if outcome.transform.kind != "identity":
        raise InputError(
            f"{source}: the statistic {statistic!r} needs transform = 'identity' for "
            f"{outcome.name!r}, got {outcome.transform.kind!r}."
        )


def check_values(
    records: Records,
    roles: Roles,
    outcomes: Sequence[Outcome],
    binary_for: Sequence[str],
    source: str,
) -> None:
    """Raise ``InputError`` for outcome or weight values that the methods cannot take.

    binary_for: statistics that need 0 and 1.
    """
    if roles.weight is not None:
        check_weight(records.numbers[roles.weight], roles.weight, source)
    for outcome in outcomes:
        check_outcome(records.numbers[outcome.name], outcome, source)
    for position in zero_one(outcomes) or range(len(outcomes)):
        outcome = outcomes[position]
        for statistic in binary_for:
            check_binary(records.numbers[outcome.name], outcome, statistic, source)


def check_varying_values(records: Records, outcomes: Sequence[Outcome], source: str) -> None:
    """Raise ``InputError`` for outcomes that do not vary, from which nothing is learned."""
    for outcome in outcomes:
        check_varying(records.numbers[outcome.name], outcome, source)
