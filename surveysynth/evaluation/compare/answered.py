"""A confidential sample with no missing answers, to compare a release with."""

from dataclasses import replace

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.survey.survey import Confidential, Survey


def answered(survey: Survey, seed: int = 0) -> Survey:
    """Return the survey with each missing answer taken from a record of the same cell of X.

    Donors are drawn with probability proportional to their weight; of a cell without an answer,
    from all records. This is rougher than what a release does: answers are assumed to be missing at
    random given X alone. The result is as confidential as the survey.
    """
    if survey.design.missing != "model":
        return survey
    rng = np.random.default_rng(seed)
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
