"""A model whose posterior density is there as a function (methods 4)."""

from collections.abc import Mapping
from typing import Any, Protocol

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import Model


class DensityModel(Model, Protocol):
    """A model whose weighted log posterior is also there as a function, on the unconstrained
    parameters of its Stan program, in their order (``sampling.unconstrained``)."""

    @property
    def priors(self) -> Mapping[str, float]:
        """Scales of the priors by name (methods 3)."""

    def log_density(self, u: FloatArray, stats: Any) -> tuple[FloatArray, FloatArray]:
        """Value (...) and gradient (..., d) at u (..., d), for the statistics of one database.

        All constants and Jacobians are in it (Stan's adjust_transform)."""

    def constrain(self, u: FloatArray, shape: tuple[int, int]) -> Theta:
        """Parameters at u (..., d); shape: (columns of X, columns of z), stats.shape."""

    def unconstrain(self, theta: Theta) -> FloatArray:
        """Inverse of ``constrain``: (..., d)."""
