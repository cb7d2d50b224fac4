"""Estimates of all table rows with variances by replication: the tables of ``taylor``, from
replicate weights (methods 6).

Sums are taken once by interior cell and PSU; all replicates follow by one sparse product, and the
margins by another, so that no records-by-rows matrix is made.
"""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.estimation.contrasts import Pairs
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import cell_of_record, margin_matrix, sums_by_unit
from surveysynth.estimation.replicate_weights import ReplicateWeights
from surveysynth.estimation.statistics import Statistic, statistic_of, values_of
from surveysynth.estimation.taylor import DomainEstimates, Linearisation, check_arguments

__all__ = ["estimate_domains_replicated", "replicate_estimates", "replication_variance"]


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
    """The full sample's estimates (D,) and those of each replicate (R, D), with no variance.

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
    value = values_of(kind, outcome, weight.size)
    if kind.of_sums is None:
        whole = float(weight.sum()) if population_size is None else population_size
        scale_to = whole if linearisation == "ratio" else None
        return _one_by_one(kind, domains, replicates, weight, value, scale_to)
    of, per = (value[:, 0], value[:, 1]) if kind.of else (value, np.ones(weight.size))
    size, total = (_sums(domains, replicates, weight * each) for each in (per, of))
    with np.errstate(divide="ignore", invalid="ignore"):
        estimates = kind.of_sums(size, total)
        if linearisation == "ratio" and kind.additive:
            known = size[0, 0] if population_size is None else population_size
            estimates = estimates / size[0] * known  # row 0 is the whole
    return estimates[:, 0].copy(), np.ascontiguousarray(estimates[:, 1:].T)


def _one_by_one(
    kind: Statistic,
    domains: Domains,
    replicates: ReplicateWeights,
    weight: FloatArray,
    value: FloatArray,
    scale_to: float | None,
) -> tuple[FloatArray, FloatArray]:
    """Estimates (D,) and (R, D) of a statistic that is no function of sums: one set of weights
    after the other, each scaled to a known size where there is one."""
    made = []
    for each in (weight, *replicates.replicate_weights(weight).T):
        scaled = each if scale_to is None else each * (scale_to / each.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            linearised = kind.linearise(domains, scaled, value, calibrated=scale_to is not None)
        made.append(linearised.estimate)
    return made[0], np.array(made[1:])


def replication_variance(
    full: FloatArray, each: FloatArray, replicates: ReplicateWeights
) -> FloatArray:
    """scale * sum_r rscales_r (estimate_r - centre)^2 by row, from full (D,) and each (R, D).

    A replicate without an estimate of a row (no weight there) is left out of that row, and the
    others stand for it in proportion to their rscales.
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
    """Sums of the values (n,) by table row: full sample first, then replicates, (D, 1 + R)."""
    margins = margin_matrix(domains)
    shape = (margins.shape[1], len(replicates.multipliers))
    by_unit = sums_by_unit(replicates.unit, cell_of_record(domains), values, shape)
    full = by_unit.sum(axis=1)[:, None]
    return np.asarray(margins @ np.hstack([full, by_unit @ replicates.multipliers]))
