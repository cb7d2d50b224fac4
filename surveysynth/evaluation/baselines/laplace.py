"""The Laplace comparator: noisy tables of the confidential sample (methods 6, [T] 2.4).

Laplace noise is added to every estimate, and to every estimate of R = 10 Preston replicates, which
give the variance. Sensitivities are local, read from the confidential data, and the generator is
seeded NumPy: these tables show what noise would cost and are never a release.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import RowExtremes, Rule, margin_set_of_row
from surveysynth.estimation.replicate_weights import preston_bootstrap
from surveysynth.estimation.replication import (
    ReplicateWeights,
    replicate_estimates,
    replication_variance,
)
from surveysynth.estimation.statistics import statistic_of, values_of
from surveysynth.estimation.taylor import Linearisation, SampleDesign
from surveysynth.evaluation.baselines.budget_split import BudgetSplit, Share, split_budget

__all__ = ["Rule", "group_sensitivities", "has_sensitivity", "row_sensitivities"]


def has_sensitivity(statistic: str) -> bool:
    """Return whether the effect of one record on a statistic is known, as noise requires."""
    return statistic_of(statistic).sensitivity is not None


def row_sensitivities(
    domains: Domains,
    weights: FloatArray,
    outcome: FloatArray | None,
    statistic: str,
    rule: Rule,
) -> FloatArray:
    """Return how far one record can move each row: (D, S) for S sets of weights (n, S).

    The formulas are those of the statistic (``estimation.margins``), as published ("paper") or an
    honest bound. NaN in rows without records; infinite if weights of zero leave nothing to divide
    by. Raises ``InputError`` for a statistic whose sensitivity is not known.
    """
    kind = statistic_of(statistic)
    if kind.sensitivity is None:
        raise InputError(
            f"There is no sensitivity of {kind.plural}, so that no noise can be scaled to it; "
            "leave them out of noisy tables."
        )
    value = values_of(kind, outcome, len(weights))
    return kind.sensitivity(RowExtremes(domains), weights, value, rule)


def group_sensitivities(domains: Domains, by_row: FloatArray) -> FloatArray:
    """Give the largest finite sensitivity of each margin set to all of its rows: (D, S).

    Cells do not show the full range of their population, so interior cells take the largest among
    them, and each kind of margin the largest of its own ([T] 2.4). Rows without a sensitivity of
    their own keep NaN or infinity.
    """
    sets = margin_set_of_row(domains)
    finite = np.where(np.isfinite(by_row), by_row, 0.0)
    largest = np.zeros((len(domains.codes), by_row.shape[1]))
    np.maximum.at(largest, sets, finite)
    return np.where(np.isfinite(by_row), largest[sets], by_row)


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
        """Return the table in the form that intervals are made of."""
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
    """Make noisy tables of a sample, one for each of ``keys``, within one budget.

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
    split = _split(epsilon, len(keys), len(domains.codes), replicates)
    half_samples = preston_bootstrap(sample_design, split.replicates, rng)
    known = None
    if linearisation == "ratio":
        known = float(weight.sum()) if population_size is None else population_size
    df_design = float(sample_design.degrees_of_freedom)
    sample = _Sample(domains, half_samples, weight, known, sensitivity, df_design)
    tables = []
    for index, (statistic, column) in enumerate(keys):
        outcome = None if column is None or outcomes is None else outcomes[:, column]
        scales = _divided(sample.sensitivities(outcome, statistic), domains, split, index)
        tables.append(sample.noisy((statistic, column), outcome, scales, rng))
    return tables


def _split(
    epsilon: Share | BudgetSplit, tables: int, margin_sets: int, replicates: int
) -> BudgetSplit:
    """Return the budget by table, margin set and replicate; check its number of tables."""
    split = epsilon
    if not isinstance(split, BudgetSplit):
        split = split_budget(split, tables=tables, margin_sets=margin_sets, replicates=replicates)
    if len(split.point) != tables or split.replicates < 2:
        raise InputError(
            f"The budget is divided among {len(split.point)} tables and {split.replicates} "
            f"replicates, but there are {tables} tables and at least two replicates are needed."
        )
    return split


def impossible_values(
    statistic: str, never_negative: bool, estimate: FloatArray
) -> BoolArray:
    """Return where an estimate is a value that no sample could give (see ``NoisyTable``)."""
    limits = statistic_of(statistic).limits
    low, high = limits or (0.0 if never_negative else -np.inf, np.inf)
    return np.asarray((estimate < low) | (estimate > high))


@dataclass(frozen=True, eq=False, repr=False)
class _Sample(Unpickled):
    """The data that receive noise: weights (n,), those of R replicates, known sum or None."""

    domains: Domains
    half_samples: ReplicateWeights
    weight: FloatArray
    known: float | None
    rule: Rule
    df_design: float

    def noisy(
        self,
        key: tuple[str, int | None],
        outcome: FloatArray | None,
        scales: FloatArray,
        rng: np.random.Generator,
    ) -> NoisyTable:
        """Make one table with noise of the scales (1 + R, D), drawn independently."""
        statistic, column = key
        exact = self.exact(outcome, statistic)
        noise = rng.laplace(size=scales.shape)  # of unit scale
        noisy = exact + np.where(np.isfinite(scales), noise * scales, np.nan)
        variance = replication_variance(noisy[0], noisy[1:], self.half_samples)
        variance[self.domains.n < statistic_of(statistic).least_for_se] = np.nan
        never_negative = outcome is None or bool(outcome.min() >= 0)
        return NoisyTable(
            statistic=statistic,
            outcome=column,
            estimate=noisy[0],
            variance=variance,
            replicates=noisy[1:],
            scale=scales[0],
            impossible=impossible_values(statistic, never_negative, noisy[0]),
            never_negative=never_negative,
            df=self.half_samples.df,
            df_design=self.df_design,
        )

    def exact(self, outcome: FloatArray | None, statistic: str) -> FloatArray:
        """Estimate without noise, full sample first: (1 + R, D); NaN in rows without records."""
        full, each = replicate_estimates(
            self.domains,
            self.half_samples,
            weight=self.weight,
            outcome=outcome,
            statistic=statistic,
            linearisation="plain" if self.known is None else "ratio",
            population_size=self.known,
        )
        return np.where(self.domains.n > 0, np.vstack([full, each]), np.nan)

    def sensitivities(self, outcome: FloatArray | None, statistic: str) -> FloatArray:
        """Return them by row and group, of the full sample and each replicate: (1 + R, D)."""
        weights = np.column_stack([self.weight, self.half_samples.replicate_weights(self.weight)])
        if self.known is not None:
            weights = weights * (self.known / weights.sum(axis=0))
        by_row = row_sensitivities(self.domains, weights, outcome, statistic, self.rule)
        return np.ascontiguousarray(group_sensitivities(self.domains, by_row).T)


def _divided(
    sensitivities: FloatArray, domains: Domains, split: BudgetSplit, table: int
) -> FloatArray:
    """Return Laplace scales (1 + R, D): sensitivities over the parts of the budget."""
    sets = margin_set_of_row(domains)
    point = split.by_row(split.point, table, sets)
    each = split.by_row(split.replicate, table, sets)
    return np.asarray(sensitivities / np.vstack([point, np.tile(each, (split.replicates, 1))]))
