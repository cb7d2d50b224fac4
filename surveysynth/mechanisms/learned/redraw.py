"""Curves that could have been learned instead: the error of a learned curve, drawn again.

A parametric bootstrap from public numbers, at no cost. Counts are drawn from the expected counts of
the published curve T, with the variance of a sample and of the noise, and smoothed: a curve T*. The
second stage knows location and spread of z, whatever the curve, so T* is used on the scale of T:

    C(y) = (T*(y) - a) / b,   a and b: mean and SD of T*(T^-1(z)) for a standard normal z.

Values y = C^-1(z) then differ from T^-1(z) by the shape alone. One curve for each draw of the model
puts the error of the curve into the variance between draws.
"""

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.learned.histogram import side_of, with_columns
from surveysynth.mechanisms.learned.smoothing import smoothed_counts
from surveysynth.survey.learned import BINS, LearnedTransform, normal_scores
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign

#: Equal shares of a normal distribution, by which a and b are computed.
NODES = ndtri((np.arange(400) + 0.5) / 400)


def redrawn_design(design: PublicDesign, rng: np.random.Generator) -> PublicDesign:
    """Return the design with redrawn curves; the same one where no transform is learned."""
    if not any(each.learned and each.learned.expected for each in design.modelled):
        return design
    return with_columns(design, [_redrawn(each, rng) for each in design.modelled])


def _redrawn(outcome: Outcome, rng: np.random.Generator) -> Outcome:
    given = outcome.learned
    if given is None or not given.expected:
        return outcome
    curves = []
    for side, expected in enumerate(given.expected):
        of_side = side_of(outcome, side)
        redrawn = redrawn_knots(of_side, np.array(expected), given.noise_variance, rng)
        curves.append(tuple(map(tuple, redrawn.tolist())))
    return replace(outcome, transform=replace(given, curves=tuple(curves)))


def redrawn_knots(
    transform: LearnedTransform, expected: FloatArray, variance: float, rng: np.random.Generator
) -> FloatArray:
    """Return the knots of C (H, parts + 1), for expected counts (H, J) and noise of a variance."""
    noise = np.round(rng.normal(0.0, np.sqrt(variance), expected.shape))
    ends = np.linspace(*transform.grid, BINS + 1)
    drawn = normal_scores(smoothed_counts(rng.poisson(expected) + noise, variance, ends))
    places = np.arange(drawn.shape[1])
    for row, own in enumerate(transform.knots):
        z = np.interp(np.interp(NODES, own, places), places, drawn[row])
        drawn[row] = (drawn[row] - z.mean()) / z.std() * NODES.std()
    return drawn
