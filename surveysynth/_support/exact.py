"""Fractions as doubles, on the safe side."""

import math
from fractions import Fraction


def rounded_down(value: Fraction) -> float:
    """Return the nearest double that is not above a fraction."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)
