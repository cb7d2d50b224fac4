"""Noisy statistics of a survey: the one place where confidential records and noise meet (strict 1).

Whatever follows is a function of what ``release_statistics`` returns: draws from it may be made any
number of times, by any model that has such statistics, at no further cost.

What each record of a synthetic dataset adds to published sums is here too: nothing confidential.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.learned.histogram import require_signal
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.level_squares import (
    SHARE,
    has_levels,
    level_squares,
)
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    Centring,
    LocationDesign,
    LocationStatistics,
    group_noise,
    location_statistics,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.unit_products import (
    UnitSizes,
    divided,
    noise_variances,
    unit_products,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model, psu_codes, require
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralLocation, on_scale
from surveysynth.models.general_location.simulate import columns_of
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
    ``centres``: of the groups, instead of those that first sums give. Raises ``InputError`` before
    the survey is read.
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
    """Raise ``InputError`` for what a design lacks, by public inputs: before noise is drawn.

    Also ``RefusedError`` if noise would hide all that a transform is learned from.
    """
    location_design(require_general(model), design, settings)
    require_signal(design, settings.budget.rho, settings.unit_size(design))


def require_general(model: Model) -> GeneralLocation:
    """Return the model; raise ``InputError`` if it is not a general location model."""
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
    if not shape.discrete and shape.groups > 1:  # groups get centers of their own
        sizes = np.bincount(matrix.cell, minlength=len(matrix.x_cells))
        precision = np.maximum(1.0, ridge_of(matrix.ridged, matrix.interaction_scale))
        centring = Centring(settings.radius_about_groups(design), sizes, precision)
    return LocationDesign.optimal(shape, settings.clipping(design), centring)


def clipped(
    model: Model, design: PublicDesign, confidential: Confidential, settings: NoisySettings
) -> int:
    """Count the records outside the ball. Confidential.

    The number shows whether the declared centers and spreads suit these data."""
    clipping = settings.clipping(design)
    records = require_general(model).records(design, confidential)
    there = records.layout.present(records.category)
    with np.errstate(over="ignore"):
        u = np.where(there, (records.z - clipping.centre) / clipping.spread, 0.0)
        return int(np.count_nonzero((u * u).sum(axis=1) > clipping.radius**2))


def record_sums(
    model: Model, design: PublicDesign, statistics: LocationStatistics, dataset: Confidential
) -> FloatArray:
    """Return the addends (n, P) of a dataset's records."""
    general, own = require_general(model), statistics
    records, shape = general.records(design, dataset), table_of(general, design)
    cell, z, combination = records.cell, records.z, shape.combination_of(records.category)
    rows = shape.tilde[cell, combination]
    block_of = shape.pattern[combination] * shape.groups + shape.group[cell]
    parts = []
    for number, basis in enumerate(own.basis):
        here = block_of == own.block_pattern[number] * shape.groups + own.block_group[number]
        there = own.present[own.block_pattern[number]]
        ball = Clipping(own.centres[number], own.spread, own.radius)
        u = ball.on_grid(np.where(there, z[here], ball.centre))[:, there] * ball.step
        upper = np.triu_indices(u.shape[1])
        made = np.zeros((len(z), basis.shape[1] * u.shape[1] + upper[0].size))
        cross = (rows[here] @ basis)[:, :, None] * u[:, None, :]
        cross = cross.reshape(len(u), basis.shape[1] * u.shape[1])  # of none, too
        made[here] = np.hstack([cross, u[:, upper[0]] * u[:, upper[1]]])
        parts.append(made)
    if _counted(own):
        counts = np.zeros((len(z), own.counts.size))
        counts[np.arange(len(z)), cell * len(shape.combinations) + combination] = 1.0
        parts.append(counts)
    return np.hstack(parts)


def published_sums(
    model: Model, design: PublicDesign, statistics: LocationStatistics
) -> tuple[FloatArray, FloatArray]:
    """Return the published sums (P,) and the variances (P,) of their noise.

    Sums of two stages are their mean by precision, about the centers of the second.
    """
    sums, sds, own = [], [], statistics
    shape = table_of(require_general(model), design)
    x, group = shape.x_cells[design.matrix.cell], shape.group[design.matrix.cell]
    for number, squares in enumerate(own.squares):
        cross = own.cross[number]
        if own.first is not None:  # there are no categories
            rows = x[group == own.block_group[number]] @ own.basis[number]
            about = np.outer(rows.sum(axis=0), own.first.centres[number])
            share = (own.pooled_sigma / own.sigma) ** 2
            cross = share * cross + (1.0 - share) * (own.first.cross[number] - about)
        upper = np.triu_indices(len(squares))
        sums += [cross.ravel(), squares[upper]]
        sds.append(np.full(cross.size, own.pooled_sigma))
        sds.append(np.where(upper[0] == upper[1], *own.squares_sd))
    if _counted(own):
        sums.append(own.counts)
        sds.append(np.full(own.counts.size, own.count_sd))
    return np.concatenate(sums), np.asarray(np.concatenate(sds) ** 2)


def _counted(own: LocationStatistics) -> bool:
    """Return True if counts are informative: records of a cell without categories are public."""
    return len(own.present) > 1 or own.counts.size > own.block_group.max() + 1


def record_scores(design: PublicDesign, dataset: Confidential) -> FloatArray:
    """Return x times categories, x and categories times amounts, and products of amounts."""
    layout, made = Layout.of(design, grouped=False), on_scale(design, dataset)
    n, category = len(made.z), made.category
    assert category is not None  # all of this form have them
    z, x = columns_of(layout, category, made.z), design.matrix.x_cells[design.matrix.cell]
    rows, upper = layout.tilde(x, category), np.triu_indices(z.shape[1])
    pairs = ((rows, z), (x, rows[:, x.shape[1] :]))
    products = [(one[:, :, None] * two[:, None, :]).reshape(n, -1) for one, two in pairs]
    return np.hstack([*products, z[:, upper[0]] * z[:, upper[1]]])
