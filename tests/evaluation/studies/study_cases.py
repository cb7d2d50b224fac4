"""A quick study, whose worker may die; workers of a cluster import it by this name."""

import os
from dataclasses import dataclass
from pathlib import Path

from surveysynth.evaluation.studies.study import OWN, FrameStudy
from tests.evaluation.studies.test_frame_study import study_of


@dataclass(frozen=True, eq=False)
class Quick(FrameStudy):
    """Samples and their noisy tables alone; the second one kills its process ``deaths`` times."""

    folder: str = ""
    deaths: int = 0

    def tasks(self):
        return [task for task in super().tasks() if task.group == OWN]

    def run(self, task):
        if task.sample == 1:
            died = len(list(Path(self.folder).iterdir())) if self.deaths else 0
            if died < self.deaths:
                (Path(self.folder) / str(died)).touch()
                os._exit(9)
        return super().run(task)


def quick(samples=6, **changes):
    whole = study_of(samples=samples)
    return Quick(whole.population, whole.design, whole.specs, samples, laplace=True, **changes)
