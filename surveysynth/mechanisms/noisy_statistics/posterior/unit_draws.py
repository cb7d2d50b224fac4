"""Draws of the general location model with effects as products between PSUs imply (strict 7)."""

from dataclasses import replace

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.posterior.between_units import (
    CellLaw,
    unit_covariances,
)
from surveysynth.mechanisms.noisy_statistics.posterior.parameters import Parameters
from surveysynth.mechanisms.noisy_statistics.posterior.unit_margins import with_effects
from surveysynth.mechanisms.noisy_statistics.release.unit_products import UnitProducts
from surveysynth.models.base import psu_codes
from surveysynth.models.general_location.model import PSU_PRIORS, GeneralLocation
from surveysynth.models.units import records_by_unit
from surveysynth.survey.survey import PublicDesign


def draws_with_effects(
    private: PrivateDraws,
    model: GeneralLocation,
    design: PublicDesign,
    parameters: Parameters,
    points: FloatArray,
    units: UnitProducts | None,
    rng: np.random.Generator,
) -> PrivateDraws:
    """Return the draws, at points (m, ..), with a covariance of effects each.

    The same draws where PSUs have no effects.
    """
    psu = psu_codes(model, design)
    if psu is None or units is None:
        return private
    table, layout = parameters.table, parameters.layout
    records = records_by_unit(design.matrix.cell, psu, len(table.sizes))
    thetas = [private.draw(draw) for draw in range(private.settings.m)]
    chosen = {"lkj": model.priors["lkj"]} | {
        name: value for name, value in model.changed_priors.items() if name in PSU_PRIORS
    }
    seen, others = unit_covariances(
        thetas, table.shape, table, records, _laws(parameters, points), units, chosen, rng
    )
    moved = [
        with_effects(theta, own, covariance, design, layout, psu, model.priors, rng)
        for theta, own, covariance in zip(thetas, seen, others, strict=True)
    ]
    return replace(
        private, theta={name: np.stack([each[name] for each in moved]) for name in moved[0]}
    )


def _laws(parameters: Parameters, points: FloatArray) -> list[CellLaw]:
    """Return the law of cells at each of the points (m, ..)."""
    point = parameters.point(points)
    p, means = np.exp(parameters.log_p(point)[0]), parameters.means(point)
    covariances = [root @ root.swapaxes(-1, -2) for root, _, _ in parameters.roots_of(point)]
    return [
        CellLaw(p[draw], means[draw], [each[draw] for each in covariances])
        for draw in range(len(points))
    ]
