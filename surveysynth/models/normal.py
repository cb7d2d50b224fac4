"""Normal regression of a transformed outcome; log-normal with transform = "log" (methods 3).

    y~ = transform(y) ~ N(x beta, sigma^2)
    beta ~ N(0, D Omega D), Omega ~ LKJ(6), D = diag(sigma_k), sigma_k and sigma ~ half-t3(0, 1)

and, where the design has a survey weight, log w | y, x ~ N(x gamma + delta y~, s^2) as one more
component (``survey_weight``). Without one it is the model of the outcome alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from surveysynth._types import FloatArray, IntArray, Theta
from surveysynth.models import _log_lik, _normal_density, gaussian, survey_weight
from surveysynth.models._coefficient_prior import HALF_T_DF
from surveysynth.models._coefficients import CoefficientBlocks
from surveysynth.models._log_lik import QuadraticForm
from surveysynth.models._sweeps import run_sweeps
from surveysynth.models.base import (
    SamplingPlan,
    Simulated,
    SimulationKind,
    StanProgramSpec,
    require,
)
from surveysynth.models.gaussian import GaussianRecords, GaussianStats
from surveysynth.sampling import primitives
from surveysynth.sampling.streams import Streams
from surveysynth.survey import Confidential, PublicDesign

PRIORS: Mapping[str, float] = MappingProxyType(
    {"coefficient_scale": 1.0, "residual_scale": 1.0, "lkj": 6.0, **survey_weight.PRIORS}
)


@dataclass(frozen=True)
class Normal:
    """The regression synthesizer. ``priors`` overrides the scales of methods 3 by name."""

    priors: Mapping[str, float] = field(default_factory=lambda: PRIORS)
    name: str = "normal"
    title: str = "a normal regression of the transformed outcome"
    requires: frozenset[str] = frozenset({"one_outcome"})
    batched: bool = True
    identified: bool = True
    tilted: bool = False
    clustered: bool = False
    stan: StanProgramSpec | None = _normal_density.STAN

    def __post_init__(self) -> None:
        object.__setattr__(self, "priors", MappingProxyType({**PRIORS, **self.priors}))

    def records(self, design: PublicDesign, confidential: Confidential) -> GaussianRecords:
        """z (n, 1 or 2): the transformed outcome and, if there is a weight, its logarithm."""
        require(self, design)
        columns = [design.transforms[0].forward(confidential.outcome[:, 0])]
        if confidential.sampling_weight is not None:
            columns.append(np.log(confidential.sampling_weight))
        return self.records_from_simulated(design, Simulated(np.stack(columns, axis=1)))

    def records_from_simulated(
        self, design: PublicDesign, simulated: Simulated
    ) -> GaussianRecords:
        """Records of a dataset that is already on the model's scale."""
        return GaussianRecords(design.matrix.x_cells, design.matrix.cell, simulated.z)

    def compress(self, records: GaussianRecords, risk_weights: FloatArray) -> GaussianStats:
        """Weighted sufficient statistics (methods 4)."""
        return gaussian.compress(records, risk_weights)

    def sample(
        self,
        stats: GaussianStats,
        plan: SamplingPlan,
        rng: np.random.Generator | Sequence[np.random.Generator],
    ) -> Theta:
        """Gibbs draws, leading axes (databases, chains, draws): beta (..., K), variance (..., q) =
        (sigma^2, s^2), coefficient_scale (..., K), coefficient_correlation (..., K, K) and, with a
        weight (q = 2), weight_coefficients (..., 1 + K) = (delta, gamma)."""
        streams = Streams.of(rng, stats.total.shape[0], plan.chains)
        return run_sweeps(_Gibbs(stats.repeated(plan.chains), self.priors, streams), plan)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Coefficients of both parts and log residual SDs."""
        monitored = {
            "beta": theta["beta"],
            "log_residual_sd": self.log_scales(theta),
        }
        if "weight_coefficients" in theta:
            monitored["weight_coefficients"] = theta["weight_coefficients"]
        return monitored

    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray, psu: IntArray | None = None
    ) -> QuadraticForm:
        """Coefficients of log p(y~, log w | x) about ``centre``: S draws, the cells given."""
        beta, variance = theta["beta"], theta["variance"]
        if "weight_coefficients" in theta:
            weight = theta["weight_coefficients"]
            return _log_lik.conditional_form(beta, weight, variance, x_cells, centre)
        return _log_lik.normal_form(beta[:, :, None], variance[:, :, None], x_cells, centre)

    def log_lik_blocks(
        self, theta: Theta, records: GaussianRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Streams unweighted log-likelihoods, (rows, (S, rows)) (methods 4)."""
        return _log_lik.log_lik_blocks(self.quadratic_form, theta, records)

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draws y~* and log w*; the sample's own model, so both kinds are the same."""
        x = design.matrix.x_cells[design.matrix.cell]
        variance = theta["variance"]
        outcome = x @ theta["beta"] + np.sqrt(variance[0]) * rng.standard_normal(design.n)
        columns = [outcome]
        if "weight_coefficients" in theta:
            coefficients = theta["weight_coefficients"]
            columns.append(survey_weight.simulate(coefficients, variance[1], outcome, x, rng))
        return Simulated(np.stack(columns, axis=1))

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """E(w | y~*) (methods 3); a survey without weights counts every record once."""
        coefficients, variance = theta.get("weight_coefficients"), theta["variance"][-1:]
        return survey_weight.smoothed(coefficients, variance, simulated.z[:, 0], design)

    def drawn_weight(self, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """w* as it was drawn; ones for a survey without weights."""
        return survey_weight.drawn(design, simulated)

    def log_scales(self, theta: Theta) -> FloatArray:
        """Log residual SDs of the outcome and, with a weight, the log weight: (..., q)."""
        return np.asarray(0.5 * np.log(theta["variance"]))

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Other residual SDs; coefficients stay."""
        return {**theta, "variance": np.exp(2.0 * log_scales)}

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Residual SD ``spread`` of the outcome, 0.5 of the log weight; correlated as in FBS.

        A stand-in for data not yet looked at: location plays no part in the bound.
        """
        k = design.matrix.x_cells.shape[1]
        theta = {"beta": np.zeros(k), "variance": np.array([spread * spread])}
        if design.weight_name is not None:
            coefficients, variance = survey_weight.prior_guess(k, spread)
            theta["weight_coefficients"] = coefficients
            theta["variance"] = np.append(theta["variance"], variance)
        return theta

    def log_density(self, u: FloatArray, stats: GaussianStats) -> tuple[FloatArray, FloatArray]:
        """Weighted log posterior (...) and gradient (..., d) at u (..., d): ``normal.stan``."""
        return _normal_density.log_density(u, stats, self.priors)

    def constrain(self, u: FloatArray, shape: tuple[int, int]) -> Theta:
        """Parameters at u (..., d); ``shape`` (K, q)."""
        return _normal_density.constrain(u, shape)

    def unconstrain(self, theta: Theta) -> FloatArray:
        """Inverse of ``constrain``, (..., d)."""
        return _normal_density.unconstrain(theta)


class _Gibbs:
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
        """Other values z on the same X, for statistics that change between sweeps."""
        self.stats = stats
        self.coefficients.observe(stats.fit[:, :, :1])
        if self.weight is not None:
            self.weight.observe(stats)

    def draw_random_numbers(self, c: int) -> None:
        self.coefficients.draw_random_numbers(c)
        self.levels = self.rng.random((c, self.batch), 1)
        self.uniforms = self.rng.random((c, primitives.MAX_SHRINKS, self.batch), 2)
        if self.weight is not None:
            self.weight.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        self.coefficients.update(i, 1.0 / self.variance[:, None, None])
        squares = self.stats.outcome_squares(self.coefficients.beta[:, :, 0])
        total = self.stats.total
        self.variance = primitives.slice_variances(
            self.variance, total, np.zeros_like(total), squares, self.residual_scale,
            self.levels[i], self.uniforms[i], df=HALF_T_DF,
        )  # fmt: skip
        if self.weight is not None:
            self.weight.sweep(i)
