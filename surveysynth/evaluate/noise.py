"""The tables of a comparison that no model makes: the sample itself, and noise."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing
from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.baselines.consistent import consistent_tables
from surveysynth.baselines.laplace import NoisyTable, impossible_values, laplace_tables
from surveysynth.baselines.noisy_totals import Declared, gaussian_tables
from surveysynth.baselines.sensitivity import Rule, has_sensitivity
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined, interval_of
from surveysynth.estimation.statistics import COUNT, MEAN, TOTAL, statistic_of
from surveysynth.evaluate.methods import CONSISTENT, LAPLACE
from surveysynth.evaluate.sample import sample_tables, sample_weight
from surveysynth.evaluate.synthesizers import Key
from surveysynth.mechanisms.noisy_statistics.noise import SeededNoise
from surveysynth.release.tables.making import estimates_for
from surveysynth.spec.build import noisy_settings_of
from surveysynth.spec.mechanisms import epsilon_of_spec

if TYPE_CHECKING:
    from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign, Survey

IMPOSSIBLE_FLAG = "impossible"
"""Where noise made a negative count, or another value that cannot be; it is not clipped."""
#: What noisy totals make.
OF_TOTALS = (COUNT.name, TOTAL.name, MEAN.name)


@dataclass
class Noise:
    """Tables of a survey without a model, by key; ``sample`` comes first.

    Raises ``InputError`` for a survey without sampling weights.
    """

    spec: "Spec"
    survey: "Survey"
    sample: dict[Key, pd.DataFrame] = field(init=False)
    weight: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.weight = sample_weight(self.survey)
        self.sample = sample_tables(self.spec, self.survey)

    @property
    def by_outcome(self) -> bool:
        """Whether rows are by an outcome: a record may then change its row, which the sensitivities
        here do not allow for."""
        return self.spec.tables.by != self.spec.public_by

    def laplace(
        self, sensitivity: Rule, rng: np.random.Generator
    ) -> dict[str, dict[Key, pd.DataFrame]]:
        """Laplace tables and the same made consistent, by method, of every statistic that noise can
        be scaled to."""
        estimates = estimates_for(self.spec, self.survey.design)  # for its rows and its design
        keys = [key for key in estimates.keys if has_sensitivity(key[0])]
        if not keys:
            return {}
        tables = laplace_tables(
            estimates.domains,
            estimates.sample_design,
            weight=self.weight,
            outcomes=self.survey.confidential.outcome,
            keys=keys,
            epsilon=epsilon_of_spec(self.spec),
            rng=rng,
            sensitivity=sensitivity,
            linearisation=self.spec.linearisation,
            population_size=self.survey.design.population_size,
        )
        consistent = consistent_tables(estimates.domains, tables)
        return {LAPLACE: self._noisy(tables), CONSISTENT: self._noisy(consistent)}

    def gaussian(self, strict: "Spec", rng: np.random.Generator) -> dict[Key, pd.DataFrame]:
        """Noisy counts and totals with discrete Gaussian noise, within the budget and from the
        centres and spreads of ``strict``, a specification of noisy statistics.

        Raises ``InputError`` for a survey that they cannot be made of, and for tables without a
        count, a total or a mean.
        """
        design, settings = self.survey.design, noisy_settings_of(strict)
        estimates = estimates_for(self.spec, design)
        keys = [key for key in estimates.keys if key[0] in OF_TOTALS]
        if not keys:
            raise InputError(f"noisy totals make {', '.join(OF_TOTALS)}; none is asked for.")
        if settings.unit_size(design) > 1:
            raise InputError("noisy totals protect single records; leave privacy.protect out.")
        made = gaussian_tables(
            estimates.domains,
            estimates.sample_design,
            weight=self.weight,
            outcomes=self.survey.confidential.outcome,
            keys=keys,
            declared=declared_moments(settings, design),
            budget=settings.budget,
            source=SeededNoise(rng),
            radius=settings.clipping(design).radius,
            population_size=self._scaled_to(),
        )
        result = {}
        for (statistic, column), table in zip(keys, made, strict=True):
            impossible = impossible_values(statistic, column is None, table.estimate)
            key = (statistic, None if column is None else design.outcome_names[column])
            result[key] = self._frame(key, table, impossible)
        return result

    def _scaled_to(self) -> float | None:
        """N where the sample's own counts add up to it."""
        return self.survey.design.population_size if self.spec.linearisation == "ratio" else None

    def _noisy(self, tables: Sequence[NoisyTable]) -> dict[Key, pd.DataFrame]:
        names = self.survey.design.outcome_names
        result = {}
        for table in tables:
            key = (table.statistic, None if table.outcome is None else names[table.outcome])
            result[key] = self._frame(key, table.combined(), table.impossible)
        return result

    def _frame(self, key: Key, made: Combined, impossible: BoolArray) -> pd.DataFrame:
        """The sample's frame with noisy numbers; impossible values are flagged before small
        cells."""
        sample = self.sample[key]
        lower, upper = interval_of(statistic_of(key[0]), made, self.spec.tables.level)
        return sample.assign(
            estimate=made.estimate,
            se=made.standard_error,
            ci_lower=lower,
            ci_upper=upper,
            flag=np.where(impossible, IMPOSSIBLE_FLAG, sample["flag"]),
        )


def declared_moments(settings: "NoisySettings", design: "PublicDesign") -> Declared:
    """What noisy totals are centred at and clipped to, from the centres and spreads of noisy
    statistics. Raises ``InputError`` for an outcome with a split."""
    split = [each.name for each in design.outcomes if each.split is not None]
    if split:
        raise InputError(f"noisy totals know no split; {listing(split)} has one.")
    clipping = settings.clipping(design)
    inverse: list[Callable[[FloatArray], FloatArray]] = [t.inverse for t in design.transforms]
    return Declared.of(clipping.centre, clipping.spread, inverse)
