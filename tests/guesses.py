"""Parameters of a model guessed from public inputs, from which tests simulate a survey."""

from typing import Any

import numpy as np

from surveysynth._support.types import Theta
from surveysynth.models import survey_weight
from surveysynth.models.base import Model, psu_codes
from surveysynth.models.gaussian.fbp import FBP
from surveysynth.models.gaussian.fbs import FBS
from surveysynth.models.gaussian.normal import Normal
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.mixture import NormalMixture
from surveysynth.models.units import INTRACLASS_GUESS, LOGISTIC_VARIANCE, PSU_COVARIANCE
from surveysynth.survey.survey import PublicDesign


def guessed_theta(model: Any, design: PublicDesign, spread: float) -> Theta:
    """Guess residual SD ``spread`` of amounts, about 0.5 of the log weight, correlation -0.5.

    Location is zero. Models of counts have a guess of their own.
    """
    k = design.matrix.x_cells.shape[1]
    if isinstance(model, GeneralLocation):
        return _general(model, design, spread)
    if isinstance(model, FBS):
        p = len(design.outcome_names)
        q = p if design.weight_name is None else p + 1
        correlation, sd = np.eye(q), np.full(q, spread)
        if q > p:
            correlation[-1, :-1] = correlation[:-1, -1] = -0.5 / np.sqrt(p)
            sd[-1] = _weight_sd(design)
        return {"beta": np.zeros((k, q)), "covariance": correlation * sd[:, None] * sd}
    if isinstance(model, FBP):
        selection = np.zeros(k + 1)
        selection[0] = 0.25 / spread
        variance = np.array([spread * spread, 0.1875])
        return {"beta": np.zeros(k), "selection": selection, "variance": variance}
    weight = survey_weight.guessed(design, spread)
    if isinstance(model, Normal):
        variance = [np.array([spread * spread]), weight.pop("weight_variance", np.empty(0))]
        return {"beta": np.zeros(k), **weight, "variance": np.concatenate(variance)}
    if isinstance(model, NormalMixture):
        count = model.components
        return {
            "log_shares": np.full(count, -np.log(count)), "concentration": np.ones(1),
            "beta": np.zeros((count, k)), "residual_sd": np.full(count, spread), **weight,
        }  # fmt: skip
    theta: Theta = model.prior_guess(design, spread)
    return theta


def has_guess(model: Model) -> bool:
    """Return whether there is a guess: for all models but the caller's own programs."""
    known = (GeneralLocation, FBS, FBP, Normal, NormalMixture)
    return isinstance(model, known) or hasattr(model, "prior_guess")


def _weight_sd(design: PublicDesign) -> float:
    return 1.0 if design.learns_weight else 0.5


def _general(model: GeneralLocation, design: PublicDesign, spread: float) -> Theta:
    """All categories are equally frequent; PSUs hold a twentieth of the variance."""
    layout, groups = Layout.of(design, model.grouped), model.groups(design).count
    theta: Theta = {
        f"logit_{part.name}": np.zeros((part.columns.size, part.own.size))
        for part in layout.logits
    }
    amounts = sum(sides > 0 for sides in layout.sides)
    weight_sd = _weight_sd(design)
    for part in layout.regressions:
        core, sd = np.zeros(part.width), spread
        if part.outcome is None:
            sd = weight_sd
            if amounts:
                sd *= np.sqrt(0.75)
                core[part.columns.size :] = -0.5 * weight_sd / (spread * np.sqrt(amounts))
        theta[f"coefficients_{part.name}"] = core
        theta[f"variance_{part.name}"] = np.full(groups, sd * sd)
        if model.grouped and part.earlier.size:
            theta[f"slopes_{part.name}"] = np.zeros((groups, part.earlier.size))
    if psu_codes(model, design) is not None:
        variance = np.full(layout.amount_effects.stop, LOGISTIC_VARIANCE)
        variance[layout.amount_effects] = [
            theta[f"variance_{part.name}"][0] for part in layout.regressions
        ]
        theta[PSU_COVARIANCE] = np.diag(INTRACLASS_GUESS * variance)
    return theta
