"""The first stage of a mechanism: learn the transforms, by noise that is drawn once and kept.

A count y becomes the amount y + U, with U uniform on [0, 1), independent of all answers and of all
other records, drawn once a release and never published. For fixed numbers U the mechanism is one
for amounts, with its guarantee: neighbors have the same U. A release is a mixture of these over U,
whose law is the same for both neighbors, and no mixture of pairs is farther apart than the farthest
of them: Renyi divergence is jointly quasi-convex (strict 8).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surveysynth.mechanisms.base import NoiseKeeper
from surveysynth.mechanisms.learned.histogram import (
    NoiseKind,
    NoisyHistogram,
    learned_design,
    learned_outcomes,
    noisy_histograms,
)
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource
from surveysynth.sampling.randomness import secret_generator
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, PublicDesign

#: The key of the histograms in files.
LEARNED = "learned"


@dataclass(frozen=True)
class FirstStage:
    """The design with its learned transforms, and what is known of the noise of the run.

    histograms: of the outcomes that are learned; earlier: what an unreleased run kept, if any.
    """

    design: PublicDesign
    histograms: tuple[NoisyHistogram, ...]
    earlier: Mapping[str, Any] | None

    def kept(self) -> dict[str, Any]:
        """Return the histograms for files; nothing where there are none."""
        return {LEARNED: [each.to_dict() for each in self.histograms]} if self.histograms else {}


def first_stage(
    design: PublicDesign,
    confidential: Confidential,
    *,
    budget: float,
    noise: NoiseKind,
    source: NoiseSource | None,
    records: int = 1,
    keeper: NoiseKeeper | None = None,
) -> FirstStage:
    """Draw the histograms, or take those that an unreleased run kept, and learn the transforms.

    New histograms are kept before anything follows from them.
    """
    earlier = None if keeper is None else keeper.earlier()
    if not learned_outcomes(design.modelled):
        return FirstStage(design, (), earlier)
    if earlier is not None:
        histograms = histograms_in(earlier)
        return FirstStage(learned_design(design, histograms), histograms, earlier)
    histograms = noisy_histograms(design, confidential, budget, noise, source, records)
    if keeper is not None:
        keeper.keep(FirstStage(design, histograms, None).kept())
    return FirstStage(learned_design(design, histograms), histograms, None)


def histograms_in(content: Mapping[str, Any]) -> tuple[NoisyHistogram, ...]:
    """Return the histograms of a file; none where nothing was learned."""
    return tuple(NoisyHistogram.from_dict(each) for each in content.get(LEARNED, ()))


def learned_facts(
    outcomes: Sequence[Outcome], currency: str, budget: float
) -> dict[str, dict[str, Any]]:
    """Return what is declared of learned transforms and their cost, for privacy.json."""
    facts = {}
    for each in learned_outcomes(outcomes):
        given = each.learned
        assert given is not None  # the outcome is a learned one
        facts[each.name] = {
            "range": [given.low, given.high],
            "learned_share": given.share,
            "learned_by": given.curve_by,
            currency: given.share * budget,
        }
    return {LEARNED: facts} if facts else {}


def learned_words(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes that are learned, in words, with the share of each."""
    chosen = [(each.name, each.learned) for each in outcomes]
    return "; ".join(
        f"{name} ({given.share:.3g} of the budget)" for name, given in chosen if given is not None
    )


def spread_counts(
    design: PublicDesign, confidential: Confidential, rng: np.random.Generator | None
) -> Confidential:
    """Return the values with y + U in the place of each count y. Confidential.

    Counts outside the range count as its nearer end, and missing answers stay missing. rng: of a
    test or a simulation; None for the randomness of the operating system.
    """
    counts = [j for j, each in enumerate(design.outcomes) if each.kind == "count"]
    if not counts:
        return confidential
    generator = secret_generator() if rng is None else rng.spawn(1)[0]
    outcome = confidential.outcome.copy()
    for j in counts:
        low, high = design.outcomes[j].limits
        outcome[:, j] = np.clip(outcome[:, j], low, high) + generator.random(design.n)
    return replace(confidential, outcome=outcome)
