"""Estimates of stacked datasets, and what each dataset adds to them (methods 5.6).

With A and N the numerator and denominator of a row in one dataset, its estimate from all datasets
is R = sum A / sum N: that of the datasets stacked in one file. A mean of ratios would be another
one, and could leave the range of its parts, as a margin of its cells. The ratio linearised at R,

    e = R + (A - R N) / mean N,

has the mean R over datasets, and between draws the variance of R times the number of draws. A
dataset without records of the row counts 0 and 0. A sum is its own e.
"""

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.contrasts import Pairs
from surveysynth.estimation.taylor import LinearisedTable, records_of

#: Standard deviations below this share of the estimate are rounding, not synthesis: a count that is
#: scaled to the public N in every dataset must keep the design's df and SE.
ROUNDING = 1e-12


class Stack:
    """Numerators and denominators of one table in m x r datasets, as they stream by."""

    def __init__(self, draws: int, replicates: int) -> None:
        self._shape = (draws, replicates)
        self._table: LinearisedTable | None = None
        self._parts = np.zeros(0)
        self._known: BoolArray = np.zeros(0, dtype=bool)

    def add(self, draw: int, replicate: int, table: LinearisedTable) -> None:
        """Add one dataset."""
        made = table.linearised.rows or table.linearised
        known = records_of(table.statistic, table.domains) > 0
        if self._table is None:
            self._parts = np.full((2, *self._shape, known.size), np.nan)
            self._table, self._known = table, known
        parts = (made.estimate, 1.0) if made.parts is None else made.parts
        self._parts[0, draw - 1, replicate - 1], self._parts[1, draw - 1, replicate - 1] = parts
        self._known = self._known | known

    @property
    def values(self) -> FloatArray:
        """The linearised estimates e (m, r, D), NaN in rows without records in any dataset.

        Raises ``InputError`` before any dataset was added.
        """
        if self._table is None:
            raise InputError("There is nothing to combine: no dataset was added.")
        contrast, made = self._table.statistic.contrast, linearised_at_ratio(*self._parts)
        if contrast is not None and self._table.linearised.rows is not None:
            pairs = Pairs.of(contrast, self._table.domains)
            made = contrast.linear(made, made[..., pairs.second])
        return np.where(self._known, made, np.nan)


def linearised_at_ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return e of numerators and denominators (m, r, D) of as many datasets: (m, r, D).

    Where all denominators are 1 these are the numerators; datasets that agree do so exactly.
    """
    size = denominator.mean(axis=(0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = numerator.mean(axis=(0, 1)) / size
        left = numerator - ratio * denominator
        left[np.abs(left) <= ROUNDING * np.abs(numerator)] = 0.0
        return np.where((denominator == 1.0).all(axis=(0, 1)), numerator, ratio + left / size)
