"""Small studies, and one whose worker dies."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from surveysynth.evaluation.studies.coverage import CoverageStudy
from surveysynth.evaluation.studies.designs import SamplingDesign
from surveysynth.evaluation.studies.population import paper_population
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.sampling.plan import SamplingPlan

PLAN = SamplingPlan(4, 100, 125)
SETTINGS = MechanismSettings(epsilon=10.8, plan=PLAN)
DEBIAS_PLAN = SamplingPlan(2, 100, 250)


@lru_cache
def population():
    return paper_population(np.random.default_rng(4))


def small_study(cls=CoverageStudy, **changes):
    options = {
        "design": SamplingDesign(n=300),
        "methods": ("sample", "laplace"),
        "replicates": 6,
        "batch": 2,
        "settings": SETTINGS,
        "debias_plan": DEBIAS_PLAN,
        "replicates_per_draw": 1,
    }
    return cls(population(), **{**options, **changes})


@dataclass(frozen=True, eq=False)
class Deadly(CoverageStudy):
    """Its second batch kills the process that runs it, ``deaths`` times."""

    folder: str = ""
    deaths: int = 1

    def samples_of(self, task):
        if task.batch == 1:
            died = len(list(Path(self.folder).iterdir()))
            if died < self.deaths:
                (Path(self.folder) / str(died)).touch()
                os._exit(9)
        return super().samples_of(task)
