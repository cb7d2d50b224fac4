"""Noisy statistics of a survey: the one place where confidential records and noise meet (strict 1).

Whatever follows is a function of what ``release_statistics`` returns: draws from it may be made any
number of times, by any model that has such statistics, at no further cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior.model_adapters import implied_sample
from surveysynth.mechanisms.noisy_statistics.posterior.moments import (
    PublicSums,
    check_freedom,
    rank,
)
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    Centring,
    LocationDesign,
    LocationStatistics,
    location_statistics,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.module_statistics import ModuleStatistics
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource
from surveysynth.mechanisms.noisy_statistics.release.noise_design import NoiseDesign
from surveysynth.mechanisms.noisy_statistics.release.statistics import (
    NoisyStatistics,
    noisy_statistics,
)
from surveysynth.mechanisms.noisy_statistics.release.unit_sums import divided, unit_sums
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model, psu_codes, require
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.parts.unit_design import UnitDesign
from surveysynth.survey.interactions import ridge_of
from surveysynth.survey.survey import Confidential, PublicDesign

#: What is released of a survey, by the model that it is released for.
Statistics: TypeAlias = NoisyStatistics | LocationStatistics | ModuleStatistics


def release_statistics(
    model: Model,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    source: NoiseSource | None = None,
    centres: Sequence[FloatArray | None] | None = None,
) -> Statistics:
    """Return the noisy statistics of a survey.

    Of z = (transformed outcomes, transformed weight), or for a general location model of
    categories, amounts and the transformed weight.

    The model says whether sums by PSU are among them. ``centres``: of the groups of each module, in
    place of those that first sums give. Raises ``InputError`` before the survey is looked at.
    """
    if settings.modules:
        general = require_general(model)
        modules = settings.modules_of(design)
        given = [None] * len(modules) if centres is None else centres
        return ModuleStatistics(
            tuple(
                _location_statistics(
                    general, each.design, each.of(confidential), each.settings, source, own
                )
                for each, own in zip(modules, given, strict=True)
            ),
            tuple(each.design.outcome_names for each in modules),
        )
    if isinstance(model, GeneralLocation):
        own = None if centres is None else centres[0]
        return _location_statistics(model, design, confidential, settings, source, own)
    noise, _ = required_design(model, design, settings)
    return noisy_statistics(
        noise,
        design.matrix.cell,
        transformed(design, confidential),
        budget=settings.of_sums(design.modelled),
        psu=psu_codes(model, design),
        records=settings.unit_size(design),
        source=source,
    )


def check_public(model: Model, design: PublicDesign, settings: NoisySettings) -> None:
    """Raise ``InputError`` for what a design lacks, by public inputs: before noise is drawn."""
    if settings.modules:
        model = require_general(model)
    if isinstance(model, GeneralLocation):
        for each in settings.modules_of(design):
            location_design(model, each.design, each.settings)
    else:
        required_design(model, design, settings)


def require_general(model: Model) -> GeneralLocation:
    """Return the model, if outcomes can be in modules; raise ``InputError`` otherwise."""
    if isinstance(model, GeneralLocation):
        return model
    raise InputError(
        "modules divide outcomes of a general location model, and this model has one normal "
        "distribution of all records. Leave modules out, or name covariance_by, so that spreads "
        "differ by cell."
    )


def _location_statistics(
    model: GeneralLocation,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
    source: NoiseSource | None = None,
    centres: FloatArray | None = None,
) -> LocationStatistics:
    """Return the noisy statistics of categories, transformed amounts and the log weight."""
    public = location_design(model, design, settings)
    records, psu = model.records(design, confidential), psu_codes(model, design)
    budget, units = settings.of_sums(design.modelled), None
    size = settings.unit_size(design)
    if psu is not None:
        cost, budget = divided(budget, settings.psu_share)
        units = unit_sums(
            public.shape, public.clipping, psu, records.category, records.z,
            rho=cost, share=settings.count_share, records=size, source=source,
        )  # fmt: skip
    made = location_statistics(
        public, records.cell, records.category, records.z,
        budget=budget, share=settings.count_share, records=size, source=source, centres=centres,
    )  # fmt: skip
    return replace(made, units=units)


def budget_of_blocks(
    model: Model, design: PublicDesign, settings: NoisySettings
) -> Budget:
    """Return the budget of counts and moments by block: what sums by PSU leave, if any."""
    whole = settings.of_sums(design.modelled)
    clustered = psu_codes(model, design) is not None
    return divided(whole, settings.psu_share)[1] if clustered else whole


def required_design(
    model: Model, design: PublicDesign, settings: NoisySettings
) -> tuple[NoiseDesign, int]:
    """Return the public shape of the noise, and the rank of X with the PSUs that have effects.

    Raises ``InputError`` for a model without such statistics, and for a design that leaves too
    few records for its residuals: by public inputs, before anything is spent.
    """
    implied_sample(model.of(design))
    require(model, design)
    noise = noise_design(model, design, settings)
    public = public_sums(model, design, noise.basis, noise.psu_weight)
    columns = rank(public.white_gram)
    check_freedom(public.total, columns, noise.clipping.q)
    return noise, columns


def noise_design(model: Model, design: PublicDesign, settings: NoisySettings) -> NoiseDesign:
    """Return the public shape of the noise for this design."""
    psu = psu_codes(model, design)
    n_psu = 0 if psu is None else int(psu.max()) + 1
    return NoiseDesign.optimal(design.matrix.x_cells, settings.clipping(design), n_psu=n_psu)


def table_of(model: Model, design: PublicDesign) -> LocationShape:
    """Return the public table of a design; one group of cells unless the model has groups."""
    cells, weighted = design.matrix.x_cells, design.weight_name is not None
    if not isinstance(model, GeneralLocation):
        group = np.zeros(len(cells), dtype=np.int64)
        return LocationShape(cells, group, design.outcomes, weighted)
    groups = model.groups(design)
    return LocationShape(cells, groups.cell, design.outcomes, weighted, groups.levels)


def location_design(
    model: GeneralLocation, design: PublicDesign, settings: NoisySettings
) -> LocationDesign:
    """Return the public shape of the noise.

    Raise ``InputError`` for what the design lacks, before anything is spent."""
    require(model, design)
    psu = psu_codes(model, design)
    if psu is not None:
        UnitDesign.of_survey(design).check()
    shape = table_of(model, design)
    return LocationDesign.optimal(
        shape, settings.clipping(design), centring_of(shape, design, settings)
    )


def centring_of(
    shape: LocationShape, design: PublicDesign, settings: NoisySettings
) -> Centring | None:
    """Return how groups get centres of their own; None where there is one group, or categories."""
    if shape.discrete or shape.groups == 1:
        return None
    matrix = design.matrix
    sizes = np.bincount(matrix.cell, minlength=len(matrix.x_cells))
    precision = np.maximum(1.0, ridge_of(matrix.ridged, matrix.interaction_scale))
    return Centring(settings.radius_about_groups(design), sizes, precision)


def tables_of_modules(
    model: Model, design: PublicDesign, settings: NoisySettings
) -> list[tuple[LocationShape, Centring | None]]:
    """Return the table of each module, and how its groups get centres; none of other models."""
    if not isinstance(model, GeneralLocation):
        return []
    modules = settings.modules_of(design)
    shapes = [table_of(model.of(each.design), each.design) for each in modules]
    return [
        (shape, centring_of(shape, each.design, each.settings))
        for shape, each in zip(shapes, modules, strict=True)
    ]


def transformed(design: PublicDesign, confidential: Confidential) -> FloatArray:
    """Return z (n, q): transformed outcomes, then the weight if there is one. Confidential."""
    columns = [t.forward(confidential.outcome[:, j]) for j, t in enumerate(design.transforms)]
    if confidential.sampling_weight is not None:
        columns.append(design.weight_transform.forward(confidential.sampling_weight))
    return np.stack(columns, axis=1)


def clipped(
    model: Model, design: PublicDesign, confidential: Confidential, settings: NoisySettings
) -> int:
    """Count the records outside the ball. Confidential.

    The number shows whether the declared centres and spreads suit these data."""
    if isinstance(model, GeneralLocation):
        outside = np.zeros(design.n, dtype=bool)
        for each in settings.modules_of(design):
            outside |= _outside(model, each.design, each.of(confidential), each.settings)
        return int(np.count_nonzero(outside))
    clipping = settings.clipping(design)
    with np.errstate(over="ignore"):
        u = (transformed(design, confidential) - clipping.centre) / clipping.spread
        return int(np.count_nonzero((u * u).sum(axis=1) > clipping.radius**2))


def _outside(
    model: GeneralLocation,
    design: PublicDesign,
    confidential: Confidential,
    settings: NoisySettings,
) -> BoolArray:
    """Return which records (n,) are outside the ball. Confidential."""
    clipping = settings.clipping(design)
    records = model.records(design, confidential)
    there = records.layout.present(records.category)
    with np.errstate(over="ignore"):
        u = np.where(there, (records.z - clipping.centre) / clipping.spread, 0.0)
        return np.asarray((u * u).sum(axis=1) > clipping.radius**2)


def statistics_of(given: Mapping[str, Any]) -> Statistics:
    """Return noisy statistics that were written as a dictionary.

    Raise ``InputError`` where its entries do not fit together."""
    if "modules" in given:
        return ModuleStatistics.from_dict(given)
    kind = LocationStatistics if "counts" in given else NoisyStatistics
    return kind.from_dict(given)


def public_sums(
    model: Model, design: PublicDesign, basis: FloatArray, psu_weight: float
) -> PublicSums:
    """Return the sums over public columns that belong to sums made with this basis."""
    matrix = design.matrix
    psu = psu_codes(model, design)
    return PublicSums.of(
        matrix.x_cells, matrix.cell, basis, psu, psu_weight, matrix.shrunken
    )
