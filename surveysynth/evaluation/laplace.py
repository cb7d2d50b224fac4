"""The Laplace comparator: noisy tables of the confidential sample (methods 6, [T] 2.4).

Laplace noise is added to every estimate, and to every estimate of R = 10 Preston replicates, which
give the variance. Sensitivities are local, read from the confidential data, and the generator is
seeded NumPy: these tables show what noise would cost and are never a release. ``Noise`` makes those
of a specification, beside the tables of the sample itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pandas as pd

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.config.spec import Spec
from surveysynth.estimation.combining import Combined, interval_of
from surveysynth.estimation.domains import Domains, margin_set_of_row
from surveysynth.estimation.estimates import Key as EstimateKey
from surveysynth.estimation.linearised import RowExtremes, Rule
from surveysynth.estimation.replication import preston_bootstrap
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import statistic_of, values_of
from surveysynth.estimation.subpopulation import displayed_rows
from surveysynth.estimation.taylor import Linearisation, linearise_domains
from surveysynth.evaluation.compare.tables import (
    Key,
    by_table,
    sample_tables,
    sample_weight,
    stacked,
)
from surveysynth.release.tables.table_builder import estimates_for, keys_of, rows_of
from surveysynth.survey.survey import Survey

#: R.
REPLICATES = 10


def row_sensitivities(
    domains: Domains, weights: FloatArray, outcome: FloatArray | None, statistic: str, rule: Rule
) -> FloatArray:
    """Return how far one record can change each row: (D, S) for S sets of weights (n, S).

    The formulas are those of the statistic, as published ("paper") or an honest bound. NaN in rows
    without records; infinite if weights of zero leave nothing to divide by.
    """
    kind = statistic_of(statistic)
    assert kind.sensitivity is not None  # noise is made for no other statistic
    value = values_of(kind, outcome, len(weights))
    return kind.sensitivity(RowExtremes(domains), weights, value, rule)


def group_sensitivities(domains: Domains, by_row: FloatArray) -> FloatArray:
    """Give the largest finite sensitivity of each margin set to all of its rows: (D, S).

    Cells do not show the full range of their population, so interior cells take the largest among
    them, and each kind of margin the largest of its own ([T] 2.4). Rows without a sensitivity of
    their own keep NaN or infinity.
    """
    sets = margin_set_of_row(domains.labels)
    finite = np.where(np.isfinite(by_row), by_row, 0.0)
    largest = np.zeros((len(domains.codes), by_row.shape[1]))
    np.maximum.at(largest, sets, finite)
    return np.where(np.isfinite(by_row), largest[sets], by_row)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyTable:
    """One statistic with noise, for the D rows of a table and R replicates.

    outcome: a column of the outcomes, None for counts; estimate, variance (D,): noisy, V = (1/R)
    sum_r (replicate_r - estimate)^2; replicates (R, D): NaN where one leaves too little weight;
    scale (D,): of the Laplace noise of the estimates, whose variance is 2 scale^2; impossible (D,):
    where noise made a value that cannot be: a negative count, a negative mean or total of an
    outcome that is never negative, a proportion outside 0 to 1. Not clipped.
    """

    statistic: str
    outcome: int | None
    estimate: FloatArray
    variance: FloatArray
    replicates: FloatArray
    scale: FloatArray
    impossible: BoolArray
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
    epsilon: float,
    rng: np.random.Generator,
    sensitivity: Rule = "paper",
    linearisation: Linearisation = "plain",
    population_size: float | None = None,
) -> list[NoisyTable]:
    """Make noisy tables of a sample, one for each of ``keys``, within one budget.

    A record is in one row of each margin set, so a part of the budget serves all rows of its set.
    With k by variables and T tables every estimate gets epsilon / (2 T 2^k) and every replicate 1/R
    of that ([T] 2.4: epsilon / 16 and epsilon / 160).

    keys: pairs of a statistic and a column of ``outcomes`` (n, p), None for counts; epsilon: of all
    tables together; sensitivity: "paper" to reproduce [T], "honest" for a bound; linearisation,
    population_size: as in ``estimate_domains``. Under "ratio" the weights of the sample (n,) and of
    every replicate are scaled to the population size before anything else.
    """
    half_samples = preston_bootstrap(sample_design, weight, REPLICATES, rng)
    known = None
    if linearisation == "ratio":
        known = float(weight.sum()) if population_size is None else population_size
    # In the order of what is noisy: the full sample, then each replicate.
    weights = np.column_stack([weight, half_samples.weights])
    if known is not None:
        weights = weights * (known / weights.sum(axis=0))
    part = Fraction(epsilon) / (2 * len(keys) * len(domains.codes))
    parts = np.array([float(part), *[float(part / REPLICATES)] * REPLICATES])
    tables = []
    for statistic, column in keys:
        kind = statistic_of(statistic)
        outcome = None if column is None or outcomes is None else outcomes[:, column]
        by_row = row_sensitivities(domains, weights, outcome, statistic, sensitivity)
        scales = group_sensitivities(domains, by_row).T / parts[:, None]
        table = linearise_domains(
            domains, weight=weight, outcome=outcome, statistic=statistic,
            linearisation=linearisation, population_size=known,
        )  # fmt: skip
        exact = np.vstack([table.estimate, half_samples.estimates(table)])
        noise = rng.laplace(size=scales.shape)  # of unit scale
        noisy = exact + np.where(np.isfinite(scales), noise * scales, np.nan)
        variance = half_samples.variance(noisy[0], noisy[1:])
        variance[domains.n < kind.least_for_se] = np.nan
        never_negative = outcome is None or bool(outcome.min() >= 0)
        low, high = kind.limits or (0.0 if never_negative else -np.inf, np.inf)
        tables.append(NoisyTable(
            statistic, column, noisy[0], variance, replicates=noisy[1:], scale=scales[0],
            impossible=np.asarray((noisy[0] < low) | (noisy[0] > high)), df=half_samples.df,
            df_design=float(sample_design.degrees_of_freedom),
        ))  # fmt: skip
    return tables


IMPOSSIBLE_FLAG = "impossible"
"""Flag of a negative count or another impossible value made by noise; it is not clipped."""


@dataclass
class Noise:
    """Tables of a survey without a model, by key, stacked if there are several.

    ``sample`` comes first. Noise is made for rows of all records by public columns: tables by an
    outcome, or of a subpopulation, have none. The others share one budget by their numbers of
    statistics. Raises ``InputError`` for a survey without sampling weights.
    """

    spec: Spec
    survey: Survey
    sample: dict[Key, pd.DataFrame] = field(init=False)

    def __post_init__(self) -> None:
        self.sample = sample_tables(self.spec, self.survey)

    @property
    def possible(self) -> bool:
        """True if noise can be made for any table."""
        return any(_noise_fits(each) for each in self.spec.each_table)

    def laplace(self, sensitivity: Rule, rng: np.random.Generator) -> dict[Key, pd.DataFrame]:
        """Return Laplace tables of every statistic that has a sensitivity.

        Tables without noise have rows without numbers, so that rows are the sample's own.
        """
        tables = {each.table.name or "": each for each in self.spec.each_table}
        samples: dict[str, dict[Key, pd.DataFrame]] = {name: {} for name in tables}
        for key, whole in self.sample.items():
            for each, frame in by_table(self.spec, whole):
                samples[each.table.name or ""][key] = frame
        keys = {
            name: [key for key in keys_of(each) if statistic_of(key[0]).sensitivity]
            if _noise_fits(each)
            else []
            for name, each in tables.items()
        }
        total = sum(map(len, keys.values()))
        made = {
            name: self._noisy(tables[name], samples[name], of_table, total, sensitivity, rng)
            for name, of_table in keys.items()
            if of_table
        }
        found = {key for frames in made.values() for key in frames}
        none = dict.fromkeys(("estimate", "se", "ci_lower", "ci_upper"), np.nan)
        return stacked(self.spec, {
            name: {
                key: made.get(name, {}).get(key, frame.assign(**none))
                for key, frame in sample.items()
                if key in found
            }
            for name, sample in samples.items()
        })  # fmt: skip

    def _noisy(
        self,
        spec: Spec,
        samples: Mapping[Key, pd.DataFrame],
        keys: Sequence[EstimateKey],
        total: int,
        sensitivity: Rule,
        rng: np.random.Generator,
    ) -> dict[Key, pd.DataFrame]:
        """Return the sample's frames of one table with noise, for these of ``total`` statistics.

        Flags of impossible values replace those of small cells.
        """
        design, share = self.survey.design, len(keys) / total
        estimates = estimates_for(spec, design)  # for its rows and its design
        shown = displayed_rows(rows_of(spec, design))
        result = {}
        for table in laplace_tables(
            estimates.domains, estimates.sample_design, weight=sample_weight(self.survey),
            outcomes=self.survey.confidential.outcome, keys=keys,
            epsilon=spec.privacy.stated_epsilon * share, rng=rng, sensitivity=sensitivity,
            linearisation=spec.linearisation, population_size=design.population_size,
        ):  # fmt: skip
            outcome = None if table.outcome is None else design.outcome_names[table.outcome]
            key, numbers = (table.statistic, outcome), table.combined()
            lower, upper = interval_of(statistic_of(key[0]), numbers, spec.table.level)
            result[key] = samples[key].assign(
                estimate=numbers.estimate[shown],
                se=numbers.standard_error[shown],
                ci_lower=lower[shown],
                ci_upper=upper[shown],
                flag=np.where(table.impossible[shown], IMPOSSIBLE_FLAG, samples[key]["flag"]),
            )
        return result


def _noise_fits(spec: Spec) -> bool:
    """Return whether rows are of all records by public columns.

    Otherwise a record may change its row, which the sensitivities here do not allow for.
    """
    return spec.table.by == spec.public_by and spec.table.where is None
