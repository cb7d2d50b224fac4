"""Numbers as readers see them: rounded to a stated base, with thousands separators."""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray

ABSENT = "–"
"""Shown where there is no number; a footnote says why."""

KNOWN = "†"
"""Shown for the standard error and the interval of a known total."""

_NOISE = 1e-9


@dataclass(frozen=True)
class Rounding:
    """Round to multiples of ``base``, show ``decimals`` digits; ``factor`` 100 shows percent.

    error: the same of standard errors, where they have another base.
    """

    base: float
    decimals: int
    factor: float = 1.0
    error: "Rounding | None" = None

    def rounded(self, value: float) -> float | None:
        """Return the number that ``show`` writes, None where there is none."""
        if math.isnan(value):
            return None
        # A second rounding removes what multiplying by a base such as 0.01 leaves behind.
        return round(round(value * self.factor / self.base) * self.base, self.decimals) + 0.0

    def show(self, value: float, *, size: float | None = None) -> str:
        """Write the number as text.

        With ``size``, the estimate of a standard error, an error that is not zero never shows as
        zero but as less than one unit. Floating-point noise is zero.
        """
        if size is not None and self.error is not None:
            return self.error.show(value, size=size)
        rounded = self.rounded(value)
        if rounded is None:
            return ABSENT
        if size is not None and rounded == 0 and not is_known(size, value):
            return f"<{self.base:,.{self.decimals}f}"
        text = f"{abs(rounded):,.{self.decimals}f}"
        return f"−{text}" if rounded < 0 else text


def is_known(estimate: float, se: float) -> bool:
    """Return whether a standard error is none but for floating-point noise."""
    return se <= _NOISE * max(abs(estimate), _NOISE)


@dataclass(frozen=True)
class Warranted:
    """One unit a column: the power of ten of its median standard error.

    Standard errors have half that unit.
    """

    def of(self, se: FloatArray, estimate: FloatArray) -> Rounding:
        """Return the rounding of a column of estimates with standard errors, (D,) each.

        Numbers without errors are rounded to whole units, small ones to five digits.
        """
        found = se[np.isfinite(se) & (se > _NOISE * np.abs(estimate))]
        if found.size:
            power = math.floor(math.log10(np.median(found)))
            halves = Rounding(10.0**power / 2, max(1 - power, 0) if power < 1 else 0)
            return Rounding(10.0**power, max(-power, 0), error=halves)
        found = np.abs(estimate[np.isfinite(estimate) & (estimate != 0)])
        if not found.size or found.max() >= 1e5 or (found == np.round(found)).all():
            return to_digits(0)
        return to_digits(max(4 - math.floor(math.log10(np.median(found))), 0))


AnyRounding: TypeAlias = Rounding | Warranted


def rounding_of_column(rule: AnyRounding, se: FloatArray, estimate: FloatArray) -> Rounding:
    """Return the rounding of one column of a table, for readers."""
    return rule.of(se, estimate) if isinstance(rule, Warranted) else rule


def to_multiples(base: int) -> Rounding:
    """Round counts to multiples of ``base`` units, without decimals."""
    return Rounding(float(base), 0)


def to_digits(digits: int) -> Rounding:
    """Round means and totals to ``digits`` decimals; a negative number means tens, hundreds, ..."""
    return Rounding(10.0**-digits, max(digits, 0))


def to_percent(digits: int = 1) -> Rounding:
    """Show proportions as percentages with ``digits`` decimals."""
    return Rounding(10.0**-digits, max(digits, 0), factor=100.0)


def show_ratio(value: float) -> str:
    """Write a number of standard errors or a ratio with about three digits."""
    if not math.isfinite(value):
        return ABSENT
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{abs(value):,.{digits}f}"
    return f"−{text}" if value < 0 and float(text.replace(",", "")) else text
