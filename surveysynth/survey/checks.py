"""What a survey must satisfy before anything is computed from it.

Messages about the outcome and the weight carry counts and names, never a value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.messages import listing, raise_problems, records
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.columns import TextColumn
from surveysynth.survey.header import missing_column
from surveysynth.survey.outcome import Outcome

#: More levels than this in a by variable is taken for a mistake (an identifier, an amount).
MAX_LEVELS = 200
#: A level of fewer records than this may be a value that slipped in from another column.
LEAST_RECORDS = 3
#: A declared design effect of clustering is at most the size of a PSU, about.
MAX_DESIGN_EFFECT = 1000
EFFECT_WITHOUT_PSU = (
    "design_effect: this is of primary sampling units; name their column as psu, or leave "
    "design_effect out."
)
LONELY_RULES = ("fail", "remove", "certainty", "adjust", "average")


@dataclass(frozen=True)
class Roles:
    """Which column plays which part; names only."""

    outcomes: tuple[str, ...]
    weight: str | None
    by: tuple[str, ...]
    strata: str | None
    psu: str | None
    fpc: str | None
    predictors: tuple[str, ...]
    public_columns: tuple[str, ...]
    public_weight: str | None = None

    @property
    def confidential(self) -> tuple[str, ...]:
        """Outcomes and weight."""
        return self.outcomes + ((self.weight,) if self.weight is not None else ())

    @property
    def text(self) -> tuple[str, ...]:
        """Columns read as codes: by, strata and psu."""
        design = [name for name in (self.strata, self.psu) if name is not None]
        return tuple(dict.fromkeys([*self.by, *design]))

    @property
    def needed(self) -> tuple[str, ...]:
        """Every column that is read, each once."""
        numbers = [name for name in (self.fpc, self.public_weight) if name is not None]
        return tuple(
            dict.fromkeys(
                [*self.confidential, *self.text, *numbers, *self.predictors, *self.public_columns]
            )
        )

    def parts(self) -> list[tuple[str, str]]:
        """(part, column) of every public column."""
        single = [
            ("strata", self.strata), ("psu", self.psu), ("fpc", self.fpc),
            ("weight", self.public_weight),
        ]  # fmt: skip
        return [
            *(("by", name) for name in self.by),
            *((part, name) for part, name in single if name is not None),
            *(("predictors", name) for name in self.predictors),
            *(("public_columns", name) for name in self.public_columns),
        ]


def check_roles(roles: Roles, columns: Sequence[str], source: str) -> None:
    """Raise ``InputError`` for columns absent, repeated, or both public and confidential."""
    problems = []
    if not roles.outcomes:
        problems.append("outcome: expected at least one column.")
    for part, names in (("outcome", roles.outcomes), ("by", roles.by)):
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            problems.append(f"{part}: {listing(repeated)} is repeated; name every column once.")
    if roles.weight is not None and roles.weight in roles.outcomes:
        problems.append(f"weight: {roles.weight!r} is also an outcome; they must differ.")
    for part, name in dict.fromkeys(roles.parts()):
        if name in roles.confidential:
            what = "the sampling weight" if name == roles.weight else "an outcome"
            problems.append(
                f"{part}: {name!r} is {what}, which is confidential; this part must be public."
            )
    confidential = [("outcome", name) for name in roles.outcomes]
    if roles.weight is not None:
        confidential.append(("weight", roles.weight))
    absent: dict[str, str] = {}
    for part, name in [*confidential, *roles.parts()]:
        if name not in columns:
            absent.setdefault(name, part)
    for name, part in absent.items():
        problems.append(f"{part}: {missing_column(name, columns, roles.needed)}")
    raise_problems(source, problems)


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


def check_strata(
    strata: IntArray | None, psu: IntArray | None, n: int, lonely_psu: str, source: str
) -> IntArray:
    """Number of PSUs (records where there are none) per stratum, (H,).

    Raises ``InputError`` for strata of one PSU under ``lonely_psu = "fail"``.
    """
    stratum = np.zeros(n, dtype=np.int64) if strata is None else strata
    if psu is not None:
        _, first = np.unique(psu, return_index=True)
        stratum = stratum[first]
    sizes = np.bincount(stratum).astype(np.int64)
    lonely = int(np.count_nonzero(sizes == 1))
    if lonely and lonely_psu == "fail":
        unit = "record" if psu is None else "PSU"
        having = "has" if lonely == 1 else "have"
        where = (
            f"the sample has one {unit}"
            if strata is None
            else f"{lonely:,} of {sizes.size:,} strata {having} one {unit}"
        )
        raise InputError(
            f"{source}: {where}, which gives no variance within the stratum; merge strata, or set "
            "lonely_psu to 'adjust', 'average', 'remove' or 'certainty'."
        )
    return sizes


def sampling_fractions(
    fpc: FloatArray, strata: IntArray | None, sizes: IntArray, name: str, source: str
) -> FloatArray:
    """Sampling fraction n_h/N_h of each stratum, (H,), from a column of fractions or sizes.

    Fractions when no value is above 1, else population sizes counted in sampling units (PSUs, or
    records). Raises ``InputError`` for values that vary in a stratum, are out of range, or give a
    population smaller than its sample.
    """
    stratum = np.zeros(fpc.size, dtype=np.int64) if strata is None else strata
    what = f"{source}: fpc {name!r}"
    if not np.isfinite(fpc).all() or (fpc < 0).any():
        raise InputError(f"{what}: expected finite numbers, none negative.")
    by_stratum = np.zeros(sizes.size)
    by_stratum[stratum] = fpc
    varying = np.unique(stratum[by_stratum[stratum] != fpc]).size
    if varying:
        raise InputError(
            f"{what}: expected one value per stratum; it varies within {varying:,} of "
            f"{sizes.size:,} strata."
        )
    if (by_stratum <= 1).all():
        return by_stratum
    too_small = int(np.count_nonzero(by_stratum < sizes))
    if too_small:
        raise InputError(
            f"{what}: {too_small:,} of {sizes.size:,} strata have a population size below the "
            "number of sampling units in the sample. Give population sizes, or sampling fractions "
            "of at most 1, for all strata alike."
        )
    return np.asarray(sizes / by_stratum, dtype=np.float64)
