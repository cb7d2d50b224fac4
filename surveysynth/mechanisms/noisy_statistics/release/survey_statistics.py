"""Noisy statistics of a survey: the one place where confidential records and noise meet (strict 1).

Whatever follows is a function of what ``release_statistics`` returns: draws from it may be made any
number of times, by any model that has such statistics, at no further cost.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.group_centres import group_noise
from surveysynth.mechanisms.noisy_statistics.release.level_squares import (
    SHARE,
    has_levels,
    level_squares,
)
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    Centring,
    LocationDesign,
    LocationStatistics,
    location_statistics,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource
from surveysynth.mechanisms.noisy_statistics.release.unit_products import (
    UnitSizes,
    divided,
    noise_variances,
    unit_products,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model, psu_codes, require
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.units import UnitDesign
from surveysynth.survey.design_matrix import ridge_of
from surveysynth.survey.survey import Confidential, PublicDesign


def release_statistics(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    source: NoiseSource | None = None,
    centres: FloatArray | None = None,
) -> LocationStatistics:
    """Return the noisy statistics of a survey: of categories, amounts and the transformed weight.

    Model and design say whether products between PSUs and squares by level are among them.
    ``centres``: of the groups, in place of those that first sums give. Raises ``InputError`` before
    the survey is looked at.
    """
    general = require_general(model)
    public = location_design(general, design, settings)
    records, psu = general.records(design, confidential), psu_codes(general, design)
    costs, size = costs_of(general, design, settings), settings.unit_size(design)
    units, levels = None, None
    if psu is not None:
        units = unit_products(
            public.shape, public.clipping, psu, records.category, records.z,
            rho=costs.units, records=size, source=source,
        )  # fmt: skip
    if costs.levels:
        levels = level_squares(
            public.shape, public.clipping, records.category, records.z,
            rho=costs.levels, records=size, source=source,
        )  # fmt: skip
    made = location_statistics(
        public, records.cell, records.category, records.z,
        budget=costs.blocks, share=settings.count_share, records=size, source=source,
        centres=centres,
    )  # fmt: skip
    return replace(made, units=units, levels=levels)


def check_public(model: Model, design: PublicDesign, settings: NoisySettings) -> None:
    """Raise ``InputError`` for what a design lacks, by public inputs: before noise is drawn."""
    location_design(require_general(model), design, settings)


def require_general(model: Model) -> GeneralLocation:
    """Return the model; raise ``InputError`` for one that is no general location model."""
    if isinstance(model, GeneralLocation):
        return model
    raise InputError(
        f"Noisy statistics need the general location form of a model, and {model.name!r} is given "
        "in another: take model.under_noise().of(design)."
    )


@dataclass(frozen=True)
class Costs:
    """rho of products between PSUs and of squares by level, 0 without them, and what they leave."""

    units: Fraction
    levels: Fraction
    blocks: Budget


def costs_of(model: Model, design: PublicDesign, settings: NoisySettings) -> Costs:
    """Return how the budget of all sums is divided."""
    public = location_design(require_general(model), design, settings)
    left, units, levels = settings.of_sums(design.modelled), Fraction(0), Fraction(0)
    if psu_codes(model, design) is not None:
        units, left = divided(left, unit_sizes(public, design, settings).best_share())
    if has_levels(public.shape):
        levels, left = divided(left, SHARE)
    return Costs(units, levels, left)


def unit_sizes(
    public: LocationDesign, design: PublicDesign, settings: NoisySettings
) -> UnitSizes:
    """Return the sizes of a design in PSUs, from which their share of the budget follows."""
    assert design.psu is not None  # the caller takes clustered designs
    clipping, sizes = public.clipping, np.bincount(design.psu)
    whole, records = settings.of_sums(design.modelled), settings.unit_size(design)
    if public.centring is None:
        of_sums = public.variances(whole.rho, settings.count_share, records).cross_sd(clipping)
    else:
        of_sums, _ = group_noise(clipping, whole.rho, public.centring.radius, records)
    diagonal, _ = noise_variances(public.shape, clipping, Fraction(whole.rho), sizes, records)
    return UnitSizes(
        units=len(sizes), records=design.n, cell=design.n / len(public.shape.x_cells),
        of_sums=of_sums**2, of_products=math.sqrt(diagonal) * clipping.step**2,
    )  # fmt: skip


def table_of(model: GeneralLocation, design: PublicDesign) -> LocationShape:
    """Return the public table of a design."""
    groups, weighted = model.groups(design), design.weight_name is not None
    return LocationShape(
        design.matrix.x_cells, groups.cell, design.outcomes, weighted, groups.levels
    )


def location_design(
    model: GeneralLocation, design: PublicDesign, settings: NoisySettings
) -> LocationDesign:
    """Return the public shape of the noise.

    Raise ``InputError`` for what the design lacks, before anything is spent."""
    require(model, design)
    psu = psu_codes(model, design)
    if psu is not None:
        UnitDesign.of_survey(design).check()
    shape, matrix, centring = table_of(model, design), design.matrix, None
    if not shape.discrete and shape.groups > 1:  # groups get centres of their own
        sizes = np.bincount(matrix.cell, minlength=len(matrix.x_cells))
        precision = np.maximum(1.0, ridge_of(matrix.ridged, matrix.interaction_scale))
        centring = Centring(settings.radius_about_groups(design), sizes, precision)
    return LocationDesign.optimal(shape, settings.clipping(design), centring)


def clipped(
    model: Model, design: PublicDesign, confidential: Confidential, settings: NoisySettings
) -> int:
    """Count the records outside the ball. Confidential.

    The number shows whether the declared centres and spreads suit these data."""
    clipping = settings.clipping(design)
    records = require_general(model).records(design, confidential)
    there = records.layout.present(records.category)
    with np.errstate(over="ignore"):
        u = np.where(there, (records.z - clipping.centre) / clipping.spread, 0.0)
        return int(np.count_nonzero((u * u).sum(axis=1) > clipping.radius**2))
