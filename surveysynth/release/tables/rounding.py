"""Numbers as readers see them: rounded to a stated base, with thousands separators."""

import math
from dataclasses import dataclass
from typing import TypeAlias

ABSENT = "–"
"""Shown where there is no number; a footnote says why."""

_NOISE = 1e-9


@dataclass(frozen=True)
class Rounding:
    """Round to multiples of ``base``, show ``decimals`` digits; ``factor`` 100 shows percent."""

    base: float
    decimals: int
    factor: float = 1.0

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
        rounded = self.rounded(value)
        if rounded is None:
            return ABSENT
        if size is not None and rounded == 0 and value > _NOISE * max(abs(size), _NOISE):
            return f"<{self.base:,.{self.decimals}f}"
        text = f"{abs(rounded):,.{self.decimals}f}"
        return f"−{text}" if rounded < 0 else text


@dataclass(frozen=True)
class Warranted:
    """Two significant digits of each number's own standard error; ``least`` decimals or more."""

    significant: int = 2
    factor: float = 1.0
    least: int | None = None

    def of(self, se: float, estimate: float) -> Rounding:
        """Return the rounding of a line: of its estimate, standard error and ends of the interval.

        A number without an error (known, or none) is rounded to whole units, a small one to five
        digits.
        """
        size, digits = se, self.significant
        if not (math.isfinite(se) and se > _NOISE * abs(estimate)):
            if not math.isfinite(estimate) or estimate == round(estimate) or abs(estimate) >= 1e5:
                return to_digits(0)
            size, digits = abs(estimate), 5
        decimals = digits - 1 - math.floor(math.log10(size))
        return to_digits(decimals if self.least is None else max(decimals, self.least))


AnyRounding: TypeAlias = Rounding | Warranted


def rounding_of_line(rule: AnyRounding, se: float, estimate: float) -> Rounding:
    """Return the rounding of one line of a table."""
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
