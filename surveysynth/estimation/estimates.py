"""Estimates of every table from every dataset, as datasets stream by: the one loop that does it.

Releases, comparisons and studies all estimate here, so that they judge what would be published.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined, CombiningRule, PartialSynthesis
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import Linearisation, LinearisedTable, linearise_domains
from surveysynth.inference.synthesis import SyntheticDataset

Key: TypeAlias = tuple[str, int | None]
"""A statistic by name, and the column of the outcomes that it is of, None for counts."""

Weighting: TypeAlias = Callable[[FloatArray, str], FloatArray]
"""From the weights (n,) of a dataset to those that a statistic, by name, is estimated with."""


def as_they_are(weight: FloatArray, statistic: str) -> FloatArray:
    """The weights of a dataset, whatever the statistic."""
    return weight


class Estimates:
    """Collects what each dataset says of each table, and combines it.

    Parameters
    ----------
    domains, sample_design
        The rows of the tables and the design, of the same n records.
    keys
        The tables; ``statistics.table_keys`` gives all of some statistics and outcomes.
    linearisation, population_size
        As in ``estimate_domains``.
    draws, replicates
        m and r: datasets are numbered by both, from 1.
    rule
        How datasets are combined.
    weighting
        Which weights a statistic is estimated with.
    """

    def __init__(
        self,
        domains: Domains,
        sample_design: SampleDesign,
        keys: Sequence[Key],
        *,
        linearisation: Linearisation,
        population_size: float | None,
        draws: int = 1,
        replicates: int = 1,
        rule: CombiningRule | None = None,
        weighting: Weighting = as_they_are,
    ) -> None:
        self.domains, self.sample_design, self.keys = domains, sample_design, tuple(keys)
        self._linearisation: Linearisation = linearisation
        self._population_size, self._weighting = population_size, weighting
        n = domains.codes.shape[1]
        if sample_design.n != n:
            raise InputError(
                f"The sample design has {sample_design.n} records, but the domains have {n}."
            )
        rule = rule or PartialSynthesis()
        self._collected = {
            key: rule.collect(draws, replicates, sample_design) for key in self.keys
        }
        self.separate_pair = False

    def add(self, dataset: SyntheticDataset) -> None:
        """Estimate every table from one dataset, its variance from the pair that is given for it.

        Raises ``InputError`` if the arrays do not fit the rows of the tables.
        """
        self.separate_pair = dataset.separate_pair
        for key, collected in self._collected.items():
            released = pair = self._linearised(key, dataset.outcome, dataset.weight)
            if self.separate_pair:
                pair = self._linearised(key, dataset.variance_outcome, dataset.variance_weight)
            collected.add(dataset.draw, dataset.replicate, released.estimate, pair)

    def add_alone(self, outcomes: FloatArray, weight: FloatArray) -> None:
        """Estimate every table from the one dataset that there is: outcomes (n, p), weight (n,)."""
        self.add(SyntheticDataset(1, 1, outcomes, weight, outcomes, weight))

    def _linearised(
        self, key: Key, outcomes: FloatArray, weight: FloatArray
    ) -> LinearisedTable:
        statistic, column = key
        return linearise_domains(
            self.domains,
            weight=self._weighting(weight, statistic),
            outcome=None if column is None else outcomes[:, column],
            statistic=statistic,
            linearisation=self._linearisation,
            population_size=self._population_size,
        )

    def combined(self, key: Key) -> Combined:
        """One table of all datasets.

        Raises ``InputError`` for a table that is not among the keys, or before any dataset.
        """
        if key not in self._collected:
            raise InputError(f"There is no table {key}; the tables are {list(self.keys)}.")
        return self._collected[key].combined()
