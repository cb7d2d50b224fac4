"""One test for either mechanism, of the package's own examples or of a specification."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from surveysynth.errors import InputError
from surveysynth.evaluation.audit.examples import EXAMPLES
from surveysynth.evaluation.audit.lines import Case, Line, head_of
from surveysynth.evaluation.audit.neighbours import changes_for
from surveysynth.evaluation.audit.noise import noise_lines
from surveysynth.evaluation.audit.posterior import posterior_lines
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.mechanisms.pseudo_posterior.settings import own_settings


def lines_of(case: Case, seed: int, *, full: bool = False) -> Iterator[Line]:
    """The lines of a case. ``full``: every change, and fresh random numbers beside common ones;
    noisy statistics, which need no fit, are always tested so."""
    settings, design = case.mechanism.settings, case.survey.design
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
    """The package's own cases with n records by name, or why there is none of that size."""
    unknown = sorted(set(names) - {each.name for each in EXAMPLES})
    if unknown:
        known = "; ".join(each.name for each in EXAMPLES)
        raise InputError(f"There is no audit of {unknown[0]!r}; the cases are: {known}.")
    for example in EXAMPLES:
        if names and example.name not in names:
            continue
        try:
            yield example.name, example.case(n, seed)
        except InputError as error:
            yield example.name, error
