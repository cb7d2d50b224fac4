"""The commands as functions."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from surveysynth._support.fragment import fragment
from surveysynth._support.progress import shows_parts, shows_stages
from surveysynth.errors import InputError, LeaningTableWarning
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run as run_mechanism
from surveysynth.release.folder.ledger import LedgerSummary
from surveysynth.release.folder.ledger_file import Ledger
from surveysynth.release.pipeline import release as release_alone
from surveysynth.release.result import ReleaseResult

if TYPE_CHECKING:
    from surveysynth.evaluation.studies.work import StudyResult
    from surveysynth.mechanisms.pseudo_posterior.feasibility import FeasibilityReport

__all__ = ["CheckResult", "check", "ledger", "release", "run_mechanism", "run_release", "study"]

Progress = Callable[[str], None]
Count = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CheckResult:
    """A preview of a release from public inputs alone, made by ``check``.

    Attributes
    ----------
    preview
        Lines on design, cells, and the files that would be published.
    feasibility
        The result of simulating whether epsilon can be reached; None for noisy statistics, which
        reach any epsilon.
    confidential
        A warning for the user only, if the sum of the weights is far from the population size.
        Empty otherwise; the text does not include it.
    spent
        The total of the survey's ledger, and whether the budget has room for a release.
    no_room
        The reason why the budget has no room; empty if it has.
    simulated
        Lines on standard errors and seconds of a release of simulated records, where asked for.

    Examples
    --------
    >>> import surveysynth as ss
    >>> from surveysynth.mechanisms.pseudo_posterior.feasibility import FeasibilityReport
    >>> report = FeasibilityReport(ss.MechanismSettings(epsilon=10.8), ())
    >>> ss.CheckResult(("100 records",), report).feasible
    True
    """

    preview: tuple[str, ...]
    feasibility: "FeasibilityReport | None" = None
    confidential: str = field(default="", repr=False)
    spent: tuple[str, ...] = ()
    no_room: str = ""
    simulated: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool:
        """True if a release would be made: the budget has room and the target can be reached."""
        return not self.no_room and (self.feasibility is None or self.feasibility.feasible)

    def _repr_html_(self) -> str:
        """Return the report for notebooks, without confidential parts."""
        verdict = "A release can be made." if self.feasible else "A release would be refused."
        return fragment("Check of a specification", lines=[verdict], text=str(self))

    def __str__(self) -> str:
        rest = [] if self.feasibility is None else self.feasibility.lines()
        return "\n".join([*self.preview, *self.spent, *rest, *self.simulated])


@shows_stages(())
def check(
    spec: str | Path,
    *,
    out: str | Path | None = None,
    ledger: str | Path | None = None,
    overwrite: bool = False,
    guesses: Mapping[str, tuple[float, float]] | None = None,
    simulate: bool = False,
    epsilons: Sequence[float] = (),
    tell: Progress | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> CheckResult:
    """Preview a release: what would be published, and whether epsilon can be reached.

    For noisy statistics, report the standard errors to expect, without looking at outcomes or
    weights.

    Parameters
    ----------
    spec
        The specification file.
    out
        A folder for the expected standard errors of all rows, which are public: those of formulas,
        for noisy statistics of one kind of outcome, or those of ``simulate``.
    ledger
        The file of the survey's ledger; by default as in ``release``.
    overwrite
        Replaces ``out`` if it has such errors.
    guesses
        By name of a learned column two values between which about two thirds of the population
        lie: the report draws the curve that they would give under the noise.
    simulate
        Whether to release records that are simulated from what is declared: the report has the
        standard errors of every table over those of the simulated sample, and how long a release
        takes. For every kind of outcome and both mechanisms.
    epsilons
        More epsilons to simulate at.
    tell
        Called with each part of the report as soon as it is known.
    time_limit
        Seconds for deciding whether epsilon can be reached; None for 300. Undecided cases are
        reported as undecided.
    progress
        Called with every simulated fit that begins; otherwise notebooks show a progress bar.

    Returns
    -------
    CheckResult
        ``str`` gives the report, ``feasible`` the verdict.

    Raises
    ------
    InputError
        For unusable input, an engine that is not installed, a folder that exists, ``out`` for
        another mechanism, and ``epsilons`` without ``simulate``.
    RefusedError
        For a clustered survey whose standard errors would be far too small, for weights computed
        from confidential columns, and if too few records inform a row of the model matrix and
        pooling is off or cannot help.

    Examples
    --------
    >>> import tempfile
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ss.check(ss.example(folder, n=400)[1]).feasible
    True
    """
    from surveysynth.estimation.clusters import refuse_clusters
    from surveysynth.mechanisms.pseudo_posterior import feasibility
    from surveysynth.release.guessed_curves import guess_lines
    from surveysynth.release.preview import preview_lines
    from surveysynth.release.run_record import ledger_of, spending
    from surveysynth.spec.build import check_engine, model_of, read_survey, settings_of, spreads_of
    from surveysynth.spec.file_labels import with_file_labels
    from surveysynth.spec.spec import load_spec
    from surveysynth.survey.weights_from import refuse_sources

    say = tell or (lambda part: None)
    specification = with_file_labels(load_spec(spec))
    if epsilons and not simulate:
        raise InputError("--epsilon is for --simulate; give both or none.")

    def simulated() -> tuple[str, ...]:
        from surveysynth.evaluation.studies.simulated import simulated_report

        if not simulate:
            return ()
        lines = simulated_report(specification, epsilons, guesses, out, overwrite=overwrite)
        say("\n".join(lines))
        return tuple(lines)

    if not specification.privacy.down_weights:
        from surveysynth.release.strict_check import check_strict

        of_formulas = None if simulate else out
        lines = check_strict(specification, of_formulas, overwrite=overwrite, guesses=guesses)
        spent, no_room = spending(specification, ledger_of(specification, ledger))
        say("\n".join([*lines, *spent]))
        return CheckResult(
            tuple(lines), spent=tuple(spent), no_room=no_room, simulated=simulated()
        )
    if out is not None and not simulate:
        raise InputError(
            "--out is for mechanism = 'noisy_statistics', or with --simulate; leave it out."
        )
    model, settings = model_of(specification), settings_of(specification)
    check_engine(specification, model)
    survey = read_survey(specification)
    refuse_sources(survey.design.confidential_sources)
    design = settings.prepared(model.with_ridge(survey.design))
    settings.require_identified(model := model.of(design))
    preview = preview_lines(specification, design, model)
    preview += guess_lines(specification, design, guesses or {})
    spent, no_room = spending(specification, ledger_of(specification, ledger))
    say("\n".join([*preview, *spent]))
    confidential = survey.population_warning()
    if confidential:
        say(f"{confidential}\n")
    refuse_clusters(design, model)
    report = feasibility.check(
        design, model, settings, spreads=spreads_of(specification), progress=progress,
        time_limit=feasibility.TIME_LIMIT if time_limit is None else time_limit,
    )  # fmt: skip
    say("\n".join(report.lines()))
    return CheckResult(
        tuple(preview), report, confidential, tuple(spent), no_room, simulated()
    )


@shows_stages()
def release(
    spec: str | Path,
    out: str | Path,
    *,
    confidential: str | Path | None = None,
    ledger: str | Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    progress: Progress | None = None,
) -> ReleaseResult:
    """Run the mechanism on a survey and write its private tables and microdata.

    The confidential folder also has ``adequacy.html``: published rows next to those of the sample.

    Parameters
    ----------
    spec
        The specification file.
    out
        The folder to write; it must not exist, unless ``overwrite`` is set.
    confidential
        The folder for realized bounds, risk weights and a copy of the ledger; by default
        ``out``/confidential.
    ledger
        The file of the survey's ledger; by default one in the user's state folder, named by the id
        of the survey ([survey] id) or else by the location of its file.
    overwrite
        Replaces ``out`` if a release wrote it.
    seed
        Makes the run repeatable, which undoes its protection: every file is then marked as a
        test and not private. Without it, random numbers come from the operating system.
    progress
        Called with the name of each stage; otherwise notebooks show a progress bar.

    Returns
    -------
    ReleaseResult
        The location of the files, the tables, and the totals of the ledger; ``adequacy.page`` is
        the confidential page that shows whether the model is adequate.

    Raises
    ------
    InputError
        For unusable input and existing targets.
    RefusedError
        If a release would not satisfy its statement, or would exceed the budget ([privacy] budget).
        After any exception nothing is written, except the ledger and the noisy numbers of a run of
        noisy statistics. The same specification and data continue from them at no further cost.

    Warns
    -----
    FormulaCutWarning
        If levels, cells, or interactions have too few records for coefficients of their own.
    FewRecordsWarning
        If spikes have few records even if all kinds of values are equally common.
    LeaningTableWarning
        Confidential: rows of a table lie to one side of the sample (``adequacy.leaning``).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _, spec = ss.example(Path(folder) / "ex", n=200)
    ...     released = ss.release(spec, Path(folder) / "out", seed=1)
    ...     sorted(path.name for path in (released.out / "release").iterdir() if path.is_dir())
    ['figures', 'microdata', 'tables']
    """
    from surveysynth.evaluation.compare.adequacy_report import AdequacyReport

    result = release_alone(
        spec, out, confidential=confidential, ledger=ledger, overwrite=overwrite, seed=seed,
        progress=progress, observer=AdequacyReport(),
    )  # fmt: skip
    if result.adequacy is not None and result.adequacy.leaning:
        warnings.warn(
            "CONFIDENTIAL: rows of published tables lie to one side of the confidential sample. "
            f"{result.adequacy.page} names them.",
            LeaningTableWarning, stacklevel=3,
        )  # fmt: skip
    return result


#: The former name of ``release``.
run_release = release


@shows_parts
def study(
    spec: str | Path | None = None,
    *,
    out: str | Path,
    replicates: int | None = None,
    seed: int = 0,
    two_stage: bool = False,
    methods: Sequence[str] = (),
    epsilons: Sequence[float] = (),
    resume: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Count | None = None,
) -> "StudyResult":
    """Measure coverage and error of every method over repeated samples of a population.

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
        Run a simulation of clusters instead of ``spec``.
    methods
        Methods instead of those of the study: "laplace", "fbs", "fbs_noisy" ...
    epsilons
        Values at which every method runs, instead of those of the study.
    resume
        Continue with the batches that ``out`` lacks.
    scheduler
        Address of a Dask scheduler; without it, processes of this machine.
    workers
        Number of processes; None for one per processor.
    progress
        Called with a line, the number of finished batches and the number of all batches; otherwise
        notebooks show a progress bar.

    Returns
    -------
    StudyResult
        Measures by cell and method, and the folder.

    Raises
    ------
    InputError
        For unusable input and a folder that exists or holds another study.
    StoppedError
        If interrupted; ``resume`` continues.
    IncompleteError
        If batches failed, after everything else was written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ss.example(Path(folder) / "ex", n=200, study=True)
    ...     spec = Path(folder) / "ex" / "study.toml"
    ...     text, _, methods = spec.read_text().partition("methods = ")
    ...     _ = spec.write_text(text + 'methods = ["laplace"]')
    ...     found = ss.study(spec, out=Path(folder) / "study", replicates=2, workers=1)
    >>> found.summary["method"].unique().tolist()
    ['sample', 'laplace']
    """
    from surveysynth.evaluation.studies.folder import write_study
    from surveysynth.evaluation.studies.specified import chosen_study

    return write_study(
        chosen_study(
            spec, replicates=replicates, seed=seed, two_stage=two_stage, methods=methods,
            epsilons=epsilons,
        ),
        out,
        resume=resume,
        scheduler=scheduler,
        workers=workers,
        progress=progress,
        report=True,
    )


def ledger(survey_id: str, path: str | Path | None = None) -> LedgerSummary:
    """Return the total of all releases of a survey, by mechanism: confidential.

    Parameters
    ----------
    survey_id
        The id in [survey] of specifications; without one, releases are recorded under "file:" and
        the location of the data file.
    path
        The file of the ledger; by default that of the id in the user's state folder.

    Returns
    -------
    LedgerSummary
        ``epsilon`` and ``runs`` of the pseudo-posterior, ``rho``, ``strict_epsilon`` and
        ``strict_runs`` of noisy statistics; printed, its sentences.

    Raises
    ------
    InputError
        If the ledger cannot be read, or is damaged.

    Examples
    --------
    >>> import surveysynth as ss
    >>> print(ss.ledger("next year's survey"))
    Ledger: total epsilon spent on survey "next year's survey" so far: 0 in 0 runs.
    """
    return Ledger.of(survey_id, path).summary()
