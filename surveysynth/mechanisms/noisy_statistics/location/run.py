"""Noisy statistics of the general location model: outcomes of several kinds, spread by groups.

``release_statistics`` is the one place where confidential records and noise meet; all else is a
function of what it returns (``noisy_statistics.run``).
"""

from dataclasses import replace

import numpy as np

from surveysynth.errors import RefusedError
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.judged import PosteriorRecord, judged
from surveysynth.mechanisms.noisy_statistics.location.posterior import LocationSweeps
from surveysynth.mechanisms.noisy_statistics.location.shape import LocationShape
from surveysynth.mechanisms.noisy_statistics.location.statistics import (
    LocationDesign,
    LocationStatistics,
    location_statistics,
)
from surveysynth.mechanisms.noisy_statistics.location.target import LocationTarget
from surveysynth.mechanisms.noisy_statistics.noise import NoiseSource
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import require
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.sampling.sweeps import Streams, run_sweeps
from surveysynth.survey.survey import Confidential, PublicDesign

#: Rounds between kept draws: at first, and whenever a fit that has not converged goes on.
THINNINGS = (2, 4, 8, 16, 32, 64)


def shape_of(model: GeneralLocation, design: PublicDesign) -> LocationShape:
    """The public table of a design."""
    return LocationShape(
        design.matrix.x_cells,
        model.groups(design).cell,
        design.outcomes,
        design.weight_name is not None,
    )


def location_design(
    model: GeneralLocation, design: PublicDesign, settings: NoisySettings
) -> LocationDesign:
    """The public shape of the noise; raises ``InputError`` for what the design lacks, before
    anything is spent."""
    require(model, design)
    return LocationDesign.optimal(shape_of(model, design), settings.clipping(design))


def release_statistics(
    model: GeneralLocation,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    source: NoiseSource | None = None,
) -> LocationStatistics:
    """The noisy statistics of categories, transformed amounts and the log weight."""
    public = location_design(model, design, settings)
    records = model.records(design, confidential)
    return location_statistics(
        public, records.cell, records.category, records.z,
        budget=settings.budget,
        share=settings.count_share,
        records=settings.unit_size(design),
        source=source,
    )  # fmt: skip


def clipped(
    model: GeneralLocation,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
) -> int:
    """How many records lie outside the ball. Confidential."""
    clipping = settings.clipping(design)
    records = model.records(design, confidential)
    there = records.layout.present(records.category)
    with np.errstate(over="ignore"):
        u = np.where(there, (records.z - clipping.centre) / clipping.spread, 0.0)
        return int(np.count_nonzero((u * u).sum(axis=1) > clipping.radius**2))


def posterior_draws(
    model: GeneralLocation,
    design: PublicDesign,
    statistics: LocationStatistics,
    settings: NoisySettings,
    rng: np.random.Generator,
) -> tuple[PrivateDraws, PosteriorRecord] | RefusedError:
    """m draws given the noisy statistics, and how they came about; chains that have not converged
    go on. Where they never do: why there are none."""
    plan = settings.plan
    target = LocationTarget.of(
        shape_of(model, design), design.matrix.cell, [statistics], plan.chains
    )
    layout, streams = Layout.of(design, model.grouped), Streams((rng,), 1)
    sweeps = LocationSweeps(layout, target, model.priors, streams, THINNINGS[0])
    # Every chain is a database of its own to the sampler.
    plan = replace(plan, chains=1)
    for thinning in THINNINGS:
        sweeps.thin = thinning
        theta = {name: values[:, 0] for name, values in run_sweeps(sweeps, plan).items()}
        result = judged(model, theta, settings, thinning)
        if not isinstance(result, RefusedError):
            break
        plan = replace(plan, warmup=0)
    return result
