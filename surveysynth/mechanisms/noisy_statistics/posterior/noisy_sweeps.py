"""Posterior draws from noisy sufficient statistics, the noise in the model.

The target is p(theta | T~, Q~, X) under the model's own prior, by data augmentation around the
model's own Gibbs sweeps (``augmentation``). All of it is post-processing: it costs no epsilon.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from surveysynth._support.types import Theta
from surveysynth.mechanisms.noisy_statistics.posterior import moments
from surveysynth.mechanisms.noisy_statistics.posterior.augmentation import Augmentation
from surveysynth.mechanisms.noisy_statistics.posterior.model_adapters import (
    ImpliedSample,
    implied_sample,
)
from surveysynth.mechanisms.noisy_statistics.posterior.moments import (
    NoisySums,
    NoisyTarget,
    PublicSums,
)
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import SWEEPS_AT_ONCE, Streams, run_sweeps


def sample_noisy(
    model: Any,
    noisy: NoisySums,
    public: PublicSums,
    plan: SamplingPlan,
    rng: np.random.Generator | Sequence[np.random.Generator],
    thin: int = 1,
) -> Theta:
    """Return draws as of ``model.sample``, leading axes (databases, chains, draws).

    ``thin``: rounds a draw, in the warm-up as after it. Raises ``InputError`` for a model without
    such statistics, and where n - r <= q + 1 leaves the posterior without a proper residual.
    """
    sweeps = noisy_sweeps(model, noisy, public, plan.chains, rng)
    sweeps.thin = thin
    return run_sweeps(sweeps, plan)


def noisy_sweeps(
    model: Any,
    noisy: NoisySums,
    public: PublicSums,
    chains: int,
    rng: np.random.Generator | Sequence[np.random.Generator],
) -> "NoisySweeps":
    """Return chains at their starts, ``chains`` of each database; raise ``InputError`` likewise."""
    build = implied_sample(model)
    moments.check(noisy, public)
    streams = Streams.of(rng, noisy.cross.shape[0], chains)
    target = NoisyTarget.of(noisy, public, chains)
    augmentation = Augmentation(target, noisy.spread, streams)
    implied = build(augmentation.statistics(), model.priors, streams)
    return NoisySweeps(implied, augmentation)


class NoisySweeps:
    """``thin`` rounds of the model's sweep and the moves of the augmentation; ``rounds``: so far.

    They stay where a run has left them, and the next one goes on from there.
    """

    def __init__(self, implied: ImpliedSample, augmentation: Augmentation) -> None:
        self.implied, self.augmentation, self.thin = implied, augmentation, 1
        self.rounds = 0

    def state(self) -> Theta:
        """Return the parameters of the model."""
        return self.implied.sampler.state()

    def draw_random_numbers(self, c: int) -> None:
        """Do nothing: rounds draw their own numbers, and there are ``thin`` of them in a sweep."""

    def sweep(self, i: int) -> None:
        """Run ``thin`` rounds."""
        self.go(self.thin)

    def go(self, rounds: int) -> None:
        """Run rounds of which nothing is kept."""
        for _ in range(rounds):
            i = self.rounds % SWEEPS_AT_ONCE
            if i == 0:
                self.implied.sampler.draw_random_numbers(SWEEPS_AT_ONCE)
                self.augmentation.draw_random_numbers(SWEEPS_AT_ONCE)
            self._round(i)
            self.rounds += 1

    def _round(self, i: int) -> None:
        implied, data = self.implied, self.augmentation
        # The model's sweep first: Sigma is then near what T and W say, wherever it started.
        implied.sampler.sweep(i)
        coefficients, covariance = implied.moments()
        coefficients = data.draw_coefficients(i, coefficients, covariance, implied.prior())
        implied.assign(coefficients, data.reference)
        coefficients, covariance = data.shift(
            i, coefficients, covariance, implied.prior(), implied.log_covariance_prior
        )
        implied.assign(coefficients, covariance)
        covariance = data.rescale(i, coefficients, covariance, implied.log_covariance_prior)
        implied.assign(coefficients, covariance)
        data.draw_scatter(i, covariance)
        implied.observe(data.statistics())
