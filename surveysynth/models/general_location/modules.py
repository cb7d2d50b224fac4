"""Outcomes in modules: each has a law with the weight of its own (strict 7).

A draw has parameters of every module, a general location model of its outcomes y_k with the log
weight v as the last column. One law of all of them: v | x is that of the first module, and modules
are independent given x and v. With m_k(x) and V_k(x) the mean and variance of v in module k,

    u = (v - m_1) / sqrt(V_1),    y_k ~ p_k(y_k | x, v = m_k + sqrt(V_k) u),

so that y_k has the law of its module, and goes with the weight as there. Smoothed weights are means
of v given all outcomes. In module k u is N(a_k, s_k) given y_k, and near N(0, 1) without; given all

    1/s = sum_k 1/s_k - (K - 1),    E(u | y) = s sum_k a_k / s_k.

Public weights are not modelled; modules are then independent given x. Effects of PSUs, if any, are
known wherever a law is meant. Those of the weight are those of the first module, in the SD of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.general_location.completion import Completion, steadied
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.simulate import (
    Simulation,
    columns_of,
    cut_normal,
    drawn,
    ends,
    logsumexp,
    parent_normal,
)
from surveysynth.models.parts.logit import log_shares
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE
from surveysynth.survey.survey import PublicDesign

#: The module (.., p) of each outcome, among the parameters; those of module k begin with "k:".
MODULES = "modules"
#: Records whose combinations of categories are drawn at once.
BLOCK = 20_000


def with_modules(thetas: Sequence[Theta], columns: Sequence[Sequence[int]]) -> Theta:
    """Return draws (m, ...) of all modules, whose outcomes have these positions."""
    of = np.zeros(sum(map(len, columns)), dtype=np.int64)
    result: Theta = {}
    for number, (theta, own) in enumerate(zip(thetas, columns, strict=True)):
        of[list(own)] = number
        result |= {f"{number}:{name}": values for name, values in theta.items()}
    draws = len(next(iter(result.values())))
    return {MODULES: np.tile(of, (draws, 1)).astype(np.float64), **result}


def of_module(theta: Theta, number: int) -> Theta:
    """Return the parameters of one module."""
    head = f"{number}:"
    return {name.removeprefix(head): each for name, each in theta.items() if name.startswith(head)}


def columns_by_module(modules: FloatArray) -> list[IntArray]:
    """Return the positions of the outcomes of each module, given the module (p,) of each."""
    return [np.flatnonzero(modules == number) for number in range(int(modules.max()) + 1)]


def steadied_modules(
    theta: Theta, design: PublicDesign, grouped: bool, scale: float
) -> Theta:
    """Return draws (m, ...) in which effects of missing answers have their prior."""
    result = dict(theta)
    for number, own in enumerate(columns_by_module(theta[MODULES][0])):
        part = replace(design, outcomes=tuple(design.outcomes[j] for j in own))
        layout = Layout.of(part, grouped)
        found = steadied(of_module(theta, number), layout, part.outcomes, scale)
        result |= {f"{number}:{name}": values for name, values in found.items()}
    return result


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
        u = None
        if first.layout.weighted:
            mean, variance = first.weight(effects[0])
            u = (made[0].z[:, -1] - first.effect(effects[0]) - mean) / np.sqrt(variance)
        for law in others:
            own = self._effects(law, effects[0], rng)
            effects.append(own)
            made.append(
                law.simulation(own).sample(rng) if u is None else law.given_weight(u, own, rng)
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
        pull = np.zeros(self.design.n)
        precision = np.full(self.design.n, 1.0 - len(self.laws))
        for law, each, own in zip(self.laws, made, effects, strict=True):
            mean, variance = law.weight(own)
            of_weight = law.layout.regressions[-1]
            simulation = law.simulation(own)
            assert each.category is not None  # a simulation of this model has them
            z = columns_of(law.layout, each.category, each.z)
            given, left = simulation._moments(of_weight, each.category, z)
            share = variance / left
            precision += share
            pull += share * (given - law.effect(own) - mean) / np.sqrt(variance)
        first = self.laws[0]
        mean, variance = first.weight(effects[0])
        middle = mean + np.sqrt(variance) * pull / precision + first.effect(effects[0])
        return self.design.weight_transform.mean_of_inverse(middle, variance / precision)

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
            z[:, law.columns], category[:, law.columns] = each.z[:, : law.columns.size], (
                each.category
            )  # fmt: skip
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
        weighted, made, u = self.laws[0].layout.weighted, [], np.zeros(self.design.n)
        for number, (law, own) in enumerate(zip(self.laws, effects, strict=True)):
            z = simulated.z[:, law.columns]
            if weighted:
                mean, variance = law.weight(own)
                v = simulated.z[:, -1]
                if number == 0:
                    u = (v - law.effect(own) - mean) / np.sqrt(variance)
                else:
                    v = mean + np.sqrt(variance) * u + law.effect(own)
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
        found = [
            self._on(part.columns, self.theta[f"coefficients_{part.name}"][: part.columns.size])
            for part in self.layout.regressions
        ]
        return np.stack(found, axis=-1)

    @cached_property
    def covariances(self) -> FloatArray:
        """Covariances (G, D, q, q) of the columns of z, zero where these are absent."""
        layout, q = self.layout, self.layout.q
        groups = int(self.group_of_cell.max()) + 1
        slopes, variance = np.zeros((groups, q, q)), np.zeros((groups, q))
        for part in layout.regressions:
            own = self.theta[f"coefficients_{part.name}"][part.columns.size :]
            added = self.theta.get(f"slopes_{part.name}", np.zeros(own.size))
            slopes[:, part.position, part.earlier] = own + added
            variance[:, part.position] = self.theta[f"variance_{part.name}"]
        there = layout.present(self.combinations)
        patterns, pattern = np.unique(there, axis=0, return_inverse=True)
        found = []
        for present in patterns:
            inverse = np.linalg.inv(np.eye(q) - slopes * np.outer(present, present))
            found.append((inverse * (variance * present)[:, None]) @ inverse.swapaxes(-1, -2))
        return np.stack(found, axis=1)[:, pattern.reshape(-1)]

    def log_shares(self, rows: slice, effects: FloatArray | None) -> FloatArray:
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

    def weight(self, effects: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance (n,) of the weight given x and effects, without its own."""
        cell = self.design.matrix.cell
        of_weight = self.means[..., -1]
        spread = self.covariances[self.group_of_cell][..., -1, -1] + of_weight**2
        if effects is None:
            share = np.exp(self.log_shares_by_cell)
            mean, square = (share * of_weight).sum(-1), (share * spread).sum(-1)
            return mean[cell], (square - mean * mean)[cell]
        mean, square = np.zeros(cell.size), np.zeros(cell.size)
        for rows in _blocks(cell.size):
            share = np.exp(self.log_shares(rows, effects))
            mean[rows] = (share * of_weight[cell[rows]]).sum(-1)
            square[rows] = (share * spread[cell[rows]]).sum(-1)
        return mean, square - mean * mean

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
        self, u: FloatArray, effects: FloatArray | None, rng: np.random.Generator
    ) -> Simulated:
        """Draw answers given how far (n,) the weight is from its mean, in its SDs."""
        mean, variance = self.weight(effects)
        v = mean + np.sqrt(variance) * u
        cell, n = self.design.matrix.cell, u.size
        of_weight = self.means[..., -1]
        spread = self.covariances[self.group_of_cell][..., -1, -1]
        way = np.zeros(n, dtype=np.int64)
        for rows in _blocks(n):
            own = cell[rows]
            log_mass = self.log_shares(rows, effects) - 0.5 * np.log(spread[own])
            log_mass -= 0.5 * (v[rows, None] - of_weight[own]) ** 2 / spread[own]
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
