"""``[outcomes.<name>]``: what is publicly known of an outcome, and of the weight."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from surveysynth._support.messages import listing, nearest
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.spec.privacy import PrivacySection
from surveysynth.spec.sections import Section, SurveySection, SynthesizerSection, built

#: The section of the sampling weight, whatever its column is called.
WEIGHT = "weight"
PLANNED_KINDS = ("semicontinuous", "binary", "categorical")
#: No log of a sampling weight is as large: a weight of 5e8 would be.
LARGE_LOG = 20.0


class OutcomeSection(Section):
    """``[outcomes.<name>]``: kind, and a declared centre and spread, from public sources.

    centre: a typical value in the outcome's own units; spread: a typical SD on the scale of its
    transform. In ``[outcomes.weight]`` both are of the log weight. Only noisy statistics use them;
    they cost accuracy where they are wrong, never privacy.
    """

    kind: Annotated[Literal["continuous"], built(PLANNED_KINDS, "'continuous'")] = "continuous"
    centre: float | None = None
    spread: Annotated[float, Field(gt=0)] | None = None


Outcomes = Mapping[str, OutcomeSection]


def outcome_problems(synthesizer: SynthesizerSection, outcomes: Outcomes) -> list[str]:
    """Sections of outcomes that the file does not name, or centres that cannot be."""
    problems = []
    known = (*synthesizer.outcome, WEIGHT)
    for name in outcomes:
        if name not in known:
            problems.append(
                f"outcomes.{name}: synthesizer.outcome does not name it.{nearest(name, known)} "
                f"Known: {listing(known)}."
            )
    for name, transform in zip(synthesizer.outcome, synthesizer.transforms, strict=True):
        centre = outcomes[name].centre if name in outcomes else None
        if centre is not None and transform.violations(np.array([centre])):
            problems.append(
                f"outcomes.{name}.centre: expected a typical value in the outcome's own units, "
                f"which {transform.describe(name)} is defined at, got {centre!r}."
            )
    weight = outcomes.get(WEIGHT)
    if weight is not None and weight.centre is not None and abs(weight.centre) > LARGE_LOG:
        problems.append(
            f"outcomes.weight.centre: expected a typical log weight, got {weight.centre!r}; if "
            "that is a weight, give its logarithm."
        )
    return problems


def strict_problems(
    survey: SurveySection,
    synthesizer: SynthesizerSection,
    privacy: PrivacySection,
    outcomes: Outcomes,
    public: Sequence[str],
    *,
    whole: bool = False,
) -> list[str]:
    """What noisy statistics need, or have no use for; ``public``: names of public columns;
    ``whole``: the data are a population, whose size is then known."""
    problems = []
    for key in ("engine", "inference"):
        if (given := getattr(synthesizer, key)) in ("cmdstan", "paper"):
            problems.append(
                f"synthesizer.{key}: {given!r} is for mechanism = 'pseudo_posterior'; leave it out."
            )
    for name in synthesizer.outcome:
        section = outcomes.get(name, OutcomeSection())
        missing = [key for key in ("centre", "spread") if getattr(section, key) is None]
        if missing:
            problems.append(
                f"outcomes.{name}: {' and '.join(missing)} missing; mechanism = "
                "'noisy_statistics' needs both from public sources: last year's publication, a "
                "frame, an administrative register. centre is a typical value in the outcome's own "
                "units, spread a typical standard deviation on the scale of its transform. Neither "
                "may be taken from these data; far-off ones cost accuracy, never privacy."
            )
    of_weight = outcomes.get(WEIGHT, OutcomeSection())
    modelled = not (whole or survey.public_weights)
    if survey.population_size is None and of_weight.centre is None and modelled:
        problems.append(
            "outcomes.weight.centre: missing; without survey.population_size noisy statistics need "
            "a typical log weight from public sources (log of population over sample size)."
        )
    if privacy.protect != RECORD and privacy.protect not in public:
        problems.append(
            f"privacy.protect: expected 'record' or a public column, got {privacy.protect!r}."
            f"{nearest(privacy.protect, public)} Name it in survey.public_columns too."
        )
    return problems
