"""Lines of an audit: of the examples of every model and mechanism, or of a specification.

All surveys are simulated: the examples, or surveys from the public inputs of a specification.
Nothing confidential is read, and all results may be published.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from surveysynth.config.spec import load_spec
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.mechanisms.pseudo_posterior.settings import own_settings
from tests.audit.calibrated import calibration_lines
from tests.audit.cases import CALIBRATED, EXAMPLES, specified_case
from tests.audit.lines import Case, Line, head_of
from tests.audit.neighbours import changes_for
from tests.audit.noise import noise_lines
from tests.audit.posterior import posterior_lines

DEFAULT_N = 1000


def lines_of(case: Case, seed: int, *, full: bool = False) -> Iterator[Line]:
    """Test a case and yield its lines.

    ``full``: every change, and fresh random numbers beside common ones; noisy statistics, which
    need no fit, are always tested so.
    """
    settings, design = case.mechanism.settings, case.survey.design
    if case.calibrated:
        yield from calibration_lines(case, changes_for(design), seed)
        return
    if isinstance(settings, NoisySettings):
        yield from noise_lines(case, changes_for(design), seed)
        return
    own = own_settings(settings)
    if not own.private:
        yield replace(head_of(case), reason="risk = 'none' claims nothing: there is no test of it")
        return
    yield from posterior_lines(case, changes_for(design, few=not full), seed, fresh=full)


def examples(
    n: int, seed: int, names: Sequence[str] = ()
) -> Iterator[tuple[str, Case | InputError]]:
    """Yield the examples with n records by name, or the error for that size."""
    every = (*EXAMPLES, *CALIBRATED)
    unknown = sorted(set(names) - {each.name for each in every})
    if unknown:
        known = "; ".join(each.name for each in every)
        raise InputError(f"There is no audit case {unknown[0]!r}; the cases are: {known}.")
    for example in every:
        if names and example.name not in names:
            continue
        try:
            yield example.name, example.case(n, seed)
        except InputError as error:
            yield example.name, error


def of_specification(spec: Path, seed: int) -> Iterator[tuple[str, Case]]:
    """Yield the case of a specification, and the same with weights that are calibrated again."""
    case = specified_case(load_spec(spec), seed)
    yield case.name, case
    noisy = isinstance(case.mechanism.settings, NoisySettings)
    if noisy and case.survey.design.weight_name is not None:
        again = replace(case, name=f"{case.name}, calibrated again", calibrated=True)
        yield again.name, again


def audited(
    given: Iterator[tuple[str, Case | InputError]] | Iterator[tuple[str, Case]],
    seed: int, n: int, *, full: bool = False,
) -> Iterator[list[Line]]:
    """Yield the lines of each case, or one that says why it could not be made."""
    for name, case in given:
        if isinstance(case, InputError):
            yield [Line(name, "", "", n, 0.0, "", "", verdict="refused", reason=str(case))]
        else:
            yield list(lines_of(case, seed, full=full))
