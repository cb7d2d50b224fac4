"""Registry of synthesizers, one line for each model."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from surveysynth.errors import InputError

if TYPE_CHECKING:
    from surveysynth.models.base import Model

#: Names in specifications, and the class of each: file and class below this package.
_REGISTRY = {
    "fbs": "gaussian.fbs.FBS",
    "fbp": "gaussian.fbp.FBP",
    "normal": "gaussian.normal.Normal",
    "poisson": "counts.Poisson",
    "normal_mixture": "mixture.NormalMixture",
    "negative_binomial": "counts.NegativeBinomial",
}


def model_names() -> tuple[str, ...]:
    """Return the names of the package's synthesizers."""
    return tuple(_REGISTRY)


def get_model(name: str, **options: Any) -> "Model":
    """Return the synthesizer ``name``.

    Parameters
    ----------
    name
        Name in a specification; "normal_mixture(3)" has three components.
    **options
        ``priors``, and the other fields of the model's dataclass, such as ``covariance_by``.

    Returns
    -------
    Model
        As in its papers where options are not given: with one covariance of all cells. A release
        by noisy statistics has ``covariance_by=None``, spread by cell.

    Raises
    ------
    InputError
        For an unknown name, and for priors or options that the model does not have.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.get_model("fbs", priors={"lkj": 2.0}).priors["lkj"]
    2.0
    """
    counted = re.fullmatch(r"(normal_mixture)\((\d{1,4})\)", name)
    if counted:
        name, options["components"] = counted[1], int(counted[2])
    if name not in _REGISTRY:
        raise InputError(f"Unknown model {name!r}; the models are {', '.join(_REGISTRY)}.")
    module, _, attribute = _REGISTRY[name].rpartition(".")
    made: Model = getattr(import_module(f"{__name__}.{module}"), attribute)(**options)
    return made


def registered() -> Iterator["Model"]:
    """Iterate over every synthesizer with its defaults."""
    return map(get_model, _REGISTRY)
