"""Studies from a specification file, whose [survey] data are the population, or by name."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd

from surveysynth._support.messages import listing, nearest, raise_problems
from surveysynth.errors import InputError
from surveysynth.evaluation.methods import NOISY, study_method_names
from surveysynth.evaluation.studies import coverage
from surveysynth.evaluation.studies.coverage import (
    BATCH_PLAN,
    NOISE_METHODS,
    CoverageStudy,
    StrictSettings,
)
from surveysynth.evaluation.studies.designs import (
    Allocation,
    ClusterRule,
    DesignKind,
    SamplingDesign,
    WithinRule,
)
from surveysynth.evaluation.studies.population import Population
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.spec.build import (
    model_options,
    noisy_settings_of,
    settings_of,
    with_pseudo_posterior,
)
from surveysynth.spec.privacy import as_noisy_statistics
from surveysynth.spec.spec import load_spec
from surveysynth.survey.columns import missing_column
from surveysynth.survey.declaration import Declaration, Roles, make_roles
from surveysynth.survey.files import open_table
from surveysynth.survey.outcome import zero_one
from surveysynth.survey.records import Records, predictor_problems, read_records
from surveysynth.survey.value_problems import binary_problems, outcome_problem

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.spec.sections import StudySection
    from surveysynth.spec.spec import Spec

def study_of(
    spec: "Spec",
    *,
    replicates: int | None = None,
    seed: int = 0,
    methods: Sequence[str] = (),
    epsilons: Sequence[float] = (),
) -> CoverageStudy:
    """Return the study that a specification describes.

    ``replicates``, ``methods`` and ``epsilons`` replace its own if given. Its population size N is
    the number of units in the data. Epsilons are for privacy.m draws of the pseudo-posterior, whose
    settings are its defaults if the file names noisy statistics.

    Raises ``InputError`` for a specification without [study], for unknown words, and for data that
    cannot be a population or that no sample can be drawn from.
    """
    section = spec.study
    if section is None:
        raise InputError(
            f"{spec.path}: study: missing; a study needs this section, which may be empty, and a "
            "population as the data of [survey]."
        )
    raise_problems(str(spec.path), _unknown_words(section))
    pseudo = with_pseudo_posterior(spec)
    bounds = () if epsilons else section.bounds
    wanted = tuple(epsilons) or section.epsilons
    study = CoverageStudy(
        read_population(spec),
        design=SamplingDesign(
            section.design,  # type: ignore[arg-type]  # checked above
            section.n,
            section.allocation,  # type: ignore[arg-type]
            section.per_cluster,
            section.clusters,  # type: ignore[arg-type]
            section.within,  # type: ignore[arg-type]
        ),
        methods=tuple(methods) or section.methods or _default_methods(spec),
        replicates=section.replicates if replicates is None else replicates,
        seed=seed,
        settings=settings_of(pseudo),
        draws=section.draws,
        bounds=bounds or tuple(each / (2.0 * pseudo.privacy.m) for each in wanted),
        replicates_per_draw=pseudo.privacy.replicates_per_draw,
        statistics=spec.table.statistics,
        linearisation=spec.linearisation,
        level=spec.table.level,
        options={spec.synthesizer.model: model_options(spec)},
        batch=section.batch,
        debias_plan=_debias_plan(settings_of(pseudo).plan),
        design_effect=spec.survey.design_effect,
        noise=_strict(spec),
    )
    study.survey(0)  # an impossible survey is an error now, not in every batch
    return study


def read_population(spec: "Spec") -> Population:
    """Read the data of a specification as a population.

    Messages count units and show no value, since a population may be as confidential as a sample.
    Raises ``InputError`` for data that cannot be a population.
    """
    assert spec.study is not None  # the caller has seen it
    survey, synthesizer, size = spec.survey, spec.synthesizer, spec.study.size
    roles = make_roles(
        synthesizer.outcome, None, spec.table.by, survey.strata, survey.psu, None,
        synthesizer.predictors, (),
    )  # fmt: skip
    source = str(spec.data_path)
    table = open_table(spec.data_path)
    raise_problems(source, roles.problems(table.columns))
    if size is not None and size not in table.columns:
        raise InputError(
            f"{source}: study.size: {missing_column(size, table.columns, (*roles.needed, size))}"
        )
    # The measure of size is a number like an outcome: read with them.
    numbers = (*roles.outcomes, *([] if size is None else [size]))
    reading = Roles(
        tuple(dict.fromkeys(numbers)), None, roles.by, roles.strata, roles.psu, None,
        roles.predictors, (),
    )  # fmt: skip
    records = read_records(
        table.read(reading.needed), Declaration(reading, (), source, missing=survey.missing)
    )
    raise_problems(source, [*predictor_problems(records, reading), *_value_problems(spec, records)])
    return Population(
        _frame(records, reading), roles.outcomes, roles.by, roles.strata, size, roles.psu,
        tuple(each.transform for each in spec.declared), synthesizer.predictors,
    )  # fmt: skip


def _value_problems(spec: "Spec", records: Records) -> list[str]:
    """List what is wrong with the outcomes, and with a declared size of the population."""
    declared, problems = spec.survey.population_size, []
    if declared is not None and declared != records.n:
        problems.append(
            f"survey.population_size is {declared:,.0f}, but the data of a study are the whole "
            f"population, {records.n:,} units; remove population_size."
        )
    outcomes = spec.declared
    for outcome in outcomes:
        wrong = outcome_problem(records.numbers[outcome.name], outcome)
        problems += [wrong] * bool(wrong)
    for position in zero_one(outcomes) or range(len(outcomes)):
        outcome = outcomes[position]
        for statistic in spec.binary_statistics:
            problems += binary_problems(records.numbers[outcome.name], outcome, statistic)
    return problems


def _frame(records: Records, roles: Roles) -> "pd.DataFrame":
    """Return codes as text and numbers as numbers, one row a unit."""
    data = {
        name: records.text[name].values() if name in records.text else records.numbers[name]
        for name in roles.needed
    }
    return pd.DataFrame(data, index=pd.RangeIndex(records.n))


def _unknown_words(section: "StudySection") -> list[str]:
    """Return problems with unknown words, with the nearest known one."""
    problems = []
    kinds = {"design": DesignKind, "allocation": Allocation, "clusters": ClusterRule,
             "within": WithinRule}  # fmt: skip
    for key, known in kinds.items():
        problems += _unknown(f"study.{key}", [getattr(section, key)], get_args(known))
    problems += _unknown("study.methods", section.methods, study_method_names())
    return problems


def _unknown(key: str, words: Sequence[str], known: Sequence[str]) -> list[str]:
    return [
        f"{key}: expected one of {listing(known, limit=40)}, got {word!r}.{nearest(word, known)}"
        for word in words
        if word not in known
    ]


def _strict(spec: "Spec") -> StrictSettings:
    """Public constants of noisy statistics: as in the file, else its defaults."""
    declared = noisy_settings_of(spec)
    privacy = as_noisy_statistics(spec.privacy)
    own = privacy is spec.privacy
    given = {"m": spec.privacy.m, "replicates_per_draw": spec.privacy.replicates_per_draw}
    return StrictSettings(
        declared.declared, declared.weight, privacy.delta, radius=declared.radius,
        protect=declared.protect, plan=declared.plan, **(given if own else {}),
    )  # fmt: skip


def _default_methods(spec: "Spec") -> tuple[str, ...]:
    """Return the sample, noise, and the specification's model with its mechanism and inference."""
    synthesizer = spec.synthesizer
    if not spec.privacy.down_weights:
        return (*NOISE_METHODS, f"{synthesizer.model}{NOISY}")
    suffix = "_paper" if synthesizer.inference == "paper" else ""
    return (*NOISE_METHODS, f"{synthesizer.model}{suffix}")


def _debias_plan(plan: SamplingPlan) -> SamplingPlan:
    """Return a plan with as many kept draws as the release.

    It has two long chains if their number is even.
    """
    warmup = min(plan.warmup, BATCH_PLAN.warmup)
    if plan.kept % 2:
        return SamplingPlan(plan.chains, warmup, plan.draws)
    return SamplingPlan(BATCH_PLAN.chains, warmup, plan.kept // 2)


#: Methods of the published simulation.
DEFAULT_METHODS = (*NOISE_METHODS, "fbs_paper", "fbs", "fbp_paper", "fbp")


def chosen_study(
    spec: str | Path | None = None,
    *,
    replicates: int | None = None,
    seed: int = 0,
    two_stage: bool = False,
    methods: Sequence[str] = (),
    epsilons: Sequence[float] = (),
) -> CoverageStudy:
    """Return the study of a specification, or one of the two simulations.

    Without a specification it is the published simulation, or with ``two_stage`` that of clusters.
    replicates: number of samples; by default that of the file, or 100. methods, epsilons: replace
    those of the file or the simulation; an epsilon is for as many draws as the pseudo-posterior's
    settings have. Raises ``InputError`` for what cannot be a study.
    """
    if not all(np.isfinite(each) and each > 0 for each in epsilons):
        raise InputError("every epsilon must be a finite number above zero.")
    if spec is not None and two_stage:
        raise InputError("--two-stage and a specification exclude each other; give one of them.")
    if spec is not None:
        return study_of(
            load_spec(spec), seed=seed, replicates=replicates, methods=methods, epsilons=epsilons
        )
    changes: dict[str, Any] = {"seed": seed, "replicates": replicates or 100}
    if methods:
        changes["methods"] = tuple(methods)
    if epsilons:
        m = coverage.paper_study().settings.m
        changes["bounds"] = tuple(each / (2.0 * m) for each in epsilons)
    if two_stage:
        return coverage.two_stage_study(**changes)
    return coverage.paper_study(**{"methods": DEFAULT_METHODS, **changes})
