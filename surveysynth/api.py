"""What the commands do, as functions; and private tables of a survey in one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth.errors import InputError
from surveysynth.release.private_tables import PrivateTables
from surveysynth.release.run import (
    ReleaseResult,
    Streams,
    facts_of,
    private_estimates,
)
from surveysynth.release.run import release as run_release
from surveysynth.survey.survey import Survey

if TYPE_CHECKING:
    from surveysynth.evaluate.run import ComparisonResult
    from surveysynth.inference.published import Inference
    from surveysynth.mechanisms.pseudo_posterior.feasibility import FeasibilityReport
    from surveysynth.models.base import Model
    from surveysynth.spec.in_memory import Sections
    from surveysynth.spec.spec import Spec
    from surveysynth.studies.coverage import CoverageStudy
    from surveysynth.studies.folder import StudyResult
    from surveysynth.survey.survey import PublicDesign

Progress = Callable[[str], None]
Count = Callable[[str, int, int], None]

EXAMPLE_SEED = 2022


@dataclass(frozen=True)
class CheckResult:
    """What a release of a specification would be, from public inputs alone; made by ``check``.

    Attributes
    ----------
    preview
        Lines on design, cells, and the files that would be published.
    feasibility
        Whether epsilon can be reached, by simulation.

    Examples
    --------
    ``check`` has one.
    """

    preview: tuple[str, ...]
    feasibility: "FeasibilityReport"

    @property
    def feasible(self) -> bool:
        """Whether some simulated survey reached the target."""
        return self.feasibility.feasible

    def __str__(self) -> str:
        return "\n".join([*self.preview, *self.feasibility.lines()])


def example(
    folder: str | Path, n: int = 1000, seed: int = EXAMPLE_SEED, *, study: bool = False
) -> tuple[Path, Path]:
    """Write a simulated survey.csv and a spec.toml that works: ``surveysynth example``.

    Parameters
    ----------
    folder
        A new or empty one.
    n
        Number of records.
    seed
        Makes another survey of the same kind.
    study
        Also population.csv, from which the survey was drawn, and study.toml.

    Returns
    -------
    tuple of Path
        The survey and its specification.

    Raises
    ------
    InputError
        For a folder that is not empty or cannot be written, and too few records.

    Examples
    --------
    >>> import tempfile
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     survey, spec = ss.example(folder, n=100)
    ...     spec.name, len(survey.read_text().splitlines())
    ('spec.toml', 101)
    """
    from surveysynth.studies.example import write_example

    return write_example(Path(folder), n, seed, study=study)


def example_survey(n: int = 1000, seed: int = EXAMPLE_SEED) -> Survey:
    """A simulated survey to try things on, that of ``surveysynth example``.

    Parameters
    ----------
    n
        Number of records.
    seed
        Makes another survey of the same kind.

    Returns
    -------
    Survey
        Salaries by field and gender, with weights, stratified by field.

    Raises
    ------
    InputError
        For fewer than 16 records.

    References
    ----------
    The published simulation, methods 7.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.example_survey(n=200).design.n
    200
    """
    from surveysynth.studies.example import simulate_survey
    from surveysynth.studies.population import published_cells
    from surveysynth.survey.transforms import Transform

    return Survey.from_frame(
        simulate_survey(n, np.random.default_rng(seed)),
        outcome="salary",
        weight="weight",
        strata="field",
        by=("field", "gender"),
        population_size=published_cells().size,
        transforms=Transform("log"),
    )


def check(spec: str | Path, *, tell: Progress | None = None) -> CheckResult:
    """Dry run: what would be published, and whether epsilon can be reached.

    Parameters
    ----------
    spec
        The specification file.
    tell
        Called with each part of the report as soon as it is known.

    Returns
    -------
    CheckResult
        ``str`` gives the report, ``feasible`` the verdict.

    Raises
    ------
    InputError
        For unusable input.
    RefusedError
        For a clustered survey whose standard errors would be far too small.

    Examples
    --------
    >>> import tempfile
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ss.check(ss.example(folder, n=200)[1]).feasible
    True
    """
    from surveysynth.estimation.clusters import refuse_clusters
    from surveysynth.mechanisms.pseudo_posterior import feasibility
    from surveysynth.release.preview import preview_lines
    from surveysynth.spec.build import model_of, read_survey, settings_of
    from surveysynth.spec.spec import load_spec

    say = tell or (lambda part: None)
    specification = load_spec(spec)
    model, settings = model_of(specification), settings_of(specification)
    design = read_survey(specification).design
    preview = preview_lines(specification, design, model)
    say("\n".join(preview))
    refuse_clusters(design, model)
    report = feasibility.check(design, model, settings)
    say("\n".join(report.lines()))
    return CheckResult(tuple(preview), report)


def release(
    spec: str | Path,
    out: str | Path,
    *,
    confidential: str | Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReleaseResult:
    """Run the mechanism on a survey and write its private tables and microdata.

    Parameters
    ----------
    spec
        The specification file.
    out
        The folder to write; it must not exist, unless ``overwrite`` is set.
    confidential
        Where realised bounds, risk weights and the ledger go: ``out``/confidential by default.
        One folder for all runs on the same data keeps their epsilons in one ledger.
    overwrite
        Replaces ``out`` if a release wrote it.
    seed
        Makes the run repeatable, which undoes its protection: every file then says that it is a
        test and not private. Without it, random numbers come from the operating system.
    progress
        Called with the name of each stage.

    Returns
    -------
    ReleaseResult
        Where the files are, the tables, and what the ledger adds up to.

    Raises
    ------
    InputError
        For unusable input and existing targets.
    RefusedError
        When a release would not hold what it states. Nothing is written then, nor on any other
        exception.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     survey, spec = ss.example(Path(folder) / "ex", n=200)
    ...     released = ss.release(spec, Path(folder) / "out", seed=1)
    ...     sorted(path.name for path in (released.out / "release").iterdir())
    ['README.md', 'codebook.json', 'microdata', 'privacy.json', 'tables']
    """
    return run_release(
        spec, out, confidential=confidential, overwrite=overwrite, seed=seed, progress=progress
    )


def compare(
    spec: str | Path,
    out: str | Path,
    *,
    overwrite: bool = False,
    seed: int | None = None,
    models: Sequence[str] = (),
    sensitivity: str = "paper",
    progress: Progress | None = None,
) -> "ComparisonResult":
    """Compare sample, noise and synthesis at one epsilon: confidential, no release.

    Parameters
    ----------
    spec
        The specification file.
    out
        The folder to write; it must not exist, unless ``overwrite`` is set.
    overwrite
        Replaces ``out`` if a comparison wrote it.
    seed
        Makes the run repeatable.
    models
        Synthesizers besides fbs, fbp and the specification's own.
    sensitivity
        Of the Laplace noise of means: "paper" or "honest".
    progress
        Called with the name of each stage.

    Returns
    -------
    ComparisonResult
        Where report and figures are, and the tables by method (``comparison.frame()``).

    Raises
    ------
    InputError
        For unusable input and existing targets.
    RefusedError
        When no synthesizer could be compared.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     survey, spec = ss.example(Path(folder) / "ex", n=200)
    ...     compared = ss.compare(spec, Path(folder) / "compared", seed=1)
    >>> compared.comparison.methods
    ('sample', 'laplace', 'laplace_consistent', 'fbs', 'fbp')
    """
    from surveysynth.evaluate.run import sensitivity_of, write_comparison

    return write_comparison(
        spec,
        out,
        overwrite=overwrite,
        seed=seed,
        models=models,
        sensitivity=sensitivity_of(sensitivity),
        progress=progress,
    )


def study(
    spec: str | Path | None = None,
    *,
    out: str | Path,
    replicates: int | None = None,
    seed: int = 0,
    two_stage: bool = False,
    resume: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Count | None = None,
) -> "StudyResult":
    """Coverage and error of every method over repeated samples of a population.

    Parameters
    ----------
    spec
        A specification with [study], whose data are a population; None for the published
        simulation at epsilon 10.8.
    out
        The folder to write.
    replicates
        Number of samples; None for the specification's, or 100.
    seed
        Makes another study of the same kind.
    two_stage
        A simulation of clusters, in the place of ``spec``.
    resume
        Goes on with the batches that ``out`` lacks.
    scheduler
        Address of a Dask scheduler; without it, processes of this machine.
    workers
        Number of processes; None for one a processor.
    progress
        Called with a line, and how many of how many batches are done.

    Returns
    -------
    StudyResult
        Measures by cell and method, and where the report is.

    Raises
    ------
    InputError
        For unusable input and a folder that exists or holds another study.
    StoppedError
        When interrupted; ``resume`` goes on.
    IncompleteError
        When batches failed, after everything else was written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ss.example(Path(folder) / "ex", n=200, study=True)
    ...     text = (Path(folder) / "ex" / "study.toml").read_text()
    ...     spec = Path(folder) / "ex" / "noise.toml"
    ...     lines = [each for each in text.splitlines() if not each.startswith("methods")]
    ...     _ = spec.write_text("\\n".join([*lines, 'methods = ["laplace"]']))
    ...     found = ss.study(spec, out=Path(folder) / "study", replicates=2, workers=1)
    >>> found.summary["method"].unique().tolist()
    ['sample', 'laplace']
    """
    from surveysynth.studies.run import write_study

    return write_study(
        _study_of(spec, replicates, seed, two_stage=two_stage),
        out,
        resume=resume,
        scheduler=scheduler,
        workers=workers,
        progress=progress,
        report=True,
    )


def _study_of(
    spec: str | Path | None, replicates: int | None, seed: int, *, two_stage: bool
) -> "CoverageStudy":
    from surveysynth.spec.spec import load_spec
    from surveysynth.studies.coverage import NOISE_METHODS, paper_study, two_stage_study
    from surveysynth.studies.specified import study_of

    if spec is not None and two_stage:
        raise InputError("--two-stage is a study of its own: give it or a specification.")
    if two_stage:
        return two_stage_study(seed=seed, replicates=replicates or 100)
    if spec is None:
        methods = (*NOISE_METHODS, "fbs_paper", "fbs", "fbp_paper", "fbp")
        return paper_study(seed=seed, replicates=replicates or 100, methods=methods)
    return study_of(load_spec(spec), seed=seed, replicates=replicates)


def tables(
    survey: Survey,
    model: "str | Model" = "fbs",
    epsilon: float | None = 10.8,
    by: str | Sequence[str] | None = None,
    statistics: str | Sequence[str] = ("count", "mean"),
    *,
    m: int | None = None,
    replicates_per_draw: int | None = None,
    level: float = 0.95,
    linearisation: str | None = None,
    inference: "Inference" = "debiased",
    priors: Mapping[str, float] | None = None,
    options: Mapping[str, Any] | None = None,
    labels: Mapping[str, Mapping[str, Any]] | None = None,
    sections: "Sections | None" = None,
    seed: int | np.random.Generator | None = None,
    progress: Progress | None = None,
) -> PrivateTables:
    """Private tables of a survey: mechanism, debiasing, synthesis, estimates, in one call.

    Parameters
    ----------
    survey
        Of which ``Survey.from_frame`` has settled design, transforms and formula.
    model
        A synthesizer by name, the path of a .toml file that declares a Stan program, or a model.
    epsilon
        The target of all tables together; None where ``sections`` give rho in its place.
    by
        Columns of the tables; None for those of the survey. Others have to be public and in the
        model.
    statistics
        "count", "total", "mean", "proportion".
    m, replicates_per_draw
        Numbers of released draws, and of synthetic datasets of each; None for the mechanism's
        default (3 and 4).
    level
        Of confidence intervals.
    linearisation
        "ratio" or "plain"; None for ratio where the population size is known.
    inference
        "debiased", or "paper" as published.
    priors
        Scales of the model's priors by name.
    options
        The model's own, and chains, warmup and draws: keys of [synthesizer].
    labels
        How columns are shown, by column, as [labels.COLUMN]: title, unit, levels, ...
    sections
        Further keys by section, as in a specification file: ``{"privacy": {"risk": "count"},
        "tables": {"flags": "nchs"}}``.
    seed
        A number or a Generator makes the run repeatable, which undoes its protection: the tables
        then say that they are a test and not private. Without it, random numbers come from the
        operating system.
    progress
        Called with the name of each stage.

    Returns
    -------
    PrivateTables
        ``frame``, ``plot()``, ``statement``; formatted tables in a notebook.

    Raises
    ------
    InputError
        For arguments that a specification file would be refused for, or that do not fit the
        survey.
    RefusedError
        When the tables would not hold what they state: the fit has not converged, or its target
        was not reached.

    Notes
    -----
    Each call spends its epsilon, and nothing keeps the sum: ``release`` has a ledger. A call that
    was refused has told that much of the data, too. Tables are those of ``release`` with the same
    settings and seed.

    Examples
    --------
    >>> import surveysynth as ss
    >>> survey = ss.example_survey(n=200)
    >>> private_tables = ss.tables(survey, by="gender", inference="paper", seed=1)
    >>> private_tables["mean"].frame[["gender", "estimate", "se"]].round(-2)
    """
    from surveysynth.estimation.clusters import refuse_clusters
    from surveysynth.release.tables.making import release_tables
    from surveysynth.spec.build import engine_of, mechanism_of, model_of

    by = survey.design.by if by is None else by
    spec = _specification(survey.design, sections or {}, {
        "synthesizer": {
            "model": model if isinstance(model, str) else f"{model.name}.toml",
            "inference": inference, "priors": priors, **(options or {}),
        },
        "privacy": {"epsilon": epsilon, "m": m, "replicates_per_draw": replicates_per_draw},
        "tables": {
            "by": _names(by), "statistics": _names(statistics),
            "level": level, "linearisation": linearisation,
        },
        "labels": labels,
    })  # fmt: skip
    survey = _survey_for(survey, spec)
    design, test = survey.design, seed is not None
    built = engine_of(spec, model_of(spec)) if isinstance(model, str) else model
    mechanism, (of_mechanism, of_synthesis) = mechanism_of(spec), _streams(seed)
    refuse_clusters(design, built)
    say = progress or (lambda stage: None)
    facts = facts_of(spec, design, mechanism, built, test=test)
    released = mechanism.run(
        built, design, survey.confidential, of_mechanism, say, seeded=test
    )
    facts, estimates = private_estimates(facts, built, released.draws, of_synthesis, say)
    return PrivateTables.of(facts, release_tables(spec, design, estimates))


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _specification(
    design: "PublicDesign",
    sections: "Sections",
    arguments: Mapping[str, Mapping[str, Any] | None],
) -> "Spec":
    """The specification that the arguments of ``tables`` amount to; those that are None are left
    to the defaults of a file."""
    from surveysynth.spec.in_memory import spec_of_survey

    merged = {name: dict(keys) for name, keys in sections.items()}
    for section, keys in arguments.items():
        given = {key: value for key, value in (keys or {}).items() if value is not None}
        twice = [key for key in given if key in merged.get(section, {})]
        if twice:
            raise InputError(
                f"{section}.{twice[0]}: tables has an argument for this; leave it out of sections."
            )
        merged.setdefault(section, {}).update(given)
    return spec_of_survey(design, merged)


def _survey_for(survey: Survey, spec: "Spec") -> Survey:
    """The survey with the by columns and the order of records of a specification.

    Raises ``InputError`` for what ``read_survey`` refuses in a file.
    """
    from surveysynth._support.messages import nearest
    from surveysynth.release.folder.microdata import public_order
    from surveysynth.spec.in_memory import SOURCE
    from surveysynth.survey.checks import check_binary

    design, confidential = survey.design, survey.confidential
    known = (*design.frame, *design.outcome_names, str(design.weight_name))
    for name in spec.labels:
        if name not in known:
            raise InputError(
                f"{SOURCE}: labels.{name}: there is no column {name!r}.{nearest(name, known)}"
            )
    for statistic in spec.binary_statistics:
        for column, name in enumerate(design.outcome_names):
            check_binary(
                confidential.outcome[:, column], name, design.transforms[column], statistic, SOURCE
            )
    orders = {name: tuple(label.levels) for name, label in spec.labels.items() if label.levels}
    margins = {name: spec.margin_label(name) for name in spec.tables.by}
    chosen = Survey(design.with_by(spec.tables.by, orders, margins), confidential)
    # As in a release, whose numbers can be made again from its files.
    return chosen.in_order(public_order(chosen.design)) if spec.privacy.strict else chosen


def _streams(
    seed: int | np.random.Generator | None,
) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators of the mechanism and of what follows it: those of a release with this seed, or
    the one that is given."""
    if isinstance(seed, np.random.Generator):
        return seed, seed
    streams = Streams(None if seed is None else int(seed))
    return streams.mechanism, streams.synthesis
