"""Local sensitivities of a table, as noise is scaled by them (methods 6, [T] 2.4).

They are read from the confidential data, so whatever is made with them is no release.
"""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.extremes import RowExtremes, Rule
from surveysynth.estimation.margins import margin_set_of_row
from surveysynth.estimation.statistics import statistic_of, values_of

__all__ = ["Rule", "group_sensitivities", "has_sensitivity", "row_sensitivities"]


def has_sensitivity(statistic: str) -> bool:
    """Whether it is known how far one record moves a statistic; else there is no noise for it."""
    return statistic_of(statistic).sensitivity is not None


def row_sensitivities(
    domains: Domains,
    weights: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    rule: Rule,
) -> FloatArray:
    """How far one record can move each row: (D, S) for S sets of weights (n, S).

    The formulas are those of the statistic (``estimation.extremes``), as published ("paper") or
    an honest bound. NaN in rows without records; infinite where weights of zero leave nothing to
    divide by. Raises ``InputError`` for a statistic whose sensitivity is not known.
    """
    kind = statistic_of(statistic)
    if kind.sensitivity is None:
        raise InputError(
            f"There is no sensitivity of {kind.plural}, so that no noise can be scaled to it; "
            "leave them out of noisy tables."
        )
    value = values_of(kind, outcome, len(weights))
    return kind.sensitivity(RowExtremes(domains), weights, value, rule)


def group_sensitivities(domains: Domains, by_row: FloatArray) -> FloatArray:
    """The largest finite sensitivity of each margin set, given to all of its rows: (D, S).

    Cells do not show the full range of their population, so interior cells take the largest among
    them, and each kind of margin the largest of its own ([T] 2.4). Rows without a sensitivity of
    their own keep NaN or infinity.
    """
    sets = margin_set_of_row(domains)
    finite = np.where(np.isfinite(by_row), by_row, 0.0)
    largest = np.zeros((2 ** len(domains.by), by_row.shape[1]))
    np.maximum.at(largest, sets, finite)
    return np.where(np.isfinite(by_row), largest[sets], by_row)
