"""Curves that could have been learned instead: the error of a learned curve, drawn again.

A parametric bootstrap from public numbers, at no cost. Counts are drawn from the expected counts of
the published curve T, with the variance of a sample and of the noise, and smoothed: a curve T*. A
smoothed curve that is smoothed again is flatter in its tails: the mean of all T* is not T, and
means of a skewed outcome follow it. So of T* only its deviation from the others is used, the log of
its slope less the mean over all m curves of a release. The second stage knows location and spread
of z, whatever the curve, so the result is used on the scale of T:

    log D' = log T' + log T*' - mean log T*',
    C(y) = (D(y) - a) / b,   a and b: mean and SD of D(T^-1(z)) for a standard normal z.

Values y = C^-1(z) then differ from T^-1(z) by the shape alone, and hardly on average. One curve for
each draw of the model puts the error of the curve into the variance between draws. A release of one
draw has no such variance, and keeps T.
"""

from dataclasses import replace

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.learned.histogram import side_of, with_columns
from surveysynth.mechanisms.learned.smoothing import expected_counts
from surveysynth.sampling.primitives import NORMAL_NODES
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.transforms import LearnedTransform, normal_scores


def redrawn_designs(
    design: PublicDesign, m: int, rng: np.random.Generator
) -> list[PublicDesign]:
    """Return m designs with redrawn curves; the same one where no transform is learned."""
    if not any(each.learned and each.learned.expected for each in design.modelled):
        return [design] * m
    columns = [_redrawn(each, m, rng) for each in design.modelled]
    return [with_columns(design, of_draw) for of_draw in zip(*columns, strict=True)]


def _redrawn(outcome: Outcome, m: int, rng: np.random.Generator) -> list[Outcome]:
    given = outcome.learned
    if given is None or not given.expected:
        return [outcome] * m
    sides = [
        redrawn_knots(side_of(outcome, side), np.array(expected), given.noise_variance, m, rng)
        for side, expected in enumerate(given.expected)
    ]
    return [
        replace(
            outcome,
            transform=replace(given, curves=tuple(tuple(map(tuple, c.tolist())) for c in curves)),
        )
        for curves in zip(*sides, strict=True)
    ]


def redrawn_knots(
    transform: LearnedTransform,
    expected: FloatArray,
    variance: float,
    m: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return the knots of m curves C (m, H, parts + 1), for expected counts (H, J) and noise."""
    shape = (m, *expected.shape)
    noise = rng.poisson(expected, shape) + np.round(rng.normal(0.0, np.sqrt(variance), shape))
    smooth = (expected_counts(transform, counts, variance) for counts in noise)
    slopes = np.stack([
        np.log(np.diff(normal_scores(each, whole=transform.whole))) for each in smooth
    ])
    slopes += np.log(np.diff(transform.knots)) - slopes.mean(axis=0)
    drawn = np.zeros((m, *transform.knots.shape))
    np.cumsum(np.exp(slopes), axis=-1, out=drawn[..., 1:])
    places = np.arange(drawn.shape[-1])
    for row, own in enumerate(transform.knots):
        at = np.interp(NORMAL_NODES, own, places)
        for curve in drawn[:, row]:
            z = np.interp(at, places, curve)
            curve[:] = (curve - z.mean()) / z.std() * NORMAL_NODES.std()
    return drawn
