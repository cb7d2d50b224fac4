"""What to say of an amount without public constants."""

from surveysynth.survey.outcome import Outcome


def undeclared(outcome: Outcome, side: int) -> str:
    """Say that an amount lacks its public constants."""
    where = outcome.side_name(side)
    return (
        f"The outcome {outcome.name!r} needs a declared centre and spread"
        f"{f' {where}' if where else ''}, from public sources and never from these data: a typical "
        "value in its own units and a typical standard deviation on the scale of its transform. Or "
        "declare a public range and learn the transform."
    )
