"""Estimates of all table rows with variances by replication: the tables of ``taylor``, from
replicate weights (methods 6).

Sums are taken once by interior cell and PSU; all replicates follow by one sparse product, and the
margins by another, so that no records-by-rows matrix is made.
"""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import cell_of_record, margin_matrix, sums_by_unit
from surveysynth.estimation.replicate_weights import ReplicateWeights
from surveysynth.estimation.taylor import (
    DomainEstimates,
    Linearisation,
    Statistic,
    check_arguments,
)

__all__ = ["estimate_domains_replicated", "replicate_estimates", "replication_variance"]


def estimate_domains_replicated(
    domains: Domains,
    replicates: ReplicateWeights,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: Statistic,
    linearisation: Linearisation,
    population_size: float | None = None,
) -> DomainEstimates:
    """Estimate one statistic for all D cells and margins, with its variance by replication.

    Arguments and results are those of ``estimate_domains``, with replicate weights in the place of
    the design. Under "ratio" the weights of each replicate are scaled to the population size, as
    calibration before replication would.

    Raises
    ------
    InputError
        If shapes disagree, an outcome is missing or a word is unknown.
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
    variance[domains.n < (2 if statistic in ("mean", "proportion") else 1)] = np.nan
    return DomainEstimates(np.where(domains.n > 0, full, np.nan), variance)


def replicate_estimates(
    domains: Domains,
    replicates: ReplicateWeights,
    *,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: Statistic,
    linearisation: Linearisation,
    population_size: float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """The full sample's estimates (D,) and those of each replicate (R, D), with no variance.

    A mean to which a replicate gives no weight is NaN.
    """
    check_arguments(replicates.n, domains, weight, outcome, statistic, linearisation)
    value = np.ones(weight.size) if statistic == "count" or outcome is None else outcome
    size, total = _sums(domains, replicates, weight), _sums(domains, replicates, weight * value)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimates = total / size if statistic in ("mean", "proportion") else total
        if linearisation == "ratio" and statistic in ("count", "total"):
            known = size[0, 0] if population_size is None else population_size
            estimates = estimates / size[0] * known  # row 0 is the whole
    return estimates[:, 0].copy(), np.ascontiguousarray(estimates[:, 1:].T)


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
