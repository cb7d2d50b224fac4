"""Draws of the general location model, with the effects that noisy sums by PSU imply (strict 7)."""

from dataclasses import replace

import numpy as np

from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.noisy_statistics.posterior.unit_effects import (
    unit_covariances,
)
from surveysynth.mechanisms.noisy_statistics.posterior.unit_margins import with_effects
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.models.base import psu_codes
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import PSU_PRIORS, GeneralLocation
from surveysynth.models.parts.unit_design import UnitDesign
from surveysynth.survey.survey import PublicDesign


def draws_with_effects(
    private: PrivateDraws,
    model: GeneralLocation,
    design: PublicDesign,
    shape: LocationShape,
    statistics: LocationStatistics,
    rng: np.random.Generator,
) -> PrivateDraws:
    """Return the draws with a covariance of effects each; the same where PSUs have none."""
    psu = psu_codes(model, design)
    if psu is None or statistics.units is None:
        return private
    layout, units = Layout.of(design, model.grouped), UnitDesign.of_survey(design)
    thetas = [private.draw(draw) for draw in range(private.settings.m)]
    chosen = {"lkj": model.priors["lkj"]} | {
        name: value for name, value in model.changed_priors.items() if name in PSU_PRIORS
    }
    covariances = unit_covariances(thetas, shape, units, statistics, chosen, rng)
    moved = [
        with_effects(theta, covariance, design, layout, psu, model.priors, rng)
        for theta, covariance in zip(thetas, covariances, strict=True)
    ]
    return replace(
        private, theta={name: np.stack([each[name] for each in moved]) for name in moved[0]}
    )
