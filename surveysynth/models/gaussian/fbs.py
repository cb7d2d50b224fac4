"""FBS: fully Bayes for the observed sample ([T] 2.1, App. C; methods 3).

    (y~_i, w~_i) ~ N(x_i [beta_y beta_w], Sigma),  y~ = transform(y), w~ = log w

for any number of outcomes: q = p + 1 columns, the log weight last. The sampler is blocked Gibbs on
weighted sufficient statistics (methods 4), batched over databases and chains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.base import Model, Simulated, SimulationKind
from surveysynth.models.gaussian.blocks import CoefficientBlocks, CovarianceBlock
from surveysynth.models.gaussian.model import (
    GaussianModel,
    GaussianStats,
    QuadraticForm,
    normal_form,
)
from surveysynth.models.general_location.model import OWN_PRIORS, PSU_PRIORS, GeneralFBS, noisy_form
from surveysynth.sampling.plan import Streams
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.survey.survey import PublicDesign


def _data(stats: GaussianStats, priors: Mapping[str, float]) -> dict[str, Any]:
    k, q = stats.fit.shape[-2:]
    return {
        "K": k,
        "q": q,
        **stats.stan_data(),
        "coefficient_scale_prior": priors["coefficient_scale"],
        "residual_scale_prior": priors["residual_scale"],
        "lkj": priors["lkj"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    residual = draws["residual_scale"][..., :, None] * draws["residual_root"]
    coefficient = draws["coefficient_root"]
    return {
        "beta": draws["beta"],
        "covariance": residual @ residual.swapaxes(-1, -2),
        "coefficient_scale": draws["coefficient_scale"].swapaxes(-1, -2),
        "coefficient_correlation": coefficient @ coefficient.swapaxes(-1, -2),
    }


STAN = StanProgramSpec(program="fbs.stan", data=_data, theta=_theta)


class Gibbs:
    """State of a batch of chains, B = databases x chains."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.stats = stats
        self.q = stats.fit.shape[-1]
        # Overdispersed starts about the least-squares fit.
        spread = stats.start_covariance()
        inflation = np.exp(0.2 * rng.standard_normal((spread.shape[0], 1, 1), 0))
        self.residual = CovarianceBlock(
            spread * inflation, stats.count, priors["residual_scale"], priors["lkj"], rng
        )
        self.coefficients = CoefficientBlocks(
            stats.gram, stats.fit, spread, priors, rng, stats.ridges
        )

    def state(self) -> Theta:
        """Return the parameters of both blocks."""
        return {
            "beta": self.coefficients.beta,
            "covariance": self.residual.covariance,
            "coefficient_scale": self.coefficients.scale,
            "coefficient_correlation": self.coefficients.correlation,
        }

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


@dataclass(frozen=True)
class FBS(GaussianModel):
    """The sample synthesizer: z (n, p + 1), transformed outcomes, then the log weight.

    Where weights are public, z is (n, p): the same model of the outcomes alone. Parameters: beta
    (..., K, q), covariance (..., q, q), coefficient_scale (..., q, K) and coefficient_correlation
    (..., K, K).
    """

    covariance_by: tuple[str, ...] | None = ()

    name = "fbs"
    title = "FBS (fully Bayes model for the observed sample)"
    requires = frozenset({"weight"})
    takes_learned_weight = True
    kinds = ("continuous", "semicontinuous", "count", "binary", "categorical")
    stan = STAN
    gibbs = Gibbs
    default_priors = MappingProxyType(
        {
            "coefficient_scale": 10.0,
            "residual_scale": 10.0,
            **PSU_PRIORS,
            **OWN_PRIORS,
        }
    )

    def under_noise(self) -> Model:
        """Return the general location form."""
        return noisy_form(GeneralFBS, self, self.covariance_by)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return coefficients, log residual SDs and residual correlations (Fisher's z)."""
        covariance = theta["covariance"]
        log_sd = self.log_scales(theta)
        sd = np.exp(log_sd)
        row, column = np.tril_indices(covariance.shape[-1], -1)
        beta = theta["beta"]
        monitored = {"beta": beta.reshape(*beta.shape[:-2], -1), "log_residual_sd": log_sd}
        if row.size:  # one outcome and public weights have none
            correlation = covariance[..., row, column] / (sd[..., row] * sd[..., column])
            monitored["residual_correlation"] = np.arctanh(correlation)
        return monitored

    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray
    ) -> QuadraticForm:
        """Return the coefficients of log N(z | x beta, Sigma) about ``centre``."""
        return normal_form(theta["beta"], theta["covariance"], x_cells, centre)

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draw (y~*, w~*); both kinds are the same."""
        mean = (design.matrix.x_cells @ theta["beta"])[design.matrix.cell]
        root = np.linalg.cholesky(theta["covariance"])
        return Simulated(mean + rng.standard_normal(mean.shape) @ root.T)

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """Return E(w | y~*) (methods 3), for any number of outcomes."""
        if design.weight_name is None:
            return self.drawn_weight(design, simulated)
        beta, covariance = theta["beta"], theta["covariance"]
        mean = (design.matrix.x_cells @ beta)[design.matrix.cell]
        slope = np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
        remaining = covariance[-1, -1] - covariance[-1, :-1] @ slope
        deviation = simulated.z[:, :-1] - mean[:, :-1]
        return design.weight_transform.mean_of_inverse(mean[:, -1] + deviation @ slope, remaining)

    def log_scales(self, theta: Theta) -> FloatArray:
        """Return log residual SDs (..., q)."""
        return np.asarray(0.5 * np.log(np.einsum("...kk->...k", theta["covariance"])))

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Replace residual SDs; coefficients and correlations do not change."""
        factor = np.exp(log_scales - self.log_scales(theta))
        covariance = theta["covariance"] * factor[..., :, None] * factor[..., None, :]
        return {**theta, "covariance": covariance}
