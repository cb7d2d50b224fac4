"""Curves that could have been learned instead: the error of a learned curve, drawn again.

A parametric bootstrap from public numbers, at no cost (strict 8, "Error of the curve"): one curve C
for each draw of the model. A release of one draw has no variance between draws, and keeps T."""

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
