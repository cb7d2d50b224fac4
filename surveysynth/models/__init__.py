"""The registry of synthesizers: one line a model."""

from importlib import import_module
from typing import Any, cast

from surveysynth.errors import InputError
from surveysynth.models.base import Model

_REGISTRY = {
    "fbs": ("surveysynth.models.fbs.model", "FBS"),
    "fbp": ("surveysynth.models.fbp.model", "FBP"),
    "normal": ("surveysynth.models.normal.model", "Normal"),
    "poisson": ("surveysynth.models.counts.poisson", "Poisson"),
    "normal_mixture": ("surveysynth.models.mixture.model", "NormalMixture"),
    "negative_binomial": ("surveysynth.models.counts.negative_binomial", "NegativeBinomial"),
}


def model_names() -> tuple[str, ...]:
    """Names of the synthesizers that are built."""
    return tuple(_REGISTRY)


def get_model(name: str, **options: Any) -> Model:
    """The synthesizer ``name`` with its options (``priors``; for fbp ``smoothing``, for
    normal_mixture ``components``).

    Raises ``InputError`` for a name that is not registered.
    """
    if name not in _REGISTRY:
        raise InputError(f"Unknown model {name!r}; the models are {', '.join(_REGISTRY)}.")
    module, attribute = _REGISTRY[name]
    return cast(Model, getattr(import_module(module), attribute)(**options))
