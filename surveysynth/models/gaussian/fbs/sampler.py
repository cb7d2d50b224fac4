"""FBS's Gibbs sampler on weighted sufficient statistics, batched (methods 3 and 4)."""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import Theta
from surveysynth.models.parts.coefficients import CoefficientBlocks
from surveysynth.models.parts.covariance import CovarianceBlock
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.models.parts.psu_effects import (
    INTRACLASS_GUESS,
    PSU_COVARIANCE,
    PSU_EFFECT,
    JointCoordinates,
    PsuBlock,
    marginal_likelihood,
)
from surveysynth.sampling.sweeps import Streams


class Gibbs:
    """State of a batch of chains, B = databases x chains."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.stats = stats
        self.q = stats.fit.shape[-1]
        # Overdispersed starts about the least-squares fit.
        spread = stats.start_covariance()
        inflation = np.exp(0.2 * rng.standard_normal((spread.shape[0], 1, 1), 0))
        self.residual = CovarianceBlock(
            spread * inflation, stats.total, priors["residual_scale"], priors["lkj"], rng
        )
        self.coefficients = CoefficientBlocks(stats.gram, stats.fit, spread, priors, rng)

    def state(self) -> Theta:
        """Return the parameters of both blocks."""
        return {
            "beta": self.coefficients.beta,
            "covariance": self.residual.covariance,
            "coefficient_scale": self.coefficients.scale,
            "coefficient_correlation": self.coefficients.correlation,
        }

    def observe(self, stats: GaussianStats) -> None:
        """Take other values z on the same X, for statistics that change between sweeps."""
        self.stats = stats
        self.coefficients.observe(stats.fit)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps of both blocks."""
        self.coefficients.draw_random_numbers(c)
        self.residual.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        squares = self.stats.sum_of_squares(self.coefficients.beta)
        self.residual.update(i, squares)
        inverse = np.asarray(np.linalg.inv(self.residual.covariance), dtype=np.float64)
        self.coefficients.update(i, inverse)


class ClusteredGibbs(Gibbs):
    """The same with effects of PSUs.

    A sweep draws coefficients with the effects integrated out, then effects, then both covariances.
    PSUs lie within strata, whose coefficients compete with mean effects: drawn in turn, both would
    move slowly.
    """

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        super().__init__(stats, priors, rng)
        assert stats.psu is not None  # the sampler is chosen by that
        self.psu_stats = stats.psu
        inflation = np.exp(rng.standard_normal((stats.total.shape[0], 1, 1), 0))
        start = INTRACLASS_GUESS * inflation * stats.start_covariance()
        self.psu = PsuBlock(stats.psu, start, priors, rng)

    def state(self) -> Theta:
        """Return the parameters of all blocks, and the effects of the sampled PSUs."""
        return {
            **super().state(),
            PSU_COVARIANCE: self.psu.covariance,
            PSU_EFFECT: self.psu.effects,
        }

    def observe(self, stats: GaussianStats) -> None:
        """Take other values z on the same X, for statistics that change between sweeps."""
        super().observe(stats)
        assert stats.psu is not None  # they were there at the start
        self.psu_stats = self.psu.psu = stats.psu

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps of all blocks."""
        super().draw_random_numbers(c)
        self.psu.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        stats, psu = self.stats, self.psu
        coordinates = JointCoordinates.of(self.residual.covariance, psu.covariance)
        likelihood = marginal_likelihood(self.psu_stats, stats.gram, stats.fit, coordinates)
        self.coefficients.update_given(i, *likelihood)
        beta = self.coefficients.beta
        residual = self.psu_stats.residual_at(beta - stats.fit)
        psu.draw_effects(i, coordinates, residual)
        self.residual.update(i, psu.sum_of_squares(stats.sum_of_squares(beta), residual))
        psu.update(i, self.residual.covariance, residual)
