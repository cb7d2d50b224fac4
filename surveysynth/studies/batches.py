"""What one task of a study does: a batch of samples by one group of methods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from surveysynth.baselines.consistent import consistent_tables
from surveysynth.baselines.laplace import laplace_tables
from surveysynth.baselines.sensitivity import has_sensitivity
from surveysynth.errors import InputError, RefusedError
from surveysynth.estimation.combining import Combined, t_interval
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings, own_settings
from surveysynth.studies.coverage import (
    CONSISTENT,
    LAPLACE,
    NOISE,
    CoverageStudy,
    Inference,
    Task,
)
from surveysynth.studies.measures import SAMPLE
from surveysynth.studies.published import Conventions, PublishedConventions

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.models.base import Model
    from surveysynth.survey.survey import PublicDesign, Survey

#: Streams of random numbers; those before them are of the study.
_NOISE, _MODEL = 2, 3


@dataclass(frozen=True)
class TaskResult:
    """Replicates (see ``measures``), and how often each method gave none, by reason."""

    replicates: "pd.DataFrame"
    refusals: "pd.DataFrame"


class _Work:
    """Collects the replicates of one task."""

    def __init__(self, study: CoverageStudy) -> None:
        self.study = study
        self.frames: list[pd.DataFrame] = []
        self.refused: list[dict[str, Any]] = []

    def add(
        self,
        sample: int,
        method: str,
        m: int,
        statistic: str,
        column: int | None,
        combined: Combined,
        bound: float = np.inf,
    ) -> None:
        """One table of one sample."""
        lower, upper = t_interval(combined, self.study.level)
        epsilon = np.inf if method == SAMPLE else 2.0 * m * bound
        values = {
            "method": method,
            "m": 0 if method == SAMPLE else m,
            "epsilon": epsilon,
            "sample": sample,
            "estimate": combined.estimate,
            "se": combined.standard_error,
            "df": combined.df,
            "ci_lower": lower,
            "ci_upper": upper,
        }
        self.frames.append(self.study.frame(statistic, column, {**_arrays(values)}))

    def refuse(self, samples: Sequence[int], methods: Sequence[str], reason: object) -> None:
        """Samples without a table by these methods."""
        self.refused += [
            {"sample": sample, "method": method, "reason": str(reason)}
            for sample in samples
            for method in methods
        ]

    def made(self) -> TaskResult:
        """All that was collected."""
        import pandas as pd

        refusals = pd.DataFrame(self.refused, columns=["sample", "method", "reason"])
        if not self.frames:  # a file without rows, but with all columns and their types
            blank = np.zeros(1)
            none = Combined(blank, blank, blank, 1.0, blank, blank)
            self.add(0, SAMPLE, 0, *self.study.table_keys()[0], none)
            return TaskResult(self.frames.pop().iloc[:0], refusals)
        return TaskResult(pd.concat(self.frames, ignore_index=True), refusals)


def _arrays(values: dict[str, Any]) -> dict[str, Any]:
    """The columns that are arrays first: they settle the number of rows."""
    return dict(sorted(values.items(), key=lambda item: not isinstance(item[1], np.ndarray)))


class NoiseTask(_Work):
    """The sample itself and the noisy tables."""

    def result(self, samples: Sequence[int]) -> TaskResult:
        """Tables of all samples."""
        for sample in samples:
            survey = self.study.survey(sample)
            self._one(sample, survey)
        return self.made()

    def _one(self, sample: int, survey: "Survey") -> None:
        study, design = self.study, survey.design
        # Real values, whose variances are by PSU also where a design effect is declared.
        sample_design = SampleDesign.from_public(design).by_psu
        weight, outcomes = survey.confidential.sampling_weight, survey.confidential.outcome
        if weight is None:
            raise InputError("a sample without weights.")
        estimates = Estimates(
            study.domains(design.frame), sample_design, study.table_keys(),
            linearisation=study.linearisation, population_size=design.population_size,
        )  # fmt: skip
        estimates.add_alone(outcomes, weight)
        for key in estimates.keys:
            self.add(sample, SAMPLE, 0, *key, estimates.combined(key))
        keys = [key for key in estimates.keys if has_sensitivity(key[0])]
        if not keys or not {LAPLACE, CONSISTENT} & set(study.methods):
            return
        for m, bound in product(study.draws, study.bounds):
            noisy = laplace_tables(
                estimates.domains, sample_design, weight=weight, outcomes=outcomes, keys=keys,
                epsilon=2.0 * m * bound, rng=study.generator(_NOISE, sample, m),
                linearisation=study.linearisation, population_size=design.population_size,
            )  # fmt: skip
            for method, tables in ((LAPLACE, noisy), (CONSISTENT, None)):
                if method in study.methods:
                    made = consistent_tables(estimates.domains, noisy) if tables is None else tables
                    for each in made:
                        combined = each.combined()
                        self.add(sample, method, m, each.statistic, each.outcome, combined, bound)


class SynthesisTask(_Work):
    """One synthesizer on a batch of samples, with every inference that is asked for."""

    def __init__(self, study: CoverageStudy, task: Task) -> None:
        from surveysynth.models import get_model

        super().__init__(study)
        self.methods = study.inferences[task.group]
        self.model: Model = get_model(task.group, **study.options.get(task.group, {}))
        self.key = (_MODEL, crc32(task.group.encode()), task.batch)
        self.bound = study.bounds[task.bound]

    def result(self, samples: Sequence[int]) -> TaskResult:
        """Tables of all samples that were not refused."""
        # Databases of one batch have as many columns of X and as many PSUs as each other; a sample
        # without a level of some variable has fewer.
        surveys = {sample: self.study.survey(sample) for sample in samples}
        groups: dict[tuple[tuple[str, ...], int], list[int]] = {}
        for sample, survey in surveys.items():
            psu = survey.design.psu
            units = 0 if psu is None else int(psu.max()) + 1
            groups.setdefault((survey.design.matrix.columns, units), []).append(sample)
        for number, group in enumerate(groups.values()):
            self._group({sample: surveys[sample] for sample in group}, number)
        return self.made()

    def _group(self, surveys: "dict[int, Survey]", number: int) -> None:
        from surveysynth.mechanisms.pseudo_posterior.fit import Database
        from surveysynth.mechanisms.pseudo_posterior.run import run_batch

        settings = self._widest()
        databases = [
            Database(
                self.model.records(survey.design, survey.confidential),
                survey.design.n,
                survey.confidential.outcome,
                survey.design.frame,
            )
            for survey in surveys.values()
        ]
        rng = self.study.generator(*self.key, number)
        results = run_batch(self.model, databases, settings, rng)
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
        """The mechanism at the largest number of draws; fewer are its first ones."""
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
        """Tables of every release of a batch with one kind of inference."""
        if inference == "debiased":
            from surveysynth.inference.debias import debias_many

            rng = self.study.generator(*self.key, number, m, 1)
            plan = self.study.debias_plan
            made = debias_many(self.model, list(releases.values()), rng, plan=plan)
            pairs = zip(releases.items(), made, strict=True)
            releases = {sample: (design, each.draws) for (sample, (design, _)), each in pairs}
            failed = [sample for sample, each in zip(releases, made, strict=True)
                      if each.record.status == "not converged"]  # fmt: skip
            self.refuse(failed, [f"{method}: debiasing"], "not converged: draws as released")
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
        """The tables of one release."""
        from surveysynth.inference.published import datasets_of

        study, m, r = self.study, draws.settings.m, self.study.replicates_per_draw
        kind = PublishedConventions if inference == "published" else Conventions
        conventions = kind(self.model, design)
        estimates = Estimates(
            study.domains(design.frame), conventions.sample_design(), study.table_keys(),
            linearisation=study.linearisation, population_size=design.population_size,
            draws=m, replicates=r, weighting=conventions.weight,
        )  # fmt: skip
        # The same stream for every kind of inference: they differ by what they do alone.
        rng = study.generator(*self.key[:2], sample, m, 2)
        for dataset in datasets_of(
            self.model, design, draws, rng, replicates_per_draw=r,
            inference="debiased" if inference == "debiased" else "paper",
        ):  # fmt: skip
            estimates.add(dataset)
        for key in estimates.keys:
            yield *key, conventions.combined(estimates.combined(key))


def first(draws: "PrivateDraws", m: int, bound: float) -> "PrivateDraws":
    """The first m of released draws, a release of its own at epsilon = 2 m bound."""
    from surveysynth.mechanisms.base import PrivateDraws

    settings = replace(own_settings(draws.settings), m=m, epsilon=2.0 * m * bound)
    return PrivateDraws(
        draws.model, {name: values[:m] for name, values in draws.theta.items()}, settings
    )


def run_task(study: CoverageStudy, task: Task) -> TaskResult:
    """Everything of one task of a study."""
    work = NoiseTask(study) if task.group == NOISE else SynthesisTask(study, task)
    return work.result(study.samples_of(task))
