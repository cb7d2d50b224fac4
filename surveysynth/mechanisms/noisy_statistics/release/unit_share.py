"""The share of the budget that sums by primary sampling unit (PSU) are best given: sizes alone.

Sums by PSU tell how much units differ, and so how wide intervals are; all other sums tell where
estimates lie. With the share s for the first, for amounts in units of their spread,

    R(s) = sqrt((D / n + v / (n^2 (1 - s))) / (D / n + v / n^2)) - 1

is what the RMSE of the mean of a cell of n records gains over s = 0, with v the variance of the
noise of a sum if all of the budget were for it, and D the design effect of the cell. The intraclass
correlation rho is estimated from C unit means of m records with about the standard error

    e(s) = sqrt(2 / C) (rho + (1 - rho) / m + a / s) ,

a the variance of the noise of a unit's mean at s = 1. The standard error of the mean of all records
follows sqrt(1 + (m - 1) rho), and rho is never taken for less than 0 or more than 1: with z a
standard normal, E(s) is the SD over the mean of

    sqrt(1 + (m - 1) min(max(rho + e(s) z, 0), 1)) .

The best s has the least R + E: a percent of error counts as much as a percent of its standard
error. ``USUAL_ICC`` stands for rho, which is not known.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.sampling.primitives import NORMAL_NODES

#: An intraclass correlation that household surveys often have.
USUAL_ICC = 0.05
#: Shares among which the best one is searched.
SHARES = np.geomspace(1.0 / 64.0, 0.5, 201)


@dataclass(frozen=True)
class UnitNoise:
    """Sizes of a design in units, and the noise that all of its budget would buy.

    units: C, those that tell how much units differ; size: m, records of a unit; cell: n, records of
    an average cell; of_units: a; of_sums: v, in squares of the spread of an amount.

    Raises
    ------
    InputError
        Unless all are finite and above zero.
    """

    units: float
    size: float
    cell: float
    of_units: float
    of_sums: float

    def __post_init__(self) -> None:
        given = np.array([self.units, self.size, self.cell, self.of_units, self.of_sums])
        if not (np.isfinite(given) & (given > 0)).all():
            raise InputError(
                f"the share of sums by unit: expected five sizes above zero, got {given.tolist()}."
            )

    def icc_error(self, share: FloatArray, icc: float = USUAL_ICC) -> FloatArray:
        """Return e(s), the standard error of the intraclass correlation, for shares (k,)."""
        of_mean = icc + (1.0 - icc) / self.size + self.of_units / share
        return np.asarray(np.sqrt(2.0 / self.units) * of_mean, dtype=np.float64)

    def rmse_gain(self, share: FloatArray, icc: float = USUAL_ICC) -> FloatArray:
        """Return R(s) for shares (k,)."""
        of_unit = max(min(self.cell / self.units, self.size), 1.0)
        sampling = (1.0 + (of_unit - 1.0) * icc) / self.cell
        noise = self.of_sums / self.cell**2
        gain = np.sqrt((sampling + noise / (1.0 - share)) / (sampling + noise)) - 1.0
        return np.asarray(gain, dtype=np.float64)

    def se_error(self, share: FloatArray, icc: float = USUAL_ICC) -> FloatArray:
        """Return E(s) for shares (k,)."""
        estimates = np.clip(icc + self.icc_error(share, icc)[:, None] * NORMAL_NODES, 0.0, 1.0)
        factor = np.sqrt(1.0 + max(self.size - 1.0, 0.0) * estimates)
        return np.asarray(factor.std(axis=1) / factor.mean(axis=1))

    def best_share(self, icc: float = USUAL_ICC) -> float:
        """Return the share of least R + E between 1/64 and 1/2, to two significant digits."""
        loss = self.rmse_gain(SHARES, icc) + self.se_error(SHARES, icc)
        return float(f"{SHARES[int(np.argmin(loss))]:.2g}")
