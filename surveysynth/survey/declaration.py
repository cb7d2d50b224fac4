"""What a caller declares of a survey: the part of each column, and public settings."""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from surveysynth._support.messages import listing, raise_problems
from surveysynth.errors import InputError
from surveysynth.survey.columns import missing_column
from surveysynth.survey.formula import parse_formula
from surveysynth.survey.outcome import Outcome, outcomes_of
from surveysynth.survey.transforms import Transform

#: A declared design effect of clustering is at most the size of a PSU, about.
MAX_DESIGN_EFFECT = 1000

EFFECT_WITHOUT_PSU = (
    "design_effect: this is of primary sampling units; name their column as psu, or leave "
    "design_effect out."
)

LONELY_RULES = ("fail", "remove", "certainty", "adjust", "average")

Weights = Literal["confidential", "public"]


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


def make_roles(
    outcomes: tuple[str, ...],
    weight: str | None,
    by: tuple[str, ...],
    strata: str | None,
    psu: str | None,
    fpc: str | None,
    formula: str | None,
    public_columns: tuple[str, ...],
    *,
    weights: str = "confidential",
) -> Roles:
    """Which column plays which part; raises ``InputError`` for a formula that cannot be parsed.

    weights: "public" where the column of the weights is."""
    predictors = () if formula is None else parse_formula(formula).variables
    public = weights == "public"
    return Roles(
        outcomes, None if public else weight, by, strata, psu, fpc, predictors, public_columns,
        weight if public else None,
    )  # fmt: skip


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


def declared_outcomes(
    names: str | Sequence[str] | None,
    outcomes: Outcome | Sequence[Outcome] | None,
    transforms: Transform | Sequence[Transform] | None,
) -> tuple[Outcome, ...]:
    """Outcomes as they are declared, or continuous ones of names and transforms.

    Raises ``InputError`` unless it is one or the other.
    """
    if (names is None) == (outcomes is None):
        raise InputError(
            "outcome: expected names as outcome, with transforms, or Outcome objects as outcomes: "
            "one of them."
        )
    if outcomes is not None:
        declared = (outcomes,) if isinstance(outcomes, Outcome) else tuple(outcomes)
        other = next((each for each in declared if not isinstance(each, Outcome)), None)
        if other is not None:
            raise InputError(
                f"outcomes: expected Outcome objects, got {type(other).__name__}; names go in "
                "outcome."
            )
        if transforms is not None:
            raise InputError("transforms: every Outcome has its own; leave transforms out.")
        return declared
    each = (names,) if isinstance(names, str) else tuple(names or ())
    given = Transform() if transforms is None else transforms
    several = (given,) * len(each) if isinstance(given, Transform) else tuple(given)
    if len(several) != len(each):
        raise InputError(
            f"transforms: expected one or as many as outcomes ({len(each)}), got {len(several)}."
        )
    return outcomes_of(each, several)


def check_settings(
    roles: Roles,
    lonely_psu: str,
    missing: str,
    statistics: Sequence[str],
    weights: str,
    source: str,
) -> None:
    """Raise ``InputError`` for settings that are wrong whatever the data."""
    if lonely_psu not in LONELY_RULES:
        raise InputError(
            f"lonely_psu must be one of {', '.join(LONELY_RULES)}, got {lonely_psu!r}."
        )
    if missing not in ("fail", "drop"):
        raise InputError(f"missing must be 'fail' or 'drop', got {missing!r}.")
    if statistics and roles.weight is None and weights != "public":
        raise InputError(
            f"{source}: the tables of a survey need the column of sampling weights; give weight."
        )


def check_public_weights(
    weights: str,
    weight: str | None,
    stratum_sizes: Mapping[str, float] | None,
    strata: str | None,
    psu: str | None,
    fpc: str | None,
) -> dict[str, float] | None:
    """The stratum sizes by level as text; raise ``InputError`` for settings of weights that do not
    belong together."""
    sizes = None
    if stratum_sizes is not None:
        wrong = [k for k, v in stratum_sizes.items() if not isinstance(v, numbers.Real)]
        if wrong:
            raise InputError(f"stratum_sizes: expected numbers, got another for {wrong[0]!r}.")
        sizes = {str(name): float(size) for name, size in stratum_sizes.items()}
    problems = weight_problems(weights, weight, sizes, strata, psu, fpc)
    if problems:
        raise InputError(" ".join(problems))
    return sizes


def weight_problems(
    weights: str,
    weight: str | None,
    stratum_sizes: Mapping[str, float] | None,
    strata: str | None,
    psu: str | None,
    fpc: str | None,
) -> list[str]:
    """What of these settings does not belong together, whatever the data."""
    if weights not in get_args(Weights):
        return [f"weights: expected 'confidential' or 'public', got {weights!r}."]
    if weights == "confidential":
        if stratum_sizes is None:
            return []
        return [
            "stratum_sizes: population counts by stratum make weights that are public; set "
            "weights = 'public', or leave stratum_sizes out."
        ]
    if stratum_sizes is None:
        if weight is None:
            return [
                "weights: 'public' needs the column of the weights as weight, or population "
                "counts by stratum as stratum_sizes."
            ]
        return []
    problems = []
    if weight is not None:
        problems.append(
            "stratum_sizes: these make the weights, and weight names a column of them; give one of "
            "the two."
        )
    if strata is None:
        problems.append(
            "stratum_sizes: these are of strata; name the column of the strata as strata."
        )
    if fpc is not None:
        problems.append(
            "fpc: stratum_sizes tell the sampling fractions already; leave fpc out."
        )
    if psu is not None:
        problems.append(
            "stratum_sizes: these are for simple random samples of records within strata; for a "
            "sample of primary sampling units give the column of the weights as weight."
        )
    wrong = [name for name, size in stratum_sizes.items() if not (math.isfinite(size) and size > 0)]
    if wrong:
        problems.append(
            f"stratum_sizes: expected finite numbers above zero, got another for {listing(wrong)}."
        )
    return problems


def public_size(size: float | None, n: int, source: str) -> float | None:
    """The size of the population; raise ``InputError`` for one that cannot be."""
    if size is None:
        return None
    if not (math.isfinite(size) and size > 0):
        raise InputError(f"population_size must be a finite number above zero, got {size!r}.")
    if size < n:
        raise InputError(
            f"{source}: population_size is {size:,.0f}, below the {n:,} records of the sample; "
            "expected the number of units in the population."
        )
    return float(size)


def check_design_effect(design_effect: float | None, psu: str | None) -> None:
    """Raise ``InputError`` for a factor out of range, or without PSUs that it is of."""
    if design_effect is None:
        return
    if psu is None:
        raise InputError(EFFECT_WITHOUT_PSU)
    if not 1.0 <= design_effect <= MAX_DESIGN_EFFECT:
        raise InputError(
            f"design_effect must lie between 1 and {MAX_DESIGN_EFFECT}, got {design_effect!r}."
        )
