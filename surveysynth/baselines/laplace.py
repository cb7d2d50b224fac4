"""The Laplace comparator: noisy tables of the confidential sample (methods 6, [T] 2.4).

Laplace noise is added to every estimate, and to every estimate of R = 10 Preston replicates, of
which the variance is made. Sensitivities are local, read from the confidential data, and the
generator is seeded NumPy: this shows what noise would cost and is never a release.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.baselines.budget_split import BudgetSplit, Share, split_budget
from surveysynth.baselines.sensitivity import Rule, group_sensitivities, row_sensitivities
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import margin_set_of_row
from surveysynth.estimation.replicate_weights import ReplicateWeights, preston_bootstrap
from surveysynth.estimation.replication import replicate_estimates, replication_variance
from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.taylor import Linearisation, SampleDesign

REPLICATES = 10


@dataclass(frozen=True, eq=False, repr=False)
class NoisyTable:
    """One statistic with noise, for the D rows of a table and R replicates.

    Attributes
    ----------
    statistic, outcome
        What the rows are; ``outcome`` is a column of the outcomes, None for counts.
    estimate, variance
        Noisy estimates and V = (1/R) sum_r (replicate_r - estimate)^2 of noisy values, (D,).
    replicates
        Noisy estimates of each replicate, (R, D); NaN where a replicate leaves too little weight.
    scale
        Scale of the Laplace noise of the estimates, (D,); its variance is 2 scale^2.
    impossible
        True where noise made a value that cannot be: a negative count, a negative mean or total
        of an outcome that is never negative, a proportion outside 0 to 1. Not clipped. (D,)
    never_negative
        Whether no value of the outcome is negative; true for counts.
    df, df_design
        Degrees of freedom of the variance and of the sample design.
    """

    statistic: str
    outcome: int | None
    estimate: FloatArray
    variance: FloatArray
    replicates: FloatArray
    scale: FloatArray
    impossible: BoolArray
    never_negative: bool
    df: float
    df_design: float

    def combined(self) -> Combined:
        """In the form that intervals are made of."""
        df = np.where(np.isnan(self.variance), np.nan, self.df)
        none = np.full_like(self.estimate, np.nan)
        error = np.sqrt(self.variance)
        return Combined(self.estimate, error, df, self.df_design, none, self.variance)


def laplace_tables(
    domains: Domains,
    sample_design: SampleDesign,
    *,
    weight: FloatArray,
    outcomes: FloatArray | None,
    keys: Sequence[tuple[str, int | None]],
    epsilon: Share | BudgetSplit,
    rng: np.random.Generator,
    sensitivity: Rule = "paper",
    replicates: int = REPLICATES,
    linearisation: Linearisation = "plain",
    population_size: float | None = None,
) -> list[NoisyTable]:
    """Noisy tables of a sample, one for each of ``keys``, within one budget.

    Parameters
    ----------
    domains, sample_design
        The tables' rows and the design, of the same n records.
    weight, outcomes
        Survey weights (n,) and outcomes (n, p) in original units.
    keys
        Pairs of a statistic and a column of ``outcomes``, None for counts.
    epsilon
        The budget of all tables together, divided as stated in methods 6, or a division of it.
    sensitivity
        "paper" to reproduce [T], "honest" for a bound (see ``row_sensitivities``).
    replicates
        R, where ``epsilon`` is a number; a division of it has its own.
    linearisation, population_size
        As in ``estimate_domains``: under "ratio" the weights of the sample and of every replicate
        are scaled to the population size before anything else.

    Raises
    ------
    InputError
        If the parts do not fit together, or nothing is known of a statistic's sensitivity.
    """
    split = epsilon
    if not isinstance(split, BudgetSplit):
        sets = 2 ** len(domains.by)
        split = split_budget(split, tables=len(keys), margin_sets=sets, replicates=replicates)
    if len(split.point) != len(keys) or split.replicates < 2:
        raise InputError(
            f"The budget is divided among {len(split.point)} tables and {split.replicates} "
            f"replicates, but there are {len(keys)} tables and at least two replicates are needed."
        )
    half_samples = preston_bootstrap(sample_design, split.replicates, rng)
    known = None
    if linearisation == "ratio":
        known = float(weight.sum()) if population_size is None else population_size
    tables = []
    for index, (statistic, column) in enumerate(keys):
        outcome = None if column is None or outcomes is None else outcomes[:, column]
        exact = _exact(domains, half_samples, weight, outcome, statistic, known)
        scales = _scales(domains, half_samples, weight, outcome, statistic, known, sensitivity)
        scales = _divided(scales, domains, split, index)
        never_negative = outcome is None or bool(outcome.min() >= 0)
        noise = rng.laplace(size=scales.shape)  # of unit scale, a number of its own for each
        noisy = exact + np.where(np.isfinite(scales), noise * scales, np.nan)
        variance = replication_variance(noisy[0], noisy[1:], half_samples)
        variance[domains.n < statistic_of(statistic).least_for_se] = np.nan
        tables.append(
            NoisyTable(
                statistic,
                column,
                noisy[0],
                variance,
                noisy[1:],
                scales[0],
                impossible_values(statistic, never_negative, noisy[0]),
                never_negative,
                half_samples.df,
                float(sample_design.degrees_of_freedom),
            )
        )
    return tables


def impossible_values(
    statistic: str, never_negative: bool, estimate: FloatArray
) -> BoolArray:
    """Where an estimate is a value that no sample could give (see ``NoisyTable``)."""
    limits = statistic_of(statistic).limits
    low, high = limits or (0.0 if never_negative else -np.inf, np.inf)
    return np.asarray((estimate < low) | (estimate > high))


def _exact(
    domains: Domains,
    half_samples: ReplicateWeights,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    known: float | None,
) -> FloatArray:
    """Estimates without noise, full sample first: (1 + R, D); NaN in rows without records."""
    full, each = replicate_estimates(
        domains,
        half_samples,
        weight=weight,
        outcome=outcome,
        statistic=statistic,
        linearisation="plain" if known is None else "ratio",
        population_size=known,
    )
    return np.where(domains.n > 0, np.vstack([full, each]), np.nan)


def _scales(
    domains: Domains,
    half_samples: ReplicateWeights,
    weight: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    known: float | None,
    rule: Rule,
) -> FloatArray:
    """Sensitivities by row and group, of the full sample and each replicate: (1 + R, D)."""
    weights = np.column_stack([weight, half_samples.replicate_weights(weight)])
    if known is not None:
        weights = weights * (known / weights.sum(axis=0))
    by_row = row_sensitivities(domains, weights, outcome, statistic, rule)
    return np.ascontiguousarray(group_sensitivities(domains, by_row).T)


def _divided(
    sensitivities: FloatArray, domains: Domains, split: BudgetSplit, table: int
) -> FloatArray:
    """Laplace scales (1 + R, D): sensitivities over the parts of the budget."""
    sets = margin_set_of_row(domains)
    point = split.by_row(split.point, table, sets)
    each = split.by_row(split.replicate, table, sets)
    return np.asarray(sensitivities / np.vstack([point, np.tile(each, (split.replicates, 1))]))
