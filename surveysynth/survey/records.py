"""Records of a survey: columns of a frame as codes and numbers, and checks of their values.

Messages about outcomes and weights contain counts and names, never a value.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import listing, raise_problems, records
from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.errors import InputError
from surveysynth.survey.cells import alike
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
from surveysynth.survey.declaration import Declaration, Roles
from surveysynth.survey.left_out import shift_words
from surveysynth.survey.outcome import Outcome, zero_one
from surveysynth.survey.value_problems import (
    binary_problems,
    outcome_problem,
    weight_value_problem,
)

#: A by variable with more levels is probably a mistake (an identifier, an amount).
MAX_LEVELS = 200
#: A level with fewer records may be a value from another column that slipped in.
LEAST_RECORDS = 3
PLAIN_NUMBERS = "numbers such as 1234.5, and blank cells for missing ones"


@dataclass(frozen=True, repr=False)
class Records(Unpickled):
    """n complete records: ``text`` columns as codes, ``numbers`` (n,) as floats, by name.

    ``dropped``: how many records were left out because a cell was blank; ``shift``: what this does
    to the shares of levels, in words. ``replicates``: replicate weights (n, R), NaN where a cell
    holds no number, which no release may depend on.
    """

    n: int
    text: Mapping[str, TextColumn]
    numbers: Mapping[str, FloatArray]
    dropped: int
    replicates: FloatArray | None = None
    shift: str = ""

    def public_frame(self, roles: Roles) -> pd.DataFrame:
        """Return by, strata, psu, predictors, a public weight, and public columns."""
        weight = () if roles.public_weight is None else (roles.public_weight,)
        names = dict.fromkeys([*roles.text, *roles.predictors, *weight, *roles.public_columns])
        data: dict[str, pd.Series[Any]] = {}
        for name in names:
            if name in roles.confidential:
                raise InputError(f"{name!r} is confidential and cannot be a public column.")
            text = self.text.get(name)
            data[name] = text.values() if text is not None else _printed_as_in_file(
                self.numbers[name]
            )
        return pd.DataFrame(data, index=pd.RangeIndex(self.n))


def read_records(frame: pd.DataFrame, declaration: Declaration) -> Records:
    """Read the columns that have a role.

    Levels become their positions. With ``missing = "drop"`` records with blank cells are left out
    and counted. Blank cells of ``public_columns`` without another role stay blank.

    Raises ``InputError`` that counts, by column, all cells that cannot be read and, unless they are
    to be dropped, all blank ones.
    """
    roles, source = declaration.roles, declaration.source
    text: dict[str, TextColumn] = {}
    columns: dict[str, NumberColumn] = {}
    problems: list[str] = []
    levelled = {each.name: each for each in declaration.outcomes if not each.is_amount}
    numeric = {*roles.confidential, roles.fpc, roles.public_weight} - {None}
    numeric |= {
        name for name in roles.predictors if name not in roles.text and looks_numeric(frame[name])
    }
    for name in roles.needed:
        try:
            if name in roles.text or name not in numeric:
                text[name] = text_column(frame[name], name, declaration.levels_of(name))
            # fpc is arithmetic even if the same column also labels strata.
            if name in levelled:
                columns[name] = level_column(frame[name], levelled[name])
                if columns[name].wrong:
                    problems.append(_unknown_levels(columns[name], levelled[name]))
            elif name in numeric:
                columns[name] = number_column(frame[name], name)
        except InputError as error:
            problems.append(str(error))
    numbers = {name: column.values for name, column in columns.items()}
    unreadable = {
        name: column for name, column in columns.items() if column.wrong and name not in levelled
    }
    if unreadable:
        cells = "; ".join(f"{name!r}: {_unreadable(each)}" for name, each in unreadable.items())
        problems.append(f"expected {PLAIN_NUMBERS}; got {cells}.")
    answers = roles.outcomes if declaration.missing == "model" else ()
    blank = _blank_rows(text, numbers, roles, len(frame), answers)
    if declaration.missing != "drop":
        # Cells that cannot be read are missing numbers, too, and are reported already.
        wrong = {name: each.wrong for name, each in unreadable.items()}
        counts = {name: int(rows.sum()) - wrong.get(name, 0) for name, rows in blank.items()}
        cells = "; ".join(f"{name!r}: {records(count)}" for name, count in counts.items() if count)
        if cells:
            problems.append(
                f"blank or missing cells in {cells}. Fill them in, or set missing = \"drop\" to "
                "leave such records out. By noisy statistics, missing = \"model\" keeps records "
                f"whose answers are missing.{_words_for_missing(text)}"
            )
    # All that is wrong, at once; of public columns alone there are no amounts to judge.
    if problems and roles.outcomes and set(roles.confidential) <= set(numbers):
        problems += confidential_problems(Records(len(frame), text, numbers, 0), declaration)
    raise_problems(source, problems)
    lost = np.logical_or.reduce(list(blank.values())) if blank else np.zeros(len(frame), bool)
    kept = _keep(text, numbers, ~lost)
    kept = replace(kept, shift=shift_words(text, roles.classifying, ~lost))
    if declaration.replicates:
        found = [number_column(frame[name], name).values for name in declaration.replicates]
        kept = replace(kept, replicates=np.stack(found, axis=1)[~lost])
    if kept.n < 2:
        raise InputError(
            f"{source}: {records(kept.n)} left of {records(len(frame))}"
            + (" after dropping those with blank cells" if kept.dropped else "")
            + "; expected at least 2."
        )
    return kept


def _words_for_missing(text: Mapping[str, TextColumn]) -> str:
    """Return how many missing cells have a word such as NA, which may be a level; or nothing."""
    counts = {name: column.words for name, column in text.items() if column.words}
    cells = "; ".join(f"{name!r}: {records(count)}" for name, count in counts.items())
    return cells and (
        f" A word such as NA means a missing value ({cells}), unless it is a level listed in "
        "[labels.COLUMN] levels."
    )


def _unreadable(column: NumberColumn) -> str:
    """Return how many cells hold no number, and the kinds of text that they hold."""
    return f"{records(column.wrong)} with text that is no number ({in_words(column.kinds)})"


def _unknown_levels(column: NumberColumn, outcome: Outcome) -> str:
    """Return how many cells hold none of the levels."""
    almost = column.kinds.get(ALMOST_A_LEVEL)
    kinds = f" ({almost:,} of them {ALMOST_A_LEVEL})" if almost else ""
    return (
        f"outcome {outcome.name!r}: {records(column.wrong)} with a value that is not among its "
        f"levels, {listing(outcome.levels)}{kinds}. List every level in "
        f"outcomes.{outcome.name}.levels, in order, or correct these records."
    )


def _blank_rows(
    text: Mapping[str, TextColumn],
    numbers: Mapping[str, FloatArray],
    roles: Roles,
    n: int,
    answers: Sequence[str] = (),
) -> dict[str, BoolArray]:
    """Return the rows (n,) with a blank cell, for each column that the analysis uses.

    ``answers``: columns whose missing values are answers like others.
    """
    used = {*roles.text, *roles.predictors, roles.fpc, roles.public_weight}
    shipped_only = set(roles.public_columns) - used
    shipped_only |= set(answers)
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


def _printed_as_in_file(values: FloatArray) -> "pd.Series[Any]":
    """Return whole numbers as integers, so that they print as in the file."""
    if values.size and np.isfinite(values).all() and (np.abs(values) < 2**53).all():
        whole = values.astype(np.int64)
        if np.array_equal(whole, values):
            return pd.Series(whole)
    return pd.Series(values)


def public_problems(records_read: Records, declaration: Declaration) -> list[str]:
    """List what is wrong with the values of by columns, predictors, and other public columns."""
    roles, orders, size = declaration.roles, declaration.orders, declaration.population_size
    problems = level_problems(records_read.text, roles.by, orders, declaration.margins)
    problems += predictor_problems(records_read, roles)
    for name, order in orders.items():
        known = name in records_read.text or name in records_read.numbers
        if not order or not known or name in (*roles.by, *roles.confidential):
            continue
        levels = records_read.text.get(name)
        if levels is None:
            levels = text_column(pd.Series(records_read.numbers[name]), name, order)
        if wrong := undeclared_levels(levels, order):
            problems.append(f"labels.{name}.levels: {wrong}")
    for role, of_design in (("strata", roles.strata), ("psu", roles.psu)):
        if of_design is not None and of_design not in roles.by:
            problems += _alike_problems(role, of_design, records_read.text[of_design], orders)
    if size is not None and size < records_read.n:
        problems.append(
            f"population_size is {size:,.0f}, below the {records_read.n:,} records of the sample; "
            "give the number of units in the population."
        )
    return problems


def predictor_problems(records_read: Records, roles: Roles) -> list[str]:
    """List text predictors that are probably numbers with a mistake."""
    problems = []
    for name in roles.predictors:
        column = records_read.text.get(name)
        if column is not None and name not in roles.text and len(column.levels) > MAX_LEVELS:
            numbers = _unreadable(number_column(column.values(), name))
            problems.append(
                f"predictors: {name!r} is text with {len(column.levels):,} levels, more than "
                f"{MAX_LEVELS}; expected fewer levels, or {PLAIN_NUMBERS}: {numbers}."
            )
    return problems


def level_problems(
    columns: Mapping[str, TextColumn],
    by: Sequence[str],
    orders: Mapping[str, Sequence[str]],
    margins: Mapping[str, str],
) -> list[str]:
    """List by variables whose levels cannot make a table."""
    problems = []
    for name in by:
        levels = columns[name].levels
        margin = margins.get(name, "All")
        if len(levels) > MAX_LEVELS:
            problems.append(
                f"by: {name!r} has {len(levels):,} levels, more than {MAX_LEVELS}; group it into "
                "a few classes first."
            )
            continue
        if margin in (*levels, *orders.get(name, ())):
            problems.append(
                f"by: {name!r} has a level {margin!r}, which is also the name of its margin; set "
                f'another name: [labels.{name}] margin = "Total".'
            )
        problems += _alike_problems("by", name, columns[name], orders)
        if name in orders and (undeclared := undeclared_levels(columns[name], orders[name])):
            problems.append(f"labels.{name}.levels: {undeclared}")
    return problems


def _alike_problems(
    role: str, name: str, column: TextColumn, orders: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return how many levels look the same as another, unless all levels are declared."""
    if orders.get(name):
        return []
    shared = Counter(map(alike, column.levels))
    same = sum(count for count in shared.values() if count > 1) + column.spellings
    return [
        f"{role}: {name!r} has {same} levels that look the same as another (in another case, with "
        "invisible signs, or 1 and 1.0). Correct the file, or list every level in "
        f"[labels.{name}] levels."
    ] * bool(same)


def undeclared_levels(column: TextColumn, declared: Sequence[str]) -> str:
    """Return how many records have a level that is not declared; empty if none has.

    Levels are not shown: they may be values of another column that slipped in.
    """
    known = np.array([*(level in declared for level in column.levels), True])
    outside = int(np.count_nonzero(~known[column.codes]))
    if not outside:
        return ""
    listed = set(map(alike, declared))
    close = np.array([*(alike(level) in listed for level in column.levels), False])
    almost = int(np.count_nonzero((close & ~known)[column.codes]))
    kinds = f" {almost:,} of them have {ALMOST_A_LEVEL}." if almost else ""
    levels = int(np.count_nonzero(~known))
    return (
        f"{records(outside)} {'has' if outside == 1 else 'have'} a level that is not listed "
        f"({levels:,} such in the data; not shown, since they may be values of another column)."
        f"{kinds} List every level, or correct these records."
    )


def confidential_problems(records_read: Records, declaration: Declaration) -> list[str]:
    """List what is wrong with outcomes and the confidential weight, as counts."""
    values, outcomes = records_read.numbers, declaration.outcomes
    weight, problems = declaration.roles.weight, []
    if weight is not None and (wrong := weight_value_problem(values[weight], weight)):
        problems.append(wrong)
    for outcome in outcomes:
        own = values[outcome.name]
        wrong = outcome_problem(own[~np.isnan(own)], outcome)
        problems += [wrong] * bool(wrong)
    for position in zero_one(outcomes) or range(len(outcomes)):
        for statistic in declaration.binary_for:
            outcome = outcomes[position]
            problems += binary_problems(values[outcome.name], outcome, statistic)
    return problems
