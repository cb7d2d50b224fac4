"""Moves of the parameters of regressions with xi and eta held; T and W move along.

Given T and W parameters creep wherever the noise exceeds what the records tell. With xi and eta
held they depend almost on the noisy moments alone. A round makes, each an exact step of Metropolis
or a slice:

- log variances and slopes of every group, all groups at once, each accepted by itself;
- what groups have in common, with groups moving along: s_0 and core slopes together by a slice, and
  effects of levels, all twice where there are any; one scale, a turn of it against a slope, trades
  (``trades``); log nu and log t, with groups (with t core slopes too) at the same standard normals
  about another normal. Coefficients so with t and tau, and where interactions are shrunken by s_0;
- the same given the parameters of groups (``conditionals``), and tau;
- coefficients on x~ of all regressions, by a slice about a normal near their law (``reference``).

Shapes and widths of steps are learned in the warm-up from all chains of a database, then fixed.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location import cell_reference, trades
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    Laws,
    LocationAugmentation,
    PatternLaw,
    difference,
    elliptical,
    normal,
    possible,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.conditionals import Conditionals
from surveysynth.mechanisms.noisy_statistics.posterior.location.learned import (
    Learned,
    share_of_latest,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Parameters, Point
from surveysynth.sampling.sweeps import Streams

#: Tries of a slice.
TRIES = 3
#: The longest steps of a scale are the usual ones over this number.
SHORTEST = 0.05
#: No step of a logarithm is longer: matrices would lose their roots.
FARTHEST = 20.0
#: Chains that lie farther from the mean of a slice, in its SDs, have not come near yet.
WIDEST = 10.0
#: Share of steps to accept; of trades, which pay where they go far.
ACCEPTED, TRADED = 0.35, 0.2

#: A point, the log Jacobian of the move to it but for coefficients, and their log room there.
Moved: TypeAlias = tuple[Point, FloatArray, FloatArray]
Move = Callable[[FloatArray], Moved]


class Moves:
    """Moves of the regressions of B chains; ``adapting``: widths are being learned."""

    def __init__(
        self, data: LocationAugmentation, parameters: Parameters, point: Point, rng: Streams
    ) -> None:
        self.data, self.parameters, self.point, self.rng = data, parameters, point, rng
        self.batch, self.q, self.groups = data.batch, parameters.q, parameters.groups
        self.chains = data.target.chains
        self.means = cell_reference.mean_reference(data, parameters)
        self.learned = Learned(data, parameters)
        self.conditionals = Conditionals(parameters, rng, self.batch)
        self.size = self.q + parameters.row.size
        columns, self.steps = range(self.q), list[Move]()
        later = np.flatnonzero(parameters.earlier).tolist() if parameters.grouped else []
        if parameters.grouped:
            self.steps += [partial(self._of_variances, j) for j in columns]
            self.steps += [partial(self._of_slopes, j, False) for j in later]
        #: Steps before coefficients move along; then those of one column in turn, and of slopes.
        self.before = len(self.steps)
        self.steps += [partial(self._of_coefficients, j) for j in columns]
        self.slopes = len(self.steps)
        self.steps += [partial(self._of_slopes, j, True) for j in later]
        #: Steps after the slice of what groups have in common.
        self.after = len(self.steps)
        self.steps += [self._turned, self._scale] if parameters.row.size else [self._scale]
        self.trades = len(self.steps)
        for trade, places in trades.of(parameters):
            self.steps += [partial(self._trade, trade, place) for place in places]
        self.databases, self.adapting, self.rounds = self.batch // self.chains, True, 0
        self.log_group_width = np.zeros((self.databases, self.groups))
        self.lies, self.spread = np.zeros((2, self.databases, self.learned.prior.size))
        self.spread += 1.0
        self.log_width = np.zeros((self.databases, len(self.steps)))
        #: Blocks of effects of levels, which move twice a round.
        self.levels = len(self.learned.blocks) - 1

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c rounds."""
        b, g, p, rng = self.batch, self.groups, self.size, self.rng
        self.conditionals.draw_random_numbers(c)
        self.n_means = rng.standard_normal((c, b, self.parameters.index.size), 1)
        self.n_group = rng.standard_normal((c, 2, p, b, g), 3)
        self.u_group = rng.random((c, 2, b, g), 2)
        self.u_group_angle = rng.random((c, TRIES, b, g), 2)
        self.n_shift = rng.standard_normal((c, 2 + 2 * self.levels, self.learned.prior.size, b), 3)
        self.u_level = rng.random((c, 3 + 2 * self.levels, b), 2)
        self.u_angle = rng.random((c, 3 + 2 * self.levels, TRIES, b), 3)
        self.n_step = rng.standard_normal((c, len(self.steps), b), 2)
        # Some long steps of scales, as long as the tails of those that noise hides.
        long = [*range(self.before, self.after), *range(self.trades - 1, len(self.steps))]
        self.n_step[:, long] /= np.maximum(rng.random((c, len(long), b), 2), SHORTEST)
        self.log_u_step = np.log(rng.random((c, len(self.steps), b), 2))

    def round(self, i: int) -> None:
        """Make all moves once."""
        self.started = self.point.means
        # Far proposals may overflow: they are refused.
        with np.errstate(all="ignore"):
            if self.adapting:
                self.learned.take(self.point, self.rounds)
            factor = self.data.log_factor(self.data.laws)
            self.value = self._of_chain(factor, self.point)
            if self.parameters.grouped:
                self._groups(i, factor)
            self.log_room = np.zeros(self.batch)
            for number in range(self.before):
                self._step(i, number)
            for turn in range(1, self.levels + 1):
                self._shift(i, turn)
            self._hold()
            self._step(i, self.before + self.rounds % self.q)
            for number in self._in_turn(self.slopes, self.after):
                self._step(i, number)
            self._shift(i, 0)
            for ends in (self.after, self.trades), (self.trades, len(self.steps)):
                for number in self._in_turn(*ends):
                    self._step(i, number)
            for turn in (-1, *range(self.levels + 1, 2 * self.levels + 1)) if self.levels else ():
                self._shift(i, turn)
            self.point = self.conditionals.draw(i, self.point)
            self.data.laws = self._turn(i, self._laws(self.point))
        self.rounds += 1

    def _in_turn(self, first: int, end: int) -> list[int]:
        """Return the one of these steps, if there are any, that this round makes."""
        return [first + self.rounds % (end - first)] if end > first else []

    def law(self) -> PatternLaw:
        """Return coefficients and covariance of each pattern at the current point."""
        coefficients = self.parameters.coefficients(self.point.means)
        sigmas = self.parameters.covariances(self.point)
        place = {number: p for p, number in enumerate(self.data.target.patterns)}

        def of(number: int) -> tuple[FloatArray, FloatArray]:
            p = place[number]
            return coefficients[..., self.parameters.present[p]], sigmas[p]

        return of

    def _laws(self, point: Point) -> Laws:
        """Return the laws at a point."""
        laws = self.data.with_covariances(self.data.laws, self.parameters.covariances(point))
        if point.means is self.started:
            return laws
        return self.data.with_means(laws, self.parameters.coefficients(point.means))

    # --- groups ----------------------------------------------------------------------------------

    def _groups(self, i: int, factor: FloatArray) -> None:
        """Move log variances and slopes of every group: a slice, and a step of a learned width."""
        middle, root, inverse = self.learned.of_groups(self.point)
        now = self.parameters.of_groups(self.point)
        white = np.einsum("ab...,a...->b...", inverse, now - middle)

        def point_of(white: FloatArray) -> Point:
            there = middle + np.einsum("ab...,b...->a...", root, white)
            return self._with_groups(there, self.point)

        def log_density(white: FloatArray) -> FloatArray:
            point = point_of(white)
            factor = self.data.log_factor(self._laws(point))
            return factor + self.parameters.log_group_prior(point) - normal(white)

        value = factor + self.parameters.log_group_prior(self.point) - normal(white)
        white, value = elliptical(
            white, self.n_group[i, 0], log_density, value, self.u_group[i, 0],
            self.u_group_angle[i],
        )  # fmt: skip
        width = np.repeat(np.exp(self.log_group_width), self.chains, axis=0)
        step = width * 2.38 / np.sqrt(self.size) * self.n_group[i, 1]
        proposal, value = white + step, value + normal(white)
        proposed = log_density(proposal) + normal(proposal)
        ratio = possible(difference(proposed, value))
        accept = np.log(self.u_group[i, 1]) < ratio
        white, value = np.where(accept, proposal, white), np.where(accept, proposed, value)
        if self.adapting:
            mean = np.minimum(np.exp(np.minimum(ratio, 0.0)), 1.0)
            self.log_group_width += self._rate * (self._by_database(mean) - ACCEPTED)
        self.point = point_of(white)
        self.value = value.sum(-1) + self.parameters.log_prior(self.point)

    def _with_groups(self, values: FloatArray, point: Point) -> Point:
        """Return a point with other log variances and slopes b + d (p, B, G) of groups."""
        parameters = self.parameters
        slopes = point.slopes.copy()
        row, column = parameters.row, parameters.column
        slopes[row, column] = values[self.q :] - point.core[row, column][..., None]
        return replace(point, log_variance=parameters.inside(values[: self.q]), slopes=slopes)

    # --- whole chains ----------------------------------------------------------------------------

    def _shift(self, i: int, turn: int) -> None:
        """Move a block of what groups have in common by a slice about a normal, groups along.

        turn: 0 and -1 for s_0 and core slopes, others for effects of levels, column by column.
        These shrink no interactions: coefficients stay. In s_0 and not in its logarithm: under
        noise that may have a long tail to the left, in which a slice about a normal would stay."""
        number = 1 + (turn - 1) % self.levels if turn > 0 else 0
        block, scale = self.learned.blocks[number], self.learned.is_scale(number)[:, None]
        start = self.learned.common(self.point)[block]
        mean, root, back = self.learned.reference(self.point, number)
        now = np.where(scale, np.exp(0.5 * start), start)
        white = self.learned.times(root, now - mean)
        # The chains may lie about another mean, and farther from it.
        both = self.lies[:, block], self.spread[:, block]
        lies, spread = (np.repeat(each, self.chains, axis=0).T for each in both)
        if self.adapting:
            share = share_of_latest(self.rounds)
            off = np.clip(self._by_database((white - lies).T ** 2), 1.0, WIDEST)
            middle = np.clip(self._by_database(white.T), -WIDEST, WIDEST)
            self.spread[:, block] += share * (off - self.spread[:, block])
            self.lies[:, block] += share * (middle - self.lies[:, block])

        def point_of(white: FloatArray) -> tuple[Point, FloatArray]:
            there = mean + self.learned.times(back, lies + spread * white)
            log_size, moved = 2.0 * np.log(np.maximum(there, 1e-30)), 0.0 * self.n_shift[i, turn]
            moved[block] = np.where(scale, log_size, there) - start
            point = self.parameters.with_common(self.point, moved)
            return (point, self.log_room) if number else self._coupled(point)

        tried = []

        def log_density(white: FloatArray) -> FloatArray:
            point, log_room = point_of(white)
            tried.append((white, point, log_room))
            return self._density(point) + log_room + tangent(point) - normal(white)

        white = (white - lies) / spread
        value = self.value + self.log_room + tangent(self.point) - normal(white)
        white, value = elliptical(
            white, self.n_shift[i, turn, block], log_density, value, self.u_level[i, turn],
            self.u_angle[i, turn],
        )  # fmt: skip
        for there, point, log_room in tried:
            accept = (there == white).all(0)
            self.point = self.point.chosen(accept, point)
            self.log_room = np.where(accept, log_room, self.log_room)
        self.value = value - self.log_room - tangent(self.point) + normal(white)

    def _density(self, point: Point) -> FloatArray:
        return self._of_chain(self.data.log_factor(self._laws(point)), point)

    def _of_chain(self, factor: FloatArray, point: Point) -> FloatArray:
        """Return the log density (B,) at a point with this factor (B, G)."""
        of_group = factor + self.parameters.log_group_prior(point)
        return np.asarray(of_group.sum(-1) + self.parameters.log_prior(point))

    def _step(self, i: int, number: int) -> None:
        """Make one step of scales, with the parameters of groups that depend on them."""
        width = np.repeat(np.exp(self.log_width[:, number]), self.chains)
        step = np.clip(width * self.n_step[i, number], -FARTHEST, FARTHEST)
        point, log_jacobian, log_room = self.steps[number](step)
        value = self._density(point)
        ratio = possible(difference(value, self.value) + log_jacobian + log_room - self.log_room)
        accept = self.log_u_step[i, number] < ratio
        self.point = self.point.chosen(accept, point)
        self.value = np.where(accept, value, self.value)
        self.log_room = np.where(accept, log_room, self.log_room)
        if self.adapting:
            mean = self._by_database(np.exp(np.minimum(ratio, 0.0)))
            share = ACCEPTED if number < self.trades else TRADED
            self.log_width[:, number] += self._rate * (mean - share)

    def _scale(self, step: FloatArray) -> Moved:
        """Move the log variances of one column of all groups, which may have no lower end."""
        number, moved = self.rounds // 2 % self.q, np.zeros((self.size, self.batch))
        moved[number] = self.learned.sd(number) * step
        point, log_room = self._coupled(self.parameters.with_common(self.point, moved))
        return point, np.zeros(self.batch), log_room

    def _hold(self) -> None:
        """Note the standard normals (B, C) of coefficients about that near their law; log room.

        Coefficients that a scale shrinks would hold it where it is."""
        near = self.means.roughly(self._laws(self.point), self.point)
        self.held, self.log_room = near.white(self.point.means.T), near.log_room

    def _coupled(self, point: Point) -> tuple[Point, FloatArray]:
        """Return the point with coefficients at the standard normals held; log room (B,).

        Only interactions are shrunken by what groups have in common."""
        return self._along_normal(point) if self.parameters.ridged.size else (point, self.log_room)

    def _along_normal(self, point: Point) -> tuple[Point, FloatArray]:
        """Return the point with coefficients at the standard normals held, and their log room."""
        near = self.means.roughly(self._laws(point), point)
        return replace(point, means=(near.mean + near.drawn(self.held)).T), near.log_room

    def _of_coefficients(self, column: int, step: FloatArray) -> Moved:
        """Move log tau of a column, with all coefficients along.

        Drawn given each other, a small tau and coefficients near zero would keep each other so."""
        log_tau = self.point.log_tau.copy()
        log_tau[column] += step
        point, log_room = self._along_normal(replace(self.point, log_tau=log_tau))
        return point, np.zeros(self.batch), log_room

    def _turned(self, step: FloatArray) -> Moved:
        """Turn s_0 of a column against what a slope takes of its variance."""
        return self._trade(trades.turned, self.rounds // 2 % self.parameters.row.size, step)

    def _trade(self, trade: trades.Trade, place: int, step: FloatArray) -> Moved:
        """Trade variances of a column, or slopes of a row, against others."""
        traded, log_jacobian = trade(self.parameters, self.point, place, step)
        point, log_room = self._coupled(traded)
        return point, log_jacobian, log_room

    def _of_variances(self, column: int, step: FloatArray) -> Moved:
        """Move log nu of a column, and groups along."""
        log_nu = self.point.log_nu.copy()
        log_nu[column] += step
        return *self._along(replace(self.point, log_nu=log_nu)), self.log_room

    def _of_slopes(self, column: int, core: bool, step: FloatArray) -> Moved:
        """Move log t of a column, and groups along, or b and all coefficients too."""
        log_t = self.point.log_t.copy()
        log_t[column] += step
        point = replace(self.point, log_t=log_t)
        if not core:
            return *self._along(point), self.log_room
        point, log_jacobian = self._with_core(point)
        point, log_room = self._along_normal(point)
        return point, log_jacobian, log_room

    def _with_core(self, point: Point) -> tuple[Point, FloatArray]:
        """Return the point with b, v at the same standard normals, groups along; log Jacobian (B,).

        Slopes b + d may be b, with a small t, or d: b held would hold t."""
        (mean, root), (middle, other) = map(self.learned.of_core, (self.point, point))
        white = root.swapaxes(1, 2) @ (self.parameters.core_of(point).T - mean)[..., None]
        values = (middle + np.linalg.solve(other.swapaxes(1, 2), white)[..., 0]).T
        sizes = [np.log(np.einsum("bkk->bk", each)).sum(1) for each in (root, other)]
        point, log_jacobian = self._along(self.parameters.with_core(point, values))
        return point, log_jacobian + sizes[0] - sizes[1]

    def _along(self, point: Point) -> tuple[Point, FloatArray]:
        """Return the point with groups at the same standard normals about another normal."""
        (middle, _, inverse), there = map(self.learned.of_groups, (self.point, point))
        off = self.parameters.of_groups(self.point) - middle
        white = np.einsum("ab...,a...->b...", inverse, off)
        values = there[0] + np.einsum("ab...,b...->a...", there[1], white)
        sizes = [np.log(np.einsum("aa...->a...", each)).sum((0, 2)) for each in (inverse, there[2])]
        return self._with_groups(values, point), sizes[0] - sizes[1]

    # --- coefficients on x~ ----------------------------------------------------------------------

    def _turn(self, i: int, laws: Laws) -> Laws:
        """Draw the coefficients on x~ by an elliptical slice about a normal near their law."""
        share = share_of_latest(self.rounds) if self.adapting else 0.0
        near = self.means.normal(laws, self.point, share)
        middle = near.mean.T
        start, fresh = self.point.means - middle, near.drawn(self.n_means[i]).T

        def log_density(off: FloatArray) -> FloatArray:
            point = replace(self.point, means=middle + off)
            moved = self.data.with_means(laws, self.parameters.coefficients(point.means))
            factor, white = self.data.log_factor(moved), near.white(point.means.T).T
            return np.asarray(self.parameters.log_prior(point) + factor.sum(1) - normal(white))

        off, _ = elliptical(
            start, fresh, log_density, log_density(start), self.u_level[i, -2], self.u_angle[i, -2]
        )
        self.point = replace(self.point, means=middle + off)
        return self.data.with_means(laws, self.parameters.coefficients(self.point.means))

    # --- widths ----------------------------------------------------------------------------------

    @property
    def _rate(self) -> float:
        return float(2.0 / (self.rounds + 2.0) ** 0.5)

    def _by_database(self, values: FloatArray) -> FloatArray:
        """Return means (D, ...) over the chains of each database."""
        return np.asarray(values.reshape(-1, self.chains, *values.shape[1:]).mean(1))


def tangent(point: Point) -> FloatArray:
    """Return what turns a density (B,) of log s_0 into one of s_0."""
    return np.asarray(-point.log_s.sum(0))
