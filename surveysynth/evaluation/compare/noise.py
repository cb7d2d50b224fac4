"""Tables of a comparison without a model: the sample itself, and noise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth._support.types import BoolArray
from surveysynth.estimation.combining import interval_of
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.estimates import Key as EstimateKey
from surveysynth.estimation.sensitivity import Rule
from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.subpopulation import shown_rows
from surveysynth.estimation.taylor import Linearisation
from surveysynth.evaluation.compare.tables import (
    Key,
    by_table,
    sample_tables,
    sample_weight,
    stacked,
)
from surveysynth.evaluation.laplace import NoisyTable, has_sensitivity, laplace_tables
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
    statistics.

    Raises ``InputError`` for a survey without sampling weights.
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
        """Return Laplace tables of every statistic that noise can be scaled to."""
        made = {
            name: of_table.laplace(sensitivity, rng, share)
            for name, of_table, share in self._each()
        }
        return self._stacked(made)

    def _each(self) -> "Iterator[tuple[str, _OfTable, float]]":
        """Yield name and noise of every table that has some, with its share of the budget."""
        found = []
        for each, sample in self._samples():
            keys = [key for key in keys_of(each) if has_sensitivity(key[0])]
            if keys and _noise_fits(each):
                shown = shown_rows(rows_of(each, self.survey.design))
                of_table = _OfTable(each, self.survey, sample, tuple(keys), shown)
                found.append((each.table.name or "", of_table, len(keys)))
        total = sum(count for *_, count in found)
        for name, of_table, count in found:
            yield name, of_table, count / total

    def _samples(self) -> "Iterator[tuple[Spec, dict[Key, pd.DataFrame]]]":
        """Yield every table with the sample's own frames of it."""
        split = [
            (each.table.name, each, key, frame)
            for key, whole in self.sample.items()
            for each, frame in by_table(self.spec, whole)
        ]
        for each in self.spec.each_table:
            name = each.table.name
            yield each, {key: frame for of, _, key, frame in split if of == name}

    def _stacked(self, made: Mapping[str, Mapping[Key, pd.DataFrame]]) -> dict[Key, pd.DataFrame]:
        """Add rows without numbers for tables without noise, so that rows are the sample's own."""
        keys = dict.fromkeys(key for frames in made.values() for key in frames)
        whole = {
            each.table.name or "": {
                key: made.get(each.table.name or "", {}).get(key, _without_numbers(frame))
                for key, frame in sample.items()
                if key in keys
            }
            for each, sample in self._samples()
        }
        return stacked(self.spec, whole)


def _noise_fits(spec: "Spec") -> bool:
    """Return whether rows are of all records by public columns.

    Otherwise a record may change its row, which the sensitivities here do not allow for.
    """
    return spec.table.by == spec.public_by and spec.table.where is None


def _without_numbers(sample: pd.DataFrame) -> pd.DataFrame:
    none = dict.fromkeys(("estimate", "se", "ci_lower", "ci_upper"), np.nan)
    return sample.assign(**none)


@dataclass(frozen=True)
class _OfTable:
    """The noise of one table.

    spec: its specification; sample: the sample's own frames of it; keys: what noise is made for;
    shown: which rows (D,) they show.
    """

    spec: "Spec"
    survey: "Survey"
    sample: Mapping[Key, pd.DataFrame]
    keys: tuple[EstimateKey, ...]
    shown: BoolArray

    def laplace(
        self, sensitivity: Rule, rng: np.random.Generator, share: float
    ) -> dict[Key, pd.DataFrame]:
        """Return the sample's frames with Laplace noise; ``share``: of epsilon.

        Flags of impossible values replace those of small cells.
        """
        estimates = estimates_for(self.spec, self.survey.design)  # for its rows and its design
        made = laplace_noise(
            estimates, self.survey, self.keys, self.spec.privacy.stated_epsilon * share, rng,
            sensitivity=sensitivity, linearisation=self.spec.linearisation,
        )  # fmt: skip
        names = self.survey.design.outcome_names
        result = {}
        for table in made:
            key = (table.statistic, None if table.outcome is None else names[table.outcome])
            sample, shown, numbers = self.sample[key], self.shown, table.combined()
            lower, upper = interval_of(statistic_of(key[0]), numbers, self.spec.table.level)
            result[key] = sample.assign(
                estimate=numbers.estimate[shown],
                se=numbers.standard_error[shown],
                ci_lower=lower[shown],
                ci_upper=upper[shown],
                flag=np.where(table.impossible[shown], IMPOSSIBLE_FLAG, sample["flag"]),
            )
        return result


def laplace_noise(
    estimates: Estimates,
    survey: "Survey",
    keys: Sequence[EstimateKey],
    epsilon: float,
    rng: np.random.Generator,
    *,
    sensitivity: Rule = "paper",
    linearisation: Linearisation,
) -> list[NoisyTable]:
    """Return Laplace tables of these keys; ``estimates`` supplies rows and sample design."""
    return laplace_tables(
        estimates.domains, estimates.sample_design, weight=sample_weight(survey),
        outcomes=survey.confidential.outcome, keys=keys, epsilon=epsilon, rng=rng,
        sensitivity=sensitivity, linearisation=linearisation,
        population_size=survey.design.population_size,
    )  # fmt: skip
