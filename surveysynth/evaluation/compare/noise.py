"""Tables of a comparison without a model: the sample itself, and noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth.estimation.combining import interval_of
from surveysynth.estimation.estimates import Key as EstimateKey
from surveysynth.estimation.linearised import Rule
from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.subpopulation import shown_rows
from surveysynth.evaluation.compare.tables import (
    Key,
    by_table,
    sample_tables,
    sample_weight,
    stacked,
)
from surveysynth.evaluation.laplace import has_sensitivity, laplace_tables
from surveysynth.release.tables.table_builder import estimates_for, keys_of, rows_of

if TYPE_CHECKING:
    from surveysynth.config.spec import Spec
    from surveysynth.survey.survey import Survey

IMPOSSIBLE_FLAG = "impossible"
"""Flag of a negative count or another impossible value made by noise; it is not clipped."""


@dataclass
class Noise:
    """Tables of a survey without a model, by key, stacked if there are several.

    ``sample`` comes first. Noise is made for rows of all records by public columns: tables by an
    outcome, or of a subpopulation, have none. The others share one budget by their numbers of
    statistics. Raises ``InputError`` for a survey without sampling weights.
    """

    spec: "Spec"
    survey: "Survey"
    sample: dict[Key, pd.DataFrame] = field(init=False)

    def __post_init__(self) -> None:
        self.sample = sample_tables(self.spec, self.survey)

    @property
    def possible(self) -> bool:
        """True if noise can be made for any table."""
        return any(_noise_fits(each) for each in self.spec.each_table)

    def laplace(self, sensitivity: Rule, rng: np.random.Generator) -> dict[Key, pd.DataFrame]:
        """Return Laplace tables of every statistic that noise can be scaled to.

        Tables without noise have rows without numbers, so that rows are the sample's own.
        """
        tables = {each.table.name or "": each for each in self.spec.each_table}
        samples: dict[str, dict[Key, pd.DataFrame]] = {name: {} for name in tables}
        for key, whole in self.sample.items():
            for each, frame in by_table(self.spec, whole):
                samples[each.table.name or ""][key] = frame
        keys = {
            name: [key for key in keys_of(each) if has_sensitivity(key[0]) and _noise_fits(each)]
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
        spec: "Spec",
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
        shown = shown_rows(rows_of(spec, design))
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


def _noise_fits(spec: "Spec") -> bool:
    """Return whether rows are of all records by public columns.

    Otherwise a record may change its row, which the sensitivities here do not allow for.
    """
    return spec.table.by == spec.public_by and spec.table.where is None
