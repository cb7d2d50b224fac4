"""Primary sampling units (PSUs) as noisy sums show them: public numbers alone (strict 9).

A fit that ignores PSUs puts into its coefficients whatever effects of PSUs coefficients can follow:
the mean of all effects, and those of strata that are predictors. Sums by PSU compared with such a
fit show the effects b without these parts, (I - H) b, with

    H = X- (X'X)^-1 X-' N,   X- the mean rows of PSUs, N their numbers of records.

H has eigenvalues in [0, 1]: the share of a direction's variation that lies between PSUs. Directions
above one half count as absorbed, and nothing is learned from them; the others count as fully
observed.

Effects of PSUs in data that are simulated (methods 3, clusters):

    eta_i, z_i = mean_i + a_c(i) + e_i,  a_c ~ N(0, T),  D columns: log odds, then amounts
"""

import math
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.survey.survey import PublicDesign

#: A direction of effects is absorbed if more than this share of its variation is between PSUs.
BETWEEN = 0.5
#: PSUs beyond the absorbed directions that the spread of effects needs.
LEAST_UNITS = 6
#: Entry of Theta: T (..., D, D), which may be released.
PSU_COVARIANCE = "psu_covariance"
#: Share of the variance that lies between PSUs, in the guess of ``surveysynth check``.
INTRACLASS_GUESS = 0.05
#: The residual variance of log odds: that of the logistic distribution.
LOGISTIC_VARIANCE = math.pi**2 / 3.0


def records_by_unit(cell: IntArray, psu: IntArray, cells: int) -> FloatArray:
    """Return numbers of records (C, G) by PSU and cell of X, both codes (n,)."""
    units = int(psu.max()) + 1
    counts = np.bincount(psu * cells + cell, minlength=units * cells)
    return counts.reshape(units, cells).astype(np.float64)


@dataclass(frozen=True)
class UnitDesign:
    """Numbers of PSUs, and of the directions of effects that predictors absorb."""

    units: int
    absorbed: int

    @classmethod
    def of(cls, x_cells: FloatArray, cell: IntArray, psu: IntArray) -> "UnitDesign":
        """Return the design of records with these cells and PSUs (n,), x_cells (G, K)."""
        records = records_by_unit(cell, psu, len(x_cells))
        mean = records @ x_cells / records.sum(1)[:, None]
        values, vectors = np.linalg.eigh(x_cells.T @ (records.sum(0)[:, None] * x_cells))
        there = values > 1e-10 * values.max()
        white = vectors[:, there] / np.sqrt(values[there])
        squares = mean.T @ (records.sum(1)[:, None] * mean)
        between = np.linalg.eigvalsh(white.T @ squares @ white)
        return cls(len(records), min(len(records), int((between > BETWEEN).sum())))

    @classmethod
    def of_survey(cls, design: PublicDesign) -> "UnitDesign":
        """Return the design of a survey with PSUs."""
        assert design.psu is not None  # the caller takes clustered designs
        return cls.of(design.matrix.x_cells, design.matrix.cell, design.psu)

    @property
    def free(self) -> int:
        """PSUs beyond the absorbed directions."""
        return self.units - self.absorbed

    @property
    def is_enough(self) -> bool:
        """True if these PSUs are enough to show how much PSUs differ."""
        return self.free >= LEAST_UNITS

    def check(self) -> None:
        """Raise ``InputError`` where too few PSUs would say how much PSUs differ."""
        if not self.is_enough:
            raise InputError(
                f"survey.psu: {self.units:,} primary sampling units and predictors that determine "
                f"{self.absorbed:,} directions of them leave {self.free:,} to see how much units "
                f"differ, and {LEAST_UNITS} are needed. Declare survey.design_effect, a public "
                "factor by which clustering raises variances, or name coarser strata and "
                "predictors."
            )


def fresh_effects(
    theta: Theta, psu: IntArray | None, rng: np.random.Generator
) -> FloatArray | None:
    """Draw new effects a* ~ N(0, T) of every PSU, record by record (n, q); None without effects.

    theta: one draw; psu: codes (n,).
    """
    if PSU_COVARIANCE not in theta:
        return None
    if psu is None:
        raise ValueError("parameters with effects of PSUs meet a design without PSUs")
    root = np.linalg.cholesky(theta[PSU_COVARIANCE])
    effects = rng.standard_normal((int(psu.max()) + 1, root.shape[0])) @ root.T
    return np.asarray(effects[psu], dtype=np.float64)
