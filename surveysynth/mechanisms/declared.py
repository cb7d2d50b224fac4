"""Public constants of amounts: where they lie, and how far they spread."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surveysynth.survey.outcome import BELOW, Outcome


@dataclass(frozen=True)
class Declared:
    """The public constants of a column, from public sources and never from the data.

    Parameters
    ----------
    centre
        A typical value, in the units of an outcome or as a log weight.
    spread
        A typical SD, on the scale of the transform or of log weights.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.Declared(centre=40_000.0, spread=0.6).spread
    0.6
    """

    centre: float | None = None
    spread: float | None = None


def typical(
    outcome: Outcome, side: int, above: Mapping[str, Declared], below: Mapping[str, Declared]
) -> tuple[float, float] | None:
    """Return centre and spread of an amount on the scale of its transform; None if undeclared.

    above, below: what is declared by name, of amounts above a split (or of all) and below it."""
    if outcome.learned is not None:
        return 0.0, 1.0  # its values are about standard normal
    given = (below if side == BELOW else above).get(outcome.name)
    if given is None or given.centre is None or given.spread is None:
        return None
    return float(outcome.forward(np.array([given.centre]), side)[0]), given.spread
