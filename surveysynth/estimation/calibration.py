"""Weights calibrated to known totals, as arrays (methods 5.12; Deville and Sarndal 1992).

A calibrated weight is w = d F(x'lambda): the base weight d times a ratio that depends on the
record's calibration variables x alone, with sum of w x = totals. F is exp (raking) or 1 + u
(linear), both cut at bounds where there are some. lambda is the minimum of a convex function, found
by Newton's method with steps that never raise it.

Agrees with ``calibrate`` of R's survey package.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError

Method: TypeAlias = Literal["raking", "linear"]
Bounds: TypeAlias = tuple[float, float]

UNBOUNDED: Bounds = (-np.inf, np.inf)
#: Largest distance of a calibrated sum from its total, as a share of 1 + |total|.
TOLERANCE = 1e-10
_MOST_STEPS = 200
#: Singular values below this share of the largest are those of redundant variables.
_RANK = 1e-9
#: Totals may miss what redundant variables imply by this share.
_CONSISTENT = 1e-8


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedWeights:
    """Calibrated weights of n records, with what their variance estimates need.

    Attributes
    ----------
    weight
        Calibrated weights, (n,).
    base
        The weights before calibration, (n,).
    x
        Calibration variables, (n, p): indicators of classes, amounts.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> frame = pd.DataFrame({"sex": ["F", "M", "F", "M"], "w": [1.0, 2.0, 3.0, 2.0]})
    >>> made = ss.calibrate(frame, "w", [{"by": "sex", "totals": {"F": 6, "M": 6}}])
    >>> made.weight, made.ratio
    (array([1.5, 3. , 4.5, 3. ]), array([1.5, 1.5, 1.5, 1.5]))
    """

    weight: FloatArray
    base: FloatArray
    x: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """The calibrated over the base weight, (n,)."""
        return self.weight / self.base

    @cached_property
    def projection(self) -> FloatArray:
        """T (p, r), with which the columns of x T are orthonormal under the base weights."""
        return orthonormal(self.x, self.base)


def calibrated_weights(
    x: FloatArray,
    base: FloatArray,
    totals: FloatArray,
    *,
    method: Method = "raking",
    bounds: Bounds = UNBOUNDED,
    labels: Sequence[str] = (),
) -> FloatArray:
    """Calibrate base weights (n,) so that the weighted sums of x (n, p) are the totals (p,).

    Parameters
    ----------
    x, base, totals
        Calibration variables, weights above zero, and known totals.
    method
        "raking" (ratios above zero) or "linear".
    bounds
        The smallest and largest ratio; 1 lies between them.
    labels
        What each column of x is, for messages.

    Raises
    ------
    InputError
        For totals that contradict each other, and where no ratios within the bounds reach them. It
        names a margin.
    """
    check_method(method, bounds)
    labels = labels or [f"calibration variable {j + 1}" for j in range(totals.size)]
    basis = orthonormal(x, base)
    _require_consistent(x, base, totals, basis, labels)
    ratio, misfit = _solve(x @ basis, base, basis.T @ totals, _RATIOS[method](*bounds),
                           lambda w: (x.T @ w - totals) / (1.0 + np.abs(totals)))  # fmt: skip
    worst = int(np.argmax(np.abs(misfit)))
    if not abs(misfit[worst]) <= TOLERANCE:
        within = "" if bounds == UNBOUNDED else f" with ratios from {bounds[0]:g} to {bounds[1]:g}"
        remedy = "" if bounds == UNBOUNDED else " Widen the bounds, or leave a margin out."
        raise InputError(
            f"{labels[worst]}: no weights{within} have these totals; this one is missed most."
            f"{remedy or ' Leave a margin out, or merge small classes.'}"
        )
    return base * ratio


def check_method(method: str, bounds: Bounds) -> None:
    """Raise ``InputError`` for an unknown method, and bounds that it cannot have."""
    if method not in get_args(Method):
        raise InputError(
            f"method: expected one of {', '.join(get_args(Method))}, got {method!r}."
        )
    low, high = bounds
    if not low < 1.0 < high:
        raise InputError(
            f"bounds: expected a number below 1 and one above 1, such as [0.3, 3], got "
            f"[{low:g}, {high:g}]."
        )


@dataclass(frozen=True)
class _Linear:
    """F(u) = 1 + u, cut at the bounds."""

    low: float
    high: float

    def of(self, u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return F (n,), its derivative, and its integral from zero."""
        inside = np.clip(u, self.low - 1.0, self.high - 1.0)
        ratio = 1.0 + inside
        return ratio, (inside == u) * 1.0, inside + inside**2 / 2 + ratio * (u - inside)


@dataclass(frozen=True)
class _Raking:
    """F(u) = exp(u), cut at the bounds."""

    low: float
    high: float

    def of(self, u: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return F (n,), its derivative, and its integral from zero."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            inside = np.clip(u, np.log(max(self.low, 0.0)), np.log(self.high))
            ratio = np.exp(inside)
            return ratio, ratio * (inside == u), ratio - 1.0 + ratio * (u - inside)


_Ratio: TypeAlias = _Linear | _Raking
_RATIOS: dict[str, Callable[[float, float], _Ratio]] = {"raking": _Raking, "linear": _Linear}


def _solve(
    x: FloatArray,
    base: FloatArray,
    totals: FloatArray,
    ratio: _Ratio,
    misfit_of: Callable[[FloatArray], FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Return ratios (n,) and what they miss the totals by, for an orthonormal x (n, r)."""
    multiplier = np.zeros(totals.size)
    made, slope, integral = ratio.of(x @ multiplier)
    value = base @ integral
    for _ in range(_MOST_STEPS):
        largest = np.abs(misfit_of(base * made)).max(initial=0.0)
        if largest <= TOLERANCE / 10:
            break
        missing = totals - x.T @ (base * made)
        curvature = (x * (base * slope)[:, None]).T @ x
        # Where all records of a class are at a bound nothing is curved: a short step down.
        curvature[np.diag_indices_from(curvature)] += 1e-12 * max(1.0, np.trace(curvature))
        step = np.linalg.solve(curvature, missing)
        descent, length = float(missing @ step), 1.0
        while length > 1e-12:
            tried = multiplier + length * step
            made_there, slope_there, integral = ratio.of(x @ tried)
            reached = base @ integral - totals @ tried
            fall = 1e-4 * length * descent - 1e-14 * abs(value)
            if np.isfinite(reached) and reached <= value - fall:
                break
            # Close to the minimum rounding hides what the function still falls by.
            hidden = descent <= 1e-9 * (1.0 + abs(value))
            if hidden and np.abs(misfit_of(base * made_there)).max(initial=0.0) <= 0.5 * largest:
                break
            length /= 2
        else:
            break
        multiplier, made, slope, value = tried, made_there, slope_there, reached
    return made, misfit_of(base * made)


def orthonormal(x: FloatArray, base: FloatArray) -> FloatArray:
    """Return T (p, r) such that (x T)' diag(base) (x T) is the identity, r the rank of x (n, p)."""
    root = np.sqrt(base)[:, None] * x
    size = np.sqrt((root**2).sum(axis=0))
    size = np.where(size > 0, size, 1.0)
    triangle = np.linalg.qr(root / size, mode="r")
    _, values, right = np.linalg.svd(triangle)
    kept = values > _RANK * values.max(initial=0.0)
    return np.asarray(right[: values.size][kept].T / values[kept] / size[:, None])


def _require_consistent(
    x: FloatArray, base: FloatArray, totals: FloatArray, basis: FloatArray, labels: Sequence[str]
) -> None:
    """Raise ``InputError`` for totals that no weights at all can have."""
    implied = (x * base[:, None]).T @ (x @ (basis @ (basis.T @ totals)))
    off = np.abs(implied - totals) / (1.0 + np.abs(totals))
    if off.max(initial=0.0) > _CONSISTENT:
        worst = int(np.argmax(off))
        raise InputError(
            f"{labels[worst]}: the total contradicts the others: whatever the weights of these "
            "records, the totals cannot all hold. Correct the totals, or leave a margin out."
        )
