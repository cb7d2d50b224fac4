"""A delta that is far too large for the number of records, both of them public."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign

#: delta times the number of records from which on it is not far below 1, and what it had better be.
_LARGE, _SMALL = 0.1, 0.01


def delta_warning(spec: "Spec", design: "PublicDesign") -> tuple[str, ...]:
    """Why delta is too large, with the remedy; empty where it is not, or there is none."""
    budget, n = spec.privacy.cost, design.n
    if budget is None or (delta := budget.delta) * n <= _LARGE:
        return ()
    smaller = 10.0 ** math.floor(math.log10(_SMALL / n))
    return (
        f"delta = {delta:.3g}, times the number of records ({n:,}), is {delta * n:.2g}; it should "
        "be far below 1, since delta is the chance that epsilon is passed, for each record. Set "
        f"delta = {smaller:.0e} or less in [privacy]: the same epsilon then has more noise, or the "
        "same rho a larger epsilon.",
    )
