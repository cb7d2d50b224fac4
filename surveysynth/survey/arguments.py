"""What ``Survey.from_frame`` is given, checked one argument or column after another."""

import math
import numbers
from collections.abc import Mapping, Sequence

from surveysynth.errors import InputError
from surveysynth.survey.checks import (
    EFFECT_WITHOUT_PSU,
    LONELY_RULES,
    MAX_DESIGN_EFFECT,
    Roles,
    check_binary,
    check_outcome,
    check_varying,
    check_weight,
)
from surveysynth.survey.outcome import Outcome, outcomes_of, zero_one
from surveysynth.survey.public_weight import weight_problems
from surveysynth.survey.records import Records
from surveysynth.survey.transforms import Transform


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
