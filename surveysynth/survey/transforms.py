"""Transforms of an outcome, with public constants only.

The bound of the mechanism depends on units, so an outcome enters the model after its transform
(methods 2). Scale and shift are declared by the caller; they are never estimated from the data.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError

TransformKind = Literal["log", "identity", "asinh"]


@dataclass(frozen=True)
class Transform:
    """``log(y + shift)``, ``asinh(y / scale)`` or ``y / scale`` (methods 2).

    Parameters
    ----------
    kind
        "log", "identity" or "asinh".
    scale, shift
        In the units of the outcome.

    Raises
    ------
    InputError
        For an unknown kind, a scale that is not positive, or a constant that the kind does not use.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> ss.Transform("asinh", scale=4.0).forward(np.array([0.0, 3.0])).round(3)
    array([0.   , 0.693])
    """

    kind: TransformKind = "log"
    scale: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("log", "identity", "asinh"):
            raise InputError(
                f"transform must be 'log', 'identity' or 'asinh', got {self.kind!r}."
            )
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"transform_scale must be a positive number, got {self.scale!r}.")
        if not np.isfinite(self.shift):
            raise InputError(f"transform_shift must be a finite number, got {self.shift!r}.")
        if self.kind == "log" and self.scale != 1.0:
            raise InputError("transform_scale is for 'asinh' and 'identity'; 'log' takes a shift.")
        if self.kind != "log" and self.shift != 0.0:
            raise InputError(f"transform_shift is for 'log'; {self.kind!r} takes transform_scale.")

    def violations(self, outcome: FloatArray) -> int:
        """Number of values outside the transform's domain (log: ``y + shift <= 0``)."""
        if self.kind != "log":
            return 0
        return int(np.count_nonzero(~(outcome + self.shift > 0)))

    def forward(self, outcome: FloatArray) -> FloatArray:
        """Original units to model scale, elementwise; the caller has checked ``violations``."""
        if self.kind == "log":
            return np.log(outcome + self.shift)
        scaled = outcome / self.scale
        return np.arcsinh(scaled) if self.kind == "asinh" else scaled

    def inverse(self, transformed: FloatArray) -> FloatArray:
        """Model scale to original units, elementwise."""
        if self.kind == "log":
            return np.exp(transformed) - self.shift
        unscaled = np.sinh(transformed) if self.kind == "asinh" else transformed
        return unscaled * self.scale

    def describe(self, name: str) -> str:
        """The transform as a formula, for statements and codebooks."""
        if self.kind == "log":
            return f"log({name} + {self.shift:g})" if self.shift else f"log({name})"
        inner = name if self.scale == 1.0 else f"{name}/{self.scale:g}"
        return f"asinh({inner})" if self.kind == "asinh" else inner
