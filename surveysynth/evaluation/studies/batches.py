"""One task of a study: a batch of samples by one group of methods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import RefusedError
from surveysynth.estimation.combining import Combined
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import MEAN
from surveysynth.estimation.total_variance import TotalVariance, public_rows_of
from surveysynth.evaluation.baselines.laplace import has_sensitivity
from surveysynth.evaluation.compare.noise import laplace_noise
from surveysynth.evaluation.compare.tables import sample_weight
from surveysynth.evaluation.methods import LAPLACE, NOISY, SAMPLE, Inference
from surveysynth.evaluation.studies.coverage import NOISE, CoverageStudy, Task
from surveysynth.evaluation.studies.work import TaskResult, Work, alike
from surveysynth.inference.debias import debias_many, not_debiased
from surveysynth.inference.synthesis import datasets_of
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.posterior.draws import posterior_draws
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import release_statistics
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings, own_settings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.models import get_model
from surveysynth.models.weighted import weighted_form

if TYPE_CHECKING:
    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.models.base import Model
    from surveysynth.survey.survey import PublicDesign, Survey

#: Streams of random numbers. All models share the noise, so that they differ only in what they make
#: of the same statistics; every epsilon has the same numbers.
_LAPLACE_NOISE, _MODEL, _STATISTICS_NOISE, _POSTERIOR, _DATA = 2, 3, 5, 6, 7


class NoisyTask(Work):
    """One model by noisy statistics on a batch of samples, at one epsilon; tables of a release."""

    def __init__(self, study: CoverageStudy, task: Task) -> None:
        super().__init__(study)
        self.method, name = task.group, task.group.removesuffix(NOISY)
        self.model: Model = get_model(name, **study.options.get(name, {})).under_noise()
        self.key = crc32(name.encode())
        self.epsilon = study.epsilons[task.bound]
        self.settings = study.noise.at(self.epsilon)

    def result(self, samples: Sequence[int]) -> TaskResult:
        """Return the tables of all samples that were not refused."""
        for sample in samples:
            self._release(sample, self.study.survey(sample))
        return self.made()

    def _release(self, sample: int, survey: "Survey") -> None:
        study, model = self.study, self.model.of(survey.design)
        statistics = release_statistics(
            model, survey.design, survey.confidential, self.settings,
            SeededNoise(study.generator(_STATISTICS_NOISE, sample)),
        )  # fmt: skip
        rng = study.generator(_POSTERIOR, self.key, sample)
        try:
            draws, _ = posterior_draws(model, survey.design, statistics, self.settings, rng)
            self._infer(sample, survey.design, draws)
        except RefusedError as refusal:
            self.refuse([sample], [self.method], refusal)

    def _infer(self, sample: int, design: "PublicDesign", draws: "PrivateDraws") -> None:
        """Make the tables of one release."""
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


class NoiseTask(Work):
    """The sample itself and the noisy tables."""

    def result(self, samples: Sequence[int]) -> TaskResult:
        """Return the tables of all samples."""
        for sample in samples:
            survey = self.study.survey(sample)
            self._one(sample, survey)
        return self.made()

    def _one(self, sample: int, survey: "Survey") -> None:
        study, design = self.study, survey.design
        # Real values have variances by PSU, even if a design effect is declared.
        sample_design = SampleDesign.from_public(design).by_psu
        estimates = Estimates(
            study.domains(design.frame), sample_design, study.table_keys(),
            linearisation=study.linearisation, population_size=design.population_size,
            outcomes=study.outcomes,
        )  # fmt: skip
        estimates.add_alone(survey.confidential.outcome, sample_weight(survey))
        for key in estimates.keys:
            self.add(sample, SAMPLE, 0, *key, estimates.combined(key))
        keys = [key for key in estimates.keys if has_sensitivity(key[0])]
        if not keys or LAPLACE not in study.methods:
            return
        for m, bound in product(study.draws, study.bounds):
            noisy = laplace_noise(
                estimates, survey, keys, 2.0 * m * bound,
                study.generator(_LAPLACE_NOISE, sample, m), linearisation=study.linearisation,
            )  # fmt: skip
            for each in noisy:
                self.add(
                    sample, LAPLACE, m, each.statistic, each.outcome, each.combined(), bound
                )


@dataclass(frozen=True)
class Conventions:
    """Rules that estimate tables from the synthetic data of one model, as in a release."""

    model: "Model"
    design: "PublicDesign"

    def sample_design(self) -> SampleDesign:
        """Return the design for Taylor variances."""
        return SampleDesign.from_public(self.design)

    def weight(self, weight: FloatArray, statistic: str) -> FloatArray:
        """Return weights (n,) for a statistic."""
        return weight

    def combined(self, combined: Combined) -> Combined:
        """Return the estimates that intervals are made from."""
        return combined


class PublishedConventions(Conventions):
    """Rules that estimated Tables 4 and 5 of the tabular-products paper ([T]).

    Their interval lengths show conventions that [T] 2.3 states in part: intervals are 1.96 standard
    errors on either side; tables of data synthesized from a population model (FBP) have equal
    weights within a cell of X for means, and variances that leave the strata out. With these, a
    study at the settings of [T] 4.1 meets the lengths of all 24 cells of each table within a few
    percent.
    """

    def sample_design(self) -> SampleDesign:
        """Return the design, without strata for a model of the population."""
        if self.model.tilted:
            return SampleDesign(np.zeros(self.design.n, dtype=np.int64))
        return super().sample_design()

    def weight(self, weight: FloatArray, statistic: str) -> FloatArray:
        """Return weights (n,); for means of a population model equal within a cell of X.

        The weights of a cell add up as before, so that margins combine cells by their sizes.
        """
        if not self.model.tilted or statistic != MEAN.name:  # a convention of Table 5 alone
            return weight
        cell = self.design.matrix.cell
        return np.asarray((np.bincount(cell, weight) / np.bincount(cell))[cell])

    def combined(self, combined: Combined) -> Combined:
        """Return the estimates with the quantiles of a normal distribution."""
        return replace(combined, df=np.full_like(combined.df, np.inf))


class SynthesisTask(Work):
    """One synthesizer on a batch of samples, with every requested inference."""

    def __init__(self, study: CoverageStudy, task: Task) -> None:
        super().__init__(study)
        self.methods = study.inferences[task.group]
        self.model: Model = get_model(task.group, **study.options.get(task.group, {}))
        self.key = (_MODEL, crc32(task.group.encode()), task.batch)
        self.bound = study.bounds[task.bound]

    def result(self, samples: Sequence[int]) -> TaskResult:
        """Return the tables of all samples that were not refused."""
        for number, group in enumerate(alike(self.study, samples, self._prepared)):
            self._group(group, number)
        return self.made()

    def _prepared(self, sample: int, survey: "Survey") -> "Survey | None":
        """Pool small strata, as in a release."""
        try:
            design = self._widest().prepared(self.model.with_ridge(survey.design))
            return replace(survey, design=design)
        except RefusedError as refusal:
            self.refuse([sample], list(self.methods), refusal)
            return None

    def _group(self, surveys: "dict[int, Survey]", number: int) -> None:
        settings = self._widest()
        model = weighted_form(self.model, next(iter(surveys.values())).design)
        databases = [
            Database(
                model.records(survey.design, survey.confidential),
                survey.design.n,
                survey.confidential.outcome,
                survey.design.frame,
            )
            for survey in surveys.values()
        ]
        rng = self.study.generator(*self.key, number)
        results = run_batch(model, databases, settings, rng)
        released: dict[int, tuple[PublicDesign, PrivateDraws]] = {}
        for (sample, survey), result in zip(surveys.items(), results, strict=True):
            if isinstance(result, RefusedError):
                self.refuse([sample], list(self.methods), result)
            else:
                released[sample] = survey.design, result[0]
        for m in self.study.draws if released else ():
            nested = {sample: (design, first(draws, m, self.bound))
                      for sample, (design, draws) in released.items()}  # fmt: skip
            for method, inference in self.methods.items():
                self._infer(nested, m, method, inference, number)

    def _widest(self) -> MechanismSettings:
        """Return the mechanism at the largest number of draws; smaller m take its first ones."""
        m = max(self.study.draws)
        return replace(self.study.settings, m=m, epsilon=2.0 * m * self.bound)

    def _infer(
        self,
        releases: "dict[int, tuple[PublicDesign, PrivateDraws]]",
        m: int,
        method: str,
        inference: Inference,
        number: int,
    ) -> None:
        """Make the tables of every release of a batch with one kind of inference."""
        if inference == "debiased":
            rng = self.study.generator(*self.key, number, m, 1)
            plan = self.study.debias_plan
            made = debias_many(self.model, list(releases.values()), rng, plan=plan)
            pairs = list(zip(releases.items(), made, strict=True))
            releases = {}
            for (sample, (design, _)), each in pairs:
                if each.record.status == "not converged":
                    self.refuse([sample], [method], not_debiased(each.record))
                else:
                    releases[sample] = design, each.draws
        for sample, (design, draws) in releases.items():
            try:
                tables = list(self._tables(sample, design, draws, inference))
            except RefusedError as refusal:
                self.refuse([sample], [method], refusal)
                continue
            for statistic, column, combined in tables:
                self.add(sample, method, m, statistic, column, combined, self.bound)

    def _tables(
        self, sample: int, design: "PublicDesign", draws: "PrivateDraws", inference: Inference
    ) -> Iterator[tuple[str, int | None, Combined]]:
        """Make the tables of one release."""
        study, m, r = self.study, draws.settings.m, self.study.replicates_per_draw
        kind = PublishedConventions if inference == "published" else Conventions
        conventions = kind(self.model, design)
        estimates = Estimates(
            study.domains(design.frame), conventions.sample_design(), study.table_keys(),
            linearisation=study.linearisation, population_size=design.population_size,
            outcomes=study.outcomes, draws=m, replicates=r, weighting=conventions.weight,
        )  # fmt: skip
        # The same stream for every kind of inference, so that they differ only in the inference.
        rng = study.generator(*self.key[:2], sample, m, 2)
        for dataset in datasets_of(
            self.model, design, draws, rng, replicates_per_draw=r,
            inference="debiased" if inference == "debiased" else "paper",
        ):  # fmt: skip
            estimates.add(dataset)
        for key in estimates.keys:
            yield *key, conventions.combined(estimates.combined(key))


def first(draws: "PrivateDraws", m: int, bound: float) -> "PrivateDraws":
    """Return the first m of released draws, as a release at epsilon = 2 m bound."""
    settings = replace(own_settings(draws.settings), m=m, epsilon=2.0 * m * bound)
    return PrivateDraws(
        draws.model, {name: values[:m] for name, values in draws.theta.items()}, settings
    )


def run_task(study: CoverageStudy, task: Task) -> TaskResult:
    """Run one task of a study."""
    if task.group in study.strict_methods:
        return NoisyTask(study, task).result(study.samples_of(task))
    work = NoiseTask(study) if task.group == NOISE else SynthesisTask(study, task)
    return work.result(study.samples_of(task))
