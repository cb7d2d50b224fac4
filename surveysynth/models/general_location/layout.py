"""Which parts the model of a design has, and which columns each of them looks at.

x~ = (x, e(d)) has width W: the K columns of X, then for each outcome with a discrete part an
indicator of each of its categories but the first. z (n, q) here has the amounts alone, in the order
listed, and the log weight last; absent ones are zero.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.survey.survey import PublicDesign

#: The part of the log weight, whatever its column is called.
WEIGHT = "weight"


@dataclass(frozen=True)
class LogitPart:
    """The discrete part of an outcome: its position among the outcomes, its columns of x~, and
    those of the indicators of its own categories."""

    name: str
    outcome: int
    columns: IntArray
    own: IntArray

    @property
    def categories(self) -> int:
        """Of its discrete part."""
        return int(self.own.size) + 1


@dataclass(frozen=True)
class RegressionPart:
    """A column of z: its position there, its columns of x~, the columns of z before it, and the
    position of the outcome (None: the log weight)."""

    name: str
    position: int
    columns: IntArray
    earlier: IntArray
    outcome: int | None

    @property
    def width(self) -> int:
        """Coefficients that all groups share."""
        return int(self.columns.size + self.earlier.size)


@dataclass(frozen=True)
class Layout:
    """columns K of X; categories (p,) of each outcome, 1 of a continuous one; amounts (p,): which
    have values on a continuous scale; weighted: whether there is a log weight; grouped: whether
    variances and slopes differ by group."""

    columns: int
    categories: tuple[int, ...]
    amounts: tuple[bool, ...]
    weighted: bool
    grouped: bool

    @classmethod
    def of(cls, design: PublicDesign, grouped: bool) -> "Layout":
        """That of a design."""
        return cls(
            columns=design.matrix.x_cells.shape[1],
            categories=tuple(outcome.categories for outcome in design.outcomes),
            amounts=tuple(outcome.is_amount for outcome in design.outcomes),
            weighted=design.weight_name is not None,
            grouped=grouped,
        )

    @property
    def width(self) -> int:
        """W, the columns of x~."""
        return self.columns + sum(size - 1 for size in self.categories)

    @property
    def amount_outcomes(self) -> IntArray:
        """Positions among the outcomes of those that are amounts."""
        return np.flatnonzero(np.asarray(self.amounts, dtype=bool))

    @property
    def q(self) -> int:
        """Columns of z: amounts, and the log weight if there is one."""
        return sum(self.amounts) + int(self.weighted)

    def indicators(self, outcome: int) -> IntArray:
        """Columns of x~ that say which category an outcome has."""
        first = self.columns + sum(size - 1 for size in self.categories[:outcome])
        return np.arange(first, first + self.categories[outcome] - 1)

    def tilde(self, x: FloatArray, category: IntArray) -> FloatArray:
        """x~ (r, W) of rows x (r, K) and categories (r, p)."""
        result = np.zeros((x.shape[0], self.width))
        result[:, : self.columns] = x
        for j in range(len(self.categories)):
            own = self.indicators(j)
            result[:, own] = category[:, j, None] == 1 + np.arange(own.size)
        return result

    @cached_property
    def logits(self) -> tuple[LogitPart, ...]:
        """One for each outcome with a discrete part, in the order listed."""
        parts = []
        seen = [np.arange(self.columns)]
        for j, size in enumerate(self.categories):
            if size > 1:
                own = self.indicators(j)
                parts.append(LogitPart(str(j + 1), j, np.concatenate(seen), own))
                seen.append(own)
        return tuple(parts)

    @cached_property
    def regressions(self) -> tuple[RegressionPart, ...]:
        """One for each column of z, in order: what is earlier has a smaller position."""
        parts = []
        everything = np.arange(self.width)
        for position, j in enumerate(self.amount_outcomes):
            columns = np.setdiff1d(everything, self.indicators(int(j)))
            parts.append(
                RegressionPart(str(j + 1), position, columns, np.arange(position), int(j))
            )
        if self.weighted:
            last = self.q - 1
            parts.append(RegressionPart(WEIGHT, last, everything, np.arange(last), None))
        return tuple(parts)

    def present(self, category: IntArray) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
        """Which columns of z (r, q) rows with these categories (r, p) have."""
        result = np.ones((category.shape[0], self.q), dtype=bool)
        for position, j in enumerate(self.amount_outcomes):
            result[:, position] = category[:, j] == 0
        return result
