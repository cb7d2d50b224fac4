"""FBS's Gibbs sweep with effects of PSUs (methods 3, clusters)."""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import Theta
from surveysynth.models.gaussian.fbs.sampler import Gibbs
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.models.parts.psu_effects import (
    INTRACLASS_GUESS,
    PSU_COVARIANCE,
    PSU_EFFECT,
    JointCoordinates,
    PsuBlock,
    marginal_likelihood,
)
from surveysynth.sampling.streams import Streams


class ClusteredGibbs(Gibbs):
    """The same with effects of PSUs: coefficients with the effects integrated out, effects, then
    both covariances. PSUs lie within strata, whose coefficients and mean effects compete: drawn in
    turn, they would creep."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        super().__init__(stats, priors, rng)
        assert stats.psu is not None  # the sampler is chosen by that
        self.psu_stats = stats.psu
        inflation = np.exp(rng.standard_normal((stats.total.shape[0], 1, 1), 0))
        start = INTRACLASS_GUESS * inflation * stats.start_covariance()
        self.psu = PsuBlock(stats.psu, start, priors, rng)

    def state(self) -> Theta:
        """The parameters of all blocks, and the effects of the sampled PSUs."""
        return {
            **super().state(),
            PSU_COVARIANCE: self.psu.covariance,
            PSU_EFFECT: self.psu.effects,
        }

    def observe(self, stats: GaussianStats) -> None:
        """Other values z on the same X, for statistics that change between sweeps."""
        super().observe(stats)
        assert stats.psu is not None  # they were there at the start
        self.psu_stats = self.psu.psu = stats.psu

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps of all blocks."""
        super().draw_random_numbers(c)
        self.psu.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """One sweep; i counts the sweeps since the numbers were drawn."""
        stats, psu = self.stats, self.psu
        coordinates = JointCoordinates.of(self.residual.covariance, psu.covariance)
        likelihood = marginal_likelihood(self.psu_stats, stats.gram, stats.fit, coordinates)
        self.coefficients.update_given(i, *likelihood)
        beta = self.coefficients.beta
        residual = self.psu_stats.residual_at(beta - stats.fit)
        psu.draw_effects(i, coordinates, residual)
        self.residual.update(i, psu.sum_of_squares(stats.sum_of_squares(beta), residual))
        psu.update(i, self.residual.covariance, residual)
