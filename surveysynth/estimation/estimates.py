"""Estimates of every requested statistic, dataset by dataset, and the tables they combine to."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.estimation.clusters import clusters_of
from surveysynth.estimation.combining import combine, t_interval
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.taylor import SampleDesign, estimate_domains
from surveysynth.release.folder.microdata import has_separate_pair
from surveysynth.release.tables.flags import policy_of
from surveysynth.release.tables.table import ReleaseTable, Statistic, TableNumbers, make_table

if TYPE_CHECKING:
    from surveysynth.inference.synthesis import SyntheticDataset
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import PublicDesign

Key = tuple[Statistic, str | None]


class Estimates:
    """Collects estimates and variances (m, r, D) of each statistic while datasets stream by."""

    def __init__(self, spec: "Spec", design: "PublicDesign") -> None:
        self._spec, self._design = spec, design
        margins = {column: spec.margin_label(column) for column in design.by}
        self.domains: Domains = build_domains(design.frame, design.by, design.levels, margins)
        self.sample_design = SampleDesign.from_public(design)
        self.keys = _keys(spec)
        shape = (spec.privacy.m, spec.privacy.replicates_per_draw, self.domains.n_rows)
        self._estimates = {key: np.full(shape, np.nan) for key in self.keys}
        self._variances = {key: np.full(shape, np.nan) for key in self.keys}
        self.separate_pair = False

    def add(self, dataset: "SyntheticDataset") -> None:
        """Estimate every statistic from one dataset."""
        place = (dataset.draw - 1, dataset.replicate - 1)
        self.separate_pair = has_separate_pair(dataset)
        for key in self.keys:
            estimate, variance = self._one(key, dataset.outcome, dataset.weight)
            if self.separate_pair:
                _, variance = self._one(key, dataset.variance_outcome, dataset.variance_weight)
            self._estimates[key][place] = estimate
            self._variances[key][place] = variance

    def _one(
        self, key: Key, outcomes: FloatArray, weight: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        statistic, outcome = key
        column = None if outcome is None else self._design.outcome_names.index(outcome)
        result = estimate_domains(
            self.domains,
            self.sample_design,
            weight=weight,
            outcome=None if column is None else outcomes[:, column],
            statistic=statistic,
            linearisation=self._spec.linearisation,
            population_size=self._design.population_size,
        )
        return result.estimate, result.variance

    def tables(self) -> Mapping[Statistic, list[ReleaseTable]]:
        """The combined tables, by statistic in the order of the specification."""
        tables: dict[Statistic, list[ReleaseTable]] = {}
        for key in self.keys:
            tables.setdefault(key[0], []).append(self._table(key))
        return tables

    def _table(self, key: Key) -> ReleaseTable:
        level = self._spec.tables.level
        combined = combine(
            self._estimates[key],
            self._variances[key],
            float(self.sample_design.degrees_of_freedom),
        )
        lower, upper = t_interval(combined, level)
        numbers = TableNumbers(
            estimate=combined.estimate,
            se=combined.standard_error,
            df=combined.df,
            df_design=combined.df_design,
            ci_lower=lower,
            ci_upper=upper,
            n=self.domains.n,
        )
        return make_table(
            *key,
            self.domains.table,
            numbers,
            level=level,
            notes=self._notes(key[0]),
            flags=policy_of(self._spec.tables.flags, self._spec.tables.flag_action),
        )

    def _notes(self, statistic: Statistic) -> list[str]:
        m, replicates = self._spec.privacy.m, self._spec.privacy.replicates_per_draw
        datasets = f"{m * replicates} synthetic dataset{'s' if m * replicates > 1 else ''}"
        draws = f"m = {m} released draw{'s' if m > 1 else ''}"
        notes = [
            f"Estimates from {datasets} ({draws}); standard errors by Taylor linearisation, "
            "combined by the rules of partial synthesis."
        ]
        if statistic == "count" and self._spec.linearisation == "ratio":
            notes.append(
                "Counts add up to the public population size, which has no sampling error."
            )
        if clusters := clusters_of(self._design):
            notes.append(clusters.note)
        if m == 1:
            notes.append(
                "With a single draw (m = 1) the variance of the synthesis cannot be estimated: "
                "the standard errors leave it out."
            )
        if self._design.dropped:
            notes.append(
                f"{self._design.dropped:,} survey records with missing values were left out."
            )
        return notes


def _keys(spec: "Spec") -> tuple[Key, ...]:
    keys: list[Key] = []
    for statistic in spec.tables.statistics:
        if statistic == "count":
            keys.append((statistic, None))
        else:
            keys.extend((statistic, outcome) for outcome in spec.synthesizer.outcome)
    return tuple(keys)
