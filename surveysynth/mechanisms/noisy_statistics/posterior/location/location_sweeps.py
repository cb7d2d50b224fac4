"""Posterior draws of the general location model from noisy counts and moments.

The noise is in the model (``augmentation``); regressions and logits move as they do without it, on
counts and moments that are unknowns. All of it is post-processing: it costs no epsilon.

Moves of coefficients and variances have xi and eta fixed, and T and W move along. Given T and W
they move slowly wherever the noise exceeds the information of the records. With xi and eta fixed
they depend almost on the noisy moments alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    LocationAugmentation,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.moves import Moves
from surveysynth.mechanisms.noisy_statistics.posterior.location.point import Parameters
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.models.general_location.layout import Layout, LogitPart
from surveysynth.models.general_location.sampler import Gibbs, Regressions
from surveysynth.models.general_location.stats import GeneralStats
from surveysynth.models.parts.logit import LogitSums, log_shares
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import SWEEPS_AT_ONCE, Streams, run_sweeps


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
    sweeps = LocationSweeps(layout, target, priors, streams, thin)
    sweeps.warm_up(plan.warmup)
    return run_sweeps(sweeps, replace(plan, warmup=0))


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

    def sums(self, counts: IntArray | FloatArray) -> LogitSums:
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
        self.adapting = True
        self.rng, self.batch = rng, target.counts.shape[0]
        self.data = LocationAugmentation(target, rng)
        self.tables = [
            LogitTable(target.shape, part, order) for order, part in enumerate(layout.logits)
        ]
        logits = tuple(table.sums(self.data.counts) for table in self.tables)
        self.logits = Gibbs(GeneralStats(layout, logits, None), priors, rng)
        #: Mean counts (databases, C, D) of all chains of a database in the warm-up.
        self.mean = self._by_database()
        self.moves = None
        if layout.q:
            starts = Regressions(layout, self.data.rows(), priors, rng)
            parameters = Parameters(layout, target, priors)
            self.moves = Moves(self.data, parameters, parameters.start(starts), rng)
            self.data.start_at(self.moves.law())

    def warm_up(self, sweeps: int) -> None:
        """Run sweeps of which nothing is kept; after them no move learns any more."""
        for i in range(sweeps):
            self.sweep(i)
        self.adapting = False
        if self.moves is not None:
            self.moves.adapting = False

    def _by_database(self) -> FloatArray:
        counts = self.data.counts
        return np.asarray(counts.reshape(-1, self.target.chains, *counts.shape[1:]).mean(1))

    def state(self) -> Theta:
        """Return the parameters of the model, as its own sampler names them."""
        moves = self.moves
        return self.logits.state() | ({} if moves is None else moves.parameters.theta(moves.point))

    def draw_random_numbers(self, c: int) -> None:
        """Do nothing: rounds draw their own numbers, and there are ``thin`` of them in a sweep."""

    def sweep(self, i: int) -> None:
        """Run ``thin`` rounds."""
        for _ in range(self.thin):
            i = self.rounds % SWEEPS_AT_ONCE
            if i == 0:
                self.data.draw_random_numbers(SWEEPS_AT_ONCE)
                self.logits.draw_random_numbers(SWEEPS_AT_ONCE)
                if self.moves is not None:
                    self.moves.draw_random_numbers(SWEEPS_AT_ONCE)
            with np.errstate(over="ignore", under="ignore"):
                self._round(i)
            self.rounds += 1

    def _round(self, i: int) -> None:
        cells = len(self.target.shape.x_cells)
        log_p = np.zeros(self.data.counts.shape)
        for table, logit in zip(self.tables, self.logits.logits, strict=True):
            log_p = log_p + table.log_p(logit.b, cells)
        if self.moves is not None:
            self.data.begin(i, self.moves.law(), log_p)
            self.moves.round(i)
            self.data.finish(i)
        if self.tables:
            counts = self.data.counts
            logits = tuple(table.sums(counts) for table in self.tables)
            self.logits.observe(GeneralStats(self.layout, logits, None), self._about())
            self.logits.sweep(i)

    def _about(self) -> list[LogitSums]:
        """Return what logits take their steps from, at some rounds of the warm-up: mean counts."""
        if not self.adapting:
            return []
        done = self.rounds + 1
        self.mean = self.mean + (self._by_database() - self.mean) / done
        # Ever more rarely: finding modes takes far longer than a round.
        return [table.sums(self.mean) for table in self.tables] if done & (done - 1) == 0 else []
