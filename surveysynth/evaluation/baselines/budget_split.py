"""Division of one epsilon among the noisy numbers of several tables, in exact fractions."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError

Share: TypeAlias = int | float | Fraction
Parts: TypeAlias = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class BudgetSplit:
    """Parts of epsilon for T tables over S margin sets; their sum is exact.

    A record is in one row of each margin set, so a part serves all rows of its set. ``point`` (T,
    S) is for estimates; ``replicate`` (T, S) for each one of ``replicates`` replicates.
    """

    epsilon: Fraction
    point: Parts
    replicate: Parts
    replicates: int

    @property
    def total(self) -> Fraction:
        """The sum of all parts: epsilon."""
        points = sum((part for row in self.point for part in row), Fraction(0))
        each = sum((part for row in self.replicate for part in row), Fraction(0))
        return points + self.replicates * each

    def by_row(self, parts: Parts, table: int, row_sets: IntArray) -> FloatArray:
        """Return the parts of one table for rows of given margin sets (D,), as floats (D,)."""
        of_sets: FloatArray = np.array([float(part) for part in parts[table]])
        return np.take(of_sets, row_sets)


def split_budget(
    epsilon: Share,
    *,
    tables: int,
    margin_sets: int,
    replicates: int = 10,
    point_share: Share = Fraction(1, 2),
    table_shares: Sequence[Share] | None = None,
    set_shares: Sequence[Share] | None = None,
) -> BudgetSplit:
    """Divide epsilon, by default equally among tables and margin sets, half of it for variances.

    With k by variables, T tables and R replicates every estimate gets epsilon / (2 T 2^k) and every
    replicate 1/R of that ([T] 2.4: epsilon / 16 and epsilon / 160).

    Parameters
    ----------
    epsilon
        The whole budget; a float is taken at its exact binary value.
    replicates
        R; 0 for estimates without variances, which then need ``point_share = 1``.
    point_share
        Share of estimates in each table and margin set; the rest is for variances.
    table_shares, set_shares
        Relative sizes, one a table and one a margin set (in the order of ``Domains.codes``).

    Raises
    ------
    InputError
        If a number is out of range or a list of shares has another length.
    """
    whole = _positive("epsilon", epsilon)
    share = _positive("point_share", point_share)
    if share > 1 or (share < 1) != (replicates > 0):
        raise InputError(
            f"point_share must be below 1 with replicates and 1 without, but is {point_share} with "
            f"{replicates} replicates."
        )
    of_table = _normalised("table_shares", table_shares, tables)
    of_set = _normalised("set_shares", set_shares, margin_sets)
    both = [[whole * a * b for b in of_set] for a in of_table]
    point = tuple(tuple(part * share for part in row) for row in both)
    rest = (1 - share) / max(replicates, 1)
    replicate = tuple(tuple(part * rest for part in row) for row in both)
    return BudgetSplit(whole, point, replicate, replicates)


def _positive(name: str, value: Share) -> Fraction:
    if not (np.isfinite(float(value)) and value > 0):
        raise InputError(f"{name} must be a finite number above zero, but got {value}.")
    return Fraction(value)


def _normalised(name: str, shares: Sequence[Share] | None, length: int) -> list[Fraction]:
    given = [1] * length if shares is None else list(shares)
    if len(given) != length:
        raise InputError(f"{name} needs {length} numbers, but has {len(given)}.")
    exact = [_positive(name, share) for share in given]
    whole = sum(exact, Fraction(0))
    return [share / whole for share in exact]
