"""Spread counts evenly over unit intervals, so that they are amounts with a learned transform.

A count y becomes y + U, with U uniform on [0, 1), independent of all answers and of all other
records. It is drawn once a release and never published. For fixed numbers U the mechanism is a
mechanism for amounts, with its guarantee: neighbors have the same U. A release is a mixture of
these over U, whose law is the same for both neighbors, and no mixture of pairs is farther apart
than the farthest of them: Renyi divergence is jointly quasi-convex (strict 8).
"""

from dataclasses import replace

import numpy as np

from surveysynth.sampling.randomness import secret_generator
from surveysynth.survey.survey import Confidential, PublicDesign


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
