"""Topcoding: the comparator of risk-weighted synthesis in [S]. Never part of a release.

Its threshold is a quantile of the confidential data, and it leaves everything below unchanged: it
assumes that only the upper tail is at risk.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.quantiles import weighted_quantiles


@dataclass(frozen=True, eq=False, repr=False)
class Topcoded:
    """The result: confidential.

    outcome (n,): values above ``threshold`` set to it; coded (n,): which ones.
    """

    outcome: FloatArray
    coded: BoolArray
    threshold: float
    quantile: float

    def to_frame(self) -> pd.DataFrame:
        """Return one row a record."""
        return pd.DataFrame({"outcome": self.outcome, "coded": self.coded})


def topcode(
    outcome: FloatArray, quantile: float, sampling_weight: FloatArray | None = None
) -> Topcoded:
    """Set values above a quantile of the data to that quantile.

    With weights it is the quantile of the population.

    Parameters
    ----------
    outcome
        (n,).
    quantile
        In (0, 1): the threshold is the smallest value with at least that share of records (or
        weight) up to it.
    sampling_weight
        (n,), or None.

    Returns
    -------
    Topcoded
        ``outcome`` (n,), ``coded`` (n,), ``threshold``: confidential.

    Raises
    ------
    InputError
        For a quantile outside (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> ss.topcode(np.array([1.0, 2.0, 3.0, 40.0]), 0.75).outcome
    array([1., 2., 3., 3.])
    """
    if not 0 < quantile < 1:
        raise InputError(f"quantile must be between 0 and 1, got {quantile!r}.")
    weight = np.ones(outcome.shape) if sampling_weight is None else sampling_weight
    threshold = float(weighted_quantiles(outcome, weight, np.array([quantile]))[0])
    return Topcoded(np.minimum(outcome, threshold), outcome > threshold, threshold, quantile)
