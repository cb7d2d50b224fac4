"""Posterior draws of the general location model from noisy counts and moments.

The noise is in the model (``augmentation``); regressions and logits move as they do without it, on
counts and moments that are unknowns. All of it is post-processing: it costs no epsilon.

Moves of coefficients and variances have xi and eta fixed, and T and W move along. Given T and W
they move slowly wherever the noise exceeds the information of the records. With xi and eta fixed
they depend almost on the noisy moments alone.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    Laws,
    LocationAugmentation,
    PatternLaw,
    angles_of,
    difference,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import Normals, Reference
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.models.general_location.layout import Layout, LogitPart
from surveysynth.models.general_location.records import Chain
from surveysynth.models.general_location.sampler import Gibbs, Regressions
from surveysynth.models.general_location.stats import GeneralStats, regression_from_moments
from surveysynth.models.parts.logit import LogitSums, log_shares
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import SWEEPS_AT_ONCE, Streams, run_sweeps

#: Tries of a slice of coefficients.
TRIES = 40
#: SDs of steps of log variances, in turn: what noise and sampling leave open is not known to
#: within a factor.
STEPS = (0.15, 0.5, 1.5)


class Chains(Protocol):
    """The members that moves need of the chains that they are part of."""

    layout: Layout
    target: LocationTarget
    data: LocationAugmentation
    rng: Streams
    batch: int

    def law(self) -> PatternLaw:
        """Return laws of the patterns at the current parameters."""


class Moves:
    """Moves of the regressions of a sampler's chains."""

    def __init__(self, sweeps: Chains, regressions: Regressions) -> None:
        self.sweeps, self.data, self.rng = sweeps, sweeps.data, sweeps.rng
        self.regressions, self.batch = regressions, sweeps.batch
        self.reference = Reference(sweeps.data, sweeps.layout, regressions)
        self.sizes = np.cumsum([part.core.shape[1] for part in regressions.parts])

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c rounds."""
        b, rng = self.batch, self.rng
        shape = c, 2, len(self.regressions.parts), b, self.sweeps.target.shape.groups
        self.n_scale = rng.standard_normal(shape, 3)
        self.log_u = np.log(rng.random(shape, 3))
        self.n_turn = rng.standard_normal((c, b, int(self.sizes[-1])), 1)
        self.u_level = rng.random((c, b), 1)
        self.u_angle = rng.random((c, TRIES, b), 2)

    def turn(self, i: int) -> None:
        """Draw the coefficients of all regressions by an elliptical slice.

        About what the noisy moments say of them, approximately (``Reference``)."""
        now = np.concatenate([part.core for part in self.regressions.parts], axis=1)
        near = self.reference.normals()
        centred, fresh = now - near.mean, near.deviation(self.n_turn[i])
        threshold = self._value(now, self.data.laws, near) + np.log(self.u_level[i])
        pending, result = np.ones(self.batch, dtype=bool), now
        for angle in angles_of(self.u_angle[i]):
            moved = np.cos(angle)[:, None] * centred + np.sin(angle)[:, None] * fresh
            core = near.mean + moved
            self._assign(core)
            laws = self.data.laws_at(self.sweeps.law())
            inside = pending & (self._value(core, laws, near) >= threshold)
            result = np.where(inside[:, None], core, result)
            self.data.take(np.broadcast_to(inside[:, None], self.data.shape_of_blocks), laws)
            pending = pending & ~inside
            if not pending.any():
                break
        self._assign(result)

    def _assign(self, core: FloatArray) -> None:
        split = np.split(core, self.sizes[:-1], axis=1)
        for part, own in zip(self.regressions.parts, split, strict=True):
            part.core = own

    def _value(self, core: FloatArray, laws: Laws, near: Normals) -> FloatArray:
        """Return the log of the target over the reference (B,), at coefficients (B, all C)."""
        tau = np.concatenate(
            [
                np.repeat(scale[:, None], part.core.shape[1], axis=1)
                for scale, part in zip(
                    self.regressions.scales.tau, self.regressions.parts, strict=True
                )
            ],
            axis=1,
        )
        value = self.data.log_factor(laws).sum(1) - 0.5 * ((core / tau) ** 2).sum(1)
        return np.asarray(value - near.log_density(core - near.mean))

    def rescale(self, i: int, rounds: int) -> None:
        """Draw the residual variances of each regression.

        All groups by one factor, with the scale that they are pooled about, then each by
        its own."""
        width, scales = STEPS[rounds % len(STEPS)], self.regressions.scales
        for j in range(len(self.regressions.parts)):
            if scales.grouped:
                step = width * self.n_scale[i, 0, j, :, :1]
                new, old = scales.log_pooled_prior(step[:, 0]), scales.log_pooled_prior(0.0)
                self._move(i, 0, j, step, (new - old)[j][:, None], jointly=True)
            step = width * self.n_scale[i, 1, j]
            new, old = scales.log_variance_prior(step), scales.log_variance_prior(0.0)
            self._move(i, 1, j, step, (new - old)[j], jointly=False)

    def _move(
        self, i: int, which: int, j: int, step: FloatArray, log_prior: FloatArray, *, jointly: bool
    ) -> None:
        """Make a Metropolis step of log variances by ``step`` (B, G) or (B, 1)."""
        scales, log_u = self.regressions.scales, self.log_u[i, which, j]
        old = scales.variance
        # Draws that are kept are these arrays: they are replaced, never written into.
        scales.variance = old.copy()
        scales.variance[j] = old[j] * np.exp(step)
        laws = self.data.laws_at(self.sweeps.law())
        ratio = difference(self.data.log_factor(laws), self.data.log_factor(self.data.laws))
        if jointly:
            ratio, log_u = ratio.sum(1, keepdims=True), log_u[:, :1]
        accept = np.broadcast_to(log_u < ratio + log_prior, old[j].shape)
        scales.variance[j] = np.where(accept, scales.variance[j], old[j])
        if jointly:
            scales.s_0 = scales.s_0.copy()
            scales.s_0[j] *= np.where(accept[:, 0], np.exp(0.5 * step[:, 0]), 1.0)
        self.data.take(accept, laws)


#: Variances of a group without records can be anything: they are kept within this factor of the
#: declared ones, far beyond what any noise leaves distinguishable from zero.
FARTHEST = 1e6


def sample_noisy(
    layout: Layout,
    target: LocationTarget,
    priors: Mapping[str, float],
    plan: SamplingPlan,
    rngs: Sequence[np.random.Generator],
    thin: int = 1,
) -> Theta:
    """Return draws as of ``GeneralLocation.sample``, leading axes (databases, chains, draws).

    target: of ``plan.chains`` chains a database; rngs: one a database."""
    streams = Streams(tuple(rngs), 1)  # every chain has counts of its own: a database of its own
    return run_sweeps(LocationSweeps(layout, target, priors, streams, thin), plan)


class LogitTable:
    """The whole table of counts (B, C, D) as one logit reads it."""

    def __init__(self, shape: LocationShape, part: LogitPart, order: int) -> None:
        sizes = [each.categories for each in shape.discrete]
        self.sizes = int(np.prod(sizes[:order])), sizes[order], int(np.prod(sizes[order + 1 :]))
        # Combinations whose own and later categories are the first: one for each earlier one.
        earlier = np.arange(self.sizes[0]) * self.sizes[1] * self.sizes[2]
        cells = len(shape.x_cells)
        x = np.repeat(shape.x_cells, earlier.size, axis=0)
        tilde = np.hstack([x, np.tile(shape.indicators[earlier], (cells, 1))])
        self.rows = tilde[:, part.columns][None]

    def sums(self, counts: IntArray) -> LogitSums:
        """Return what the logit's sampler reads."""
        batch, cells = counts.shape[:2]
        split = counts.reshape(batch, cells, *self.sizes).sum(-1)
        return LogitSums(self.rows, split.reshape(batch, -1, self.sizes[1]).astype(np.float64))

    def log_p(self, b: FloatArray, cells: int) -> FloatArray:
        """Return log probabilities (B, C, D) of the own category at b (B, d).

        The same whatever is later."""
        matrix = b.reshape(b.shape[0], self.rows.shape[-1], -1)
        own = log_shares(self.rows @ matrix)
        split = own.reshape(b.shape[0], cells, *self.sizes[:2], 1)
        return np.broadcast_to(split, (b.shape[0], cells, *self.sizes)).reshape(
            b.shape[0], cells, -1
        )


class LocationSweeps:
    """``thin`` rounds of the augmentation and of the model's own sweeps."""

    def __init__(
        self,
        layout: Layout,
        target: LocationTarget,
        priors: Mapping[str, float],
        rng: Streams,
        thin: int,
    ) -> None:
        self.layout, self.target, self.thin, self.rounds = layout, target, thin, 0
        self.rng, self.batch = rng, target.counts.shape[0]
        self.data = LocationAugmentation(target, rng)
        self.tables = [
            LogitTable(target.shape, part, order) for order, part in enumerate(layout.logits)
        ]
        self.model = Gibbs(self._statistics(), priors, rng)
        self.moves = None
        if self.model.regressions is not None:
            self.moves = Moves(self, self.model.regressions)
            spread = target.spread**2
            self.model.regressions.scales.limits = (
                FARTHEST**-1 * float(spread.min()), FARTHEST * float(spread.max())
            )  # fmt: skip

    def _statistics(self) -> GeneralStats:
        """Return what the model reads, at the current counts and moments."""
        groups, moments = self.target.shape.groups, self.data.moments()
        logits = tuple(table.sums(self.data.counts) for table in self.tables)
        regressions = tuple(
            regression_from_moments(part, moments, groups) for part in self.layout.regressions
        )
        return GeneralStats(self.layout, logits, regressions)

    def state(self) -> Theta:
        """Return the parameters of the model, as its own sampler names them."""
        return self.model.state()

    def draw_random_numbers(self, c: int) -> None:
        """Do nothing: rounds draw their own numbers, and there are ``thin`` of them in a sweep."""

    def sweep(self, i: int) -> None:
        """Run ``thin`` rounds."""
        for _ in range(self.thin):
            i = self.rounds % SWEEPS_AT_ONCE
            if i == 0:
                self.data.draw_random_numbers(SWEEPS_AT_ONCE)
                self.model.draw_random_numbers(SWEEPS_AT_ONCE)
                if self.moves is not None:
                    self.moves.draw_random_numbers(SWEEPS_AT_ONCE)
            with np.errstate(over="ignore", under="ignore"):
                self._round(i)
            self.rounds += 1

    def _round(self, i: int) -> None:
        cells = len(self.target.shape.x_cells)
        log_p = np.zeros(self.data.counts.shape)
        for table, logit in zip(self.tables, self.model.logits, strict=True):
            log_p = log_p + table.log_p(logit.b, cells)
        self.data.begin(i, self.law(), log_p)
        if self.moves is not None:
            self.moves.turn(i)
            self.moves.rescale(i, self.rounds)
        self.data.finish(i)
        self.model.observe(self._statistics())
        self.model.sweep(i)

    def law(self) -> PatternLaw:
        """Return laws of the patterns at the current parameters."""
        state = self.state()
        return lambda pattern: self._law(state, pattern)

    def _law(self, state: Theta, pattern: int) -> tuple[FloatArray, FloatArray]:
        """Return coefficients (B, G, width, q), covariances (B, G, q, q) of a pattern's columns."""
        present = np.flatnonzero(self.target.shape.patterns[pattern])
        return Chain.of_groups(state, self.layout, present).normal()
