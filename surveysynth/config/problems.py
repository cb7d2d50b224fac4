"""Checks of a specification across its sections."""

from collections.abc import Sequence

from surveysynth._support.messages import (
    DESIGN_EFFECT_INSTEAD,
    listing,
    nearest,
    noisy_statistics_alone,
)
from surveysynth.config.outcome_section import (
    WEIGHT,
    Outcomes,
    OutcomeSection,
    is_learned,
    learns_weight,
    of_counts,
)
from surveysynth.config.sections import OF_RELEASE, SurveySection
from surveysynth.config.synthesizer_section import SynthesizerSection

#: Keys of amounts that are not plain.
_OF_KINDS = ("spikes", "lower", "upper", "split")


def pseudo_posterior_problems(
    survey: SurveySection, synthesizer: SynthesizerSection, sections: Outcomes
) -> list[str]:
    """Return what the pseudo-posterior does not take, and noisy statistics do."""
    problems = []
    if survey.missing == "model":
        problems.append(noisy_statistics_alone("survey.missing: 'model' makes a category"))
    if survey.psu is not None and survey.design_effect is None:
        what = noisy_statistics_alone("survey.psu: the survey has primary sampling units")
        problems.append(f"{what} {DESIGN_EFFECT_INSTEAD}")
    if survey.weights.startswith(OF_RELEASE):
        problems.append(
            "survey.weights: only a release by noisy statistics takes the counts of an earlier "
            "one; set mechanism = 'noisy_statistics', or weights = 'confidential'."
        )
    if synthesizer.grouping:
        problems.append(
            noisy_statistics_alone("synthesizer.covariance_by: each cell has a spread of its own")
        )
    for name in synthesizer.outcome:
        section, where = sections.get(name, OutcomeSection()), f"outcomes.{name}"
        special = [key for key in _OF_KINDS if getattr(section, key) not in (None, ())]
        counted = section.kind == "count" and of_counts(synthesizer)
        if section.kind != "continuous" and not counted:
            problems.append(noisy_statistics_alone(f"{where}.kind: it is {section.kind!r}"))
        elif special:
            problems.append(noisy_statistics_alone(f"{where}.{special[0]}: it is declared"))
        elif is_learned(name, synthesizer, section) and not of_counts(synthesizer):
            problems.append(noisy_statistics_alone(f"{where}.range: the transform is learned"))
    if learns_weight(synthesizer, sections):
        where = f"outcomes.{WEIGHT}"
        problems.append(noisy_statistics_alone(f"{where}.range: the transform is learned"))
    return problems


def pattern_problems(
    pattern: Sequence[str], confidential: Sequence[str], public: Sequence[str]
) -> list[str]:
    """Return the columns of the pattern that are not declared public."""
    known = tuple(dict.fromkeys(public))
    return [
        f"privacy.pattern: {name!r} is confidential; name public columns only."
        if name in confidential
        else f"privacy.pattern: {name!r} is not among the public columns of this file "
        f"({listing(known) or 'none'}).{nearest(name, known)} Name it in "
        "survey.public_columns too."
        for name in pattern
        if name not in known
    ]


def group_problems(grouping: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Return the columns that cannot define groups of spreads."""
    allowed = tuple(dict.fromkeys(known))
    return [
        f"synthesizer.covariance_by: {name!r} is not among the columns of the tables and the "
        f"predictors ({listing(allowed) or 'none'}).{nearest(name, allowed)}"
        for name in grouping or ()
        if name not in allowed
    ]


def public_weight_problems(
    survey: SurveySection,
    synthesizer: SynthesizerSection,
    outcomes: Outcomes,
) -> list[str]:
    """Return settings that public weights exclude: those of modelled or scaled weights."""
    if not survey.public_weights:
        return []
    problems = []
    if "confidential_weight" in synthesizer.requires:
        problems.append(
            f"synthesizer.model: {synthesizer.model!r} models selection by confidential weights, "
            "which weights = 'public' excludes; use 'fbs'."
        )
    if WEIGHT in outcomes and WEIGHT not in synthesizer.outcome:
        problems.append(
            "outcomes.weight: weights = 'public' are not modelled and need neither centre, "
            "spread nor range; leave it out."
        )
    return problems


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
