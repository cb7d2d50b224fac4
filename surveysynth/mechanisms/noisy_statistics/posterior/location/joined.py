"""One law of all outcomes from draws of modules, which are independent given X (strict 7).

A module is a survey of some outcomes y_k with the log weight v as the last column. Its draw says
what the law of y_k given x is, and that of v given x and y_k, whose mean is

    E(v | x, y_k) = m_k(x) + c_k,    c_k = (e(d_k) - E e(d_k) | x)' a_k + r_k' b_k,

with e(d_k) indicators of categories and r_k residuals of amounts, zero where these are absent, so
that E(c_k | x) = 0. If modules are independent given x, the regression of v on all of them adds
up: E(v | x, y) = m_1(x) + sum_k c_k, and the variance of v given all of them is that given y_1
less the sum of var(c_k | x) of the others. v and its variance given x are thus those of the first
module, and the covariance of v with every outcome is that of its own module.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location.unit_effects import LEAST_LEFT
from surveysynth.mechanisms.noisy_statistics.posterior.location.unit_moments import (
    covariances,
    shares_of,
)
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.settings import Module
from surveysynth.models.general_location.layout import (
    WEIGHT,
    Layout,
    RegressionPart,
    part_name,
)
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE
from surveysynth.survey.survey import PublicDesign


def joined(
    thetas: Sequence[Theta],
    modules: Sequence[Module],
    model: GeneralLocation,
    design: PublicDesign,
) -> Theta:
    """Return draws (m, ...) of all outcomes from those of each module; ``model``: of all."""
    whole = Layout.of(design, model.grouped)
    places = [_Place.of(module, whole, design, model) for module in modules]
    result: Theta = {}
    for theta, place in zip(thetas, places, strict=True):
        result |= place.outcomes(theta)
    if whole.weighted:
        made = [
            _weight([{name: values[draw] for name, values in theta.items()} for theta in thetas],
                    places, whole, design)
            for draw in range(len(next(iter(result.values()))))
        ]  # fmt: skip
        first = {
            name: values for name, values in thetas[0].items()
            if name.endswith(f"_{WEIGHT}") and name not in made[0]
        }  # fmt: skip
        result |= first | {name: np.stack([each[name] for each in made]) for name in made[0]}
    if PSU_COVARIANCE in thetas[0]:
        result[PSU_COVARIANCE] = np.stack([
            _effects([theta[PSU_COVARIANCE][draw] for theta in thetas], places, whole)
            for draw in range(len(thetas[0][PSU_COVARIANCE]))
        ])  # fmt: skip
    return result


@dataclass(frozen=True, eq=False)
class _Place:
    """Where the columns of a module are among all: of x~ (W_k,), of z (q_k,), of effects (D_k,)."""

    module: Module
    own: Layout
    whole: Layout
    shape: LocationShape
    tilde: IntArray
    z: IntArray
    effects: IntArray

    @classmethod
    def of(
        cls, module: Module, whole: Layout, design: PublicDesign, model: GeneralLocation
    ) -> "_Place":
        """Return the place of a module."""
        own, k = Layout.of(module.design, model.grouped), whole.columns
        tilde = np.concatenate([np.arange(k), *(whole.indicators(j) for j in module.columns)])
        place = {each: position for position, each in enumerate(whole.amounts)}
        z = [place[module.columns[j], side] for j, side in own.amounts]
        z += [whole.q - 1] if whole.weighted else []
        amounts = whole.amount_effects.start + np.array(z, dtype=np.int64)
        shape = LocationShape(
            design.matrix.x_cells, model.groups(design).cell, module.design.outcomes, whole.weighted
        )
        return cls(
            module, own, whole, shape, tilde, np.array(z, dtype=np.int64),
            np.concatenate([tilde[k:] - k, amounts]),
        )  # fmt: skip

    def outcomes(self, theta: Theta) -> Theta:
        """Return logits and regressions of its outcomes (m, ...): nothing of other modules."""
        result: Theta = {}
        logits = {part.outcome: part for part in self.whole.logits}
        for part in self.own.logits:
            there = logits[self.module.columns[part.outcome]]
            given = theta[f"logit_{part.name}"]
            b = np.zeros((len(given), there.columns.size, there.own.size))
            b[:, np.searchsorted(there.columns, self.tilde[part.columns])] = given
            result[f"logit_{there.name}"] = b
        regressions = {part.name: part for part in self.whole.regressions}
        for regression in self.own.regressions:
            if regression.outcome is not None:
                name = part_name(self.module.columns[regression.outcome], regression.side)
                result |= self._regression(theta, regression, regressions[name])
        return result

    def _regression(self, theta: Theta, part: RegressionPart, there: RegressionPart) -> Theta:
        given = theta[f"coefficients_{part.name}"]
        width = part.columns.size
        core = np.zeros((len(given), there.width))
        core[:, np.searchsorted(there.columns, self.tilde[part.columns])] = given[:, :width]
        earlier = np.searchsorted(there.earlier, self.z[part.earlier])
        core[:, there.columns.size + earlier] = given[:, width:]
        ending = f"_{part.name}"
        result = {
            f"{name.removesuffix(ending)}_{there.name}": values
            for name, values in theta.items() if name.endswith(ending)
            and not name.startswith("logit_")
        }  # fmt: skip
        result[f"coefficients_{there.name}"] = core
        slopes = f"slopes_{part.name}"
        if self.whole.grouped and there.earlier.size:
            moved = np.zeros((len(given), self.shape.groups, there.earlier.size))
            if slopes in theta:
                moved[..., earlier] = theta[slopes]
            result[f"slopes_{there.name}"] = moved
        return result

    def on_weight(self, theta: Theta) -> "_OnWeight":
        """Return what one draw of the module says of the weight."""
        part, k = self.own.regressions[-1], self.whole.columns
        core = theta[f"coefficients_{WEIGHT}"]
        level, slopes = core[k : part.columns.size], core[part.columns.size :]
        share, _ = shares_of(theta, self.shape)
        flags = self.shape.indicators @ level
        mean = share @ flags
        between = share @ (flags * flags) - mean * mean
        own = slopes + theta.get(f"slopes_{WEIGHT}", np.zeros((1, slopes.size)))
        by_group = np.broadcast_to(own, (self.shape.groups, slopes.size))
        within = np.zeros(len(share))
        for pattern, there in enumerate(self.shape.patterns):
            covariance = covariances(theta, self.own.regressions, there)[:, :-1, :-1]
            variance = np.einsum("gi,gij,gj->g", by_group, covariance, by_group)
            within += share[:, self.shape.pattern == pattern].sum(1) * variance[self.shape.group]
        return _OnWeight(core[:k], level, by_group, mean, between, within)


@dataclass(frozen=True, eq=False)
class _OnWeight:
    """The log weight in one draw of a module.

    core (K,) on X, level (E,) on indicators, slopes (groups, q_k - 1) on residuals; by cell (C,):
    mean of what indicators add, its variance, and that of what residuals add.
    """

    core: FloatArray
    level: FloatArray
    slopes: FloatArray
    mean: FloatArray
    between: FloatArray
    within: FloatArray


def _weight(
    thetas: Sequence[Theta], places: Sequence[_Place], whole: Layout, design: PublicDesign
) -> Theta:
    """Return the regression of the weight on all outcomes, of one draw.

    A tenth of the residual variance of the first module stays: where noise makes others explain
    more than nine, their slopes are shrunken.
    """
    found = [place.on_weight(theta) for place, theta in zip(places, thetas, strict=True)]
    first, k = found[0], whole.columns
    shape = places[0].shape
    size = np.bincount(design.matrix.cell, minlength=len(shape.x_cells)).astype(np.float64)
    of_group = np.maximum(np.bincount(shape.group, size, minlength=shape.groups), 1.0)

    def by_group(cells: FloatArray) -> FloatArray:
        return np.bincount(shape.group, size * cells, minlength=shape.groups) / of_group

    variance = np.broadcast_to(thetas[0][f"variance_{WEIGHT}"], (shape.groups,))
    least = LEAST_LEFT * variance
    between = by_group(np.sum([each.between for each in found[1:]], axis=0))
    within = by_group(np.sum([each.within for each in found[1:]], axis=0))
    room = np.maximum(variance - least - between, 0.0)
    factor = np.sqrt(np.minimum(1.0, room / np.maximum(within, 1e-300)))
    core, slopes = np.zeros(whole.width), np.zeros((shape.groups, whole.q - 1))
    root = np.sqrt(size)[:, None]
    moved = np.sum([each.mean for each in found[1:]], axis=0)
    solved = np.linalg.lstsq(root * shape.x_cells, root[:, 0] * moved, rcond=None)[0]
    core[:k] = first.core - solved
    for number, (place, each) in enumerate(zip(places, found, strict=True)):
        core[place.tilde[k:]] = each.level
        slopes[:, place.z[:-1]] = each.slopes * (1.0 if number == 0 else factor[:, None])
    left = np.maximum(variance - between - factor**2 * within, least)
    shared = slopes[0] if not whole.grouped else slopes.mean(axis=0)
    result: Theta = {
        f"coefficients_{WEIGHT}": np.concatenate([core, shared]), f"variance_{WEIGHT}": left
    }
    if whole.grouped and whole.q > 1:
        result[f"slopes_{WEIGHT}"] = slopes - shared
    return result


def _effects(given: Sequence[FloatArray], places: Sequence[_Place], whole: Layout) -> FloatArray:
    """Return the covariance (D, D) of effects of units, of one draw.

    Effects of modules are independent of each other, and the last column goes with each as in its
    module; a tenth of its variance given the first module stays.
    """
    size = whole.amount_effects.stop
    result = np.zeros((size, size))
    for place, own in zip(places, given, strict=True):
        inside = place.effects[:-1] if whole.weighted else place.effects
        result[np.ix_(inside, inside)] = own[: inside.size, : inside.size]
    if not whole.weighted:
        return result
    last, explained = size - 1, []
    for place, own in zip(places, given, strict=True):
        result[place.effects[:-1], last] = own[:-1, -1]
        explained.append(float(own[-1, :-1] @ np.linalg.solve(own[:-1, :-1], own[:-1, -1])))
    variance = float(given[0][-1, -1])
    room, others = (1.0 - LEAST_LEFT) * (variance - explained[0]), sum(explained[1:])
    factor = min(1.0, float(np.sqrt(max(room, 0.0) / max(others, 1e-300))))
    for place in places[1:]:
        result[place.effects[:-1], last] *= factor
    result[last] = result[:, last]
    result[last, last] = variance
    return result
