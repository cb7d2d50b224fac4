"""Posterior draws of the general location model from noisy counts and moments.

The noise is in the model (``augmentation``); regressions and logits move as they do without it, on
counts and moments that are unknowns. All of it is post-processing: it costs no epsilon.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.location.augmentation import (
    TRIES,
    Laws,
    LocationAugmentation,
    LocationTarget,
    difference,
)
from surveysynth.mechanisms.noisy_statistics.location.reference import Reference
from surveysynth.mechanisms.noisy_statistics.location.shape import LocationShape
from surveysynth.models.general_location.layout import Layout, LogitPart
from surveysynth.models.general_location.likelihood import Chain
from surveysynth.models.general_location.regressions import RegressionBlocks
from surveysynth.models.general_location.stats import regression_from_moments
from surveysynth.models.parts.logit import LogitSums, log_shares
from surveysynth.models.parts.logit_sampler import LogitBlocks
from surveysynth.models.parts.sweeps import run_sweeps
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.streams import SWEEPS_AT_ONCE, Streams

#: SDs of steps of log variances, in turn: what noise and sampling leave open is not known to
#: within a factor.
STEPS = (0.15, 0.5, 1.5)


def sample_noisy(
    layout: Layout,
    target: LocationTarget,
    priors: Mapping[str, float],
    plan: SamplingPlan,
    rngs: Sequence[np.random.Generator],
    thin: int = 1,
) -> Theta:
    """Draws as of ``GeneralLocation.sample``, leading axes (databases, chains, draws); target: of
    ``plan.chains`` chains a database, rngs: one a database."""
    streams = Streams(tuple(rngs), 1)  # every chain has counts of its own: a database of its own
    return run_sweeps(LocationSweeps(layout, target, priors, streams, thin), plan)


class LogitTable:
    """How one logit reads the whole table of counts (B, C, D)."""

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
        """What the logit's sampler reads."""
        batch, cells = counts.shape[:2]
        split = counts.reshape(batch, cells, *self.sizes).sum(-1)
        return LogitSums(self.rows, split.reshape(batch, -1, self.sizes[1]).astype(np.float64))

    def log_p(self, b: FloatArray, cells: int) -> FloatArray:
        """Log probabilities (B, C, D) of the own category at b (B, d), the same whatever is
        later."""
        matrix = b.reshape(b.shape[0], self.rows.shape[-1], -1)
        own = log_shares(self.rows @ matrix)
        split = own.reshape(b.shape[0], cells, *self.sizes[:2], 1)
        return np.broadcast_to(split, (b.shape[0], cells, *self.sizes)).reshape(
            b.shape[0], cells, -1
        )


class LocationSweeps:
    """``thin`` rounds of the augmentation and of the blocks of the model."""

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
        counts = self.data.counts
        self.logits = [
            LogitBlocks(table.sums(counts), priors["logit_sd"], rng) for table in self.tables
        ]
        moments = self.data.moments()
        self.regressions = [
            RegressionBlocks(
                part,
                regression_from_moments(part, moments, target.shape.groups),
                layout.grouped,
                priors,
                rng,
            )
            for part in layout.regressions
        ]

        self.reference = Reference.of(target, self.regressions)

    def state(self) -> Theta:
        """The parameters of the model, as its own sampler names them."""
        state: Theta = {}
        for part, logit in zip(self.layout.logits, self.logits, strict=True):
            state[f"logit_{part.name}"] = logit.b.reshape(
                logit.batch, part.columns.size, part.own.size
            )
        for regression in self.regressions:
            state |= regression.state()
        return state

    def draw_random_numbers(self, c: int) -> None:
        """Rounds draw their own numbers: there are ``thin`` of them in a sweep."""

    def sweep(self, i: int) -> None:
        """``thin`` rounds."""
        for _ in range(self.thin):
            i = self.rounds % SWEEPS_AT_ONCE
            if i == 0:
                self.data.draw_random_numbers(SWEEPS_AT_ONCE)
                for logit in self.logits:
                    logit.draw_random_numbers(SWEEPS_AT_ONCE)
                for regression in self.regressions:
                    regression.draw_random_numbers(SWEEPS_AT_ONCE)
                shape = SWEEPS_AT_ONCE, 2, len(self.regressions), self.batch
                groups = self.target.shape.groups
                self.n_scale = self.rng.standard_normal((*shape, groups), 3)
                self.log_u = np.log(self.rng.random((*shape, groups), 3))
                width = sum(each.core.shape[1] for each in self.regressions)
                lead = SWEEPS_AT_ONCE, self.batch
                self.n_turn = self.rng.standard_normal((*lead, width), 1)
                self.u_level = self.rng.random(lead, 1)
                self.u_angle = self.rng.random((SWEEPS_AT_ONCE, TRIES, self.batch), 2)
            with np.errstate(over="ignore", under="ignore"):
                self._round(i)
            self.rounds += 1

    def _round(self, i: int) -> None:
        state, cells = self.state(), len(self.target.shape.x_cells)
        log_p = np.zeros(self.data.counts.shape)
        for table, logit in zip(self.tables, self.logits, strict=True):
            log_p = log_p + table.log_p(logit.b, cells)
        self.data.begin(i, lambda pattern: self._law(state, pattern), log_p)
        if self.target.targets:
            self._turn(i)
            for j, regression in enumerate(self.regressions):
                self._rescale(i, j, regression)
        self.data.finish(i)
        for table, logit in zip(self.tables, self.logits, strict=True):
            logit.observe(table.sums(self.data.counts))
            logit.sweep(i)
        moments = self.data.moments()
        for regression in self.regressions:
            sums = regression_from_moments(
                regression.part, moments, self.target.shape.groups
            )
            regression.observe(sums)
            regression.sweep(i)

    def _turn(self, i: int) -> None:
        """Coefficients of all regressions with xi and eta held: an elliptical slice about what the
        noisy moments say of them, about (``Reference``)."""
        sizes = np.cumsum([each.core.shape[1] for each in self.regressions])[:-1]
        now = np.concatenate([each.core for each in self.regressions], axis=1)
        centred = now - self.reference.mean
        fresh = self.reference.deviation(self.n_turn[i])
        tau = np.concatenate(
            [np.repeat(each.tau[:, None], each.core.shape[1], 1) for each in self.regressions], 1
        )

        def at(cos: FloatArray, sin: FloatArray) -> tuple[FloatArray, Laws, FloatArray]:
            moved = cos[:, None] * centred + sin[:, None] * fresh
            core = self.reference.mean + moved
            for regression, part in zip(self.regressions, np.split(core, sizes, 1), strict=True):
                regression.core = part
            state = self.state()
            laws = self.data.laws_at(lambda pattern: self._law(state, pattern))
            value = self.data.log_factor(laws).sum(1) - 0.5 * ((core / tau) ** 2).sum(1)
            return core, laws, value - self.reference.log_density(moved)

        ones = np.ones(self.batch)
        value = self.data.log_factor(self.data.laws).sum(1) - 0.5 * ((now / tau) ** 2).sum(1)
        threshold = value - self.reference.log_density(centred) + np.log(self.u_level[i])
        angle = 2.0 * np.pi * self.u_angle[i, 0]
        low, high = angle - 2.0 * np.pi, angle.copy()
        pending, result = ones > 0, now
        for uniform in self.u_angle[i, 1:]:
            core, laws, value = at(np.cos(angle), np.sin(angle))
            inside = pending & (value >= threshold)
            result = np.where(inside[:, None], core, result)
            self.data.take(np.broadcast_to(inside[:, None], self.data.shape_of_blocks), laws)
            pending = pending & ~inside
            if not pending.any():
                break
            low, high = np.where(angle < 0, angle, low), np.where(angle < 0, high, angle)
            angle = low + (high - low) * uniform
        for regression, part in zip(self.regressions, np.split(result, sizes, 1), strict=True):
            regression.core = part

    def _rescale(self, i: int, j: int, regression: RegressionBlocks) -> None:
        """Residual variances of a regression with xi and eta held: all groups by one factor, and
        the scale that they are pooled about with them, then each by its own."""
        width = STEPS[self.rounds % len(STEPS)]
        if regression.grouped:
            step = width * self.n_scale[i, 0, j, :, :1]
            prior = regression.log_pooled_prior(step[:, 0]) - regression.log_pooled_prior(0.0)
            self._move(i, 0, j, regression, step, prior[:, None], jointly=True)
        step = width * self.n_scale[i, 1, j]
        prior = regression.log_variance_prior(step) - regression.log_variance_prior(0.0)
        self._move(i, 1, j, regression, step, prior, jointly=False)

    def _move(
        self,
        i: int,
        which: int,
        j: int,
        regression: RegressionBlocks,
        step: FloatArray,
        log_prior: FloatArray,
        *,
        jointly: bool,
    ) -> None:
        """Metropolis step of log variances (B, G) or (B, 1) by ``step``."""
        old, log_u = regression.variance, self.log_u[i, which, j]
        regression.variance = old * np.exp(step)
        state = self.state()
        laws = self.data.laws_at(lambda pattern: self._law(state, pattern))
        ratio = difference(self.data.log_factor(laws), self.data.log_factor(self.data.laws))
        if jointly:
            ratio, log_u = ratio.sum(1, keepdims=True), log_u[:, :1]
        accept = np.broadcast_to(log_u < ratio + log_prior, old.shape)
        regression.variance = np.where(accept, regression.variance, old)
        if jointly:
            scale = np.exp(0.5 * step[:, 0])
            regression.s_0 = np.where(accept[:, 0], regression.s_0 * scale, regression.s_0)
        self.data.take(accept, laws)

    def _law(self, state: Theta, pattern: int) -> tuple[FloatArray, FloatArray]:
        """Coefficients (B, G, width, q) and covariances (B, G, q, q) of a pattern's columns."""
        shape = self.target.shape
        present = np.flatnonzero(shape.patterns[pattern])
        normals = [
            Chain.of(state, self.layout, group, present).normal() for group in range(shape.groups)
        ]
        beta, covariance = (np.stack(each, axis=1) for each in zip(*normals, strict=True))
        return beta, covariance
