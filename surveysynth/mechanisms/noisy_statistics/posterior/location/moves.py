"""Moves of coefficients, slopes and variances with xi and eta held; T and W move along.

Given T and W parameters creep wherever the noise exceeds what the records tell. With xi and eta
held they depend almost on the noisy moments alone. A round makes, each an exact step of Metropolis
or a slice:

- coefficients on x~ of all regressions, by a slice about their normal law given T~ (``reference``);
- log variances and slopes of every group, all groups at once, each accepted by itself;
- what groups have in common: log s_0 with all log variances, and core slopes;
- log nu with log variances stretched about log s_0^2; log t with the slopes of groups.

Widths of steps are learned during the warm-up, from all chains of a database, and fixed then.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    Laws,
    LocationAugmentation,
    angles_of,
    difference,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Point, log_prior
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import (
    MeanReference,
    Normal,
    information,
    mean_maps,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.sampling.sweeps import Streams

#: Tries of a slice of coefficients.
TRIES = 3
#: Steps of each group in a round.
STEPS = 2
#: Share of steps to accept: of groups, and of one number.
ACCEPTED = 0.35
#: Least precision of the proposal of a log variance: priors of a scale alone leave about that.
LEAST_PRECISION = 0.05
#: Moves of what groups have in common, the last ones of whole chains.
COMMON = 3
#: Weight of the latest round in what the warm-up learns.
FORGETTING = 0.05


class Chains(Protocol):
    """The members that moves need of the chains that they are part of."""

    layout: Layout
    target: LocationTarget
    data: LocationAugmentation
    rng: Streams
    batch: int

    def state(self) -> Theta:
        """Return the parameters."""

    def means(self) -> list[FloatArray]:
        """Return coefficients (B, G, width, q) of each pattern's columns."""

    def covariances(self) -> list[FloatArray]:
        """Return covariances (B, G, q, q) of each pattern's columns."""


def _told(factor: FloatArray, laws: Laws) -> FloatArray:
    """Return the log density (B,) of the noisy moments less that of T~."""
    cross = sum(np.where(law.target.used, law.log_cross, 0.0) for law in laws)
    return np.asarray((factor - cross).sum(1))


class Moves:
    """Moves of the regressions of a sampler's chains; ``adapting``: widths are being learned."""

    def __init__(self, sweeps: Chains, regressions: Regressions) -> None:
        self.sweeps, self.data, self.rng = sweeps, sweeps.data, sweeps.rng
        self.regressions, self.batch = regressions, sweeps.batch
        self.reference = MeanReference(sweeps.data, sweeps.layout)
        self.grouped = regressions.scales.grouped
        self.q, self.groups = len(regressions.parts), sweeps.target.shape.groups
        self.row, self.column = np.tril_indices(self.q, -1)
        # There are no slopes on the other side of a split.
        pairs = zip(self.row, self.column, strict=True)
        slope = [bool(np.isin(k, regressions.parts[j].part.earlier)) for j, k in pairs]
        self.slope = np.array(slope, dtype=bool)
        self.active = np.concatenate([np.ones(self.q, dtype=bool), self.slope])
        self.sizes = [part.part.columns.size for part in regressions.parts]
        self.cuts = np.cumsum([part.part.earlier.size for part in regressions.parts])[:-1]
        self.jointly = self._joint_moves()
        self.databases = self.batch // sweeps.target.chains
        self.adapting, self.rounds = True, 0
        self.log_group_width = np.zeros((self.databases, self.groups))
        self.log_width = np.zeros((self.databases, len(self.jointly)))

    def _joint_moves(self) -> list[Callable[[FloatArray], tuple[Point, FloatArray]]]:
        """Return the moves of whole chains.

        Each takes standard normals (B, p + 1) times widths, and returns a point and the log of
        the ratio (B,) of proposals there and back, on the scales of ``log_prior``."""
        moves: list[Callable[[FloatArray], tuple[Point, FloatArray]]] = []
        if self.grouped:
            moves.append(self._stretch)
            if any(part.k for part in self.regressions.parts):
                moves.append(self._grow)
        return [*moves, self._walk, self._turn, self._scale]

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c rounds."""
        b, rng, size = self.batch, self.rng, self.q + self.row.size
        self.n_turn = rng.standard_normal((c, b, self.reference.index.size), 1)
        self.u_level = rng.random((c, b), 1)
        self.u_angle = rng.random((c, TRIES, b), 2)
        self.n_group = rng.standard_normal((c, STEPS, b, self.groups, size), 2)
        self.log_u_group = np.log(rng.random((c, STEPS, b, self.groups), 2))
        common = int(np.count_nonzero(self.active))
        self.n_joint = rng.standard_normal((c, b, len(self.jointly), common + 1), 1)
        self.log_u_joint = np.log(rng.random((c, b, len(self.jointly)), 1))

    def round(self, i: int) -> None:
        """Make all moves once."""
        # Far proposals may overflow: they are refused.
        with np.errstate(all="ignore"):
            self._round(i)
        self.rounds += 1

    def _round(self, i: int) -> None:
        self.point = Point.of(self.regressions)
        if self.adapting:
            self._learn()
        self.prior = log_prior(self.regressions)
        self.factor = self.data.log_factor(self.data.laws)
        if self.grouped:
            self.step(i)
        for number in range(len(self.jointly)):
            if number == len(self.jointly) - COMMON:
                self.near = self._near(self.data.laws)
            self._jointly(i, number)
        self.turn(i)

    # --- coefficients on x~ ----------------------------------------------------------------------

    def turn(self, i: int) -> None:
        """Draw the coefficients on x~ by an elliptical slice about their law given T~ alone.

        Prior and T~ are that law: the slice is of what Q~ says."""
        near, start = self.near, self.point
        now, fresh = near.white(self._coefficients(start)), self.n_turn[i]
        threshold = _told(self.factor, self.data.laws) + np.log(self.u_level[i])
        pending = np.ones((self.batch, 1), dtype=bool)
        for angle in angles_of(self.u_angle[i])[..., None]:
            drawn = near.at(np.cos(angle) * now + np.sin(angle) * fresh)
            point = self._with_coefficients(start, drawn)
            laws = self._means(point, self.data.laws)
            inside = pending & (_told(self.data.log_factor(laws), laws) >= threshold)[:, None]
            self._take(inside, point, laws)
            pending = pending & ~inside
            if not pending.any():
                break
        self.point.assign(self.regressions)

    def _coefficients(self, point: Point) -> FloatArray:
        """Return the coefficients (B, C) on x~ of all regressions."""
        parts = zip(point.core, self.sizes, strict=True)
        return np.concatenate([core[:, :size] for core, size in parts], axis=1)

    def _with_coefficients(self, point: Point, values: FloatArray) -> Point:
        """Return the point with other coefficients (B, C) on x~."""
        split = np.split(values, np.cumsum(self.sizes)[:-1], axis=1)
        parts = zip(split, point.core, self.sizes, strict=True)
        return replace(
            point, core=tuple(np.hstack([own, core[:, size:]]) for own, core, size in parts)
        )

    def _near(self, laws: Laws) -> Normal:
        """Return the law of these coefficients given T~ alone, at the current parameters."""
        prior = [self.regressions.prior_precision(j)[:, :size] for j, size in enumerate(self.sizes)]
        maps = mean_maps(self.sweeps.state(), self.sweeps.layout, self.sweeps.target)
        return self.reference.normal(laws, maps, np.concatenate(prior, axis=1))

    def _covariances(self, point: Point) -> Laws:
        """Return the laws at a point with other covariances: slopes of groups move means too."""
        point.assign(self.regressions)
        laws = self.data.with_covariances(self.sweeps.covariances())
        return self.data.with_means(laws, self.sweeps.means()) if self.grouped else laws

    def _means(self, point: Point, laws: Laws) -> Laws:
        """Return laws with the means of a point."""
        point.assign(self.regressions)
        return self.data.with_means(laws, self.sweeps.means())

    def _take(self, accept: BoolArray, point: Point, laws: Laws) -> None:
        """Move the chains (B, 1) or groups (B, G) that accept."""
        self.point = self.point.chosen(accept, point)
        self.data.take(np.broadcast_to(accept, (self.batch, self.groups)), laws)

    # --- groups ----------------------------------------------------------------------------------

    def step(self, i: int) -> None:
        """Move log variances and slopes of every group."""
        root = self._group_root()
        for k in range(STEPS):
            normals = self.n_group[i, k][..., self.active]
            step = np.zeros((self.batch, self.groups, self.q + self.row.size))
            step[..., self.active] = np.linalg.solve(
                root.swapaxes(-1, -2), normals[..., None]
            )[..., 0]
            point = self._moved(step)
            laws = self._covariances(point)
            prior = log_prior(self.regressions)
            factor = self.data.log_factor(laws)
            ratio = difference(factor, self.factor) + difference(prior[0], self.prior[0])
            accept = self.log_u_group[i, k] < ratio
            self._take(accept, point, laws)
            self._keep(accept, prior, factor)
            if self.adapting:
                mean = np.minimum(np.exp(np.minimum(ratio, 0.0)), 1.0)
                self.log_group_width += self._rate * (self._by_database(mean) - ACCEPTED)
        self.point.assign(self.regressions)

    def _group_root(self) -> FloatArray:
        """Return a root of the precision of proposals (B, G, p, p).

        Of the information of the noise, and the prior at scales that are held."""
        scales, chains = self.regressions.scales, self.sweeps.target.chains
        prior = np.empty((self.batch, self.q + self.row.size))
        prior[:, : self.q] = 0.5 * scales.nu.T + LEAST_PRECISION
        prior[:, self.q :] = (1.0 / np.maximum(scales.t, 1e-100) ** 2).T[:, self.row]
        active = self.active
        size = int(np.count_nonzero(active))
        told = np.repeat(self.information, chains, axis=0)[..., active, :][..., active]
        total = told + prior[:, None, active, None] * np.eye(size)
        width = np.repeat(np.exp(self.log_group_width), chains, axis=0) * 2.38 / np.sqrt(size)
        return np.asarray(np.linalg.cholesky(total) / width[..., None, None])

    def _moved(self, step: FloatArray) -> Point:
        """Return the point with log variances and slopes moved by ``step`` (B, G, p)."""
        point = self.point
        variance = self._scaled(np.moveaxis(step[..., : self.q], -1, 0))
        slopes = list(point.slopes)
        for j, part in enumerate(self.regressions.parts):
            if part.k:
                own = self.q + np.flatnonzero((self.row == j) & self.slope)
                slopes[j] = slopes[j] + step[..., own]
        return replace(point, variance=variance, slopes=tuple(slopes))

    # --- whole chains ----------------------------------------------------------------------------

    def _jointly(self, i: int, number: int) -> None:
        """Make one step of scales, or core slopes, with what depends on them."""
        chains = self.sweeps.target.chains
        width = np.repeat(np.exp(self.log_width[:, number]), chains)
        step, move = self.n_joint[i, :, number].copy(), self.jointly[number]
        # A turn has a width for its angle alone: it is about a normal of the right size.
        turns = move == self._turn
        step[:, -1 if turns else slice(None)] *= width if turns else width[:, None]
        proposal, log_jacobian = move(step)
        point, near = proposal, None
        laws = self._covariances(point)
        if number >= len(self.jointly) - COMMON:
            # Coefficients on x~ move along, as the same standard normals about another normal.
            near = self._near(laws)
            white = self.near.white(self._coefficients(self.point))
            point = self._with_coefficients(point, near.at(white))
            laws = self._means(point, laws)
            log_jacobian = log_jacobian + self.near.log_root - near.log_root
        prior = log_prior(self.regressions)
        factor = self.data.log_factor(laws)
        ratio = difference(factor, self.factor) + difference(prior[0], self.prior[0])
        total = ratio.sum(1) + prior[1] - self.prior[1] + log_jacobian
        accept = (self.log_u_joint[i, :, number] < total)[:, None]
        if near is not None:
            self.near = self.near.chosen(accept[:, 0], near)
        self._take(accept, point, laws)
        self._keep(accept, prior, factor)
        self.point.assign(self.regressions)
        if self.adapting:
            mean = self._by_database(np.exp(np.minimum(total, 0.0)))
            self.log_width[:, number] += self._rate * (mean - ACCEPTED)

    def _common(self) -> FloatArray:
        """Return what groups have in common (B, p): log s_0^2 by column, and core slopes."""
        point = self.point
        size = 2.0 * np.log(point.s_0) if self.grouped else np.log(point.variance[..., 0])
        parts = zip(self.regressions.parts, point.core, strict=True)
        slopes = [core[:, part.part.columns.size :] for part, core in parts]
        return np.concatenate([size.T, *slopes], axis=1)

    def _walk(self, step: FloatArray) -> tuple[Point, FloatArray]:
        """Move what groups have in common by a step of the size that Q~ leaves open."""
        root = np.linalg.cholesky(self.common_told).swapaxes(-1, -2)
        root = np.repeat(root, self.sweeps.target.chains, axis=0)
        moved = np.linalg.solve(root, step[:, :-1, None])[..., 0]
        return self._moved_together(moved), np.zeros(self.batch)

    def _scale(self, step: FloatArray) -> tuple[Point, FloatArray]:
        """Move the log variances of one column, which noise may leave without a lower end."""
        chains = self.sweeps.target.chains
        sd = np.sqrt(np.einsum("dpp->dp", self.common_variance))
        own = np.arange(sd.shape[1]) == (np.abs(step[:, -1]) * 1e6 % self.q).astype(int)[:, None]
        moved = 2.0 * own * np.repeat(sd, chains, axis=0) * step[:, :1]
        return self._moved_together(moved), np.zeros(self.batch)

    def _turn(self, step: FloatArray) -> tuple[Point, FloatArray]:
        """Turn what groups have in common about the normal that the warm-up has found."""
        chains = self.sweeps.target.chains
        mean = np.repeat(self.common_mean, chains, axis=0)
        root = np.repeat(np.linalg.cholesky(self.common_variance), chains, axis=0)
        now = self._common() - mean
        fresh = (root @ step[:, :-1, None])[..., 0]
        angle = np.arctan(np.abs(step[:, -1:]))
        then = np.cos(angle) * now + np.sin(angle) * fresh
        white = [np.linalg.solve(root, each[..., None])[..., 0] for each in (now, then)]
        ratio = 0.5 * ((white[1] ** 2).sum(1) - (white[0] ** 2).sum(1))
        return self._moved_together(then - now), ratio

    def _scaled(self, log_step: FloatArray) -> FloatArray:
        """Return variances (J, B, G) times exp(log_step), or just beyond their limits."""
        low, high = self.regressions.scales.limits
        log_variance = np.log(self.point.variance) + log_step
        return np.exp(np.clip(log_variance, np.log(low) - 1.0, np.log(high) + 1.0))

    def _moved_together(self, moved: FloatArray) -> Point:
        """Return the point with what groups have in common moved (B, p)."""
        point, log_step = self.point, moved[:, : self.q].T
        slopes = np.split(moved[:, self.q :], self.cuts, axis=1)
        parts = zip(point.core, slopes, self.sizes, strict=True)
        return replace(
            point,
            core=tuple(
                np.hstack([core[:, :size], core[:, size:] + own]) for core, own, size in parts
            ),
            s_0=point.s_0 * np.exp(0.5 * log_step) if self.grouped else point.s_0,
            variance=self._scaled(log_step[..., None]),
        )

    def _stretch(self, step: FloatArray) -> tuple[Point, FloatArray]:
        """Stretch log variances about log s_0^2, and nu with them."""
        point, log_step = self.point, step[:, : self.q].T
        log_ratio = np.log(point.variance / (point.s_0**2)[..., None])
        change = (np.exp(log_step)[..., None] - 1.0) * log_ratio
        return replace(
            point, nu=point.nu * np.exp(-2.0 * log_step), variance=self._scaled(change)
        ), self.groups * log_step.sum(0)

    def _grow(self, step: FloatArray) -> tuple[Point, FloatArray]:
        """Multiply t and the slopes of all groups by one factor."""
        point, factor = self.point, np.exp(step[:, : self.q].T)
        sizes = np.array([[part.k] for part in self.regressions.parts])
        slopes = tuple(
            own * factor[j][:, None, None] for j, own in enumerate(point.slopes)
        )
        grown = replace(point, t=np.where(sizes > 0, point.t * factor, point.t), slopes=slopes)
        return grown, self.groups * (sizes * step[:, : self.q].T).sum(0)

    def _keep(
        self, accept: BoolArray, prior: tuple[FloatArray, FloatArray], factor: FloatArray
    ) -> None:
        """Keep prior and density of what was accepted."""
        self.factor = np.where(accept, factor, self.factor)
        # A step of groups leaves the rest.
        chain = accept[:, 0]
        self.prior = (
            np.where(accept, prior[0], self.prior[0]), np.where(chain, prior[1], self.prior[1])
        )  # fmt: skip

    # --- widths ----------------------------------------------------------------------------------

    @property
    def _rate(self) -> float:
        return float(2.0 / (self.rounds + 2.0) ** 0.5)

    def _by_database(self, values: FloatArray) -> FloatArray:
        """Return means (D, ...) over the chains of each database."""
        shape = self.databases, self.sweeps.target.chains, *values.shape[1:]
        return np.asarray(values.reshape(shape).mean(1))

    def _learn(self) -> None:
        """Take the information of the noise at the mean of the chains, and how these spread."""
        common = self._common()
        mean = self._by_database(common)
        lower = np.zeros((self.databases, self.q, self.q))
        lower[:, self.row[self.slope], self.column[self.slope]] = mean[:, self.q :]
        self.information = information(self.data, np.exp(mean[:, : self.q]), lower)
        told = self.information.sum(1)[:, self.active][:, :, self.active]
        self.common_told = told + LEAST_PRECISION * np.eye(told.shape[-1])
        if not self.rounds:
            self.common_mean, self.common_variance = mean, np.linalg.inv(self.common_told)
        share = max(1.0 / (self.rounds + 2.0), FORGETTING)
        self.common_mean = self.common_mean + share * (mean - self.common_mean)
        off = common - np.repeat(self.common_mean, self.sweeps.target.chains, axis=0)
        spread = self._by_database(off[:, :, None] * off[:, None, :])
        self.common_variance = self.common_variance + share * (spread - self.common_variance)
