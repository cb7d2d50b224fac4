"""Log posteriors of the models with their gradients, independent of the samplers.

They are functions of the unconstrained parameters of the models' Stan programs, in their order,
for the weighted statistics of one database; all constants and Jacobians are in them.
"""

from types import ModuleType
from typing import Any

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import Model
from surveysynth.models.counts import CountModel
from surveysynth.models.mixture import NormalMixture
from tests.oracles import counts, fbp, fbs, mixture, normal

_GAUSSIAN = {"fbs": fbs, "fbp": fbp, "normal": normal}


def _oracle(model: Model) -> ModuleType:
    return _GAUSSIAN[model.name]


def overdispersed(model: CountModel) -> bool:
    """Whether a count has a parameter phi."""
    return "overdispersion_scale" in model.priors


def log_density(model: Model, u: FloatArray, stats: Any) -> tuple[FloatArray, FloatArray]:
    """Return the log posterior (...) and its gradient (..., d) at u (..., d)."""
    if isinstance(model, CountModel):
        return counts.log_density(overdispersed(model), u, stats, model.priors)
    return _oracle(model).log_density(u, stats, model.priors)


def constrain(model: Model, u: FloatArray, shape: Any) -> Theta:
    """Return the parameters at u (..., d); ``shape`` is that of the statistics."""
    if isinstance(model, CountModel):
        return counts.constrain(overdispersed(model), u, shape)
    if isinstance(model, NormalMixture):
        return mixture.constrain(u, shape, model.components, model.priors["least_sd"])
    return _oracle(model).constrain(u, shape)


def unconstrain(model: Model, theta: Theta) -> FloatArray:
    """Invert ``constrain``: (..., d)."""
    if isinstance(model, CountModel):
        return counts.unconstrain(theta)
    return _oracle(model).unconstrain(theta)
