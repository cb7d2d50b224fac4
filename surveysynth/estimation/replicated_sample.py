"""Standard errors of a sample by the replicate weights that its agency supplies (methods 6.3).

A rule like those that combine synthetic datasets, for the one dataset that a sample is: every table
is estimated again under each set of replicate weights. Agrees with ``svrepdesign`` of R's survey
package.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.combining import Combined, combine
from surveysynth.estimation.replication import ReplicateWeights, replication_variance
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import LinearisedTable, records_of

Calibrate = Callable[[FloatArray], CalibratedWeights]
"""From base weights (n,) of the sample to calibrated ones."""


@dataclass(frozen=True, eq=False, repr=False)
class ReplicatedSample:
    """The combining rule of this module.

    weights: replicate weights (n, R); replicates: with their scales; calibrate: what is done to the
    weights of the sample, and so to each set of replicate weights.
    """

    weights: FloatArray
    replicates: ReplicateWeights

    @classmethod
    def of(
        cls, replicates: ReplicateWeights, weight: FloatArray, calibrate: Calibrate | None = None
    ) -> "ReplicatedSample":
        """Return the rule for a sample with these weights (n,).

        Raises ``InputError`` where a set of replicate weights cannot be calibrated.
        """
        columns = replicates.replicate_weights(weight)
        if calibrate is not None:
            columns = np.stack([_calibrated(calibrate, w) for w in columns.T], axis=1)
        return cls(columns, replicates)

    def collect(self, draws: int, replicates: int, sample_design: SampleDesign) -> "_Replicated":
        """Begin a table of one dataset."""
        return _Replicated(self)

    def of_quantile(self, p: float) -> "ReplicatedSample":
        """Return the rule itself: replicates assume no shape."""
        return self


class _Replicated:
    """Estimate and variance of each row, (D,)."""

    def __init__(self, rule: ReplicatedSample) -> None:
        self._rule = rule
        self._found: tuple[FloatArray, FloatArray] | None = None

    def add(
        self, draw: int, replicate: int, table: LinearisedTable, pair: LinearisedTable
    ) -> None:
        """Estimate the one dataset under each set of replicate weights."""
        assert pair.again is not None  # tables are made of data here
        each = np.array([pair.again(weight) for weight in self._rule.weights.T])
        estimate = table.estimate
        variance = replication_variance(estimate, each, self._rule.replicates)
        variance[records_of(pair.statistic, pair.domains) < pair.statistic.least_for_se] = np.nan
        self._found = estimate, variance

    def combined(self) -> Combined:
        """Return the estimates with their standard errors."""
        if self._found is None:
            raise InputError("There is nothing to combine: no dataset was added.")
        estimate, variance = self._found
        return combine(estimate[None, None], variance[None, None], self._rule.replicates.df)


def _calibrated(calibrate: Calibrate, weight: FloatArray) -> FloatArray:
    """Calibrate a set of replicate weights (n,), of which those at zero stay there."""
    used = weight > 0
    made = np.zeros(weight.size)
    made[used] = calibrate(weight).weight[used]
    return made
