"""Records of a survey: columns of a frame as codes and numbers, and checks of their values.

Messages about outcomes and weights contain counts and names, never a value.
"""

from collections import Counter
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
    alike,
    in_words,
    level_column,
    looks_numeric,
    number_column,
    text_column,
)
from surveysynth.survey.declaration import Declaration, Roles
from surveysynth.survey.outcome import Outcome, zero_one

#: A by variable with more levels is probably a mistake (an identifier, an amount).
MAX_LEVELS = 200
#: A level with fewer records may be a value from another column that slipped in.
LEAST_RECORDS = 3
PLAIN_NUMBERS = "numbers such as 1234.5, and blank cells for missing answers"


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
            if name in self.text:
                data[name] = self.text[name].values()
                continue
            values = self.numbers[name]
            data[name] = pd.Series(values)
            if (np.abs(values) < 2**53).all() and not (values % 1.0).any():
                data[name] = pd.Series(values.astype(np.int64))  # prints as in the file
        return pd.DataFrame(data, index=pd.RangeIndex(self.n))


def read_records(frame: pd.DataFrame, declaration: Declaration) -> Records:
    """Read the columns that have a role.

    Levels become their positions. With ``missing = "drop"`` records with blank cells are left out
    and counted. Blank cells of ``public_columns`` without another role stay blank.

    Raises ``InputError`` that counts, by column, all cells that cannot be read and, unless they are
    to be dropped, all blank ones.
    """
    roles, problems, n = declaration.roles, list[str](), len(frame)
    text, columns = _columns_of(frame, declaration, problems)
    numbers = {name: column.values for name, column in columns.items()}
    blank = _blank_rows(text, numbers, declaration, n)
    if declaration.missing != "drop":
        # Cells that cannot be read are missing numbers, too, and are reported already.
        levels = {each.name for each in declaration.outcomes if not each.is_amount}
        wrong = {name: column.wrong for name, column in columns.items() if name not in levels}
        counts = {name: int(rows.sum()) - wrong.get(name, 0) for name, rows in blank.items()}
        cells = "; ".join(f"{name!r}: {records(count)}" for name, count in counts.items() if count)
        if cells:
            problems.append(
                f"blank or missing cells in {cells}. Fill them in, or set missing = \"drop\" to "
                "leave such records out. Under noisy statistics, missing = \"model\" keeps records "
                f"whose answers are missing.{_words_for_missing(text)}"
            )
    # All that is wrong, at once; of public columns alone there are no amounts to judge.
    if problems and roles.outcomes and set(roles.confidential) <= set(numbers):
        problems += confidential_problems(Records(n, text, numbers, 0), declaration)
    raise_problems(declaration.source, problems)
    kept, shift = ~np.any([*blank.values(), np.zeros(n, dtype=bool)], axis=0), ""
    if not kept.all():
        shift = shift_words(text, roles.classifying, kept)
        text = {name: column.keep(kept) for name, column in text.items()}
        numbers = {name: values[kept] for name, values in numbers.items()}
    left = int(kept.sum())
    if left < 2:
        raise InputError(
            f"{declaration.source}: {records(left)} left of {records(n)}"
            + (" after dropping those with blank cells" if left < n else "")
            + "; expected at least 2."
        )
    found = [number_column(frame[name], name).values for name in declaration.replicates]
    replicates = np.stack(found, axis=1)[kept] if found else None
    return Records(left, text, numbers, n - left, replicates, shift)


def _columns_of(
    frame: pd.DataFrame, declaration: Declaration, problems: list[str]
) -> tuple[dict[str, TextColumn], dict[str, NumberColumn]]:
    """Return the columns of codes and those of numbers; what cannot be read joins ``problems``.

    Levels of outcomes are numbers, their positions.
    """
    roles, text, columns = declaration.roles, dict[str, TextColumn](), dict[str, NumberColumn]()
    levelled = {each.name: each for each in declaration.outcomes if not each.is_amount}
    numeric = {*roles.confidential, roles.fpc, roles.public_weight} - {None}
    numeric |= {
        name for name in roles.predictors if name not in roles.text and looks_numeric(frame[name])
    }
    for name in roles.needed:
        codes = declaration.missing_codes.get(name, ())
        try:
            if name in roles.text or name not in numeric:
                text[name] = text_column(frame[name], name, declaration.levels_of(name))
            # fpc is arithmetic even if the same column also labels strata.
            if name in levelled:
                columns[name] = level_column(frame[name], levelled[name], codes)
                if columns[name].wrong:
                    problems.append(_unknown_levels(columns[name], levelled[name]))
            elif name in numeric:
                columns[name] = number_column(frame[name], name, codes)
        except InputError as error:
            problems.append(str(error))
    cells = "; ".join(
        f"column {name!r}: {_unreadable(column)}"
        for name, column in columns.items()
        if column.wrong and name not in levelled
    )
    if cells:
        problems.append(f"{cells}. Write {PLAIN_NUMBERS}.")
    return text, columns


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
    return f"{records(column.wrong)} with text that is not a number ({in_words(column.kinds)})"


def _unknown_levels(column: NumberColumn, outcome: Outcome) -> str:
    """Return how many cells hold none of the levels."""
    almost = column.kinds.get(ALMOST_A_LEVEL)
    kinds = f" ({almost:,} of them {ALMOST_A_LEVEL})" if almost else ""
    return (
        f"outcome {outcome.name!r}: {records(column.wrong)} with a value that is not among its "
        f"levels, {listing(outcome.levels)}{kinds}. List every level in "
        f"outcomes.{outcome.name}.levels, in order, and codes for no answer in missing_codes, or "
        "correct these records."
    )


def _blank_rows(
    text: Mapping[str, TextColumn],
    numbers: Mapping[str, FloatArray],
    declaration: Declaration,
    n: int,
) -> dict[str, BoolArray]:
    """Return the rows (n,) with a blank cell, for each column that the analysis uses."""
    roles = declaration.roles
    used = {*roles.text, *roles.predictors, roles.fpc, roles.public_weight}
    free = set(roles.public_columns) - used
    if declaration.missing == "model":  # a missing answer is one
        free |= set(roles.outcomes)
    blank: dict[str, BoolArray] = {}
    for name in roles.needed:
        rows = np.zeros(n, dtype=bool)
        if name in text:
            rows |= text[name].missing
        if name in numbers:
            rows |= np.isnan(numbers[name])
        if name not in free and rows.any():
            blank[name] = rows
    return blank


def shift_words(
    columns: Mapping[str, TextColumn], names: Sequence[str], kept: BoolArray
) -> str:
    """Return the largest change of a level's share by leaving out records, in a sentence.

    ``kept``: Flags (n,) of the records that are kept. Empty if no share changes by more than its
    own sampling error, which tables show.
    """
    largest, words = 1.0, ""
    for name in names:
        column = columns[name]
        there = ~column.missing
        before = np.bincount(column.codes[there], minlength=len(column.levels))
        after = np.bincount(column.codes[there & kept], minlength=len(column.levels))
        if not after.any():
            continue
        share, now = before / before.sum(), after / after.sum()
        error = np.sqrt(share * (1.0 - share) / before.sum())
        moved = np.divide(np.abs(now - share), error, out=np.zeros_like(error), where=error > 0)
        moved[before < LEAST_RECORDS] = 0.0
        level = int(np.argmax(moved))
        if moved[level] > largest:
            largest = float(moved[level])
            words = (
                f"This moves counts, and means of every outcome: {name!r} is "
                f"{column.levels[level]!r} in {now[level]:.1%} of the records, and was in "
                f"{share[level]:.1%} before."
            )
    return words


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
    if not (outside := int(np.count_nonzero(~known[column.codes]))):
        return ""
    listed = set(map(alike, declared))
    close = np.array([*(alike(level) in listed for level in column.levels), False])
    almost = int(np.count_nonzero((close & ~known)[column.codes]))
    kinds = f" {almost:,} of them have {ALMOST_A_LEVEL}." if almost else ""
    levels = int(np.count_nonzero(~known))
    return (
        f"{records(outside)} {'has' if outside == 1 else 'have'} a level that is not listed "
        f"({levels:,} unlisted level{'s' * (levels > 1)}; not shown, because a value of another "
        f"column may be among them).{kinds} List every level, or correct these records."
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


def weight_value_problem(weight: FloatArray, name: str) -> str:
    """Return what is wrong with weights that are not finite and positive (none is NaN here)."""
    found = [
        f"{records(int(count))} {words}"
        for count, words in (
            (np.count_nonzero(np.isinf(weight)), "with an infinite value"),
            (np.count_nonzero(weight < 0), "with a negative value"),
            (np.count_nonzero(weight == 0), "with a value of zero"),
        )
        if count
    ]
    return "" if not found else (
        f"weight {name!r}: {', '.join(found)}; expected finite numbers above zero. Correct these "
        "records or remove them from the file."
    )


def outcome_problem(values: FloatArray, outcome: Outcome) -> str:
    """Return what is wrong with amounts: infinite, out of bounds, not whole, not in T's domain.

    T is the transform. Levels are checked where they are read.
    """
    if not outcome.is_amount:
        return ""
    what = f"outcome {outcome.name!r}:"
    if infinite := int(np.count_nonzero(np.isinf(values))):
        return f"{what} {records(infinite)} with an infinite value; expected finite numbers."
    if beyond := int(np.count_nonzero(outcome.outside(values))):
        return (
            f"{what} {records(beyond)} outside the declared range ({outcome.public_words}); "
            "correct them, or declare bounds that hold for everyone (a top code is a spike)."
        )
    if outcome.kind == "count":
        other = outcome.violations(values)
        return "" if not other else (
            f"{what} {records(other)} with a value that is not a whole number; kind 'count' "
            "expects whole numbers. Correct these records, or declare kind = 'continuous'."
        )
    return _domain_problem(values, outcome)


def _domain_problem(values: FloatArray, outcome: Outcome) -> str:
    """Return what is wrong with amounts that the transform does not take."""
    what = f"outcome {outcome.name!r}:"
    category = outcome.category(values)
    for side in outcome.sides:
        regular, formula = values[category == side], outcome.formula(side)
        if outside := outcome.violations(regular, side):
            return (
                f"{what} {records(outside)} where {formula} does not exist (the argument is zero "
                "or negative); set a public shift large enough, transform = 'asinh' or "
                "'yeo_johnson' with a public scale, or, where values pile up at zero, "
                "kind = 'semicontinuous' with spikes = [0]."
            )
        with np.errstate(over="ignore"):
            transformed = outcome.forward(regular, side)
        if not np.isfinite(transformed).all():
            return f"{what} values become infinite under {formula}; set another scale."
    return ""


def binary_problems(values: FloatArray, outcome: Outcome, statistic: str) -> list[str]:
    """List why a statistic of 0 and 1 cannot be computed from an outcome."""
    if outcome.kind == "binary":  # whose levels are checked where they are read
        return []
    problems, what = [], f"the statistic {statistic!r} needs"
    if other := int(np.count_nonzero((values != 0) & (values != 1) & ~np.isnan(values))):
        problems.append(
            f"{what} an outcome of 0 and 1; {outcome.name!r} has {records(other)} with another "
            "value."
        )
    if outcome.transform.kind != "identity":
        problems.append(
            f"{what} transform = 'identity' for {outcome.name!r}, got {outcome.transform.kind!r}."
        )
    return problems
