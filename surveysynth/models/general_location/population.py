"""Simulation of the population that a sample implies, by the general location model of one outcome.

The population is the sample tilted by E(w | d, z, x, a), with a the effects of the PSU (methods 3):

    p(d | x, a) ∝ p_s(d | x, a) M_d,  z | d ~ N(m + f s^2, s^2),  log w ~ N(m_w + s_w^2, s_w^2)

with M_d the mean of exp(m_w + s_w^2/2) over z given d, and f the slope of m_w on z; of an outcome
with bounds or a split, the mean over the cut normal. Its sum over d is E_s(w | x, a), and the mean
of that over effects the weight of a cell. PSUs are tilted likewise, each record of a PSU for as
much as the others:

    p(a) ∝ N(a; 0, T) sum_i E_s(w | x_i, a) / E_s(w | x_i)

The effect a_w on the log weight enters E_s(w | x, a) as exp(a_w), which makes N(0, T) one about
T e_w. What is left differs little from one a to the other.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.layout import RegressionPart
from surveysynth.models.general_location.simulate import (
    Simulation,
    cut_log_mean_exp,
    drawn,
    logsumexp,
    parent_normal,
)
from surveysynth.models.units import PSU_COVARIANCE

#: Effects that a mean over them is taken of: the points of a Sobol sequence are even in powers of
#: two, and the first lies at the edge.
POINTS = 63
#: Effects of which one is chosen for each PSU by what is left.
CANDIDATES = 32


@dataclass(frozen=True, repr=False)
class Population(Simulation):
    """One draw theta on records of the population, one outcome."""

    def drawn(self, rng: np.random.Generator) -> Simulated:
        """Draw n records."""
        category = np.zeros((self.cell.size, 1), dtype=np.int64)
        if self.layout.logits:
            category[:, 0] = self._chosen(self._log_mass(), rng)
        return self._with_amounts(category, rng)

    def filled(self, simulated: Simulated, rng: np.random.Generator) -> Simulated:
        """Return drawn records with no missing answers."""
        assert simulated.category is not None  # a simulation of this model has them
        lost = simulated.category == self.design.outcomes[0].missing_category
        log_mass = self._log_mass()
        log_mass[:, -1] = -np.inf  # missing is the last category
        own = self._chosen(log_mass, rng)[:, None]
        made = self._with_amounts(own, rng)
        return Simulated(
            np.where(lost, made.z, simulated.z), np.where(lost, own, simulated.category),
            self.effects,
        )  # fmt: skip

    def with_units(self, psu: IntArray, rng: np.random.Generator) -> "Population":
        """Return the same with fresh effects of PSUs (n,), as the population has them."""
        root, mean = self._law()
        units = int(psu.max()) + 1
        normals = rng.standard_normal((units, CANDIDATES, root.shape[0]))
        candidates = mean + normals @ root.T
        # Records of a PSU in one cell of X are alike.
        pairs, count = np.unique(np.stack([psu, self.cell]), axis=1, return_counts=True)
        unit, cell = pairs
        effects = candidates[unit].reshape(-1, root.shape[0])
        left = self._left(np.repeat(cell, CANDIDATES), effects).reshape(cell.size, CANDIDATES)
        share = count[:, None] * np.exp(left - self._log_mean_left()[cell][:, None])
        total = np.zeros((units, CANDIDATES))
        np.add.at(total, unit, share)
        chosen = self._chosen(np.log(total), rng)
        return replace(self, effects=candidates[np.arange(units), chosen][psu])

    def cell_log_weight(self) -> FloatArray:
        """Return log E_s(w | x) (G,) of each cell."""
        if PSU_COVARIANCE not in self.theta:
            return replace(self, cell=np.arange(self.group_of_cell.size)).log_weight()
        of_unit = float(self.theta[PSU_COVARIANCE][-1, -1])
        return self._log_mean_left() + 0.5 * of_unit

    def log_weight(self) -> FloatArray:
        """Return log E_s(w | x, a) (n,) of the records."""
        return logsumexp(self._log_mass())

    # ----------------------------------------------------------------------------------------

    @staticmethod
    def _chosen(log_mass: FloatArray, rng: np.random.Generator) -> IntArray:
        return drawn(log_mass - logsumexp(log_mass)[:, None], rng)

    def _law(self) -> tuple[FloatArray, FloatArray]:
        """Return a root of T, and T e_w: effects of the log weight are the last."""
        covariance = np.asarray(self.theta[PSU_COVARIANCE], dtype=np.float64)
        return np.asarray(np.linalg.cholesky(covariance)), covariance[:, -1]

    def _left(self, cell: IntArray, effects: FloatArray) -> FloatArray:
        """Return log E_s(w | x, a) less a_w (r,) of cells (r,) and effects (r, D)."""
        return replace(self, cell=cell, effects=effects).log_weight() - effects[:, -1]

    def _log_mean_left(self) -> FloatArray:
        """Return the log of the mean (G,) of what is left over effects about T e_w, by cell."""
        from scipy.stats import qmc  # a second to import, and few releases need it

        root, mean = self._law()
        uniform = qmc.Sobol(root.shape[0], scramble=False).fast_forward(1).random(POINTS)
        points = mean + ndtri(uniform) @ root.T
        cells = np.arange(self.group_of_cell.size)
        left = self._left(
            np.repeat(cells, POINTS), np.tile(points, (cells.size, 1))
        ).reshape(cells.size, -1)
        return np.asarray(logsumexp(left) - np.log(POINTS), dtype=np.float64)

    def _tilt(self, part: RegressionPart) -> FloatArray | float:
        """Return the slope (n,) of log w on a column of z in the records' groups; 1 on itself."""
        if part.outcome is None:
            return 1.0
        slopes = self._slopes(self.layout.regressions[-1])[:, part.position]
        return np.asarray(slopes[self.group_of_cell[self.cell]], dtype=np.float64)

    def _log_mass(self) -> FloatArray:
        """Return the log of p_s(d | x, a) M_d (n, C) by category of the one outcome."""
        if self.effects is not None:
            return self._log_mass_one_by_one()
        # Records of a cell are alike.
        cells = replace(self, cell=np.arange(self.group_of_cell.size))
        return cells._log_mass_one_by_one()[self.cell]

    def _log_mass_one_by_one(self) -> FloatArray:
        layout, size = self.layout, self.cell.size
        log_mass, zero = np.zeros((size, 1)), np.zeros((size, layout.q))
        none = np.zeros((size, 1), dtype=np.int64)
        for part, columns in zip(layout.logits, layout.logit_effects, strict=True):
            log_mass = self._log_shares(part, columns, self.cell, none)
        weight, masses = layout.regressions[-1], []
        for c in range(layout.categories[0]):
            category = none + c
            log_w, variance = self._moments(weight, category, zero)
            log_w = log_w + 0.5 * variance
            if c < layout.sides[0]:
                # log w at z = 0, and its slope on z.
                amount = layout.regressions[c]
                mean, variance = self._moments(amount, category, zero)
                slope = self._slopes(weight)[self.group_of_cell[self.cell], c]
                mean, sd = parent_normal(mean, np.sqrt(variance), self._ends(amount))
                log_w = log_w + cut_log_mean_exp(slope, mean, sd, self._ends(amount))
            masses.append(log_mass[:, c] + log_w)
        return np.stack(masses, axis=1)
