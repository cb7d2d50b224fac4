"""One release of a study on a frame: the steps of a release, in memory."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from surveysynth.config import build
from surveysynth.config.spec import Spec
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.statistics import LEVEL, TABLE
from surveysynth.release.pipeline import facts_of, prepared_survey, private_estimates
from surveysynth.release.tables.table_builder import Tables, tables_of_each
from surveysynth.survey.survey import Survey

NUMBERS = ("estimate", "se", "df", "ci_lower", "ci_upper")


@dataclass(frozen=True)
class Made:
    """What a release made: its tables by name, and facts on its records, which are confidential."""

    spec: Spec
    tables: Mapping[str, Tables]
    estimates: Mapping[str, Estimates]
    realised: Mapping[str, Any]

    def rows(self) -> pd.DataFrame:
        """Return the rows of all tables below each other."""
        return long_rows(self.spec, self.tables, self.estimates)


def released(spec: Spec, survey: Survey, stream: np.random.SeedSequence) -> Made:
    """Return the tables that a release of this survey would publish, by the steps of a release.

    Nothing is written. Raises ``RefusedError`` where a release would.
    """
    mechanism, chosen = build.mechanism_of(spec), build.engine_of(spec, build.model_of(spec))
    survey = prepared_survey(survey, spec, chosen, mechanism)
    design = survey.design
    model = chosen.of(design)
    model.prepare()
    facts = facts_of(spec, design, mechanism, model, test=True)
    of_mechanism, of_synthesis = map(np.random.default_rng, stream.spawn(2))
    with warnings.catch_warnings():
        # What a release says to its user once would be said for every sample.
        warnings.simplefilter("ignore", UserWarning)
        made = mechanism.run(
            model, design, survey.confidential, of_mechanism, _silent, seeded=True
        )
        design = made.design_of(design)
        facts, estimates = private_estimates(
            facts.with_design(design), model, made.draws, of_synthesis, _silent
        )
    tables = tables_of_each(facts.spec, design, estimates)
    return Made(facts.spec, tables, estimates, made.realised)


def _silent(stage: str) -> None:
    """Report no stage."""


def row_keys(spec: Spec) -> list[str]:
    """Return the columns that name a row: table, statistic, outcome, level, by columns."""
    return [TABLE, "statistic", "outcome", LEVEL, *spec.by]


def long_rows(
    spec: Spec, tables: Mapping[str, Tables], estimates: Mapping[str, Estimates]
) -> pd.DataFrame:
    """Return the rows of all tables below each other, with their number of records.

    n is that of the one dataset, or of the synthetic dataset with the fewest records.
    """
    parts = []
    names = [outcome.name for outcome in spec.declared]
    for name, of_statistic in tables.items():
        for each in (table for several in of_statistic.values() for table in several):
            column = None if each.outcome is None else names.index(each.outcome)
            n = estimates[name].lines((each.statistic, column)).n
            part = each.frame.assign(statistic=each.statistic, outcome=each.outcome or "")
            part[TABLE] = name
            part["n"] = np.repeat(n, max(len(each.categories), 1)).astype(np.float64)
            parts.append(part)
    return pd.concat(parts, ignore_index=True).reindex(
        columns=[*row_keys(spec), "is_margin", *NUMBERS, "n"]
    )


def as_text(labels: pd.DataFrame) -> pd.DataFrame:
    """Return labels of rows as text, empty where a table has no such column."""
    return labels.astype(object).where(labels.notna(), "").astype(str)
