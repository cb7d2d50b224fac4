"""Private tables of a survey in one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from surveysynth._support.messages import nearest, raise_problems
from surveysynth._support.progress import shows_stages
from surveysynth.config.build import engine_of, model_of
from surveysynth.config.mistakes import shown
from surveysynth.config.outcome_section import weight_transform
from surveysynth.config.spec import SOURCE, Sections, Spec, spec_of_survey
from surveysynth.config.tables_section import ALL_TABLES
from surveysynth.errors import InputError
from surveysynth.inference.synthesis import Inference
from surveysynth.models.base import Model
from surveysynth.release.microdata import public_order
from surveysynth.release.private_tables import PrivateTables
from surveysynth.release.run import Generators, run
from surveysynth.release.run_record import Recorder, entry_in_memory, ledger_of
from surveysynth.sampling.randomness import Streams
from surveysynth.survey.declaration import refuse_sources
from surveysynth.survey.outcome import zero_one
from surveysynth.survey.records import binary_problems
from surveysynth.survey.survey import PublicDesign, Survey, require_survey
from surveysynth.survey.transforms import LearnedTransform

Progress = Callable[[str], None]


@shows_stages()
def tables(
    survey: Survey,
    model: str | Model = "fbs",
    epsilon: float | None = None,
    by: str | Sequence[str] | None = None,
    statistics: str | Sequence[str] = ("count", "mean"),
    *,
    mechanism: str | None = None,
    m: int | None = None,
    replicates_per_draw: int | None = None,
    level: float = 0.95,
    where: str | None = None,
    several: Sequence[Mapping[str, Any]] | None = None,
    inference: Inference = "debiased",
    priors: Mapping[str, float] | None = None,
    options: Mapping[str, Any] | None = None,
    outcomes: Mapping[str, Mapping[str, Any]] | None = None,
    labels: Mapping[str, Mapping[str, Any]] | None = None,
    calibration: Sequence[Mapping[str, Any]] | None = None,
    sections: Sections | None = None,
    survey_id: str | None = None,
    ledger: str | Path | None = None,
    seed: int | np.random.Generator | None = None,
    progress: Progress | None = None,
) -> PrivateTables:
    """Make private tables of a survey: mechanism, debiasing, synthesis and estimates in one call.

    Parameters
    ----------
    survey
        The survey, with design, transforms and formula from ``Survey.from_frame``.
    model
        A synthesizer by name, the path of a .toml file that declares a Stan program, or a model.
    epsilon
        The privacy cost of all tables together: required, unless it or rho is in ``sections``.
    by
        Columns of the tables; None for those of the survey. Other columns must be public and in
        the model.
    statistics
        "count", "total", "mean", "proportion".
    mechanism
        "noisy_statistics" or "pseudo_posterior": required, unless it is in ``sections``. Their
        guarantees differ; noisy statistics need a public range or center of each amount.
    m, replicates_per_draw
        Numbers of released draws, and of synthetic datasets of each; None for the mechanism's
        default (20 and 10 for noisy statistics, 3 and 4 for the pseudo-posterior).
    level
        The level of confidence intervals.
    where
        The subpopulation of the tables: a condition on columns of the model and on outcomes with
        levels: ``'gender == "Female" and field in ("Biology", "Physics")'``.
    several
        Several tables at one epsilon, each a mapping like one of [[tables]]: name, and its own
        keys (by, statistics, where, level, ...). The arguments of this call are the defaults.
        ``private_tables["NAME"]`` is one table.
    inference
        "debiased", or "paper" as published.
    priors
        Scales of the model's priors by name.
    options
        Options of the model, and chains, warmup and draws: keys of [synthesizer].
    outcomes
        A public center and spread of each amount, as noisy statistics require unless its transform
        is a ``LearnedTransform``: ``{"salary": {"center": 80_000, "spread": 0.5}}``.
    labels
        Labels by column, as in [labels.COLUMN]: title, unit, levels, ...
    calibration
        Published totals to which the weights of synthetic datasets are calibrated, at no cost: one
        mapping for each margin, like one of [[calibration]] (``calibrate`` is for a sample of your
        own): ``[{"by": ["region"], "totals": {"North": 41_000, "South": 59_000}}]``.
    sections
        Further keys by section, as in a specification file: ``{"privacy": {"risk": "count"},
        "tables": {"flags": "nchs"}}``.
    survey_id
        The survey's name in the ledger, as [survey] id. The ledger of this id records the call and
        enforces the budget (``{"privacy": {"budget": 30}}``). Without an id nothing is recorded,
        and the tables report this when they are shown.
    ledger
        The file of the ledger; by default one in the user's state folder.
    seed
        A number or a Generator makes the run repeatable, which undoes its protection: the tables
        are then marked as a test and not private. Without it, random numbers come from the
        operating system.
    progress
        Called with the name of each stage; without it a notebook shows a bar.

    Returns
    -------
    PrivateTables
        ``frame``, ``plot()``, ``statement``; formatted tables in a notebook.

    Raises
    ------
    InputError
        For arguments that are invalid in a specification file, or do not fit the survey.
    RefusedError
        If the tables would not satisfy their statement (the fit has not converged, or has not
        reached its target; weights from confidential columns), or would exceed the budget.

    Warns
    -----
    FormulaCutWarning
        If levels, cells, or interactions have too few records for coefficients of their own.
    FewRecordsWarning
        If spikes have few records even if all kinds of values are equally common.
    DroppedRecordsWarning
        If dropping records with missing cells changes counts and means.
    ConfidentialWarning
        Amounts outside their declared range, and weights far from the population size.

    Notes
    -----
    Each call spends its epsilon, even if no ``survey_id`` names a ledger to record it in. A refusal
    also reveals something about the data. Tables equal those of ``release`` with the same settings
    and seed.

    Examples
    --------
    >>> import surveysynth as ss
    >>> private_tables = ss.tables(
    ...     ss.example_survey(n=400), mechanism="pseudo_posterior", epsilon=10.8, by="gender",
    ...     statistics="mean", m=1, inference="paper", options={"chains": 2}, seed=1,
    ... )
    >>> private_tables.frame[["gender", "n"]]
       gender    n
    0     All  400
    1  Female  143
    2    Male  257
    >>> print(private_tables.statement[:43])
    TEST RUN, NOT PRIVATE: this is a test and n
    """
    require_survey(survey, "tables")
    by = survey.design.by if by is None else by
    spec = _specification(survey.design, sections or {}, {
        "synthesizer": {
            "model": model if isinstance(model, str) else f"{model.name}.toml",
            "inference": inference, "priors": priors, **(options or {}),
        },
        "privacy": {"mechanism": mechanism, "epsilon": epsilon, "m": m,
                    "replicates_per_draw": replicates_per_draw},
        "tables": {
            "by": _names(by), "statistics": _names(statistics), "where": where,
            "level": level,
        },
        "labels": labels, "outcomes": outcomes,
    }, several, calibration)  # fmt: skip
    survey = _survey_for(survey, spec)
    built = engine_of(spec, model_of(spec)) if isinstance(model, str) else model
    if spec.privacy.adds_noise:
        built = built.under_noise()
    test = seed is not None
    recorder = _recorder(spec, survey.design, survey_id, ledger, test=test)
    made = run(
        spec, survey, _streams(seed, published=spec.privacy.rebuildable), test=test, chosen=built,
        keeper=None if test else recorder, say=progress or (lambda stage: None),
    )  # fmt: skip
    if recorder is not None:
        recorder.ledger.record([recorder.entry])  # before anybody sees the tables
    return PrivateTables.of(made.facts, made.tables, recorded=recorder is not None)


def _recorder(
    spec: Spec,
    design: PublicDesign,
    survey_id: str | None,
    ledger: str | Path | None,
    *,
    test: bool,
) -> Recorder | None:
    """Return the run for the ledger of its survey; None without an id.

    Raises ``RefusedError`` above the budget, ``InputError`` for a ledger or a budget without an id.
    """
    if survey_id is None:
        if ledger is not None or spec.privacy.budget is not None:
            raise InputError(
                "ledger and budget need the name of the survey: set survey_id to the id in "
                "[survey] of its specification files."
            )
        return None
    kept = ledger_of(spec, ledger, survey=survey_id)
    run = Recorder(kept, entry_in_memory(spec, design, survey_id, test=test))
    kept.require_room(run.entry)
    return run


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _specification(
    design: PublicDesign,
    sections: Sections,
    arguments: Mapping[str, Mapping[str, Any] | None],
    several: Sequence[Mapping[str, Any]] | None,
    calibration: Sequence[Mapping[str, Any]] | None = None,
) -> Spec:
    """Return the specification of the arguments of ``tables``.

    Arguments that are None have the defaults of a file.
    """
    merged = {name: dict(keys) for name, keys in sections.items()}
    for section, keys in arguments.items():
        given = {key: value for key, value in (keys or {}).items() if value is not None}
        twice = [key for key in given if key in merged.get(section, {})]
        if twice:
            raise InputError(
                f"{section}.{twice[0]}: tables has an argument for this; leave it out of sections."
            )
        merged.setdefault(section, {}).update(given)
    margins = _margins(calibration)
    if several is None:
        return spec_of_survey(design, merged, calibration=margins)
    merged[ALL_TABLES] = merged.pop("tables", {})
    return spec_of_survey(design, merged, _each_own(several), calibration=margins)


def _margins(calibration: Any) -> list[dict[str, Any]]:
    """Return the sections of margins, of which one column may be named without a list."""
    if calibration is None:
        return []
    if not isinstance(calibration, list | tuple) or not all(
        isinstance(each, Mapping) for each in calibration
    ):
        raise InputError(
            "calibration: expected a list of mappings, one per margin, such as "
            "[{'by': ['region'], 'totals': {'North': 41000, 'South': 59000}}]."
        )
    return [
        {**each, "by": [each["by"]]} if isinstance(each.get("by"), str) else dict(each)
        for each in calibration
    ]


def _each_own(several: Any) -> list[dict[str, Any]]:
    listed = isinstance(several, list | tuple)
    if not listed or not all(isinstance(each, Mapping) for each in several):
        wrong = [each for each in several if not isinstance(each, Mapping)] if listed else [several]
        raise InputError(
            "several: expected a list of mappings, one per table, such as "
            f"[{{'name': 'by_field', 'by': 'field'}}], got {shown(wrong[0])}"
            f"{' in the list' if listed else ''}."
        )
    lists = ("by", "statistics")
    for number, key in ((n, key) for n, each in enumerate(several, start=1) for key in each):
        if key == "formats":
            raise InputError(
                f"several[{number}].{key}: tables in memory are not written to files; leave it out."
            )
    return [
        {key: [value] if key in lists and isinstance(value, str) else value
         for key, value in each.items()}
        for each in several
    ]  # fmt: skip


def _survey_for(survey: Survey, spec: Spec) -> Survey:
    """Return the survey with the by columns and the order of records of a specification.

    Raises ``InputError`` as ``read_survey`` does for a file, and ``RefusedError`` for weights from
    confidential columns.
    """
    design, confidential = survey.design, survey.confidential
    refuse_sources(design.confidential_sources)
    survey.warn(stacklevel=3)
    known = (*map(str, design.frame), *design.outcome_names, str(design.weight_name))
    for name in spec.labels:
        if name not in known:
            raise InputError(
                f"{SOURCE}: labels.{name}: there is no column {name!r}.{nearest(name, known)}"
            )
    for statistic in spec.binary_statistics:
        for column in zero_one(design.outcomes):
            outcome = design.outcomes[column]
            values = confidential.outcome[:, column]
            raise_problems(SOURCE, binary_problems(values, outcome, statistic))
    orders = {name: tuple(label.levels) for name, label in spec.labels.items() if label.levels}
    margins = {name: spec.margin_label(name) for name in spec.public_by}
    design = design.with_by(spec.public_by, orders, margins)
    transform = weight_transform(spec.synthesizer, spec.outcomes)
    if isinstance(transform, LearnedTransform) and not design.learns_weight:
        assert design.population_size is not None  # such a transform needs it
        own = transform.of_weights(design.population_size / design.n)
        design = replace(design, weight_transform=own)
    chosen = replace(survey, design=design)
    # The order of a release, whose numbers can be computed again from its files.
    return chosen.in_order(public_order(chosen.design)) if spec.privacy.rebuildable else chosen


def _streams(seed: int | np.random.Generator | None, *, published: bool) -> Generators | Streams:
    """Return the generators of a release with this seed, or the generator that is given."""
    if isinstance(seed, np.random.Generator):
        return Generators(seed, seed)
    return Streams(None if seed is None else int(seed), published=published)
