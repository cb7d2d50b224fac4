"""Samples of the published simulation as surveys."""

import numpy as np
import pandas as pd

from surveysynth.evaluation.studies.population import Population, SamplingDesign
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform

#: Stream of random numbers of samples.
_DRAWN = 1


def sample_of(frame: pd.DataFrame, n: int, seed: int, number: int) -> Survey:
    """Sample ``number`` of n records from a simulated population, with main effects in X."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_DRAWN, number)))
    population = Population(frame, ("salary",), ("field", "gender"), "field", "size")
    return Survey.from_frame(
        SamplingDesign(n=n).draw(population, rng), outcome="salary", weight="weight",
        by=("field", "gender"), strata="field", population_size=len(frame),
        predictors="field + gender", transforms=(Transform(),),
        level_order={name: tuple(sorted(set(frame[name]))) for name in ("field", "gender")},
        source="the sample",
    )  # fmt: skip
