"""Transforms of an outcome, with public constants only.

The bound of the mechanism depends on units, so models use outcomes after their transform
(methods 2). The caller declares scale and shift; they are never estimated from the data.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError

TransformKind = Literal["log", "identity", "asinh", "yeo_johnson", "learned"]
#: Kinds whose constants are declared, all but the one of ``survey/learned.py``.
DECLARED_KINDS = ("log", "identity", "asinh", "yeo_johnson")

#: Nodes of the quadrature over a normal law.
NODES, CHANCES = np.polynomial.hermite_e.hermegauss(32)

#: Range of powers for which a Yeo-Johnson transform maps the real line onto itself.
POWERS = (0.0, 2.0)


@dataclass(frozen=True)
class Transform:
    """``log(y + shift)``, ``asinh(y / scale)``, ``y / scale``, or a power of that (methods 2).

    The power is that of Yeo and Johnson (2000): 0 is like the log, 1 is the identity.

    Parameters
    ----------
    kind
        "log", "identity", "asinh" or "yeo_johnson".
    scale, shift
        In the units of the outcome.
    power
        Power of "yeo_johnson", from 0 to 2; 0.5 by default.

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
    >>> ss.Transform("yeo_johnson", scale=10_000.0).forward(np.array([0.0, 30_000.0]))
    array([0., 2.])
    """

    kind: TransformKind = "log"
    scale: float = 1.0
    shift: float = 0.0
    power: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in DECLARED_KINDS:
            raise InputError(
                "transform: expected 'log', 'identity', 'asinh' or 'yeo_johnson', got "
                f"{self.kind!r}."
            )
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"transform_scale: expected a positive number, got {self.scale!r}.")
        if not np.isfinite(self.shift):
            raise InputError(f"transform_shift: expected a finite number, got {self.shift!r}.")
        if self.kind == "log" and self.scale != 1.0:
            raise InputError("transform_scale: 'log' has no scale; set a shift, or use 'asinh'.")
        if not POWERS[0] <= self.power <= POWERS[1]:
            raise InputError(
                f"transform_power: expected a number between 0 and 2, got {self.power!r}."
            )
        if self.kind != "yeo_johnson" and self.power != 0.5:
            raise InputError(f"transform_power: only 'yeo_johnson' has a power, not {self.kind!r}.")
        if self.kind != "log" and self.shift != 0.0:
            raise InputError(f"transform_shift: only 'log' has a shift, not {self.kind!r}.")

    def of_side(self, split: float | None, side: int) -> "Transform":
        """Return the transform of one side of a split: it is the same for both."""
        return self

    def at(self, rows: IntArray | BoolArray) -> "Transform":
        """Return the transform for some records: it is the same for all."""
        return self

    @property
    def axis(self) -> "Transform":
        """The scale of an axis that shows transformed values: the transform itself."""
        return self

    def violations(self, outcome: FloatArray) -> int:
        """Return the number of values outside the transform's domain (log: ``y + shift <= 0``)."""
        if self.kind != "log":
            return 0
        return int(np.count_nonzero(~(outcome + self.shift > 0)))

    def forward(self, outcome: FloatArray) -> FloatArray:
        """Transform original units to model scale; the caller has checked ``violations``."""
        if self.kind == "log":
            return np.log(outcome + self.shift)
        scaled = outcome / self.scale
        if self.kind == "yeo_johnson":
            return _yeo_johnson(scaled, self.power)
        return np.arcsinh(scaled) if self.kind == "asinh" else scaled

    def inverse(self, transformed: FloatArray) -> FloatArray:
        """Transform model scale to original units."""
        if self.kind == "log":
            return np.exp(transformed) - self.shift
        if self.kind == "yeo_johnson":
            return _inverse_yeo_johnson(transformed, self.power) * self.scale
        unscaled = np.sinh(transformed) if self.kind == "asinh" else transformed
        return unscaled * self.scale

    def mean_of_inverse(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Return E(inverse(z)) (n,) for normal z with these means and variances (n,)."""
        if self.kind == "log":
            return np.asarray(np.exp(mean + 0.5 * variance) - self.shift, dtype=np.float64)
        sd = np.sqrt(variance)
        total = np.zeros(np.shape(mean))
        for node, chance in zip(NODES, CHANCES / CHANCES.sum(), strict=True):
            total += chance * self.inverse(mean + node * sd)
        return total

    def describe(self, name: str) -> str:
        """Return the transform as a formula, for statements and codebooks."""
        if self.kind == "log":
            return f"log({name} + {self.shift:g})" if self.shift else f"log({name})"
        inner = name if self.scale == 1.0 else f"{name}/{self.scale:g}"
        if self.kind == "yeo_johnson":
            return f"yeo_johnson({inner}, power {self.power:g})"
        return f"asinh({inner})" if self.kind == "asinh" else inner


def _yeo_johnson(values: FloatArray, power: float) -> FloatArray:
    """Return ((1 + y)^p - 1)/p for y >= 0, otherwise -((1 - y)^(2 - p) - 1)/(2 - p).

    This maps the real line onto itself, and is the identity near zero.
    """
    result = np.where(values < 0, -_box_cox(-values, 2.0 - power), _box_cox(values, power))
    return np.asarray(result, dtype=np.float64)


def _inverse_yeo_johnson(values: FloatArray, power: float) -> FloatArray:
    below, above = _inverse_box_cox(-values, 2.0 - power), _inverse_box_cox(values, power)
    return np.asarray(np.where(values < 0, -below, above), dtype=np.float64)


def _box_cox(values: FloatArray, power: float) -> FloatArray:
    """Return ((1 + y)^p - 1)/p for y >= 0, or log(1 + y) if p = 0; other values are arbitrary."""
    log = np.log1p(np.maximum(values, 0.0))
    return np.asarray(log if power == 0.0 else np.expm1(power * log) / power, dtype=np.float64)


def _inverse_box_cox(values: FloatArray, power: float) -> FloatArray:
    positive = np.maximum(values, 0.0)
    log = positive if power == 0.0 else np.log1p(power * positive) / power
    return np.asarray(np.expm1(log), dtype=np.float64)
