"""Array functions of statistics: estimates of rows, and the linearised variable of records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.estimation.domains import Domains
from surveysynth.estimation.margins import sums_by_row


@dataclass(frozen=True, eq=False)
class Linearised:
    """Estimates of D rows and the linearised variable u of n records.

    Attributes
    ----------
    estimate
        Of each row, (D,); NaN where it has none.
    inside
        From the row that each record is in, (n,) for one margin set, to its u there, (n,).
    outside
        Of each row, (D,): a record that is not in it has u = -outside times its weight. None
        where such a record has u = 0.
    parts
        Numerator and denominator (D,) of an estimate that is a ratio of sums; None for a sum.
    rows
        Of a contrast, the rows that are compared.
    """

    estimate: FloatArray
    inside: Callable[[IntArray], FloatArray]
    outside: FloatArray | None = None
    parts: tuple[FloatArray, FloatArray] | None = None
    rows: "Linearised | None" = None


class Linearise(Protocol):
    """The array function of a statistic.

    weight (n,); outcome (n,) in original units, ones for a statistic of no outcome, (n, k) for a
    statistic of k outcomes; calibrated: the weights are scaled to a known sum, and u allows for
    it. Rows without records may divide zero by zero.
    """

    def __call__(
        self, domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
    ) -> Linearised:
        """Return the estimates and the linearised variable."""
        ...


def expansion(
    domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
) -> Linearised:
    """Estimate counts (outcome 1) and totals: t_d = sum of w y, u = w y d, or w (y d - t_d / N)."""
    total = sums_by_row(domains, weight * outcome)
    if not calibrated:
        return Linearised(total, lambda rows: weight * outcome)
    centre = total / sums_by_row(domains, weight)[0]  # row 0 is the whole
    return Linearised(total, lambda rows: weight * (outcome - centre[rows]), centre)


def average(
    domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
) -> Linearised:
    """Estimate means and proportions: t_d / N_d, u = w d (y - mean) / N_d, calibrated or not."""
    total, size = sums_by_row(domains, weight * outcome), sums_by_row(domains, weight)
    mean, scale = total / size, 1.0 / size

    def inside(rows: IntArray) -> FloatArray:
        return weight * (outcome - mean[rows]) * scale[rows]

    return Linearised(mean, inside, parts=(total, size))


def quotient(
    domains: Domains, weight: FloatArray, outcome: FloatArray, *, calibrated: bool
) -> Linearised:
    """Estimate ratios of two outcomes (n, 2): R = t_a / t_b, u = w d (a - R b) / t_b.

    They are the same calibrated or not.
    """
    numerator, denominator = outcome[:, 0], outcome[:, 1]
    total = sums_by_row(domains, weight * numerator)
    size = sums_by_row(domains, weight * denominator)
    ratio = total / size

    def inside(rows: IntArray) -> FloatArray:
        return weight * (numerator - ratio[rows] * denominator) / size[rows]

    return Linearised(ratio, inside, parts=(total, size))
