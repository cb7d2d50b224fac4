"""Tables by replicate weights, and the jackknife, which no release and no comparison makes."""

from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.replication import ReplicateWeights
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import DomainEstimates, linearise_domains


def jackknife(design: SampleDesign, weight: FloatArray) -> ReplicateWeights:
    """One PSU deleted at a time, its stratum's others weighted up: JKn.

    rscales are (1 - f_h)(n_h - 1) / n_h; a lonely PSU that is adjusted counts in full.
    """
    unit = np.arange(design.n) if design.psu is None else design.psu
    own, n_h = design.psu_strata, design.psus_in_stratum
    columns, rscales = [], []
    for psu, stratum in enumerate(own):
        n, share = n_h[stratum], design.share_not_sampled[stratum]
        alone = float(design.lonely_psu == "adjust")
        if share * (alone if n == 1 else 1.0) > 0:
            factor = np.where(own == stratum, n / max(n - 1, 1), 1.0)
            factor[psu] = 0.0
            columns.append(weight * factor[unit])
            rscales.append(share * (alone if n == 1 else (n - 1) / n))
    scale = 1.0
    if design.lonely_psu == "average":
        scale = design.n_strata / (design.n_strata - design.lonely.sum())
    df = float(design.degrees_of_freedom)
    return ReplicateWeights(np.stack(columns, axis=1), scale, np.array(rscales), df)


def replicated(
    domains: Domains, replicates: ReplicateWeights, **given: Any
) -> tuple[DomainEstimates, FloatArray]:
    """Estimates with their variances, and the estimates of each replicate (R, D)."""
    table = linearise_domains(domains, **given)
    rule = replicates.collect(1, 1, SampleDesign(np.zeros(domains.codes.shape[1], dtype=np.int64)))
    rule.add(1, 1, table, table)
    made = rule.combined()
    found = DomainEstimates(made.estimate, made.standard_error**2)
    return found, replicates.estimates(table)
