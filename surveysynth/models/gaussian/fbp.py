"""FBP: fully Bayes for the population ([T] 2.2, App. D; methods 3).

    population: y~ ~ N(x beta, s_y^2);  log pi~ | y~ ~ N(k_y y~ + x k_x, s_pi^2),  pi~ = N / (n w)

The sample is the population tilted by pi~. Its likelihood is exact and Gaussian in form, so a draw
needs weighted sufficient statistics and X'alpha alone (methods 4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.messages import noisy_statistics_alone
from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import Model, Simulated, SimulationKind, require
from surveysynth.models.gaussian.fbp_sampler import Gibbs
from surveysynth.models.gaussian.gaussian_model import GaussianModel
from surveysynth.models.general_location.forms import GeneralFBP, noisy_form
from surveysynth.models.general_location.model import OWN_PRIORS, PSU_PRIORS
from surveysynth.models.options import Choice, ColumnNames
from surveysynth.models.parts import log_lik
from surveysynth.models.parts.gaussian import GaussianRecords, GaussianStats
from surveysynth.models.parts.log_lik import QuadraticForm
from surveysynth.models.parts.mean_predictor import constant_direction, mean_row
from surveysynth.models.weighted import Coordinates
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.sampling.sweeps import Streams, run_sweeps
from surveysynth.survey.survey import Confidential, PublicDesign


def _data(stats: GaussianStats, priors: Mapping[str, float]) -> dict[str, Any]:
    return {
        "K": stats.fit.shape[-2],
        "x_sum": stats.x_sum[0].tolist(),
        **stats.stan_data(),
        "total": float(stats.total[0]),
        "coefficient_sd": priors["coefficient_sd"],
        "selection_sd": priors["selection_sd"],
        "residual_scale": priors["residual_scale"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    return {
        "beta": draws["beta"],
        "selection": draws["selection"],
        "variance": draws["residual_sd"] ** 2,
    }


STAN = StanProgramSpec(program="fbp.stan", data=_data, theta=_theta)


@dataclass(frozen=True)
class FBP(GaussianModel):
    """The population synthesizer.

    smoothing: "default" weights a cell of X by 1/E(pi | x); "outcome" is the paper's form, which
    leaves out x k_x and biases strata that differ in outcome. covariance_by: as in FBS.
    """

    smoothing: str = "default"
    covariance_by: tuple[str, ...] | None = ()

    name = "fbp"
    title = "FBP (fully Bayes model for the population)"
    requires = frozenset({"weight", "confidential_weight", "population_size", "one_outcome"})
    tilted = True
    kinds = ("continuous", "semicontinuous", "count", "binary")
    stan = STAN
    scales = MappingProxyType({"variance": 0.5})
    options = MappingProxyType(
        {
            "smoothing": Choice("default", ("default", "outcome")),
            "covariance_by": ColumnNames(None),
        }
    )
    default_priors = MappingProxyType(
        {
            "coefficient_sd": 10.0,
            "selection_sd": 10.0,
            "residual_scale": 1.0,
            **PSU_PRIORS,
            "coefficient_scale": 10.0,
            **OWN_PRIORS,
        }
    )

    def of(self, design: PublicDesign) -> "FBP":
        """Return the model; raise ``InputError`` for a design that noisy statistics alone take."""
        if self.covariance_by:
            raise InputError(noisy_statistics_alone("covariance_by gives each cell a spread"))
        return super().of(design)

    def under_noise(self) -> Model:
        """Return the general location form; raise ``InputError`` for smoothing "outcome"."""
        if self.smoothing == "outcome":
            raise InputError(
                "smoothing: 'outcome' is the paper's form, by mechanism = 'pseudo_posterior'; "
                "leave it out."
            )
        return noisy_form(GeneralFBP, self, self.covariance_by)

    def records(self, design: PublicDesign, confidential: Confidential) -> GaussianRecords:
        """Return the records z (n, 2): the transformed outcome and log pi~ = log(N / (n w))."""
        require(self.of(design), design)
        assert confidential.sampling_weight is not None  # require() has checked the design
        assert design.population_size is not None
        outcome = design.transforms[0].forward(confidential.outcome[:, 0])
        log_pi = np.log(design.population_size / design.n) - np.log(confidential.sampling_weight)
        return self.records_from_simulated(design, Simulated(np.stack([outcome, log_pi], axis=1)))

    def sample(
        self,
        stats: GaussianStats,
        plan: SamplingPlan,
        rng: np.random.Generator | Sequence[np.random.Generator],
    ) -> Theta:
        """Draw by Gibbs: beta (..., K), selection (..., 1 + K) = (k_y, k_x), variance (..., 2).

        variance is (s_y^2, s_pi^2); leading axes (databases, chains, draws).
        """
        streams = Streams.of(rng, stats.total.shape[0], plan.chains)
        return run_sweeps(Gibbs(stats.repeated(plan.chains), self.priors, streams), plan)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return coefficients of both parts and log residual SDs."""
        return {
            "beta": theta["beta"],
            "selection": theta["selection"],
            "log_residual_sd": self.log_scales(theta),
        }

    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray
    ) -> QuadraticForm:
        """Return the coefficients of the sample density of (y~, pi~) about ``centre``.

        There is no Jacobian: the density is that of pi~ (methods 3).
        """
        beta, selection, variance = theta["beta"], theta["selection"], theta["variance"]
        form = log_lik.conditional_form(beta, selection, variance, x_cells, centre)
        k_y, (v_y, v_pi) = selection[:, 0], variance.T
        # Minus log E(pi | x).
        tilt = (selection[:, 1:] + k_y[:, None] * beta) @ x_cells.T
        tilt = tilt + 0.5 * (v_pi + k_y * k_y * v_y)[:, None]
        return QuadraticForm(form.constant - tilt, form.linear, form.precision)

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draw (y~*, log pi~*) from the population model ("release") or the implied sample.

        In the "sample" selection shifts the means by k_y s_y^2 and s_pi^2 (methods 3).
        """
        cell, x_cells = design.matrix.cell, design.matrix.x_cells
        k_y, k_x = theta["selection"][0], theta["selection"][1:]
        tilt = np.array([k_y, 1.0]) if kind == "sample" else np.zeros(2)
        shift = tilt * theta["variance"]
        noise = rng.standard_normal((2, design.n)) * np.sqrt(theta["variance"])[:, None]
        outcome = (x_cells @ theta["beta"])[cell] + shift[0] + noise[0]
        log_pi = k_y * outcome + (x_cells @ k_x)[cell] + shift[1] + noise[1]
        return Simulated(np.stack([outcome, log_pi], axis=1))

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """Return 1/E(pi | x), constant in a cell of X.

        smoothing "outcome": the paper's exp(-k_y y~*) (methods 3). Both are in units of N/n, to be
        scaled to N.
        """
        assert design.population_size is not None  # require() has checked the design
        k_y, k_x = theta["selection"][0], theta["selection"][1:]
        if self.smoothing == "outcome":
            log_weight = -k_y * simulated.z[:, 0]
        else:
            v_y, v_pi = theta["variance"]
            log_pi = design.matrix.x_cells @ (k_x + k_y * theta["beta"])
            variance = k_y * k_y * v_y + v_pi
            log_weight = -(log_pi + 0.5 * variance)[design.matrix.cell]
        weight: FloatArray = np.exp(log_weight) * (design.population_size / design.n)
        return weight

    def drawn_weight(self, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """Return N / (n pi~*), with pi~* as drawn."""
        assert design.population_size is not None  # require() has checked the design
        return np.asarray(np.exp(-simulated.z[:, -1]) * (design.population_size / design.n))

    def debiased(self, theta: Theta, design: PublicDesign) -> Coordinates:
        """Return log scales, mean y~, mean log pi~ at the mean of y~, and k_y.

        Both are means of the population. The sample's are these plus k_y s_y^2 and s_pi^2, which
        shrink with the scales.
        """
        return Coordinates.joined(
            super().debiased(theta, design), Coordinates.of("location", _means(theta, design))
        )

    def with_debiased(self, theta: Theta, values: FloatArray, design: PublicDesign) -> Theta:
        """Replace scales, both means by intercepts, and k_y, with log pi~ of a cell kept."""
        (beta, k_y, k_x), slope = _coefficients(theta), values[:, 4:]
        mean_y, mean_pi = (values[:, 2:4] - _means(theta, design)[:, :2]).T[..., None]
        along = constant_direction(design.matrix)
        k_x = k_x + (k_y - slope) * beta + along * (mean_pi - slope * mean_y)
        selection = np.concatenate([slope, k_x], axis=1)
        theta = {**theta, "beta": beta + along * mean_y, "selection": selection}
        return self.with_log_scales(theta, values[:, :2])

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Guess residual SD ``spread`` of the outcome, 0.5 of log pi~; correlation as in FBS.

        Location does not affect the bound.
        """
        k = design.matrix.x_cells.shape[1]
        selection = np.zeros(k + 1)
        selection[0] = 0.25 / spread
        variance = np.array([spread * spread, 0.1875])
        return {"beta": np.zeros(k), "selection": selection, "variance": variance}


def _coefficients(theta: Theta) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return beta (S, K), k_y (S, 1) and k_x (S, K)."""
    return theta["beta"], theta["selection"][:, :1], theta["selection"][:, 1:]


def _means(theta: Theta, design: PublicDesign) -> FloatArray:
    """Return mean y~, mean log pi~ at the mean of y~ of each cell, and k_y, (S, 3)."""
    (beta, k_y, k_x), row = _coefficients(theta), mean_row(design.matrix)
    return np.column_stack([beta @ row, (k_x + k_y * beta) @ row, k_y])
