"""The columns that sampling weights were computed from, and releases that they rule out.

Neighboring databases differ in the confidential values of one record, and the weights of all others
are the same. Weights that were calibrated to confidential answers, or adjusted for nonresponse by
them, break that: if one answer changes, the weights of its whole class do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from surveysynth._support.messages import listing
from surveysynth.errors import InputError, RefusedError

UNKNOWN: Literal["unknown"] = "unknown"

#: Columns, or that they are not known; None where nothing is declared.
WeightsFrom = tuple[str, ...] | Literal["unknown"] | None

#: Of three public files, by replacing one answer and post-stratifying again: how far the weights of
#: the other records move the sums, relative to the stated sensitivity.
MEASURED = (0.29, 0.83)
#: The same as factors on rho, with what the record itself moves.
RHO_FACTORS = (1.7, 3.4)


def given_weights_from(given: str | Sequence[str] | None) -> WeightsFrom:
    """Return the declaration; a column may be given by its name alone.

    Raises ``InputError`` for what is neither names nor "unknown".
    """
    if given is None:
        return None
    if given == UNKNOWN:
        return UNKNOWN
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) and name for name in names):
        raise InputError(
            "weights_from: expected names of columns, an empty list for design weights, or "
            f"'unknown', got {given!r}."
        )
    return tuple(dict.fromkeys(names))


def weights_from_problems(
    given: WeightsFrom, weight: str | None, stratum_sizes: Mapping[str, Any] | None
) -> list[str]:
    """List declarations that contradict the weights, whatever the data."""
    if not given:
        return []
    if stratum_sizes is not None:
        return [
            "weights_from: stratum_sizes give the weights, which depend on nothing else; leave "
            "weights_from out."
        ]
    if weight is None:
        return ["weights_from: there is no column of weights; name it as weight."]
    return []


def refuse_sources(names: Sequence[str]) -> None:
    """Raise ``RefusedError`` for confidential columns that weights were computed from."""
    if not names:
        return
    few, many = RHO_FACTORS
    raise RefusedError(
        f"weights_from: the weights were computed from {listing(names)}, no public column. One "
        "changed answer would then change the weights of other records too, which the guarantee "
        f"does not cover: on three public files rho was {few:g} to {many:g} times what is stated. "
        "Nothing was fitted. Give the base weights as weight, with weights_from for these alone, "
        "and calibrate after the noise with a section [[calibration]], which costs nothing. Or set "
        f"weights_from = \"{UNKNOWN}\": the statement then names this gap. A column that is public "
        "for every record belongs in public_columns."
    )
