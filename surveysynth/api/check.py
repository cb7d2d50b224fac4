"""A preview of a release: what would be published, how well, and whether it can be made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from surveysynth._support.page import fragment
from surveysynth.config.build import (
    check_engine,
    engine_of,
    model_of,
    read_survey,
    settings_of,
    with_file_labels,
)
from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.models.weighted import weighted_form
from surveysynth.release.check import Warned, check_strict, preview_lines
from surveysynth.release.run_record import ledger_of, spending
from surveysynth.survey.declaration import refuse_sources


@dataclass(frozen=True)
class CheckResult:
    """A preview of a release from public inputs alone, made by ``check``.

    Attributes
    ----------
    preview
        Lines on design, cells, and the files that would be published, and warnings among them.
    confidential
        A warning for the user only, if the sum of the weights is far from the population size, or
        amounts are outside their declared range. Empty otherwise; the text does not include it.
    spent
        The total of the survey's ledger, and whether the budget has room for a release.
    no_room
        The reason why the budget has no room; empty if it has.
    expected
        One sentence on the simulated release at each epsilon.
    simulated
        Its details: standard errors, seconds, and clipped records.
    refused
        True if the simulated release was refused.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.CheckResult(("100 records",)).feasible
    True
    """

    preview: tuple[str | Warned, ...]
    confidential: str = field(default="", repr=False)
    spent: tuple[str, ...] = ()
    no_room: str = ""
    expected: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    refused: bool = False

    @property
    def verdict(self) -> tuple[str, ...]:
        """One line on whether a release would be made, and one on the size of its errors."""
        return (f"REFUSED: {self.no_room}",) if self.no_room else self.expected or ("Valid.",)

    @property
    def summary(self) -> str:
        """The verdict, all warnings, and the ledger, without details."""
        warned = (str(each) for each in self.preview if isinstance(each, Warned))
        return "\n".join([*self.verdict, *warned, *self.spent])

    @property
    def feasible(self) -> bool:
        """True if a release would be made: the budget has room and the simulated one was made."""
        return not self.no_room and not self.refused

    def _repr_html_(self) -> str:
        """Return the report for notebooks, without confidential parts."""
        return fragment("Check of a specification", lines=self.verdict, text=str(self))

    def __str__(self) -> str:
        details = [*map(str, self.preview), *self.spent, *self.simulated]
        return "\n".join([*self.verdict, "", *details])


def check(
    spec: str | Path,
    *,
    out: str | Path | None = None,
    ledger: str | Path | None = None,
    overwrite: bool = False,
    guesses: Mapping[str, tuple[float, float]] | None = None,
    simulate: bool | None = None,
    epsilons: Sequence[float] = (),
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
        True to release records simulated from the declarations: the report has the standard errors
        of every table over those of the simulated sample, how long a release takes, and what share
        of the records would be clipped. False checks validity alone, as by default for a model that
        is a Stan program, unless ``out``, ``guesses`` or ``epsilons`` ask for more.
    epsilons
        More epsilons to simulate at.

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
    ...     ss.check(ss.example(folder, n=400)[1], simulate=False).feasible
    True
    """
    specification, confidential = with_file_labels(load_spec(spec)), ""
    asked = {"--out": out is not None, "--epsilon": bool(epsilons), "--guess": bool(guesses)}
    for option, given in asked.items():
        if given and simulate is False:
            raise InputError(f"{option} is for the simulated release, which --quick leaves out.")
    model = model_of(specification)
    if simulate is None:
        simulate = not engine_of(specification, model).compiled or any(asked.values())
    spent, no_room = spending(specification, ledger_of(specification, ledger))
    if specification.privacy.adds_noise:
        preview = check_strict(specification)
    else:
        settings = settings_of(specification)
        check_engine(specification, model)
        survey = read_survey(specification)
        refuse_sources(survey.design.confidential_sources)
        design = settings.prepared(model.with_ridge(survey.design))
        settings.require_identified(weighted := weighted_form(model, design))
        preview = preview_lines(specification, design, weighted)
        confidential = survey.confidential_warning()
    expected, simulated, refused = list[str](), list[str](), False
    if simulate:
        from surveysynth.evaluation.studies.simulated import simulated_report

        expected, simulated, refused = simulated_report(
            specification, epsilons, guesses, out, overwrite=overwrite
        )
    return CheckResult(
        tuple(preview), confidential, tuple(spent), no_room, tuple(expected), tuple(simulated),
        refused,
    )  # fmt: skip
