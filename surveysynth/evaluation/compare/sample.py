"""The sample's own tables, and how far other tables lie from them. Confidential."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.evaluation.compare.several import Key
from surveysynth.evaluation.compare.synthesizers import frames
from surveysynth.release.tables.table_builder import estimates_of_each

if TYPE_CHECKING:
    from surveysynth.spec.spec import Spec
    from surveysynth.survey.survey import Survey

#: Rows farther from the sample than this, in its standard errors, are pointed out.
FAR = 3.0

#: Standard errors below this share of an estimate are rounding: the number is public.
ROUNDING = 1e-9


def without_flags(spec: "Spec") -> "Spec":
    """The specification with every row kept, also where a release would withhold its estimate."""
    unflagged = tuple(each.model_copy(update={"flags": "none"}) for each in spec.tables)
    return spec.model_copy(update={"tables": unflagged})


def sample_weight(survey: "Survey") -> FloatArray:
    """The weights (n,) that the sample is estimated with; ``InputError`` without any."""
    weight = survey.sampling_weight
    if weight is None:
        raise InputError("a comparison of survey tables needs sampling weights; give weight.")
    return weight


def sample_tables(spec: "Spec", survey: "Survey") -> dict[Key, pd.DataFrame]:
    """The tables of a specification, stacked where there are several, from the sample itself:
    design, statistics and weights are those of a release. Its values are real, so that its
    variances are by PSU also where a design effect is declared."""
    by_psu = replace(survey.design, design_effect=None)
    estimates = estimates_of_each(spec, by_psu)
    for of_table in estimates.values():
        of_table.add_alone(survey.confidential.outcome, sample_weight(survey))
    return frames(spec, by_psu, estimates)


def distances(
    estimate: FloatArray | pd.Series, sample: FloatArray | pd.Series, se: FloatArray | pd.Series
) -> FloatArray:
    """Estimate less the sample's, in standard errors of the sample, (D,); NaN where the sample has
    none, as a public total, or where there is no estimate."""
    theirs, own, error = (np.asarray(each, dtype=np.float64) for each in (estimate, sample, se))
    result = np.full(own.shape, np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        usable = np.isfinite(theirs) & (error > ROUNDING * np.abs(own)) & np.isfinite(error)
        result[usable] = (theirs[usable] - own[usable]) / error[usable]
    return result
