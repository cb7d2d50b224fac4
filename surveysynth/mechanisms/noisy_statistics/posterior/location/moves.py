"""Moves of coefficients and variances with xi and eta fixed; T and W move along.

Given T and W they move slowly wherever the noise exceeds the information of the records. With xi
and eta fixed they depend almost on the noisy moments alone (``augmentation``).
"""

from typing import Protocol

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.location.augmentation import (
    TRIES,
    Laws,
    LocationAugmentation,
    PatternLaw,
    angles_of,
    difference,
)
from surveysynth.mechanisms.noisy_statistics.posterior.location.reference import Normals, Reference
from surveysynth.mechanisms.noisy_statistics.posterior.location.target import LocationTarget
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.sampler import Regressions
from surveysynth.sampling.sweeps import Streams

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
