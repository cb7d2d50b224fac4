"""Missing answers of a simulated sample, imputed from the model (methods 4).

``Completion.filled`` returns the simulated sample without missing answers. It needs a draw and the
public columns alone.

A missing answer is a category of its own, so a simulated sample has missing answers as the survey
had. Each is drawn given all else that is known about the record, as if it had been given:

    p(d_M | x, d_K, z_K, log w) ∝ p(d_M, d_K | x) N(z_K, log w | x, d),   d_M not missing
    z_M | x, d, z_K, log w      normal, cut at the bounds of the outcome

M are the outcomes that are missing, K those that are known. This is right where answers are missing
at random given X, the other outcomes, and the weight. It is post-processing of the draw. Effects of
a record's PSU are known: they enter the log odds, and are subtracted from z.

If few answers are missing, the data hardly show how these records differ in their other answers.
These coefficients have, like interactions, a normal prior with an SD of ``interaction_scale``
residual SDs, twice that for log odds. It enters after the fit: a posterior N(m, v) under a wide
prior becomes N(l m, l v), l = k^2 / (k^2 + v), in each coefficient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.simulate import (
    Simulation,
    columns_of,
    cut_normal,
    drawn,
    logsumexp,
    parent_normal,
)
from surveysynth.survey.outcome import Outcome

#: Fewer draws say too little of the variance of a coefficient.
LEAST_DRAWS = 5
#: Records times ways to fill them that are looked at together.
AT_ONCE = 2**18


def steadied(
    theta: Theta, layout: Layout, outcomes: tuple[Outcome, ...], scale: float
) -> Theta:
    """Return draws (m, ...) in which effects of missing answers have their prior."""
    missing = [int(layout.indicators(j)[-1]) for j, each in enumerate(outcomes) if each.missing]
    draws = next(iter(theta.values())).shape[0]
    if not missing or draws < LEAST_DRAWS:
        return theta
    result = dict(theta)
    for part in layout.logits:
        name, rows = f"logit_{part.name}", np.flatnonzero(np.isin(part.columns, missing))
        result[name] = theta[name].copy()
        result[name][:, rows] = _shrunken(theta[name][:, rows], 2.0 * scale)
    for regression in layout.regressions:
        name = f"coefficients_{regression.name}"
        rows = np.flatnonzero(np.isin(regression.columns, missing))
        sd = float(np.sqrt(np.mean(theta[f"variance_{regression.name}"])))
        result[name] = theta[name].copy()
        result[name][:, rows] = _shrunken(theta[name][:, rows], scale * sd)
    return result


def _shrunken(values: FloatArray, sd: float) -> FloatArray:
    """Return draws (m, ...) of a normal posterior under a further prior N(0, sd^2)."""
    mean, variance = values.mean(0), values.var(0, ddof=1)
    share = sd * sd / (sd * sd + variance)
    return np.asarray(share * mean + np.sqrt(share) * (values - mean), dtype=np.float64)


@dataclass(frozen=True, repr=False)
class _Law:
    """Normal distributions of z: means (r, q), covariances (r, q, q), zero where absent."""

    mean: FloatArray
    covariance: FloatArray

    def log_density(self, z: FloatArray, known: BoolArray, place: IntArray) -> FloatArray:
        """Return the log density (s, ways) of the known columns of z (s, q), up to a constant.

        known (u, q): of each group of identical records; place (s,): the group of each record. The
        laws are those of all ways, one after the other, each of u records.
        """
        ways = len(self.mean) // len(known)
        matrix = self._of(np.tile(known, (ways, 1)))
        log_size = np.linalg.slogdet(matrix)[1]
        found = np.empty((len(z), ways))
        for k in range(ways):
            law = k * len(known) + place
            residual = np.where(known[place], z - self.mean[law], 0.0)
            solved = np.linalg.solve(matrix[law], residual[..., None])[..., 0]
            found[:, k] = -0.5 * (log_size[law] + (residual * solved).sum(-1))
        return found

    def given(
        self, position: int, z: FloatArray, known: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return means and variances (r,) of a column given the known ones."""
        with_it = np.where(known, self.covariance[:, position], 0.0)
        solved = np.linalg.solve(self._of(known), with_it[..., None])[..., 0]
        residual = np.where(known, z - self.mean, 0.0)
        variance = self.covariance[:, position, position] - (solved * with_it).sum(-1)
        return self.mean[:, position] + (solved * residual).sum(-1), np.maximum(variance, 0.0)

    def _of(self, known: BoolArray) -> FloatArray:
        """Return the covariance of the known columns; the others are independent, of variance 1."""
        both = known[:, :, None] & known[:, None, :]
        return np.where(both, self.covariance, np.eye(known.shape[1]))


def missing_answers(outcomes: Sequence[Outcome], category: IntArray) -> BoolArray:
    """Return which answers (n, p) of records with these categories (n, p) are missing."""
    codes = [each.missing_category if each.missing else -1 for each in outcomes]
    return np.asarray(category == np.array(codes), dtype=bool)


@dataclass(frozen=True, repr=False)
class Completion(Simulation):
    """Fills the missing answers of datasets that one draw simulates."""

    def filled(self, simulated: Simulated, rng: np.random.Generator) -> Simulated:
        """Return a sample with no missing answers; other answers and the weight stay."""
        category, values = simulated.category, simulated.z
        assert category is not None  # a simulation of this model has them
        lost = missing_answers(self.design.outcomes, category)
        rows = np.flatnonzero(lost.any(axis=1))
        if not rows.size:
            return simulated
        category, values = category.copy(), values.copy()
        z = columns_of(self.layout, category, values)[rows] - self._of_amounts(rows)
        category[rows] = self._categories(rows, category[rows], lost[rows], z, rng)
        self._add_amounts(values, rows, category[rows], lost[rows], z, rng)
        return Simulated(values, category, simulated.effects)

    def _of_amounts(self, rows: IntArray) -> FloatArray:
        """Return effects of PSUs on z (r, q) of these records."""
        if self.effects is None:
            return np.zeros((rows.size, self.layout.q))
        return self.effects[rows, self.layout.amount_effects]

    def _categories(
        self,
        rows: IntArray,
        category: IntArray,
        lost: BoolArray,
        z: FloatArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Return categories (r, p) with those of missing answers drawn given all that is known.

        z (r, q): without effects of PSUs, which are ``self.effects[rows]``.
        """
        result, cell = category.copy(), self.design.matrix.cell[rows]
        patterns, pattern = np.unique(lost, axis=0, return_inverse=True)
        known = self.layout.present(category)
        for number, missing in enumerate(patterns):
            every = np.flatnonzero(pattern.reshape(-1) == number)
            which = np.flatnonzero(missing)
            sizes = [range(self.layout.categories[j] - 1) for j in which]
            ways = np.array(list(product(*sizes)), dtype=np.int64)
            for own in np.array_split(every, -(-every.size * len(ways) // AT_ONCE)):
                first = place = np.arange(own.size)
                if self.effects is None:
                    first, place = self._alike(cell[own], category[own], few=0)
                kinds = own[first]
                candidate = np.tile(category[kinds], (len(ways), 1))
                candidate[:, which] = np.repeat(ways, kinds.size, axis=0)
                log_mass = self._log_mass(candidate, np.tile(rows[kinds], len(ways)))
                law = self._law(candidate, np.tile(cell[kinds], len(ways)))
                log_mass = log_mass.reshape(len(ways), -1).T[place]
                log_mass += law.log_density(z[own], known[kinds], place)
                chosen = drawn(log_mass - logsumexp(log_mass)[:, None], rng)
                result[np.ix_(own, which)] = ways[chosen]
        return result

    def _log_mass(self, category: IntArray, rows: IntArray) -> FloatArray:
        """Return log p(d | x, effects) (r,)."""
        cell, result = self.design.matrix.cell[rows], np.zeros(rows.size)
        for part, columns in zip(self.layout.logits, self.layout.logit_effects, strict=True):
            shares = self._log_shares(part, columns, cell, category, rows)
            result += np.take_along_axis(shares, category[:, [part.outcome]], axis=1)[:, 0]
        return result

    def _law(self, category: IntArray, cell: IntArray) -> _Law:
        """Return the law of z given x and the categories (r, p), from regressions in turn.

        z = a + B z + e: a and B are the means of ``_moments`` at zero and at unit vectors.
        """
        r, q = cell.size, self.layout.q
        present = self.layout.present(category)
        constant, turned = np.zeros((r, q)), np.tile(np.eye(q), (r, 1, 1))
        variance = np.zeros((r, q))
        for part in self.layout.regressions:
            own = part.position
            zero = np.zeros((r, q))
            constant[:, own], variance[:, own] = self._moments(part, category, zero, cell)
            for k in map(int, part.earlier):
                unit = zero.copy()
                unit[:, k] = 1.0
                slope = self._moments(part, category, unit, cell)[0] - constant[:, own]
                turned[:, own, k] = -np.where(present[:, own] & present[:, k], slope, 0.0)
        inverse = np.linalg.inv(turned)
        mean = (inverse @ np.where(present, constant, 0.0)[..., None])[..., 0]
        root = np.asarray(inverse * np.sqrt(np.where(present, variance, 0.0))[:, None, :])
        return _Law(np.asarray(mean, dtype=np.float64), root @ root.swapaxes(-1, -2))

    def _add_amounts(
        self,
        values: FloatArray,
        rows: IntArray,
        category: IntArray,
        lost: BoolArray,
        z: FloatArray,
        rng: np.random.Generator,
    ) -> None:
        """Draw the amounts of missing answers, in ``values`` (n, p or p + 1) and z (r, q).

        z excludes effects of PSUs, and values include them.
        """
        effects = self._of_amounts(rows)
        law = self._law(category, self.design.matrix.cell[rows])
        present = self.layout.present(category)
        columns = [
            (part, part.outcome) for part in self.layout.regressions if part.outcome is not None
        ]
        missing = np.zeros_like(present)
        for part, outcome in columns:
            missing[:, part.position] = present[:, part.position] & lost[:, outcome]
        known = present & ~missing
        for part, outcome in columns:
            at, need = part.position, np.flatnonzero(missing[:, part.position])
            if not need.size:
                continue
            own = _Law(law.mean[need], law.covariance[need])
            mean, variance = own.given(at, z[need], known[need])
            ends = self._ends(part)
            of_unit = effects[need, at]
            mean, sd = parent_normal(mean + of_unit, np.sqrt(variance), ends)
            drawn_amounts = cut_normal(mean, sd, ends, rng)
            z[need, at] = drawn_amounts - of_unit
            known[need, at] = True
            values[rows[need], outcome] = drawn_amounts
