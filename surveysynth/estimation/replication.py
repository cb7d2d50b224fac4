"""Replicate weights, and estimates of all table rows with variances by replication (methods 6).

``ReplicateWeights`` are a rule like those that combine synthetic datasets, for the one dataset that
a sample is: every table is estimated again under each set of replicate weights that its agency
supplies (methods 6.3). Agrees with ``svrepdesign`` of R's survey package. Its estimates are of the
sample itself, hence confidential: comparisons and studies use them, and no release does.

Replicate weights are multipliers of the survey weights, one row per PSU and one column per
replicate. Their deviations from one give the variance of a linear estimate, in expectation or
exactly: scale * sum_r rscales_r (estimate_r - estimate)^2. In the bootstrap that is made here a
finite population correction shrinks the deviations of a stratum, and lonely PSUs follow the rules
of Taylor linearisation: "remove" and "certainty" leave their weight alone, "adjust" replicates the
square of their value around zero, "average" raises the scale by H / H_ok of the whole sample.
(Taylor estimates without calibration count the strata of each row instead, which weights cannot
do.)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.combining import Combined, CombiningRule, combine
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import LinearisedTable, records_of

Calibrate = Callable[[FloatArray], CalibratedWeights]
"""From base weights (n,) of the sample to calibrated ones."""


@dataclass(frozen=True, eq=False, repr=False)
class ReplicateWeights(CombiningRule):
    """R sets of replicate weights for n records, and the rule that estimates tables by them.

    weights: (n, R); scale, rscales (R,): of the variance; df: its degrees of freedom.
    """

    weights: FloatArray
    scale: float
    rscales: FloatArray
    df: float

    def calibrated(self, calibrate: Calibrate) -> "ReplicateWeights":
        """Return the weights after the calibration that the sample's weights undergo.

        Raises ``InputError`` where a set of replicate weights cannot be calibrated.
        """
        # Weights at zero stay there.
        made = [np.where(each > 0, calibrate(each).weight, 0.0) for each in self.weights.T]
        return replace(self, weights=np.stack(made, axis=1))

    def collect(self, draws: int, replicates: int, sample_design: SampleDesign) -> "_Replicated":
        """Begin a table of one dataset."""
        return _Replicated(self)

    def estimates(self, table: LinearisedTable) -> FloatArray:
        """Return the estimates (R, D) of a table; a mean that a replicate has no weight for is NaN.
        """
        return np.array([table.again(each) for each in self.weights.T])

    def variance(self, full: FloatArray, each: FloatArray) -> FloatArray:
        """Return scale * sum_r rscales_r (estimate_r - full)^2 by row: full (D,), each (R, D).

        A replicate without an estimate of a row (it gives the row no weight) is left out of that
        row; the others replace it in proportion to their rscales.
        """
        rscales, usable = self.rscales[:, None], np.isfinite(each)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(usable, rscales, 0.0).sum(axis=0) / rscales.sum()
            squares = np.where(usable, rscales * (each - full) ** 2, 0.0).sum(axis=0)
            return np.asarray(self.scale * squares / share)


class _Replicated:
    """Estimate and variance of each row of the one dataset, (D,)."""

    def __init__(self, rule: ReplicateWeights) -> None:
        self._rule = rule

    def add(
        self, draw: int, replicate: int, table: LinearisedTable, pair: LinearisedTable
    ) -> None:
        """Estimate the one dataset under each set of replicate weights."""
        self._estimate = table.estimate
        self._variance = self._rule.variance(self._estimate, self._rule.estimates(pair))
        few = records_of(pair.statistic, pair.domains) < pair.statistic.least_for_se
        self._variance[few] = np.nan

    def combined(self) -> Combined:
        """Return the estimates with their standard errors."""
        return combine(self._estimate[None, None], self._variance[None, None], self._rule.df)


def agency_replicates(
    columns: FloatArray, *, scale: float, rscales: FloatArray | None = None
) -> ReplicateWeights:
    """Take complete replicate weights (n, R) as an agency publishes them.

    scale, rscales: as the agency states them, rscales ones by default. The degrees of freedom are
    the rank of the replicate weights less one, as in R's survey.
    """
    df = max(float(np.linalg.matrix_rank(columns, rtol=1e-7)) - 1.0, 1.0)
    return ReplicateWeights(
        columns, scale, np.ones(columns.shape[1]) if rscales is None else rscales, df
    )


ReplicateMethod: TypeAlias = Literal[
    "brr", "fay", "jk1", "jk2", "jkn", "successive_difference", "bootstrap"
]


def replication_scale(method: ReplicateMethod, replicates: int, fay: float = 0.0) -> float:
    """Return the scale of a method with R replicates, as R's ``svrepdesign`` has it.

    fay: Fay's rho, in [0, 1). A stratified jackknife ("jkn") also has its own rscales.
    """
    return {
        "brr": 1.0 / replicates,
        "fay": 1.0 / (replicates * (1.0 - fay) ** 2),
        "jk1": (replicates - 1.0) / replicates,
        "jk2": 1.0,
        "jkn": 1.0,
        "successive_difference": 4.0 / replicates,
        "bootstrap": 1.0 / max(replicates - 1.0, 1.0),
    }[method]


def preston_bootstrap(
    design: SampleDesign, weight: FloatArray, replicates: int, rng: np.random.Generator
) -> ReplicateWeights:
    """Weights (n, R) of half of each stratum's PSUs, without replacement (methods 6).

    Raises ``InputError`` where no stratum has a variance.
    """
    lonely, scale = int(design.lonely.sum()), 1.0 / replicates
    if design.lonely_psu == "average" and lonely:
        if lonely == design.n_strata:
            raise InputError(
                "lonely_psu = average needs a stratum with two PSUs, but every stratum has one; "
                "combine strata, or use adjust."
            )
        scale *= design.n_strata / (design.n_strata - lonely)
    df = float(min(design.degrees_of_freedom, replicates))
    if not df > 0:
        raise InputError(f"The degrees of freedom must be above zero, but are {df}.")
    multipliers = preston_multipliers(design, replicates, rng)
    own = multipliers if design.psu is None else multipliers[design.psu]
    return ReplicateWeights(weight[:, None] * own, scale, np.ones(replicates), df)


def preston_multipliers(
    design: SampleDesign, replicates: int, rng: np.random.Generator
) -> FloatArray:
    """Return the factors of survey weights by PSU (C, R), of Preston (2009).

    n* = floor(n_h / 2) PSUs are kept; the multiplier is 1 - lambda + lambda (n_h / n*) kept with
    lambda = sqrt((1 - f_h) n* / (n_h - n*)). Never negative; they sum to n_h in each stratum.

    Source: Preston (2009), Rescaled bootstrap for stratified multistage sampling.
    """
    n_h, strata = design.psus_in_stratum, design.psu_strata
    kept_number = n_h // 2
    # Stratum by stratum, the first n* of its PSUs in random order are a half-sample.
    place = np.arange(strata.size) - np.repeat(np.cumsum(n_h) - n_h, n_h)
    is_first = place < np.repeat(kept_number, n_h)
    kept = np.zeros((replicates, strata.size), dtype=bool)
    for half_sample in kept:
        order = np.argsort(strata + rng.random(strata.size))
        half_sample[order[is_first]] = True
    single = n_h == 1
    ratio = n_h / np.where(single, 1, kept_number)
    root = np.sqrt(kept_number / np.where(single, 1, n_h - kept_number))
    deviation = root[strata][:, None] * (ratio[strata][:, None] * kept.T - 1.0)
    # A lonely PSU stays as it is, or has a random sign: the mean square is its value's.
    signs = rng.choice([-1.0, 1.0], size=(design.n_strata, replicates))
    lonely = signs * float(design.lonely_psu == "adjust")
    deviation = np.where(single[strata][:, None], lonely[strata], deviation)
    return np.asarray(1.0 + np.sqrt(design.share_not_sampled)[strata][:, None] * deviation)
