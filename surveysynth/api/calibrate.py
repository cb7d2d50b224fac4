"""Calibrate the weights of a sample to known totals, in one call."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import (
    UNBOUNDED,
    CalibratedWeights,
    Calibration,
    Margin,
    Method,
)

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("by", "amount", "totals")


def calibrate(
    frame: "pd.DataFrame",
    weight: str | FloatArray,
    margins: Sequence[Mapping[str, Any]],
    *,
    method: Method = "raking",
    bounds: tuple[float, float] | None = None,
    population_size: float | None = None,
) -> CalibratedWeights:
    """Calibrate the weights of a sample to known totals of the population.

    The calibrated weights are near the base weights, and their sums over each class are its total.
    ``estimate_domains(.., calibration=...)`` computes the standard errors of calibrated estimates.

    Parameters
    ----------
    frame
        The sample, n rows.
    weight
        The column of the base weights, or the weights (n,).
    margins
        One mapping for each margin: ``by``, a column or a list of columns; ``totals``, the number
        of units by level (nested for several columns), or one number without ``by``; ``amount``, a
        column whose totals they are instead.
    method
        "raking": the ratios of calibrated to base weights are above zero; "linear": the regression
        estimator, whose weights may be below zero without bounds.
    bounds
        The smallest and largest ratio, such as (0.3, 3).
    population_size
        The total of all weights, where no margin implies it.

    Returns
    -------
    CalibratedWeights
        ``weight`` (n,), ``ratio`` (n,), and what variance estimates need.

    Raises
    ------
    InputError
        For totals below zero, classes without a total or without records, totals that contradict
        each other, and bounds that no weights keep. The message names the margin.

    References
    ----------
    Deville and Sarndal (1992), Calibration estimators in survey sampling.

    Examples
    --------
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> frame = pd.DataFrame(
    ...     {"sex": ["F", "M", "F", "M"], "farms": [1, 0, 2, 1], "w": [10.0, 20.0, 30.0, 20.0]}
    ... )
    >>> made = ss.calibrate(
    ...     frame, "w",
    ...     [{"by": "sex", "totals": {"F": 45, "M": 55}}, {"amount": "farms", "totals": 100}],
    ... )
    >>> made.weight.round(2)
    array([13.73, 31.27, 31.27, 23.73])
    """
    base = frame[weight].to_numpy(float) if isinstance(weight, str) else np.asarray(weight, float)
    wrong = int((~(np.isfinite(base) & (base > 0))).sum())
    if base.shape != (len(frame),) or wrong:
        raise InputError(
            f"weight: expected {len(frame)} numbers above zero, but got shape {base.shape} with "
            f"{wrong} others."
        )
    made = [_margin(each, f"margins[{i}]") for i, each in enumerate(margins, start=1)]
    calibration = Calibration(
        made, frame, population_size=population_size, method=method,
        bounds=UNBOUNDED if bounds is None else bounds,
    )  # fmt: skip
    return calibration.calibrate(base, np.zeros((len(frame), 0)))


def _margin(given: Mapping[str, Any], place: str) -> Margin:
    unknown = [key for key in given if key not in _KEYS]
    if unknown or "totals" not in given:
        raise InputError(
            f"{place}: expected totals, and by or amount; got {', '.join(map(str, given))}."
        )
    by = given.get("by", ())
    return Margin.of((by,) if isinstance(by, str) else by, given["totals"], given.get("amount"),
                     place)  # fmt: skip
