"""Normal regression of a transformed outcome; log-normal with transform = "log" (methods 3).

    y~ = transform(y) ~ N(x beta, sigma^2)
    beta ~ N(0, D Omega D), Omega ~ LKJ(6), D = diag(sigma_k), sigma_k and sigma ~ half-t3(0, 1)

A design with a survey weight adds log w | y, x ~ N(x gamma + delta y~, s^2) (``survey_weight``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models import survey_weight
from surveysynth.models.base import Model, Simulated, SimulationKind
from surveysynth.models.gaussian.blocks import HALF_T_DF, INTERACTIONS, CoefficientBlocks
from surveysynth.models.gaussian.model import (
    GaussianModel,
    GaussianStats,
    QuadraticForm,
    conditional_form,
    normal_form,
)
from surveysynth.models.general_location.model import GeneralNormal, noisy_form
from surveysynth.sampling import primitives
from surveysynth.sampling.plan import Streams
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.survey.survey import PublicDesign


def _data(stats: GaussianStats, priors: Mapping[str, float]) -> dict[str, Any]:
    k, q = stats.fit.shape[-2:]
    return {
        "K": k,
        "has_weight": q - 1,
        **stats.stan_data(),
        "coefficient_scale_prior": priors["coefficient_scale"],
        "residual_scale_prior": priors["residual_scale"],
        "lkj": priors["lkj"],
        "weight_coefficient_sd": priors["weight_coefficient_sd"],
        "weight_residual_scale": priors["weight_residual_scale"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    root = draws["coefficient_root"]
    theta = {
        "beta": draws["beta"],
        "variance": draws["residual_sd"] ** 2,
        "coefficient_scale": draws["coefficient_scale"],
        "coefficient_correlation": root @ root.swapaxes(-1, -2),
    }
    return _with_weight(theta, survey_weight.stan_theta(draws))


def _with_weight(theta: Theta, weight: Theta) -> Theta:
    """Join the parameters of the weight, if any, whose variance follows that of the outcome."""
    if not weight:
        return theta
    both = [theta["variance"], weight["weight_variance"]]
    coefficients = weight["weight_coefficients"]
    return {
        **theta, "weight_coefficients": coefficients, "variance": np.concatenate(both, axis=-1)
    }  # fmt: skip


def _weight_of(theta: Theta) -> Theta:
    """Return the parameters of the weight by the names of ``survey_weight``, if any."""
    if "weight_coefficients" not in theta:
        return {}
    coefficients = theta["weight_coefficients"]
    return {"weight_coefficients": coefficients, "weight_variance": theta["variance"][..., 1:]}


STAN = StanProgramSpec(program="normal.stan", data=_data, theta=_theta)


class Gibbs:
    """State of a batch of chains, B = databases x chains."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.stats, self.rng = stats, rng
        self.residual_scale = priors["residual_scale"]
        self.batch = stats.fit.shape[0]
        spread = stats.start_covariance()[:, :1, :1]
        self.variance = spread[:, 0, 0] * np.exp(0.2 * rng.standard_normal((self.batch,), 0))
        self.coefficients = CoefficientBlocks(
            stats.gram, stats.fit[:, :, :1], spread, priors, rng, stats.ridges
        )
        has_weight = stats.fit.shape[-1] > 1
        self.weight = survey_weight.WeightBlocks(stats, priors, rng) if has_weight else None

    def state(self) -> Theta:
        """Return the parameters of the outcome and of any weight."""
        state = {
            "beta": self.coefficients.beta[:, :, 0],
            "variance": self.variance[:, None],
            "coefficient_scale": self.coefficients.scale[:, 0],
            "coefficient_correlation": self.coefficients.correlation,
        }
        return state if self.weight is None else _with_weight(state, self.weight.state())

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
        total = self.stats.count
        self.variance = primitives.slice_variances(
            self.variance, total, np.zeros_like(total), squares, self.residual_scale,
            self.levels[i], self.uniforms[i], df=HALF_T_DF,
        )  # fmt: skip
        if self.weight is not None:
            self.weight.sweep(i)


@dataclass(frozen=True)
class Normal(GaussianModel):
    """The regression synthesizer: z (n, 1 or 2), the transformed outcome and any log weight.

    Parameters: beta (..., K), variance (..., q) = (sigma^2, s^2), coefficient_scale (..., K),
    coefficient_correlation (..., K, K) and, with a weight, weight_coefficients (..., 1 + K) =
    (delta, gamma).
    """

    name = "normal"
    title = "a normal regression of the transformed outcome"
    requires = frozenset({"one_outcome"})
    stan = STAN
    gibbs = Gibbs
    scales = MappingProxyType({"variance": 0.5})
    default_priors = MappingProxyType(
        {
            "coefficient_scale": 1.0,
            "residual_scale": 1.0,
            "lkj": 6.0,
            **INTERACTIONS,
            **survey_weight.PRIORS,
        }
    )

    def under_noise(self) -> Model:
        """Return the general location form, with one residual covariance."""
        return noisy_form(GeneralNormal, self, ())

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return coefficients of both parts and log residual SDs."""
        of_weight = {name: theta[name] for name in ("weight_coefficients",) if name in theta}
        return {"beta": theta["beta"], "log_residual_sd": self.log_scales(theta), **of_weight}

    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray
    ) -> QuadraticForm:
        """Return the coefficients of log p(y~, log w | x) about ``centre``."""
        beta, variance = theta["beta"], theta["variance"]
        if "weight_coefficients" in theta:
            weight = theta["weight_coefficients"]
            return conditional_form(beta, weight, variance, x_cells, centre)
        return normal_form(beta[:, :, None], variance[:, :, None], x_cells, centre)

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draw y~* and log w*; both kinds are the same."""
        x = design.matrix.x_cells[design.matrix.cell]
        noise = np.sqrt(theta["variance"][0]) * rng.standard_normal(design.n)
        outcome = x @ theta["beta"] + noise
        return survey_weight.joined(_weight_of(theta), outcome, outcome, x, rng)

    def smooth_weight(self, theta: Theta, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """Return E(w | y~*) (methods 3); a survey without weights counts every record once."""
        return survey_weight.smoothed(_weight_of(theta), simulated.z[:, 0], design)
