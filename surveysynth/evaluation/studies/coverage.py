"""Coverage studies: repeated samples of a population, every method at one epsilon (methods 7).

A study is cut into tasks of one batch of samples and one group of methods: "noise" is the sample
and the noisy tables, the others are synthesizers. A batch runs in sweeps of arrays. A task's draws
depend only on the seed, the samples' numbers and the method, so tasks may run anywhere, in any
order, and again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth.errors import InputError
from surveysynth.estimation.contrasts import Pairs
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.estimates import Estimates, Key
from surveysynth.estimation.statistics import COUNT, MEAN, statistic_of, table_keys
from surveysynth.estimation.taylor import Linearisation, SampleDesign
from surveysynth.evaluation.methods import LAPLACE, SAMPLE, Inference, study_method
from surveysynth.evaluation.studies.designs import WEIGHT, SamplingDesign, check_clusters
from surveysynth.evaluation.studies.population import Population, paper_population, superpopulation
from surveysynth.mechanisms.declared import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN, RECORD, NoisySettings
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome, outcomes_of
from surveysynth.survey.survey import Survey

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.evaluation.studies.population import Population
    from surveysynth.survey.survey import Survey

#: The default of a release.
DELTA = 1e-6


@dataclass(frozen=True)
class StrictSettings:
    """Public constants of these methods, beside the epsilon that all methods share.

    declared: by name of an outcome; weight: of the log weight. m, replicates_per_draw: draws and
    datasets a draw of noisy statistics, which cost nothing. radius and protect as in
    ``NoisySettings``. plan: of the simulated fits.
    """

    declared: Mapping[str, Declared] = field(default_factory=dict)
    weight: Declared = field(default_factory=Declared)
    delta: float = DELTA
    m: int = 20
    replicates_per_draw: int = 10
    radius: float = 0.0
    protect: str = RECORD
    plan: SamplingPlan = NOISY_PLAN

    def at(self, epsilon: float) -> NoisySettings:
        """Return the settings of a release at this epsilon."""
        return NoisySettings(
            Budget.of_epsilon(epsilon, self.delta), self.declared, self.weight, self.m, self.radius,
            self.protect, self.plan,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that identify a study."""
        return {**asdict(self), "declared": {k: asdict(v) for k, v in self.declared.items()}}

    def check(self, methods: Sequence[str], population: "Population") -> None:
        """Raise ``InputError`` if one of the methods could run on no sample."""
        if self.m < 2 or self.replicates_per_draw < 1 or self.m > self.plan.kept:
            raise InputError(
                "noisy statistics need at least two draws, no more than are kept, of at least one "
                f"dataset each, got {self.m} x {self.replicates_per_draw}."
            )
        for name in population.outcome:
            given = self.declared.get(name, Declared())
            if given.centre is None or given.spread is None:
                raise InputError(
                    f"the methods {', '.join(methods)} need a declared centre and spread of "
                    f"{name!r}, from public sources: give [outcomes.{name}] with centre, a typical "
                    "value in its own units, and spread, a typical standard deviation on the "
                    "scale of its transform, or leave these methods out."
                )
            if not (math.isfinite(given.centre) and given.spread > 0):
                raise InputError(
                    f"the declared centre of {name!r} must be finite and its spread above zero, "
                    f"got {given.centre} and {given.spread}."
                )


NOISE = "noise"
NOISE_METHODS = (SAMPLE, LAPLACE)

#: Simulated fits, many at once: two long chains take less work than four short ones for as many
#: draws. A fit that does not converge is one of nine; a release's own would be refused.
BATCH_PLAN = SamplingPlan(2, 150, 500)
BATCH = 25
#: For the published population, as a public report could say: salaries of about 100,000 dollars
#: that differ by a factor of about exp(0.42) within and between its cells (a SD of 0.4 within
#: cells, and of 0.13 between their published means). One centre serves all cells, so
#: that it reveals none of them.
PAPER_DECLARED = {"salary": Declared(centre=100_000.0, spread=0.42)}
#: For the simulated clusters: exp(10.35), and variances of 0.18 within, 0.1 between strata and
#: groups.
TWO_STAGE_DECLARED = {"outcome": Declared(centre=31_000.0, spread=0.53)}
#: The epsilon of three draws in the published simulation.
PUBLISHED_EPSILON = 10.8
#: Streams of random numbers; tasks use those from 2 on.
_POPULATION, _DRAWN = 0, 1


@dataclass(frozen=True, order=True)
class Task:
    """Samples of one batch (from 0), by one group.

    The group is "noise", a synthesizer, or a synthesizer by noisy statistics. The bound counts,
    from 0, the study's bounds for a synthesizer and its epsilons for noisy statistics; noise has
    all of them.
    """

    batch: int
    group: str
    bound: int = 0

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.batch:05d}_{self.group}" + (f"_{self.bound + 1}" if self.bound else "")


@dataclass(frozen=True, eq=False)
class CoverageStudy:
    """Repeated samples of a population, every method with the same epsilon on each of them.

    methods: "sample", "laplace" and synthesizers, with "_paper" or "_debiased" for the inference,
    by default debiased; "_published" is inference as in the paper with the conventions of its
    Tables 4 and 5. The sample is always included as the reference.
    settings: of the mechanism; its epsilon is for m draws, and ``draws`` are the numbers of draws
    m' that tables are made from, nested draws of one fit, each at epsilon 2 m' times the same
    bound; () stands for m alone. bounds: of one draw, a fit for each; () stands for that of
    ``settings``, epsilon / (2 m). Random numbers are the same at every bound. options: of a model
    by name. batch: samples that run side by side; results depend on it. debias_plan: of the
    simulated fits of debiasing, with as many kept draws as ``settings.plan``. design_effect:
    declared for synthetic data of a two-stage design, instead of effects of PSUs.

    Methods "fbs_noisy", .. (noisy statistics) promise zero-concentrated privacy at every one of
    ``epsilons``, with the constants, draws and datasets of ``noise``. The m of their tables, as
    that of noise, shows which epsilon applies.
    """

    population: Population
    design: SamplingDesign = field(default_factory=SamplingDesign)
    methods: tuple[str, ...] = (*NOISE_METHODS, "fbs", "fbp")
    replicates: int = 100
    seed: int = 0
    settings: MechanismSettings = field(
        default_factory=partial(MechanismSettings, epsilon=PUBLISHED_EPSILON)
    )
    draws: tuple[int, ...] = ()
    bounds: tuple[float, ...] = ()
    replicates_per_draw: int = 4
    statistics: tuple[str, ...] = (COUNT.name, MEAN.name)
    linearisation: Linearisation = "ratio"
    level: float = 0.95
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    batch: int = BATCH
    debias_plan: SamplingPlan = BATCH_PLAN
    design_effect: float | None = None
    noise: StrictSettings = field(default_factory=StrictSettings)

    def __post_init__(self) -> None:
        if self.replicates < 1 or self.batch < 1 or self.replicates_per_draw < 1:
            raise InputError("replicates, batch and replicates_per_draw must be at least 1.")
        if self.seed < 0:
            raise InputError(f"the seed must be 0 or a positive whole number, got {self.seed}.")
        if self.debias_plan.kept != self.settings.plan.kept:
            raise InputError(
                f"debias_plan must keep as many draws as the mechanism ({self.settings.plan.kept}):"
                f" a bound over more draws is larger; got {self.debias_plan.kept}."
            )
        if not self.settings.private:
            raise InputError("a study compares methods at one epsilon; risk 'none' has none.")
        self.design.check(self.population)
        given = self.draws or (self.settings.m,)
        if min(given) < 1 or len(set(given)) < len(given):
            raise InputError("draws must be distinct whole numbers of at least 1.")
        object.__setattr__(self, "draws", tuple(sorted(given)))
        bounds = self.bounds or (self.settings.target_bound,)
        if not all(np.isfinite(each) and each > 0 for each in bounds):
            raise InputError("bounds must be positive numbers.")
        if len(set(bounds)) < len(bounds):
            raise InputError("bounds must be distinct.")
        object.__setattr__(self, "bounds", tuple(sorted(float(each) for each in bounds)))
        methods = tuple(dict.fromkeys((SAMPLE, *self.methods)))
        object.__setattr__(self, "methods", methods)
        _ = self.inferences  # raises for an unknown method
        check_clusters(self.design, tuple(self.inferences), self.design_effect)
        if self.strict_methods:
            self.noise.check(self.strict_methods, self.population)

    @cached_property
    def inferences(self) -> dict[str, dict[str, Inference]]:
        """Map each synthesizer to its methods and their inference."""
        result: dict[str, dict[str, Inference]] = {}
        for method in map(study_method, self.methods):
            if method.model and not method.noisy:
                result.setdefault(method.model, {})[method.name] = method.inference
        return result

    @cached_property
    def strict_methods(self) -> tuple[str, ...]:
        """The methods that promise zero-concentrated privacy."""
        return tuple(name for name in self.methods if study_method(name).noisy)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Every epsilon at which tables are made, in order."""
        return tuple(sorted({2.0 * m * bound for m in self.draws for bound in self.bounds}))

    def settings_at(self, epsilon: float) -> list[tuple[int, float]]:
        """Return (m, bound) of every release with this epsilon."""
        pairs = [(m, bound) for bound in self.bounds for m in self.draws]
        return [(m, bound) for m, bound in pairs if 2.0 * m * bound == epsilon]

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return -(-self.replicates // self.batch)

    def tasks(self) -> list[Task]:
        """Return all tasks, noise first."""
        runs = [(NOISE, 0)]
        runs += [(group, bound) for bound in range(len(self.bounds)) for group in self.inferences]
        runs += [(group, at) for at in range(len(self.epsilons)) for group in self.strict_methods]
        return [Task(batch, *run) for run in runs for batch in range(self.n_batches)]

    def samples_of(self, task: Task) -> range:
        """Return the numbers of the samples of a task's batch, from 0."""
        first = task.batch * self.batch
        return range(first, min(first + self.batch, self.replicates))

    def generator(self, *key: int) -> np.random.Generator:
        """Return a generator with a stream of its own for each key."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def survey(self, sample: int) -> "Survey":
        """Draw sample number ``sample`` as a survey."""
        population = self.population
        frame = self.design.draw(population, self.generator(_DRAWN, sample))
        return Survey.from_frame(
            frame,
            outcome=population.outcome,
            weight=WEIGHT,
            by=population.by,
            strata=population.strata,
            psu=population.psu if self.design.two_stage else None,
            design_effect=self.design_effect,
            population_size=population.n_units,
            predictors=population.predictors,
            transforms=population.transforms,
            level_order=population.levels,
            source="the sample",
        )

    def domains(self, frame: "pd.DataFrame") -> Domains:
        """Return the rows of the tables."""
        return build_domains(frame, self.population.by, self.population.levels)

    def table_keys(self) -> tuple[Key, ...]:
        """Return statistics with the column of their outcome."""
        return table_keys(self.statistics, self.outcomes)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The population's outcomes."""
        return outcomes_of(self.population.outcome, self.population.transforms)

    def truth(self) -> "pd.DataFrame":
        """Return every cell of the population itself: statistic, outcome, row, truth."""
        frame = self.population.frame
        whole = SampleDesign(np.zeros(len(frame), dtype=np.int64))
        estimates = Estimates(
            self.domains(frame), whole, self.table_keys(), linearisation="plain",
            population_size=None, outcomes=self.outcomes,
        )  # fmt: skip
        outcomes = frame[list(self.population.outcome)].to_numpy(dtype=np.float64)
        estimates.add_alone(outcomes, np.ones(len(frame)))
        parts = [
            self.frame(*key, {"truth": estimates.combined(key).estimate})
            for key in self.table_keys()
        ]
        return pd.concat(parts, ignore_index=True)

    def frame(
        self, statistic: str, column: int | None, values: dict[str, Any]
    ) -> "pd.DataFrame":
        """Return a frame of statistic, outcome, row and the columns ``values``.

        For a contrast it has the rows that hold one.
        """
        rows = len(next(iter(values.values())))
        name = "" if column is None else self.population.outcome[column]
        columns = {"statistic": statistic, "outcome": name, "row": np.arange(rows), **values}
        made, contrast = pd.DataFrame(columns), statistic_of(statistic).contrast
        if contrast is None:
            return made
        holds = Pairs.of(contrast, self.domains(self.population.frame)).holds
        return made.loc[holds]


def paper_study(*, seed: int = 0, **changes: Any) -> CoverageStudy:
    """Return the published simulation (methods 7) at epsilon 10.8, m = 3, with ``changes``.

    Log-likelihoods are measured as in the papers, and small strata are left unpooled.
    """
    stream = np.random.SeedSequence(seed, spawn_key=(_POPULATION,))
    population = paper_population(np.random.default_rng(stream))
    strict = StrictSettings(PAPER_DECLARED)
    settings = MechanismSettings(
        epsilon=PUBLISHED_EPSILON, origin="density", small_strata="allow"
    )
    given = {"noise": strict, "settings": settings, **changes}
    return CoverageStudy(population, seed=seed, **given)


def two_stage_study(*, seed: int = 0, **changes: Any) -> CoverageStudy:
    """Return a study of clusters, with ``changes``.

    The population has 10 strata of 10,000 units in about 100 clusters. A sample takes five clusters
    of each stratum by PPS to their size, then 20 units of each by PPS: 1,000 records in 50 PSUs.

    The variance between clusters is 0.02 in the log outcome and in the log size (methods 3), beside
    0.16 and 0.2 between the units of a cluster. The predictors are main effects, as in the
    population. Methods are noise and the synthesizers by noisy statistics.
    """
    stream = np.random.SeedSequence(seed, spawn_key=(_POPULATION,))
    population = superpopulation(
        np.random.default_rng(stream),
        sizes=(10_000,) * 10,
        clusters=100,
        informativeness=0.5,
        psu_variance=(0.02, 0.015),
    )
    population = replace(population, predictors="stratum + group")
    design = SamplingDesign(
        "two_stage", n=1000, allocation="equal", per_cluster=20, clusters="size", within="pps"
    )
    methods = (*NOISE_METHODS, "fbs_noisy", "fbp_noisy")
    setting = {"design": design, "seed": seed, "methods": methods,
               "noise": StrictSettings(TWO_STAGE_DECLARED)}  # fmt: skip
    return CoverageStudy(population, **{**setting, **changes})
