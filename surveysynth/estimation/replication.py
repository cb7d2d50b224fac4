"""Replicate weights, and estimates of all table rows with variances by replication (methods 6).

``ReplicatedSample`` is a rule like those that combine synthetic datasets, for the one dataset that
a sample is: every table is estimated again under each set of replicate weights that its agency
supplies (methods 6.3). Agrees with ``svrepdesign`` of R's survey package. Its estimates are of the
sample itself, hence confidential: comparisons and studies use them, and no release does.

Schemes: the jackknife and balanced half-samples are those of samplics, which draws its bootstrap
from NumPy's global state: the bootstrap is made here.

Every scheme is a table of multipliers of the survey weights, one row a PSU and one column a
replicate. Their deviations from one give the variance of a linear estimate, in expectation or
exactly: scale * sum_r rscales_r (estimate_r - estimate)^2. A finite population correction shrinks
the deviations of a stratum (in the jackknife: its rscales). Lonely PSUs follow the rules of Taylor
linearisation: "remove" and "certainty" leave their weight alone, "adjust" replicates the square of
their value around zero, "average" raises the scale by H / H_ok of the whole sample. (Taylor
estimates without calibration count the strata of each row instead, which weights cannot do.)
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from scipy import sparse

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import CalibratedWeights
from surveysynth.estimation.combining import Combined, CombiningRule, combine
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

Center: TypeAlias = Literal["estimate", "mean"]


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
        The variance is scale * sum_r rscales_r (estimate_r - center)^2; rscales (R,).
    df
        Degrees of freedom of that variance.
    center
        The center of the squares: the full sample's "estimate" or the replicates' "mean".

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
    center: Center = "estimate"

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
        if self.center not in ("estimate", "mean"):
            raise InputError(f"The center must be estimate or mean, but got '{self.center}'.")

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
    center: Center = "estimate",
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
        True if the columns are complete weights.
    center
        The center of the squares: the full sample's "estimate" or the replicates' "mean".

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
    return ReplicateWeights(multipliers, np.arange(weight.size), scale, rscales, df, center)


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
    """Return scale * sum_r rscales_r (estimate_r - center)^2 by row: full (D,), each (R, D).

    A replicate without an estimate of a row (it gives the row no weight) is left out of that row;
    the others replace it in proportion to their rscales.
    """
    rscales = replicates.rscales[:, None]
    usable = np.isfinite(each)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(usable, rscales, 0.0).sum(axis=0) / rscales.sum()
        center = full
        if replicates.center == "mean":
            counted = usable & (rscales > 0)
            center = np.where(counted, each, 0.0).sum(axis=0) / counted.sum(axis=0)
        squares = np.where(usable, rscales * (each - center) ** 2, 0.0).sum(axis=0)
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
class ReplicatedSample(CombiningRule):
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


#: Largest number of multipliers that a jackknife may hold (1.6 GB).
MAX_ENTRIES = 200_000_000


def preston_bootstrap(
    design: SampleDesign, replicates: int, rng: np.random.Generator
) -> ReplicateWeights:
    """Half of each stratum's PSUs, without replacement (methods 6).

    n* = floor(n_h / 2) PSUs are kept; the multiplier is 1 - lambda + lambda (n_h / n*) kept with
    lambda = sqrt((1 - f_h) n* / (n_h - n*)). Never negative; they sum to n_h in each stratum.

    Parameters
    ----------
    design
        Strata, PSUs and sampling fractions.
    replicates
        R.
    rng
        For the halves.

    Returns
    -------
    ReplicateWeights
        With squares around the full sample's estimate.

    Raises
    ------
    InputError
        For fewer than two replicates.

    References
    ----------
    Preston (2009), Rescaled bootstrap for stratified multistage sampling.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> design = ss.SampleDesign(np.repeat([0, 1], 4))
    >>> ss.preston_bootstrap(design, 50, np.random.default_rng(1)).multipliers.sum(axis=0)[:2]
    array([8., 8.])
    """
    if replicates < 2:
        raise InputError(f"A bootstrap needs at least two replicates, but got {replicates}.")
    n_h, n_psus = design.psus_in_stratum, design.psu_strata.size
    kept_number = n_h // 2
    # Stratum by stratum, the first n* of its PSUs in random order are a half-sample.
    place = np.arange(n_psus) - np.repeat(np.cumsum(n_h) - n_h, n_h)
    is_first = place < np.repeat(kept_number, n_h)
    kept = np.zeros((replicates, n_psus), dtype=bool)
    for half_sample in kept:
        order = np.argsort(design.psu_strata + rng.random(n_psus))
        half_sample[order[is_first]] = True
    kept = kept.T
    single = n_h == 1
    ratio = n_h / np.where(single, 1, kept_number)
    root = np.sqrt(kept_number / np.where(single, 1, n_h - kept_number))
    deviation = root[design.psu_strata][:, None] * (ratio[design.psu_strata][:, None] * kept - 1.0)
    # A lonely PSU stays as it is, or has a random sign: the mean square is its value's.
    strata = design.psu_strata
    signs = rng.choice([-1.0, 1.0], size=(design.n_strata, replicates))
    lonely = signs * float(design.lonely_psu == "adjust")
    deviation = np.where(single[strata][:, None], lonely[strata], deviation)
    multipliers = 1.0 + np.sqrt(design.share_not_sampled)[strata][:, None] * deviation
    return ReplicateWeights(
        multipliers,
        _unit(design),
        scale=_average_factor(design) / replicates,
        rscales=np.ones(replicates),
        df=float(min(design.degrees_of_freedom, replicates)),
    )


def jackknife(design: SampleDesign) -> ReplicateWeights:
    """Delete one PSU at a time, its stratum's others weighted up: JKn (JK1 with one stratum).

    rscales are (1 - f_h)(n_h - 1) / n_h. Strata that contribute nothing (completely sampled, or
    lonely under "remove", "certainty" or "average") have no replicate.

    Parameters
    ----------
    design
        Strata, PSUs and sampling fractions.

    Returns
    -------
    ReplicateWeights
        One replicate a PSU.

    Raises
    ------
    InputError
        If no stratum contributes, or with far too many PSUs.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> ss.jackknife(ss.SampleDesign(np.repeat([0, 1], 3))).n_replicates
    6
    """
    n_h, strata = design.psus_in_stratum, design.psu_strata
    single = n_h == 1
    share = design.share_not_sampled
    rscale = np.where(single, float(design.lonely_psu == "adjust"), (n_h - 1) / n_h) * share
    deleted = np.flatnonzero(rscale[strata] > 0)
    if deleted.size == 0:
        raise InputError(
            "A jackknife needs at least one stratum with a variance, but every stratum is "
            "completely sampled or has a single PSU that is left out; combine strata."
        )
    if strata.size * deleted.size > MAX_ENTRIES:
        raise InputError(
            f"A jackknife of {deleted.size:,} PSUs needs as many replicates, too many to hold; use "
            "a bootstrap."
        )
    # Stratum by stratum; a lonely PSU that is adjusted has a replicate without it.
    deleted = deleted[np.lexsort((strata[deleted], single[strata[deleted]]))]
    several = deleted[~single[strata[deleted]]]
    multipliers = np.ones((strata.size, deleted.size))
    multipliers[deleted, np.arange(deleted.size)] = 0.0
    if several.size:
        multipliers[several, : several.size] = _by_samplics("jackknife", strata[several])
    return ReplicateWeights(
        multipliers,
        _unit(design),
        scale=_average_factor(design),
        rscales=rscale[strata[deleted]],
        df=float(design.degrees_of_freedom),
    )


def balanced_half_samples(design: SampleDesign, fay: float = 0.0) -> ReplicateWeights:
    """Balanced repeated replication of two PSUs a stratum.

    A column of a Hadamard matrix takes one PSU of every stratum up to 2 - rho and the other down
    to rho; over all columns the products of different strata cancel, so the variance of a linear
    estimate is Taylor's exactly.

    Parameters
    ----------
    design
        Strata and PSUs.
    fay
        Fay's rho in [0, 1).

    Returns
    -------
    ReplicateWeights
        As many replicates as a Hadamard matrix of samplics has columns: a multiple of four up to
        24, beyond it a power of two.

    Raises
    ------
    InputError
        Unless every stratum has two PSUs (or one, under a lonely rule).

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> halves = ss.balanced_half_samples(ss.SampleDesign(np.repeat([0, 1, 2], 2)), fay=0.5)
    >>> np.unique(halves.multipliers)
    array([0.5, 1.5])
    """
    if not 0.0 <= fay < 1.0:
        raise InputError(f"Fay's rho must be at least 0 and below 1, but got {fay}.")
    n_h, strata = design.psus_in_stratum, design.psu_strata
    more = int((n_h > 2).sum())
    if more:
        raise InputError(
            f"Balanced half-samples need two PSUs in each stratum, but {more} of {design.n_strata} "
            "strata have more; split them into strata of two, or use the jackknife or a bootstrap."
        )
    # The order of a Hadamard matrix of samplics with a column for each stratum. Its first column is
    # all ones, which takes one more; its matrix of order 28 has no such column.
    order = design.n_strata + 1
    replicates = 4 * math.ceil(order / 4) if order <= 24 else 1 << (order - 1).bit_length()
    pairs = np.repeat(np.arange(design.n_strata), 2)
    place = 2 * strata + 1
    place[np.unique(strata, return_index=True)[1]] -= 1  # the first PSU of each stratum
    deviation = _by_samplics("brr", pairs, replicates, fay)[place] - 1.0
    size = np.where(n_h == 1, float(design.lonely_psu == "adjust"), 1.0)
    size = size * np.sqrt(design.share_not_sampled)
    multipliers = 1.0 + size[strata][:, None] * deviation
    return ReplicateWeights(
        multipliers,
        _unit(design),
        scale=_average_factor(design) / (replicates * (1.0 - fay) ** 2),
        rscales=np.ones(replicates),
        df=float(design.degrees_of_freedom),
    )


def _unit(design: SampleDesign) -> IntArray:
    return np.arange(design.n, dtype=np.int64) if design.psu is None else design.psu


def _average_factor(design: SampleDesign) -> float:
    """H / H_ok of lonely "average", 1 under the other rules; raises when no stratum is left."""
    lonely = int(design.lonely.sum())
    if design.lonely_psu != "average" or lonely == 0:
        return 1.0
    if lonely == design.n_strata:
        raise InputError(
            "lonely_psu = average needs a stratum with two PSUs, but every stratum has one; "
            "combine strata, or use adjust."
        )
    return design.n_strata / (design.n_strata - lonely)


def _by_samplics(
    method: Literal["jackknife", "brr"], strata: IntArray, replicates: int = 0, fay: float = 0.0
) -> FloatArray:
    """Return the multipliers (C, R) that samplics gives the PSUs of ``strata`` (C,), in order.

    Without ``replicates``, too few for some numbers of strata, its half-samples fail.
    """
    psus = np.arange(strata.size)
    with warnings.catch_warnings():
        # It announces its successor on import, and sorts in a way that pandas gives up.
        warnings.simplefilter("ignore")
        from samplics.utils.types import RepMethod
        from samplics.weighting import ReplicateWeight

        made = ReplicateWeight(RepMethod[method], fay_coef=fay)
        made.nb_reps = replicates
        frame = made.replicate(np.ones(strata.size), psus, strata, rep_coefs=True, rep_prefix="r")
    frame = frame.set_index("_psu").loc[psus]
    return frame.drop(columns=["_stratum", "_samp_weight"]).to_numpy(dtype=np.float64)
