"""The registry of synthesizers: one line a model."""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from surveysynth.errors import InputError

if TYPE_CHECKING:
    from surveysynth.models.base import Model

#: Names in specifications, and the class of each: folder, file and class below this package.
_REGISTRY = {
    "fbs": "gaussian.fbs.model.FBS",
    "fbp": "gaussian.fbp.model.FBP",
    "normal": "gaussian.normal.model.Normal",
    "poisson": "counts.model.Poisson",
    "normal_mixture": "mixture.model.NormalMixture",
    "negative_binomial": "counts.model.NegativeBinomial",
}


def model_names() -> tuple[str, ...]:
    """Names of the synthesizers that are built."""
    return tuple(_REGISTRY)


def get_model(name: str, **options: Any) -> "Model":
    """The synthesizer ``name``.

    Parameters
    ----------
    name
        As in a specification.
    **options
        ``priors`` and what the model declares as its own ``options``.

    Returns
    -------
    Model
        With its defaults where no option is given.

    Raises
    ------
    InputError
        For a name that is not registered, and for priors or options that the model does not have.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.get_model("fbs", priors={"lkj": 2.0}).priors["lkj"]
    2.0
    """
    if name not in _REGISTRY:
        raise InputError(f"Unknown model {name!r}; the models are {', '.join(_REGISTRY)}.")
    module, _, attribute = _REGISTRY[name].rpartition(".")
    made: Model = getattr(import_module(f"{__name__}.{module}"), attribute)(**options)
    return made


def registered() -> Iterator["Model"]:
    """Every synthesizer with its defaults."""
    return map(get_model, _REGISTRY)
