"""Public centres and spreads of amounts: where they are required."""

from surveysynth.config.learned import is_learned
from surveysynth.config.outcome_section import Outcomes, OutcomeSection
from surveysynth.config.synthesizer_section import SynthesizerSection


def scale_problems(synthesizer: SynthesizerSection, outcomes: Outcomes) -> list[str]:
    """Return amounts that lack a public centre and spread, or a range to learn them from."""
    problems = []
    for name in synthesizer.outcome:
        section = outcomes.get(name, OutcomeSection())
        learned = is_learned(name, synthesizer, section)
        if learned or section.kind in ("binary", "categorical"):
            continue
        missing = [key for key in ("centre", "spread") if getattr(section, key) is None]
        if missing:
            problems.append(
                f"outcomes.{name}: {' and '.join(missing)} missing. Declare the public range of "
                "the outcome, range = [low, high], and no transform: its transform is then learned "
                "within the budget. Or declare both with a transform: centre, a typical value in "
                "the outcome's own units (with a split one above it and one below), and spread, a "
                "typical standard deviation on the scale of the transform. Take them from public "
                "sources (a codebook, last year's publication, a register), never from these "
                "data; values far off cost accuracy, never privacy."
            )
    return problems
