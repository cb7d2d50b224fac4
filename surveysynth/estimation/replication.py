"""Replicate weights, and estimates of all table rows with variances by replication (methods 6).

``ReplicatedSample`` is a rule like those that combine synthetic datasets, for the one dataset that
a sample is: every table is estimated again under each set of replicate weights that its agency
supplies (methods 6.3). Agrees with ``svrepdesign`` of R's survey package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from scipy import sparse

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.combining import Combined, combine
from surveysynth.estimation.domains import Domains, cell_of_record, margin_matrix
from surveysynth.estimation.linearised import Pairs
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import statistic_of, values_of
from surveysynth.estimation.taylor import (
    DomainEstimates,
    Linearisation,
    LinearisedTable,
    check_arguments,
    linearise_domains,
    records_of,
)

Centre: TypeAlias = Literal["estimate", "mean"]


@dataclass(frozen=True, eq=False, repr=False)
class ReplicateWeights:
    """R sets of replicate weights for n records.

    Attributes
    ----------
    multipliers
        Factors of the survey weights, one row a PSU (a record, where there are none), shape (C, R).
    unit
        Row of ``multipliers`` that a record uses, shape (n,).
    scale, rscales
        The variance is scale * sum_r rscales_r (estimate_r - centre)^2; rscales (R,).
    df
        Degrees of freedom of that variance.
    centre
        What squares are taken around: the full sample's "estimate" or the replicates' "mean".

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> replicates = ss.jackknife(ss.SampleDesign(np.zeros(3, int)))
    >>> replicates.replicate_weights(np.array([10.0, 10.0, 10.0]))
    array([[ 0., 15., 15.],
           [15.,  0., 15.],
           [15., 15.,  0.]])
    """

    multipliers: FloatArray
    unit: IntArray
    scale: float
    rscales: FloatArray
    df: float
    centre: Centre = "estimate"

    def __post_init__(self) -> None:
        if self.multipliers.ndim != 2 or self.n_replicates < 1:
            raise InputError(
                "Replicate weights must have two axes, records and at least one replicate, but "
                f"came with shape {self.multipliers.shape}."
            )
        require_finite(self.multipliers)
        if self.rscales.shape != (self.n_replicates,):
            raise InputError(
                f"rscales must be one number for each of {self.n_replicates} replicates, but came "
                f"with shape {self.rscales.shape}."
            )
        if not (self.scale > 0 and np.isfinite(self.scale) and (self.rscales >= 0).all()):
            raise InputError("The scale must be finite and above zero, and rscales not below zero.")
        if not self.df > 0:
            raise InputError(f"The degrees of freedom must be above zero, but are {self.df}.")
        if self.centre not in ("estimate", "mean"):
            raise InputError(f"The centre must be estimate or mean, but got '{self.centre}'.")

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.unit)

    @property
    def n_replicates(self) -> int:
        """Number of replicates, R."""
        return int(self.multipliers.shape[1])

    def replicate_weights(self, weight: FloatArray) -> FloatArray:
        """Replicate weights (n, R) of the survey weights (n,)."""
        return np.asarray(weight[:, None] * self.multipliers[self.unit])


def agency_replicates(
    columns: FloatArray,
    weight: FloatArray,
    *,
    scale: float,
    rscales: FloatArray | None = None,
    df: float | None = None,
    combined: bool = True,
    centre: Centre = "estimate",
) -> ReplicateWeights:
    """Take replicate weights as an agency publishes them.

    Parameters
    ----------
    columns
        Shape (n, R): complete weights, or with ``combined = False`` multipliers of ``weight``.
    weight
        Survey weights, shape (n,).
    scale, rscales
        As the agency states them: 4/R for successive differences, 1/(R (1 - rho)^2) for Fay's,
        1 with rscales (n_h - 1)/n_h for a stratified jackknife. rscales are ones by default.
    df
        As stated; by default the rank of the replicate weights less one, as in R's survey.
    combined
        Whether the columns are complete weights.
    centre
        What squares are taken around: the full sample's "estimate" or the replicates' "mean".

    Returns
    -------
    ReplicateWeights
        For ``estimate_domains_replicated``.

    Raises
    ------
    InputError
        If shapes disagree, or for values that are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> columns = np.array([[0.0, 20.0], [20.0, 0.0]])
    >>> ss.agency_replicates(columns, np.array([10.0, 10.0]), scale=0.5).df
    1.0
    """
    if columns.ndim != 2 or columns.shape[0] != weight.size:
        raise InputError(
            f"Replicate columns must be of shape ({weight.size}, R), a row a record, but came with "
            f"shape {columns.shape}."
        )
    multipliers = columns / weight[:, None] if combined else columns.astype(np.float64)
    replicates = columns.shape[1]
    if df is None:
        require_finite(multipliers)
        df = max(float(np.linalg.matrix_rank(multipliers * weight[:, None], rtol=1e-7)) - 1.0, 1.0)
    rscales = np.ones(replicates) if rscales is None else np.asarray(rscales, dtype=np.float64)
    return ReplicateWeights(multipliers, np.arange(weight.size), scale, rscales, df, centre)


ReplicateMethod: TypeAlias = Literal[
    "brr", "fay", "jk1", "jk2", "jkn", "successive_difference", "bootstrap"
]


def replication_scale(method: ReplicateMethod, replicates: int, fay: float = 0.0) -> float:
    """Return the scale of a method with R replicates, as R's ``svrepdesign`` has it.

    fay: Fay's rho, in [0, 1). A stratified jackknife ("jkn") has rscales of its own besides.
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


def estimate_domains_replicated(
    domains: Domains,
    replicates: ReplicateWeights,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: Linearisation,
    population_size: float | None = None,
) -> DomainEstimates:
    """Estimate one statistic for all D cells and margins, with its variance by replication.

    Under "ratio" the weights of each replicate are scaled to the population size, as calibration
    before replication would.

    Parameters
    ----------
    domains, weight, outcome, statistic, linearisation, population_size
        As in ``estimate_domains``.
    replicates
        Replicate weights, in the place of the design.

    Returns
    -------
    DomainEstimates
        Estimates and variances (D,).

    Raises
    ------
    InputError
        If shapes disagree, an outcome is missing or a word is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> y = np.array([5.0, 6.0, 9.0, 8.0])
    >>> whole = ss.build_domains(pd.DataFrame(index=range(4)), [], {})
    >>> made = ss.estimate_domains_replicated(
    ...     whole, ss.jackknife(ss.SampleDesign(np.zeros(4, int))), weight=np.ones(4), outcome=y,
    ...     statistic="mean", linearisation="plain",
    ... )
    >>> np.allclose(made.variance, y.var(ddof=1) / 4)
    True
    """
    full, each = replicate_estimates(
        domains,
        replicates,
        weight=weight,
        outcome=outcome,
        statistic=statistic,
        linearisation=linearisation,
        population_size=population_size,
    )
    variance = replication_variance(full, each, replicates)
    kind = statistic_of(statistic)
    n = domains.n if kind.contrast is None else Pairs.of(kind.contrast, domains).fewer(domains.n)
    variance[n < kind.least_for_se] = np.nan
    return DomainEstimates(np.where(n > 0, full, np.nan), variance)


def replicate_estimates(
    domains: Domains,
    replicates: ReplicateWeights,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    linearisation: Linearisation,
    population_size: float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return the full sample's estimates (D,) and those of each replicate (R, D), without variance.

    A mean to which a replicate gives no weight is NaN.
    """
    check_arguments(replicates.n, domains, weight, outcome, statistic, linearisation)
    kind = statistic_of(statistic)
    if kind.contrast is not None:
        full, each = replicate_estimates(
            domains, replicates, weight=weight, outcome=outcome, statistic=kind.base,
            linearisation=linearisation, population_size=population_size,
        )  # fmt: skip
        return kind.contrast.of_rows(domains, full), kind.contrast.of_rows(domains, each)
    if not kind.of_sums:
        whole = float(weight.sum()) if population_size is None else population_size
        table = linearise_domains(
            domains, weight=weight, outcome=outcome, statistic=statistic,
            linearisation=linearisation, population_size=whole,
        )  # fmt: skip
        again = [table.again(each) for each in replicates.replicate_weights(weight).T]
        return table.estimate, np.array(again)
    value = values_of(kind, outcome, weight.size)
    of, per = (value[:, 0], value[:, 1]) if kind.of else (value, np.ones(weight.size))
    size, total = (_sums(domains, replicates, weight * each) for each in (per, of))
    with np.errstate(divide="ignore", invalid="ignore"):
        estimates = total if kind.additive else total / size
        if linearisation == "ratio" and kind.additive:
            known = size[0, 0] if population_size is None else population_size
            estimates = estimates / size[0] * known  # row 0 is the whole
    return estimates[:, 0].copy(), np.ascontiguousarray(estimates[:, 1:].T)


def replication_variance(
    full: FloatArray, each: FloatArray, replicates: ReplicateWeights
) -> FloatArray:
    """Return scale * sum_r rscales_r (estimate_r - centre)^2 by row: full (D,), each (R, D).

    A replicate without an estimate of a row (it gives the row no weight) is left out of that row;
    the others replace it in proportion to their rscales.
    """
    rscales = replicates.rscales[:, None]
    usable = np.isfinite(each)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(usable, rscales, 0.0).sum(axis=0) / rscales.sum()
        centre = full
        if replicates.centre == "mean":
            counted = usable & (rscales > 0)
            centre = np.where(counted, each, 0.0).sum(axis=0) / counted.sum(axis=0)
        squares = np.where(usable, rscales * (each - centre) ** 2, 0.0).sum(axis=0)
        return np.asarray(replicates.scale * squares / share)


def _sums(domains: Domains, replicates: ReplicateWeights, values: FloatArray) -> FloatArray:
    """Sum the values (n,) by table row: full sample first, then replicates, (D, 1 + R).

    Sums are taken once by interior cell and PSU. All replicates follow by one sparse product and
    the margins by another, so that no records-by-rows matrix is made.
    """
    margins, cell, unit = margin_matrix(domains.labels), cell_of_record(domains), replicates.unit
    shape = (margins.shape[1], len(replicates.multipliers))
    if shape[1] == unit.size:  # every record is its own unit
        by_unit: Any = sparse.csr_array((values, (cell, unit)), shape=shape)
    else:
        pair, keys = pd.factorize(cell * shape[1] + unit)
        sums = np.bincount(pair, values, minlength=len(keys))
        by_unit = sparse.csr_array((sums, np.divmod(keys, shape[1])), shape=shape)
    full = by_unit.sum(axis=1)[:, None]
    return np.asarray(margins @ np.hstack([full, by_unit @ replicates.multipliers]))


def require_finite(values: FloatArray) -> None:
    """Raise ``InputError``, with their number, for multipliers that are not finite."""
    wrong = int((~np.isfinite(values)).sum())
    if wrong:
        raise InputError(
            f"Replicate weights must be finite numbers, but {wrong} of {values.size} are not."
        )


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
        if calibrate is not None:  # weights at zero stay there
            made = [np.where(w > 0, calibrate(w).weight, 0.0) for w in columns.T]
            columns = np.stack(made, axis=1)
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
