"""Noisy statistics on a batch of samples: releases as they would be, fitted side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

from surveysynth.errors import RefusedError
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.total_variance import TotalVariance, public_rows_of
from surveysynth.evaluation.methods import NOISY
from surveysynth.evaluation.studies.coverage import CoverageStudy, Task
from surveysynth.evaluation.studies.work import TaskResult, Work, alike
from surveysynth.mechanisms.noisy_statistics.posterior.draws import posterior_batch
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import release_statistics

if TYPE_CHECKING:
    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.models.base import Model
    from surveysynth.survey.survey import PublicDesign, Survey

#: Streams of random numbers. Noise is the same for all models: they differ by what they make of
#: the same statistics. At every epsilon the numbers are the same.
_NOISE, _POSTERIOR, _DATA = 5, 6, 7


class NoisyTask(Work):
    """One model from noisy statistics on a batch of samples, at one epsilon."""

    def __init__(self, study: CoverageStudy, task: Task) -> None:
        from surveysynth.models import get_model

        super().__init__(study)
        self.method, name = task.group, task.group.removesuffix(NOISY)
        self.model: Model = get_model(name, **study.options.get(name, {}))
        self.key = crc32(name.encode())
        self.epsilon = study.epsilons[task.bound]
        self.settings = study.noise.at(self.epsilon)

    def result(self, samples: Sequence[int]) -> TaskResult:
        """Tables of all samples that were not refused."""
        for group in alike(self.study, samples):
            self._group(group)
        return self.made()

    def _group(self, surveys: "dict[int, Survey]") -> None:
        study = self.study
        releases = [
            (
                survey.design,
                release_statistics(
                    self.model, survey.design, survey.confidential, self.settings,
                    SeededNoise(study.generator(_NOISE, sample)),
                ),
            )
            for sample, survey in surveys.items()
        ]  # fmt: skip
        rngs = [study.generator(_POSTERIOR, self.key, sample) for sample in surveys]
        results = posterior_batch(self.model, releases, self.settings, rngs)
        for (sample, survey), result in zip(surveys.items(), results, strict=True):
            try:
                if isinstance(result, RefusedError):
                    raise result
                self._infer(sample, survey.design, result[0])
            except RefusedError as refusal:
                self.refuse([sample], [self.method], refusal)

    def _infer(self, sample: int, design: "PublicDesign", draws: "PrivateDraws") -> None:
        """The tables of one release."""
        from surveysynth.inference.published import datasets_of

        study, r = self.study, self.study.noise.replicates_per_draw
        estimates = Estimates(
            study.domains(design.frame), SampleDesign.from_public(design), study.table_keys(),
            linearisation=study.linearisation, population_size=design.population_size,
            outcomes=study.outcomes, draws=self.settings.m, replicates=r,
            rule=TotalVariance(public_rows_of(design)),
        )  # fmt: skip
        rng = study.generator(_DATA, self.key, sample)
        for dataset in datasets_of(
            self.model, design, draws, rng, inference="paper", replicates_per_draw=r
        ):
            estimates.add(dataset)
        made = [(key, estimates.combined(key)) for key in estimates.keys]
        for m, bound in study.settings_at(self.epsilon):
            for key, combined in made:
                self.add(sample, self.method, m, *key, combined, bound)
