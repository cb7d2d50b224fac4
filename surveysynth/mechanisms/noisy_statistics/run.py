"""The mechanism of noisy statistics: strict differential privacy at any n (strict 1 and 2).

``release_statistics`` is the one place where confidential records and noise meet. Whatever follows
is a function of what it returns: ``posterior_draws`` may be run any number of times, by any model
that has such statistics, at no further cost.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from surveysynth._support import progress as stages
from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.base import PrivateDraws, Progress
from surveysynth.mechanisms.noisy_statistics.design import NoiseDesign
from surveysynth.mechanisms.noisy_statistics.implied import implied_sample
from surveysynth.mechanisms.noisy_statistics.judged import PosteriorRecord, judged
from surveysynth.mechanisms.noisy_statistics.location import run as location
from surveysynth.mechanisms.noisy_statistics.location.statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.moments import (
    NoisyMoments,
    PublicSums,
    check_freedom,
    rank,
)
from surveysynth.mechanisms.noisy_statistics.noise import NoiseSource
from surveysynth.mechanisms.noisy_statistics.posterior import NoisySweeps, noisy_sweeps
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.mechanisms.noisy_statistics.statistics import NoisyStatistics, noisy_statistics
from surveysynth.models.base import Model, psu_codes, require
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.sampling.sweeps import run_sweeps
from surveysynth.survey.survey import Confidential, PublicDesign

#: What is released of a survey, by the model that it is released for.
Statistics: TypeAlias = NoisyStatistics | LocationStatistics

#: Rounds between kept draws: at first, and whenever a fit that has not converged goes on, with all
#: that it has run so far as its warm-up. Nothing but time is spent by going on.
THINNINGS = (1, 2, 4, 16, 64, 256)


@dataclass(frozen=True)
class NoisyRelease:
    """What is published of a survey: its noisy statistics, draws from them, and their record."""

    statistics: Statistics
    draws: PrivateDraws
    record: PosteriorRecord


def run(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    source: NoiseSource | None = None,
) -> NoisyRelease:
    """Statistics with noise from ``source``, the operating system's unless given, and draws.

    ``rng`` serves what follows the noise; its seed may be published. Raises ``InputError`` for a
    model without such statistics or settings that do not fit the survey, all of it public, and
    ``RefusedError`` where the chains do not converge, which the noisy statistics alone decide.
    """
    say = progress or (lambda stage: None)
    say(stages.NOISE)
    statistics = release_statistics(model, design, confidential, settings, source)
    say(stages.POSTERIOR)
    draws, record = posterior_draws(model, design, statistics, settings, rng)
    return NoisyRelease(statistics, draws, record)


def release_statistics(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    source: NoiseSource | None = None,
) -> Statistics:
    """The noisy statistics of z = (transformed outcomes, log weight), or, of a general location
    model, of categories, amounts and the log weight.

    The model says whether sums by PSU are among them. Raises ``InputError`` before the survey is
    looked at.
    """
    if isinstance(model, GeneralLocation):
        return location.release_statistics(model, design, confidential, settings, source)
    noise, _ = required_design(model, design, settings)
    return noisy_statistics(
        noise,
        design.matrix.cell,
        transformed(design, confidential),
        budget=settings.budget,
        psu=psu_codes(model, design),
        records=settings.unit_size(design),
        source=source,
    )


def required_design(
    model: Model, design: PublicDesign, settings: NoisySettings
) -> tuple[NoiseDesign, int]:
    """The public shape of the noise, and the rank of X with the PSUs that have effects.

    Raises ``InputError`` for a model without such statistics, and for a design that leaves too
    few records for its residuals: by public inputs, before anything is spent."""
    implied_sample(model.of(design))
    require(model, design)
    noise = noise_design(model, design, settings)
    public = _public_sums(model, design, noise.basis, noise.psu_weight)
    columns = rank(public.white_gram)
    check_freedom(public.total, columns, noise.clipping.q)
    return noise, columns


def transformed(design: PublicDesign, confidential: Confidential) -> FloatArray:
    """z (n, q): transformed outcomes, then the log weight if there is one. Confidential."""
    columns = [t.forward(confidential.outcome[:, j]) for j, t in enumerate(design.transforms)]
    if confidential.sampling_weight is not None:
        columns.append(np.log(confidential.sampling_weight))
    return np.stack(columns, axis=1)


def clipped(
    model: Model, design: PublicDesign, confidential: Confidential, settings: NoisySettings
) -> int:
    """How many records lie outside the ball. Confidential: it tells whether the declared centres
    and spreads suit these data."""
    if isinstance(model, GeneralLocation):
        return location.clipped(model, design, confidential, settings)
    clipping = settings.clipping(design)
    with np.errstate(over="ignore"):
        u = (transformed(design, confidential) - clipping.centre) / clipping.spread
        return int(np.count_nonzero((u * u).sum(axis=1) > clipping.radius**2))


def noise_design(model: Model, design: PublicDesign, settings: NoisySettings) -> NoiseDesign:
    """The public shape of the noise for this design."""
    psu = psu_codes(model, design)
    n_psu = 0 if psu is None else int(psu.max()) + 1
    return NoiseDesign.optimal(design.matrix.x_cells, settings.clipping(design), n_psu=n_psu)


def statistics_of(given: Mapping[str, Any]) -> Statistics:
    """Noisy statistics that were written as a dictionary; raises ``InputError`` where its entries
    do not fit together."""
    kind = LocationStatistics if "counts" in given else NoisyStatistics
    return kind.from_dict(given)


def posterior_draws(
    model: Model,
    design: PublicDesign,
    statistics: Statistics,
    settings: NoisySettings,
    rng: np.random.Generator,
) -> tuple[PrivateDraws, PosteriorRecord]:
    """m draws of the model's parameters given the noisy statistics, and how they came about."""
    (result,) = posterior_batch(model, [(design, statistics)], settings, [rng])
    if isinstance(result, RefusedError):
        raise result
    return result


def posterior_batch(
    model: Model,
    releases: Sequence[tuple[PublicDesign, Statistics]],
    settings: NoisySettings,
    rngs: Sequence[np.random.Generator],
) -> list[tuple[PrivateDraws, PosteriorRecord] | RefusedError]:
    """``posterior_draws`` of many releases side by side: draws, or why there are none.

    Their numbers of columns of X and of PSUs must be the same, and their settings. Fits that have
    not converged go on; what a fit gives does not depend on the others.
    """
    of_blocks = [each for _, each in releases if isinstance(each, LocationStatistics)]
    if isinstance(model, GeneralLocation) and len(of_blocks) == len(releases):
        designs = [design for design, _ in releases]
        return [
            location.posterior_draws(model, *each, settings, rng)
            for each, rng in zip(zip(designs, of_blocks, strict=True), rngs, strict=True)
        ]
    gaussian = [(d, each) for d, each in releases if isinstance(each, NoisyStatistics)]
    if len(gaussian) < len(releases):
        raise InputError(f"These noisy statistics were not made for the model {model.name!r}.")
    return _gaussian_batch(model, gaussian, settings, rngs)


def _gaussian_batch(
    model: Model,
    releases: Sequence[tuple[PublicDesign, NoisyStatistics]],
    settings: NoisySettings,
    rngs: Sequence[np.random.Generator],
) -> list[tuple[PrivateDraws, PosteriorRecord] | RefusedError]:
    """``posterior_batch`` of models with one normal distribution of all records."""
    implied_sample(model)  # refuses a model without such statistics
    results: dict[int, tuple[PrivateDraws, PosteriorRecord] | RefusedError] = {}
    # Where most fits are done the others are better off alone: they come to the same place, since
    # each has random numbers of its own.
    begun = [deepcopy(rng) for rng in rngs]
    members = waiting = list(range(len(releases)))
    sweeps = _chains(model, releases, settings, rngs)
    plan = settings.plan
    for thinning in THINNINGS:
        if 2 * len(waiting) <= len(members):
            members, rounds = waiting, sweeps.rounds
            sweeps = _chains(
                model, [releases[i] for i in members], settings, [begun[i] for i in members]
            )
            sweeps.go(rounds)
        sweeps.thin = thinning
        theta = run_sweeps(sweeps, plan)
        plan = replace(plan, warmup=0)
        for i in waiting:
            own = {name: values[members.index(i)] for name, values in theta.items()}
            results[i] = judged(model, own, settings, thinning)
        waiting = [i for i in waiting if isinstance(results[i], RefusedError)]
        if not waiting:
            break
    return [results[i] for i in range(len(releases))]


def _chains(
    model: Model,
    releases: Sequence[tuple[PublicDesign, NoisyStatistics]],
    settings: NoisySettings,
    rngs: Sequence[np.random.Generator],
) -> NoisySweeps:
    parts = [_moments(model, *each) for each in releases]
    return noisy_sweeps(
        model,
        NoisyMoments.stacked([moments for moments, _ in parts]),
        PublicSums.stacked([sums for _, sums in parts]),
        settings.plan.chains,
        rngs,
    )


def _moments(
    model: Model, design: PublicDesign, statistics: NoisyStatistics
) -> tuple[NoisyMoments, PublicSums]:
    """The statistics on the model's scale, and the public sums that belong to them."""
    centre, sign = statistics.centre.copy(), np.ones(statistics.centre.size)
    if model.tilted:
        # The last column of a model of the population is log pi~ = log(N/n) - log w (methods 3).
        assert design.population_size is not None  # the model requires it
        centre[-1] = np.log(design.population_size / design.n) - centre[-1]
        sign[-1] = -1.0
    moments = NoisyMoments(
        cross=statistics.cross * sign,
        squares=statistics.squares * sign[:, None] * sign,
        sigma=statistics.sigma,
        squares_sd=statistics.squares_sd,
        centre=centre,
        spread=statistics.spread,
    )
    return moments, _public_sums(model, design, statistics.basis, statistics.psu_weight)


def _public_sums(
    model: Model, design: PublicDesign, basis: FloatArray, psu_weight: float
) -> PublicSums:
    matrix = design.matrix
    return PublicSums.of(
        matrix.x_cells, matrix.cell, basis, psu_codes(model, design), psu_weight
    )
