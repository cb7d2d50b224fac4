"""``tables.flags`` of a specification: a rule set by name, or the caller's own thresholds."""

from collections.abc import Mapping
from typing import Any

from surveysynth._support.messages import listing, nearest

RULE_SETS = ("none", "nchs", "statcan")
SEVERITIES = ("mark", "suppress")
LIMITS = ("rse", "relative_width", "n", "df")

_EXAMPLE = "for example flags = { mark = { rse = 0.2 }, suppress = { rse = 0.4, n = 10 } }"

FlagChoice = str | Mapping[str, Mapping[str, int | float]]
"""A name of ``RULE_SETS``, or limits by severity and name."""


def check_flags(value: Any) -> FlagChoice:
    """The choice as given; raises ``ValueError`` with a line for each mistake."""
    if isinstance(value, Mapping):
        problems = _thresholds(value)
        if problems:
            raise ValueError("\n".join(problems))
        return {str(severity): dict(limits) for severity, limits in value.items()}
    if isinstance(value, str) and value in RULE_SETS:
        return value
    hint = nearest(value, RULE_SETS) if isinstance(value, str) else ""
    shown = repr(value) if isinstance(value, str | int | float) else "another value"
    raise ValueError(
        f"expected one of {', '.join(map(repr, RULE_SETS))} or a table of thresholds, "
        f"got {shown[:60]}.{hint}"
    )


def _thresholds(given: Mapping[Any, Any]) -> list[str]:
    if not given:
        return [f"the table of thresholds is empty; {_EXAMPLE}."]
    problems = []
    for severity, limits in given.items():
        if severity not in SEVERITIES:
            problems.append(
                f"unknown key {severity!r}.{nearest(str(severity), SEVERITIES)} "
                f"Known: {listing(SEVERITIES)}; {_EXAMPLE}."
            )
        elif not isinstance(limits, Mapping) or not limits:
            problems.append(f"{severity}: expected a table of limits; {_EXAMPLE}.")
        else:
            for name, limit in limits.items():
                problems += _limit(severity, name, limit)
    return problems


def _limit(severity: str, name: Any, limit: Any) -> list[str]:
    where = f"{severity}.{name}"
    if name not in LIMITS:
        return [f"{where}: unknown limit.{nearest(str(name), LIMITS)} Known: {listing(LIMITS)}."]
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not 0 < limit < float("inf"):
        return [f"{where}: expected a positive number."]
    if name == "n" and not isinstance(limit, int):
        return [f"{where}: expected a whole number, got {limit!r}."]
    return []
