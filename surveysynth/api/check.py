"""A preview of a release: what would be published, how well, and whether it can be made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from surveysynth._support.page import fragment
from surveysynth._support.progress import shows_stages
from surveysynth.config.build import (
    check_engine,
    model_of,
    read_survey,
    settings_of,
    spreads_of,
    with_file_labels,
)
from surveysynth.config.spec import Spec, load_spec
from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior import feasibility
from surveysynth.mechanisms.pseudo_posterior.feasibility import FeasibilityReport
from surveysynth.models.weighted import weighted_form
from surveysynth.release.check import Warned, preview_lines
from surveysynth.release.run_record import ledger_of, spending
from surveysynth.survey.declaration import refuse_sources

Progress = Callable[[str], None]


@dataclass(frozen=True)
class CheckResult:
    """A preview of a release from public inputs alone, made by ``check``.

    Attributes
    ----------
    preview
        Lines on design, cells, and the files that would be published, and warnings among them.
    feasibility
        The result of simulating whether epsilon can be reached; None where that was not tried, and
        for noisy statistics, which reach any epsilon.
    confidential
        A warning for the user only, if the sum of the weights is far from the population size, or
        amounts are outside their declared range. Empty otherwise; the text does not include it.
    spent
        The total of the survey's ledger, and whether the budget has room for a release.
    no_room
        The reason why the budget has no room; empty if it has.
    simulated
        Lines on standard errors and seconds of a release of simulated records, where asked for.
    expected
        One sentence on the simulated release at each epsilon.

    Examples
    --------
    >>> import surveysynth as ss
    >>> from surveysynth.mechanisms.pseudo_posterior.feasibility import FeasibilityReport
    >>> report = FeasibilityReport(ss.MechanismSettings(epsilon=10.8), ())
    >>> ss.CheckResult(("100 records",), report).feasible
    True
    """

    preview: tuple[str | Warned, ...]
    feasibility: FeasibilityReport | None = None
    confidential: str = field(default="", repr=False)
    spent: tuple[str, ...] = ()
    no_room: str = ""
    simulated: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()

    @property
    def verdict(self) -> tuple[str, ...]:
        """Whether a release would be made and how large its errors would be; one line each."""
        if self.no_room:
            return (f"REFUSED: {self.no_room}",)
        if self.feasibility is None:
            return self.expected or ("Valid.",)
        if not self.feasible:
            return ("REFUSED: the mechanism cannot reach epsilon.", *self.feasibility.lines())
        first, *others = self.feasibility.doubts or [""]
        return (f"Valid. {first}" if first else "OK to release.", *others, *self.expected)

    @property
    def summary(self) -> str:
        """The verdict, all warnings, and the ledger, without details."""
        warned = (str(each) for each in self.preview if isinstance(each, Warned))
        return "\n".join([*self.verdict, *warned, *self.spent])

    @property
    def feasible(self) -> bool:
        """True if a release would be made: the budget has room and the target can be reached."""
        return not self.no_room and (self.feasibility is None or self.feasibility.feasible)

    def _repr_html_(self) -> str:
        """Return the report for notebooks, without confidential parts."""
        return fragment("Check of a specification", lines=self.verdict, text=str(self))

    def __str__(self) -> str:
        rest = [] if self.feasibility is None else self.feasibility.lines()
        details = [*map(str, self.preview), *self.spent, *rest, *self.simulated]
        return "\n".join([*self.verdict, "", *details])


@shows_stages(())
def check(
    spec: str | Path,
    *,
    out: str | Path | None = None,
    ledger: str | Path | None = None,
    overwrite: bool = False,
    guesses: Mapping[str, tuple[float, float]] | None = None,
    simulate: bool | None = None,
    epsilons: Sequence[float] = (),
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> CheckResult:
    """Preview a release: what would be published, how well, and whether epsilon can be reached.

    For noisy statistics neither outcomes nor weights are read.

    Parameters
    ----------
    spec
        The specification file.
    out
        A folder for the standard errors of all rows of a simulated release, which are public.
    ledger
        The file of the survey's ledger; by default as in ``release``.
    overwrite
        Replaces ``out`` if it has such errors.
    guesses
        By name of a learned column two values between which about two thirds of the population
        lie, for ``simulate``.
    simulate
        True to release records simulated from the declarations: the report has the
        standard errors of every table over those of the simulated sample, how long a release takes,
        and what share of the records would be clipped. By default for noisy statistics, and where
        ``out``, ``guesses`` or ``epsilons`` ask for it. False checks validity alone, for the
        pseudo-posterior too.
    epsilons
        More epsilons to simulate at.
    time_limit
        Seconds for deciding whether epsilon can be reached; None for 300. Undecided cases are
        reported as undecided.
    progress
        Called with every simulated fit that begins; otherwise notebooks show a progress bar.

    Returns
    -------
    CheckResult
        ``str`` gives the report, ``summary`` its verdict and warnings.

    Raises
    ------
    InputError
        For unusable input, an engine that is not installed, a folder that exists, and ``out``,
        ``epsilons`` or ``guesses`` with ``simulate=False``.
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
    specification = with_file_labels(load_spec(spec))
    asked = {"--out": out is not None, "--epsilon": bool(epsilons), "--guess": bool(guesses)}
    quick = simulate is False
    if simulate is None:
        simulate = specification.privacy.adds_noise or any(asked.values())
    for option, given in asked.items():
        if given and not simulate:
            raise InputError(f"{option} is for the simulated release, which --quick leaves out.")
    spent, no_room = spending(specification, ledger_of(specification, ledger))
    if specification.privacy.down_weights:
        found = _of_the_bound(specification, time_limit, progress, quick=quick)
    else:
        from surveysynth.release.check import check_strict

        found = CheckResult(tuple(check_strict(specification)))
    expected: list[str] = []
    simulated: list[str] = []
    if simulate:
        from surveysynth.evaluation.studies.simulated import simulated_report

        expected, simulated = simulated_report(
            specification, epsilons, guesses, out, overwrite=overwrite
        )
    return replace(
        found, spent=tuple(spent), no_room=no_room, simulated=tuple(simulated),
        expected=tuple(expected),
    )  # fmt: skip


def _of_the_bound(
    specification: Spec, time_limit: float | None, progress: Progress | None, *, quick: bool
) -> CheckResult:
    """Preview a release by the pseudo-posterior and, unless quick, whether its bound is reached."""
    model, settings = model_of(specification), settings_of(specification)
    check_engine(specification, model)
    survey = read_survey(specification)
    refuse_sources(survey.design.confidential_sources)
    design = settings.prepared(model.with_ridge(survey.design))
    settings.require_identified(model := weighted_form(model, design))
    preview = preview_lines(specification, design, model)
    report = None if quick else feasibility.check(
        design, model, settings, spreads=spreads_of(specification), progress=progress,
        time_limit=feasibility.TIME_LIMIT if time_limit is None else time_limit,
    )  # fmt: skip
    return CheckResult(tuple(preview), report, survey.confidential_warning())
