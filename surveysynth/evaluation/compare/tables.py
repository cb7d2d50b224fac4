"""Tables of the sample and of synthesizers, as frames; several tables of one release are stacked.

Comparisons treat all rows of a statistic together, whatever their table; pages show each table
separately. All frames are confidential.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.config import build
from surveysynth.config.sections import replicates_of
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError
from surveysynth.estimation.replication import ReplicateWeights
from surveysynth.estimation.statistics import TABLE
from surveysynth.release.tables.table_builder import Tables, estimates_by_table, tables_by_name
from surveysynth.survey.survey import Confidential, Survey

Key: TypeAlias = tuple[str, str | None]
"""A statistic and an outcome by their names, None for counts."""


def stacked(spec: Spec, tables: Mapping[str, Mapping[Key, pd.DataFrame]]) -> (
    dict[Key, pd.DataFrame]
):
    """Stack the frames of all tables, by name, into one for each key.

    By-columns that a table lacks are empty.
    """
    if not spec.named_tables:
        (alone,) = tables.values()
        return dict(alone)
    keys = dict.fromkeys(key for frames in tables.values() for key in frames)
    made = {}
    for key in keys:
        whole = pd.concat([
            frames[key].assign(**{TABLE: name}) for name, frames in tables.items() if key in frames
        ], ignore_index=True)  # fmt: skip
        by = [name for name in spec.by if name in whole]
        first = [TABLE, *by]
        others = [name for name in whole if name not in first]
        made[key] = whole.fillna(dict.fromkeys(by, ""))[[*first, *others]]
    return made


def by_table(spec: Spec, frame: pd.DataFrame) -> "Iterator[tuple[Spec, pd.DataFrame]]":
    """Yield the rows of each table in a stacked frame, with its by-columns and specification."""
    for each in spec.each_table:
        if not spec.named_tables:
            yield each, frame
            continue
        rows = frame[frame[TABLE] == each.table.name].reset_index(drop=True)
        others = [name for name in spec.by if name not in each.table.by and name in rows]
        if len(rows):
            yield each, rows.drop(columns=[TABLE, *others])


def frames(spec: Spec, made: Mapping[str, Tables]) -> dict[Key, pd.DataFrame]:
    """Return tables in the form of a release, by name, without degrees of freedom.

    n comes before the numbers, the flag after; several tables are stacked.
    """
    return stacked(spec, {
        name: {
            (table.statistic, table.outcome): _columns(table.frame)
            for of_statistic in tables.values()
            for table in of_statistic
        }
        for name, tables in made.items()
    })  # fmt: skip


def _columns(frame: pd.DataFrame) -> pd.DataFrame:
    numbers = ["estimate", "se", "ci_lower", "ci_upper"]
    apart = {*numbers, "n", "flag", "df", "df_design"}
    return frame[[*(name for name in frame if name not in apart), "n", *numbers, "flag"]].copy()


#: Standard errors below this share of an estimate are rounding: the number is public.
ROUNDING = 1e-9


def without_flags(spec: Spec) -> Spec:
    """Return the specification with every row kept, even if a release would withhold it."""
    unflagged = tuple(each.model_copy(update={"flags": "none"}) for each in spec.tables)
    return spec.model_copy(update={"tables": unflagged})


def sample_weight(survey: Survey) -> FloatArray:
    """Return the weights (n,) for estimates of the sample; raise ``InputError`` without any."""
    weight = survey.sampling_weight
    if weight is None:
        raise InputError("a comparison of survey tables needs sampling weights; give weight.")
    return weight


def sample_tables(spec: Spec, survey: Survey) -> dict[Key, pd.DataFrame]:
    """Estimate the tables of a specification from the sample itself.

    Design, statistics and weights are those of a release. Values are real, so variances are by PSU
    even if a design effect is declared, or by the agency's replicate weights.
    """
    by_psu = replace(survey.design, design_effect=None)
    estimates = estimates_by_table(spec, by_psu, rule=_replication(spec, survey))
    for of_table in estimates.values():
        of_table.add_alone(survey.confidential.outcome, sample_weight(survey))
    return frames(spec, tables_by_name(spec.for_records(by_psu.n), by_psu, estimates))


def _replication(spec: Spec, survey: Survey) -> ReplicateWeights | None:
    """Return the rule of the sample's replicate weights, calibrated like its weight; or None."""
    replicates, calibration = replicates_of(spec.survey, survey), None
    if replicates is not None:
        calibration = build.calibration_of(spec, survey.design)
    if replicates is None or calibration is None:
        return replicates
    return replicates.calibrated(lambda w: calibration.calibrate(w, survey.confidential.outcome))


def answered(survey: Survey) -> Survey:
    """Return the survey with each missing answer taken from a record of the same cell of X.

    Donors are drawn with probability proportional to their weight; of a cell without an answer,
    from all records. This is rougher than what a release does: answers are assumed to be missing at
    random given X alone. The result is as confidential as the survey.
    """
    if survey.design.missing != "model":
        return survey
    rng = np.random.default_rng(0)
    outcome, weight = survey.confidential.outcome.copy(), survey.sampling_weight
    mass = np.ones(survey.design.n) if weight is None else weight
    for column in outcome.T:
        _fill(column, survey.design.matrix.cell, mass, rng)
    design = replace(
        survey.design,
        outcomes=tuple(replace(each, missing=False) for each in survey.design.outcomes),
        missing="fail",
    )
    filled = Confidential(outcome, survey.confidential.sampling_weight)
    return replace(survey, design=design, confidential=filled)


def _fill(
    values: FloatArray, cell: IntArray, mass: FloatArray, rng: np.random.Generator
) -> None:
    """Fill missing values (n,) in place; zeros where no record has an answer."""
    lost = np.isnan(values)
    if lost.all():
        values[:] = 0.0
        return
    there = np.flatnonzero(~lost)
    for code in np.unique(cell[lost]):
        need = np.flatnonzero(lost & (cell == code))
        donors = there[cell[there] == code]
        donors = donors if donors.size else there
        share = mass[donors] / mass[donors].sum()
        values[need] = values[rng.choice(donors, need.size, p=share)]
