"""Gibbs sampler of the normal regression on weighted sufficient statistics, batched (methods 4)."""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import Theta
from surveysynth.models.parts import survey_weight
from surveysynth.models.parts.coefficients import HALF_T_DF, CoefficientBlocks
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams


class Gibbs:
    """State of a batch of chains, B = databases x chains."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.stats, self.rng = stats, rng
        self.residual_scale = priors["residual_scale"]
        self.batch = stats.fit.shape[0]
        spread = stats.start_covariance()[:, :1, :1]
        self.variance = spread[:, 0, 0] * np.exp(0.2 * rng.standard_normal((self.batch,), 0))
        self.coefficients = CoefficientBlocks(stats.gram, stats.fit[:, :, :1], spread, priors, rng)
        has_weight = stats.fit.shape[-1] > 1
        self.weight = survey_weight.WeightBlocks(stats, priors, rng) if has_weight else None

    def state(self) -> Theta:
        """Return the parameters of the outcome and of any weight."""
        blocks, variance = self.coefficients, self.variance[:, None]
        state = {
            "beta": blocks.beta[:, :, 0],
            "variance": variance,
            "coefficient_scale": blocks.scale[:, 0],
            "coefficient_correlation": blocks.correlation,
        }
        if self.weight is not None:
            state["weight_coefficients"] = self.weight.coefficients
            state["variance"] = np.concatenate([variance, self.weight.variance[:, None]], axis=1)
        return state

    def observe(self, stats: GaussianStats) -> None:
        """Take other values z on the same X, for statistics that change between sweeps."""
        self.stats = stats
        self.coefficients.observe(stats.fit[:, :, :1])
        if self.weight is not None:
            self.weight.observe(stats)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        self.coefficients.draw_random_numbers(c)
        self.levels = self.rng.random((c, self.batch), 1)
        self.uniforms = self.rng.random((c, primitives.MAX_SHRINKS, self.batch), 2)
        if self.weight is not None:
            self.weight.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        self.coefficients.update(i, 1.0 / self.variance[:, None, None])
        squares = self.stats.outcome_squares(self.coefficients.beta[:, :, 0])
        total = self.stats.total
        self.variance = primitives.slice_variances(
            self.variance, total, np.zeros_like(total), squares, self.residual_scale,
            self.levels[i], self.uniforms[i], df=HALF_T_DF,
        )  # fmt: skip
        if self.weight is not None:
            self.weight.sweep(i)
