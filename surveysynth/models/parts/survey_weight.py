"""The survey weight as one component of a model of the outcome (methods 3).

    log w | y, x ~ N(x gamma + delta h(y), s^2)

    (delta, gamma) ~ N(0, 10^2 I),  s ~ half-t3(0, 1)

Each model defines h(y): the transformed outcome, or log(1 + y) of a count. The priors are weakly
informative on a log scale: a log weight has residual SDs well below 1, and sampling weights seldom
span more than a few orders of magnitude. The log-likelihood of a record is the sum of outcome and
weight. Statistics are those of Z = (h(y), log w) on X.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.parts.coefficients import HALF_T_DF, overdispersion
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling import primitives
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.sweeps import Streams, run_sweeps
from surveysynth.survey.survey import PublicDesign

PRIORS: Mapping[str, float] = MappingProxyType(
    {"weight_coefficient_sd": 10.0, "weight_residual_scale": 1.0}
)


def simulate(
    coefficients: FloatArray, variance: FloatArray, h: FloatArray, x: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:  # fmt: skip
    """Draw log weights (n,) given h (n,).

    coefficients (1 + K,) = (delta, gamma), x (n, K).
    """
    mean = coefficients[0] * h + x @ coefficients[1:]
    return np.asarray(mean + np.sqrt(variance) * rng.standard_normal(h.shape[0]))


def smoothed(
    coefficients: FloatArray | None,
    variance: FloatArray | None,
    h: FloatArray,
    design: PublicDesign,
) -> FloatArray:
    """Return E(w | y*) (n,), the mean of the log-normal, given h (n,) (methods 3).

    A survey without weights has no such parameters and counts every record once.
    """
    if coefficients is None or variance is None:
        return np.ones(design.n)
    x = design.matrix.x_cells[design.matrix.cell]
    mean = coefficients[0] * h + x @ coefficients[1:]
    return np.asarray(np.exp(mean + 0.5 * variance))


def prior_guess(columns: int, spread: float) -> tuple[FloatArray, FloatArray]:
    """Guess (delta, gamma) and s^2 from public inputs.

    The log weight has SD 0.5 and correlation -0.5 with an outcome of residual SD ``spread``.
    """
    coefficients = np.zeros(columns + 1)
    coefficients[0] = -0.25 / spread
    return coefficients, np.asarray(0.1875)


def joined(
    theta: Theta, outcome: FloatArray, h: FloatArray, x: FloatArray, rng: np.random.Generator
) -> Simulated:
    """Return the outcome (n,) of one draw, with log weights drawn given h (n,) if it has any."""
    columns = [outcome]
    if "weight_coefficients" in theta:
        coefficients, variance = theta["weight_coefficients"], theta["weight_variance"][0]
        columns.append(simulate(coefficients, variance, h, x, rng))
    return Simulated(np.stack(columns, axis=1))


def guessed(design: PublicDesign, spread: float) -> Theta:
    """Return ``prior_guess`` by name, of a design with a confidential weight."""
    if design.weight_name is None:
        return {}
    coefficients, variance = prior_guess(design.matrix.x_cells.shape[1], spread)
    return {"weight_coefficients": coefficients, "weight_variance": variance[None]}


def monitored(theta: Theta) -> Theta:
    """Return the scalars of the component whose convergence is checked, if there is a weight."""
    if "weight_coefficients" not in theta:
        return {}
    log_variance = np.log(theta["weight_variance"])
    return {
        "weight_coefficients": theta["weight_coefficients"], "log_weight_variance": log_variance
    }  # fmt: skip


class WeightBlocks:
    """The component in a batch of B chains: coefficients (B, 1 + K) and variance (B,)."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.rng = rng
        # The ridge of interactions is in the statistics.
        columns = np.arange(1 + stats.fit.shape[1]) < 1 + stats.fit.shape[1] - stats.ridges
        self.prior_precision = np.where(columns, priors["weight_coefficient_sd"] ** -2, 0.0)
        self.residual_scale = priors["weight_residual_scale"]
        self.stats = stats
        self.gram, self.cross = stats.conditional_gram()
        self.batch = stats.fit.shape[0]
        self._start()

    def _start(self) -> None:
        """Set overdispersed starts about the least-squares fit."""
        s, b = self.stats, self.batch
        guess = s.start_covariance()
        slope = guess[:, 0, 1] / guess[:, 0, 0]
        variance = guess[:, 1, 1] - slope * guess[:, 0, 1]
        fit = np.concatenate([slope[:, None], s.fit[:, :, 1] - slope[:, None] * s.fit[:, :, 0]], 1)
        self.variance = variance * np.exp(0.2 * self.rng.standard_normal((b,), 0))
        jitter = overdispersion(self.gram, self.rng, 1)[:, :, 0]
        self.coefficients = fit + jitter * np.sqrt(variance)[:, None]

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b = self.batch
        self.normals = self.rng.standard_normal((c, b, self.gram.shape[-1]), 1)
        self.levels = self.rng.random((c, b), 1)
        self.uniforms = self.rng.random((c, primitives.MAX_SHRINKS, b), 2)

    def state(self) -> Theta:
        """Return weight_coefficients (B, 1 + K) and weight_variance (B, 1)."""
        return {
            "weight_coefficients": self.coefficients,
            "weight_variance": self.variance[:, None],
        }

    def sweep(self, i: int) -> None:
        """Draw (delta, gamma) | s from its normal, s^2 by slice.

        i counts sweeps since the random numbers were drawn.
        """
        precision = self.gram / self.variance[:, None, None]
        precision = precision + np.diag(self.prior_precision)
        linear = self.cross / self.variance[:, None]
        self.coefficients = primitives.normal_from_precision(precision, linear, self.normals[i])
        squares = self.stats.conditional_squares(self.coefficients)
        total = self.stats.count
        self.variance = primitives.slice_variances(
            self.variance, total, np.zeros_like(total), squares, self.residual_scale,
            self.levels[i], self.uniforms[i], df=HALF_T_DF,
        )  # fmt: skip


def sample(
    stats: GaussianStats,
    priors: Mapping[str, float],
    plan: SamplingPlan,
    rng: np.random.Generator | Streams,
) -> Theta:
    """Draw the component alone, for models whose outcome has a sampler of its own.

    By Gibbs: weight_coefficients (B, chains, draws, 1 + K) and weight_variance (B, chains, draws,
    1).
    """
    if isinstance(rng, np.random.Generator):
        rng = Streams.of(rng, stats.total.shape[0], plan.chains)
    return run_sweeps(WeightBlocks(stats.repeated(plan.chains), priors, rng), plan)


def stan_data(
    stats: GaussianStats | None, columns: int, priors: Mapping[str, float]
) -> dict[str, Any]:
    """Return the component's data for Stan programs without other Gaussian parts, JSON-ready.

    Zeros where there is no weight.
    """
    zeros = {
        "K_shrunken": 0,
        "total": 0.0,
        "gram": np.zeros((columns, columns)).tolist(),
        "fit": np.zeros((columns, 2)).tolist(),
        "residual": np.zeros((2, 2)).tolist(),
    }
    return {
        "has_weight": int(stats is not None),
        **(zeros if stats is None else stats.stan_data()),
        "weight_coefficient_sd": priors["weight_coefficient_sd"],
        "weight_residual_scale": priors["weight_residual_scale"],
    }


def stan_theta(draws: Mapping[str, FloatArray]) -> Theta:
    """Turn Stan's draws of the component by name into Theta; nothing where there is no weight."""
    # Without a weight these have no elements, and some interfaces then omit them.
    weight_sd = draws.get("weight_sd")
    if weight_sd is None or not weight_sd.size:
        return {}
    return {
        "weight_coefficients": draws["weight_coefficients"],
        "weight_variance": weight_sd**2,
    }
