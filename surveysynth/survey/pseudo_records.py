"""Pseudo-records: a public prior where one record could be all that the data say (methods 2.10).

How rare an answer is, is confidential: no rule on public columns can see it. So what rests on the
records of an answer alone has a prior that is worth a public number of records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from surveysynth.errors import InputError
from surveysynth.survey.outcome import Outcome


@dataclass(frozen=True)
class PseudoRecords:
    """The prior of a design: a number of records, and typical values of amounts.

    typical: of each amount, in the order of the outcomes and above a split first, its centre and
    spread on the scale of its transform; None where they are not declared. They are used where some
    records may lack an amount.
    """

    records: float
    typical: tuple[tuple[float, float] | None, ...]

def undeclared(outcome: Outcome, side: int) -> str:
    """Say that an amount lacks its public constants."""
    where = outcome.side_name(side)
    return (
        f"The outcome {outcome.name!r} needs a declared centre and spread"
        f"{f' {where}' if where else ''}, from public sources and never from these data: a typical "
        "value in its own units and a typical standard deviation on the scale of its transform. Or "
        "declare a public range and learn the transform."
    )


def may_be_rare(outcomes: Sequence[Outcome]) -> bool:
    """Return whether an outcome has levels, spikes, a split, or missing answers."""
    return any(each.is_discrete for each in outcomes)


def may_lack_amounts(outcomes: Sequence[Outcome]) -> bool:
    """Return whether some records may lack an amount."""
    return any(each.is_discrete and each.sides for each in outcomes)


def require_scales(pseudo: PseudoRecords | None, outcomes: Sequence[Outcome]) -> None:
    """Raise ``InputError`` for an amount without a centre and spread that pseudo-records need."""
    if pseudo is None or not may_lack_amounts(outcomes):
        return
    amounts = [(outcome, side) for outcome in outcomes for side in outcome.sides]
    for (outcome, side), typical in zip(amounts, pseudo.typical, strict=True):
        if typical is None:
            raise InputError(undeclared(outcome, side))
