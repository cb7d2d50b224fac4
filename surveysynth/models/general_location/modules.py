"""Outcomes in modules: each has a law with the weight of its own (strict 7).

A draw has parameters of every module, a general location model of its outcomes y_k with the log
weight v as the last column. One law of all of them: v | x is that of the first module, and modules
are independent given x and v. With F_k the distribution function of v | x in module k, a mixture of
normals over combinations d of categories,

    g = Phi^-1(F_1(v)),    y_k ~ p_k(y_k | x, v = F_k^-1(Phi(g))),

so that y_k has the law of its module, and goes with the weight as there: with ranks of the weight,
where its law differs. Smoothed weights are means of the weight given all outcomes,

    p(g | x, y) in proportion to phi(g) prod_k p_k(v_k(g) | x, y_k) / f_k(v_k(g) | x),

by sums over intervals of g, of which each module has its exact mass: where a category has weights
of its own, the ratio is next to a step. Public weights are not modelled; modules are then
independent given x. Effects of PSUs, if any, are known wherever a law is meant. Those of the weight
are those of the first module, in the SD of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from scipy.special import ndtr

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.completion import Completion
from surveysynth.models.general_location.layout import Layout, level_deviations
from surveysynth.models.general_location.mixtures import Mixture, differences, middles
from surveysynth.models.general_location.module_parameters import (
    MODULES,
    columns_by_module,
    of_module,
)
from surveysynth.models.general_location.residual_covariances import covariances
from surveysynth.models.general_location.simulate import (
    Simulation,
    columns_of,
    cut_normal,
    drawn,
    ends,
    logsumexp,
    parent_normal,
)
from surveysynth.models.logit import log_shares
from surveysynth.models.units import PSU_COVARIANCE
from surveysynth.survey.survey import PublicDesign

#: Records whose combinations of categories are drawn at once.
BLOCK = 20_000
#: Normal scores between which means of weights are sums.
NODES = np.linspace(-8.0, 8.0, 129)


@dataclass(frozen=True, repr=False)
class Modules:
    """One draw of all modules on records in the cells of a design.

    group_of_cell (C,); psu (n,): codes of PSUs that have effects, or None.
    """

    theta: Theta
    design: PublicDesign
    grouped: bool
    group_of_cell: IntArray
    psu: IntArray | None

    @cached_property
    def laws(self) -> "list[ModuleLaw]":
        """The law of each module."""
        found = []
        for number, own in enumerate(columns_by_module(self.theta[MODULES])):
            design = replace(self.design, outcomes=tuple(self.design.outcomes[j] for j in own))
            layout = Layout.of(design, self.grouped)
            theta = of_module(self.theta, number)
            found.append(ModuleLaw(theta, design, layout, self.group_of_cell, own))
        return found

    def sample(self, rng: np.random.Generator) -> Simulated:
        """Draw n records as the sample would have them; effects are those of all modules."""
        first, *others = self.laws
        effects = [self._effects(law, None, rng) for law in self.laws[:1]]
        made = [first.simulation(effects[0]).sample(rng)]
        g = None
        if first.layout.weighted:
            g = first.score(made[0].z[:, -1] - first.effect(effects[0]), effects[0])
        for law in others:
            own = self._effects(law, effects[0], rng)
            effects.append(own)
            made.append(
                law.simulation(own).sample(rng) if g is None else law.given_weight(g, own, rng)
            )
        return self._together(made, effects)

    def filled(self, simulated: Simulated, rng: np.random.Generator) -> Simulated:
        """Fill missing answers by what their modules say of them, given the weight."""
        made, effects = self._apart(simulated)
        filled = [
            law.completion(own).filled(each, rng)
            for law, each, own in zip(self.laws, made, effects, strict=True)
        ]
        return self._together(filled, effects)

    def mean_weight(self, simulated: Simulated) -> FloatArray:
        """Return E(w | x, d, z) (n,) of records of the sample."""
        made, effects = self._apart(simulated)
        n, first = self.design.n, self.laws[0]
        # The mass of each interval between nodes, by all modules over what is known beforehand.
        before = np.diff(ndtr(NODES))
        mass = np.tile(before, (n, 1))
        values = np.zeros((n, before.size))
        for law, each, own in zip(self.laws, made, effects, strict=True):
            assert each.category is not None  # a simulation of this model has them
            z = columns_of(law.layout, each.category, each.z)
            given, left = law.simulation(own)._moments(law.layout.regressions[-1], each.category, z)
            given, sd = (given - law.effect(own))[:, None], np.sqrt(left)[:, None]
            nodes, place = law.quantiles(own)
            t = (nodes[place] - given) / sd
            inside = differences(t)
            mass *= inside / before
            if law is first:
                values = given + sd * middles(t, inside) + np.reshape(law.effect(own), (-1, 1))
        total = mass.sum(axis=1, keepdims=True)
        # Answers so rare together that no digit is left: the weight is then not known from them.
        share = np.where(total > 0.0, mass / np.where(total > 0.0, total, 1.0), before)
        weight = self.design.weight_transform.inverse(values)
        return np.asarray((share * weight).sum(axis=1), dtype=np.float64)

    # ----------------------------------------------------------------------------------------

    def _effects(
        self, law: "ModuleLaw", first: FloatArray | None, rng: np.random.Generator
    ) -> FloatArray | None:
        """Return fresh effects (n, D) of PSUs, given those of the first module, or None."""
        if self.psu is None or PSU_COVARIANCE not in law.theta:
            return None
        covariance, units = law.theta[PSU_COVARIANCE], int(self.psu.max()) + 1
        normals = rng.standard_normal((units, len(covariance)))
        if first is None or not law.layout.weighted:
            return np.asarray((normals @ np.linalg.cholesky(covariance).T)[self.psu])
        place = np.unique(self.psu, return_index=True)[1]
        scale = covariance[-1, -1] / self.laws[0].theta[PSU_COVARIANCE][-1, -1]
        of_weight = np.sqrt(scale) * first[place, -1]
        gain = covariance[:-1, -1] / covariance[-1, -1]
        left = covariance[:-1, :-1] - np.outer(gain, covariance[-1, :-1])
        others = of_weight[:, None] * gain + normals[:, :-1] @ np.linalg.cholesky(left).T
        return np.column_stack([others, of_weight])[self.psu]

    def _together(
        self, made: Sequence[Simulated], effects: Sequence[FloatArray | None]
    ) -> Simulated:
        """Return one dataset of all outcomes, with the weight of the first module."""
        n, p = self.design.n, len(self.design.outcomes)
        weighted = self.laws[0].layout.weighted
        z = np.zeros((n, p + int(weighted)))
        category = np.zeros((n, p), dtype=np.int64)
        for law, each in zip(self.laws, made, strict=True):
            assert each.category is not None  # a simulation of this model has them
            z[:, law.columns] = each.z[:, : law.columns.size]
            category[:, law.columns] = each.category
        if weighted:
            z[:, -1] = made[0].z[:, -1]
        known = [each for each in effects if each is not None]
        return Simulated(z, category, np.hstack(known) if known else None)

    def _apart(
        self, simulated: Simulated
    ) -> tuple[list[Simulated], list[FloatArray | None]]:
        """Return the dataset and effects of each module, the weight on its own scale."""
        assert simulated.category is not None  # a simulation of this model has them
        sizes = [law.layout.amount_effects.stop for law in self.laws]
        effects: list[FloatArray | None] = [None] * len(sizes)
        if simulated.effects is not None:
            effects = list(np.split(simulated.effects, np.cumsum(sizes)[:-1], axis=1))
        weighted, made, g = self.laws[0].layout.weighted, [], np.zeros(self.design.n)
        for number, (law, own) in enumerate(zip(self.laws, effects, strict=True)):
            z = simulated.z[:, law.columns]
            if weighted:
                v = simulated.z[:, -1]
                if number == 0:
                    g = law.score(v - law.effect(own), own)
                else:
                    v = law.at_score(g, own) + law.effect(own)
                z = np.column_stack([z, v])
            made.append(Simulated(z, simulated.category[:, law.columns], own))
        return made, effects


@dataclass(frozen=True, repr=False)
class ModuleLaw:
    """The law of one module; columns: the positions of its outcomes among all."""

    theta: Theta
    design: PublicDesign
    layout: Layout
    group_of_cell: IntArray
    columns: IntArray

    def simulation(self, effects: FloatArray | None) -> Simulation:
        """Return what simulates it alone."""
        cell = self.design.matrix.cell
        return Simulation(self.theta, self.design, self.layout, self.group_of_cell, cell, effects)

    def completion(self, effects: FloatArray | None) -> Completion:
        """Return what fills its missing answers."""
        cell = self.design.matrix.cell
        return Completion(self.theta, self.design, self.layout, self.group_of_cell, cell, effects)

    def effect(self, effects: FloatArray | None) -> FloatArray | float:
        """Return effects (n,) of PSUs on the weight."""
        return 0.0 if effects is None else effects[:, -1]

    @cached_property
    def combinations(self) -> IntArray:
        """Categories (D, p)."""
        ways = product(*(range(size) for size in self.layout.categories))
        return np.array(list(ways), dtype=np.int64).reshape(-1, len(self.layout.categories))

    @cached_property
    def _tilde(self) -> tuple[FloatArray, FloatArray]:
        """X (C, K) by cell, and indicators (D, W - K) by combination."""
        x, k = self.design.matrix.x_cells, self.layout.columns
        zero = np.zeros((len(self.combinations), k))
        return x, self.layout.tilde(zero, self.combinations)[:, k:]

    def _on(self, columns: IntArray, b: FloatArray) -> FloatArray:
        """Return x~ b (C, D, ...) for coefficients (P, ...) of some columns of x~."""
        x, indicators = self._tilde
        k = self.layout.columns
        own = columns >= k
        by_cell = x[:, columns[~own]] @ b[~own]
        return np.asarray(by_cell[:, None] + (indicators[:, columns[own] - k] @ b[own])[None])

    @cached_property
    def means(self) -> FloatArray:
        """Means (C, D, q) of the columns of z."""
        indicators, group = self._tilde[1], self.group_of_cell
        found = [
            self._on(part.columns, self.theta[f"coefficients_{part.name}"][: part.columns.size])
            + level_deviations(self.theta, part, group, indicators)
            for part in self.layout.regressions
        ]
        return np.stack(found, axis=-1)

    @cached_property
    def covariances(self) -> FloatArray:
        """Covariances (G, D, q, q) of the columns of z, zero where these are absent."""
        there = self.layout.present(self.combinations)
        patterns, pattern = np.unique(there, axis=0, return_inverse=True)
        found = [covariances(self.theta, self.layout.regressions, each) for each in patterns]
        return np.stack(found, axis=1)[:, pattern.reshape(-1)]

    def log_shares(self, rows: slice | IntArray, effects: FloatArray | None) -> FloatArray:
        """Return log p(d | x, effects) (r, D) of some records."""
        cell = self.design.matrix.cell[rows]
        if effects is None:
            return self.log_shares_by_cell[cell]
        result = np.zeros((cell.size, len(self.combinations)))
        for part, own in zip(self.layout.logits, self.layout.logit_effects, strict=True):
            eta = self._on(part.columns, self.theta[f"logit_{part.name}"])
            category = self.combinations[:, part.outcome]
            shifted = log_shares(eta[cell] + effects[rows][:, None, own])
            result += np.take_along_axis(shifted, category[None, :, None], axis=-1)[..., 0]
        return result

    @cached_property
    def _of_weight(self) -> tuple[FloatArray, FloatArray]:
        """Means and SDs (C, D) of the weight in each combination."""
        spread = self.covariances[self.group_of_cell][..., -1, -1]
        return self.means[..., -1], np.sqrt(spread)

    def _mixture(self, rows: slice, effects: FloatArray | None) -> Mixture:
        """Return the law of the weight of some records given x and effects, without its own."""
        cell = self.design.matrix.cell[rows]
        mean, sd = self._of_weight
        return Mixture(np.exp(self.log_shares(rows, effects)), mean[cell], sd[cell])

    def score(self, v: FloatArray, effects: FloatArray | None) -> FloatArray:
        """Return Phi^-1(F(v)) (n,) of weights without effects."""
        parts = [self._mixture(rows, effects).score(v[rows]) for rows in _blocks(v.size)]
        return np.concatenate(parts)

    def at_score(self, g: FloatArray, effects: FloatArray | None) -> FloatArray:
        """Return weights (n,) without effects that have these scores."""
        parts = [self._mixture(rows, effects).at_score(g[rows]) for rows in _blocks(g.size)]
        return np.concatenate(parts)

    def quantiles(self, effects: FloatArray | None) -> tuple[FloatArray, IntArray]:
        """Return the weight at all nodes (S, G), and the row (n,) of each record.

        Records of a cell, and of a PSU if there are effects, have one row."""
        cell = self.design.matrix.cell
        if effects is None:
            place, first = cell, np.zeros(len(self.design.matrix.x_cells), dtype=np.int64)
            first[cell] = np.arange(cell.size)
        else:
            known = np.column_stack([cell, effects])
            _, first, place = np.unique(known, axis=0, return_index=True, return_inverse=True)
            place = place.reshape(-1)
        mean, sd = (each[cell[first]] for each in self._of_weight)
        share = np.exp(self.log_shares(first, effects))
        law = Mixture(share[:, None], mean[:, None], sd[:, None])
        nodes = law.at_score(np.broadcast_to(NODES, (first.size, NODES.size)))
        return nodes, np.asarray(place, dtype=np.int64)

    @cached_property
    def log_shares_by_cell(self) -> FloatArray:
        """log p(d | x) (C, D) without effects."""
        found = np.zeros((len(self.design.matrix.x_cells), len(self.combinations)))
        for part in self.layout.logits:
            log_p = log_shares(self._on(part.columns, self.theta[f"logit_{part.name}"]))
            category = self.combinations[:, part.outcome]
            found += np.take_along_axis(log_p, category[None, :, None], axis=-1)[..., 0]
        return found

    def given_weight(
        self, g: FloatArray, effects: FloatArray | None, rng: np.random.Generator
    ) -> Simulated:
        """Draw answers given the score (n,) of the weight."""
        v = self.at_score(g, effects)
        cell, n = self.design.matrix.cell, g.size
        of_weight, sd = self._of_weight
        way = np.zeros(n, dtype=np.int64)
        for rows in _blocks(n):
            own = cell[rows]
            log_mass = self.log_shares(rows, effects) - np.log(sd[own])
            log_mass -= 0.5 * ((v[rows, None] - of_weight[own]) / sd[own]) ** 2
            way[rows] = drawn(log_mass - logsumexp(log_mass)[:, None], rng)
        z = self._amounts(way, v - of_weight[cell, way], effects, rng)
        values = np.zeros((n, self.columns.size + 1))
        there = self.layout.present(self.combinations)[way]
        for position, (j, _) in enumerate(self.layout.amounts):
            values[there[:, position], j] = z[there[:, position], position]
        values[:, -1] = v + self.effect(effects)
        return Simulated(values, self.combinations[way], effects)

    def _amounts(
        self, way: IntArray, off: FloatArray, effects: FloatArray | None, rng: np.random.Generator
    ) -> FloatArray:
        """Draw columns of z (n, q), effects included, given residuals ``off`` (n,) of the weight.

        way (n,): the combination of each record. Each column in turn, given the weight and those
        before it that are there.
        """
        cell = self.design.matrix.cell
        group, last = self.group_of_cell[cell], self.layout.q - 1
        residual, z = np.zeros((way.size, last + 1)), np.zeros((way.size, last + 1))
        residual[:, -1] = off
        there = self.layout.present(self.combinations)
        for part in self.layout.regressions[:-1]:
            at = part.position
            before = [last, *range(at)]
            inner = self.covariances[..., before, :][..., before]
            # What is absent has a variance of one and goes with nothing.
            inner = inner + np.where(there[:, before], 0.0, 1.0)[:, None] * np.eye(len(before))
            with_it = self.covariances[..., before, at]
            slopes = np.linalg.solve(inner, with_it[..., None])[..., 0]
            left = self.covariances[..., at, at] - (slopes * with_it).sum(-1)
            rows = np.flatnonzero(there[way, at])
            own, d = group[rows], way[rows]
            moved = (residual[np.ix_(rows, before)] * slopes[own, d]).sum(-1)
            shift = self.means[cell[rows], d, at]
            if effects is not None:
                shift = shift + effects[rows, self.layout.amount_effects][:, at]
            assert part.outcome is not None  # the weight's part is the last
            limits = ends(self.design.outcomes[part.outcome], part.side)
            middle, sd = parent_normal(shift + moved, np.sqrt(left[own, d]), limits)
            z[rows, at] = cut_normal(middle, sd, limits, rng)
            residual[rows, at] = z[rows, at] - shift
        return z


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]
