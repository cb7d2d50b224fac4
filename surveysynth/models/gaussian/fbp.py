"""FBP: fully Bayes for the population ([T] 2.2, App. D; methods 3).

    population: y~ ~ N(x beta, s_y^2);  log pi~ | y~ ~ N(k_y y~ + x k_x, s_pi^2),  pi~ = N / (n w)

The sample is the population tilted by pi~. Its likelihood is exact and Gaussian in form, so a draw
needs weighted sufficient statistics and X'alpha alone (methods 4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import Model, Simulated, SimulationKind, require
from surveysynth.models.gaussian.blocks import overdispersion
from surveysynth.models.gaussian.model import (
    GaussianModel,
    GaussianRecords,
    GaussianStats,
    QuadraticForm,
    conditional_form,
)
from surveysynth.models.general_location.model import OWN_PRIORS, PSU_PRIORS, GeneralFBP, noisy_form
from surveysynth.models.weighted import Coordinates
from surveysynth.sampling import primitives
from surveysynth.sampling.plan import Streams
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.survey.design_matrix import DesignMatrix
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
#: With at most so many effective records, chains keep the population's parameters.
FEW_RECORDS = 2.0


class Gibbs:
    """State of a batch of chains, B = databases x chains."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.rng = rng
        self.residual_scale = priors["residual_scale"]
        self.batch, self.k = stats.fit.shape[:2]
        self.free = self.k - stats.ridges  # columns whose prior is not in the statistics
        free = (np.arange(1 + self.k) < 1 + self.free).astype(np.float64)
        self.coefficient_precision = priors["coefficient_sd"] ** -2 * free[1:]
        self.selection_precision = priors["selection_sd"] ** -2 * free
        self.stats = stats
        self.design_gram, self.design_cross = stats.conditional_gram()
        self.cross_y = self.design_gram[:, 0, 1:]
        self.shift = self._constant_coefficients()
        # Overdispersed starts about the least-squares fits.
        guess = stats.start_covariance()
        slope = guess[:, 0, 1] / guess[:, 0, 0]
        remaining = guess[:, 1, 1] - slope * guess[:, 0, 1]
        variance = np.stack([guess[:, 0, 0], remaining], axis=1)
        self.variance = variance * np.exp(0.2 * rng.standard_normal((self.batch, 2), 0))
        jitter = overdispersion(stats.gram, rng, 2) * np.sqrt(variance)[:, None, :]
        self.beta = stats.fit[:, :, 0] + jitter[:, :, 0]
        k_y = slope + 0.1 * np.abs(slope) * rng.standard_normal((self.batch,), 0)
        k_x = stats.fit[:, :, 1] - k_y[:, None] * stats.fit[:, :, 0] + jitter[:, :, 1]
        self.selection = np.concatenate([k_y[:, None], k_x], axis=1)

    def _constant_coefficients(self) -> FloatArray | None:
        """Return e (B, K), zero in shrunken columns, with X e = 1 on all records with weight.

        None without one, and where hardly any record has weight: there the shift does not help.
        """
        s, free = self.stats, self.free
        if np.any(s.total <= FEW_RECORDS):
            return None
        gram, x_sum = s.gram[:, :free, :free], s.x_sum[:, :free]
        length = np.sqrt(np.einsum("bkk->bk", gram))
        inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        scaled = gram * inverse[:, :, None] * inverse[:, None, :]
        solution = np.linalg.pinv(scaled, rcond=1e-12, hermitian=True)
        constant = inverse * np.einsum("bij,bj->bi", solution, inverse * x_sum)
        left_over = s.total - np.einsum("bk,bk->b", x_sum, constant)
        if np.any(np.abs(left_over) > 1e-9 * s.total):
            return None
        return np.pad(constant, [(0, 0), (0, self.k - free)])

    def state(self) -> Theta:
        """Return the parameters of the population."""
        return {"beta": self.beta, "selection": self.selection, "variance": self.variance}

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, k, tries = self.batch, self.k, primitives.MAX_SHRINKS
        self.n_beta = self.rng.standard_normal((c, b, k), 1)
        self.n_selection = self.rng.standard_normal((c, b, k + 1), 1)
        self.u_level = self.rng.random((c, 2, b), 2)
        self.u_variance = self.rng.random((c, 2, tries, b), 3)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        if self.shift is not None and i % 2 == 1:
            self._sweep_of_sample(i, self.shift)
        else:
            self._sweep_of_population(i)

    def _sweep_of_sample(self, i: int, e: FloatArray) -> None:
        """Run a sweep in the coefficients of the implied sample distribution (methods 3).

        These are b = beta + k_y s_y^2 e and c = k_x + s_pi^2 e, where X e = 1, with y~ ~ N(x b,
        s_y^2) and log pi~ | y~ ~ N(k_y y~ + x c, s_pi^2). Drawn are (b, k_y, c, s_y^2, s_pi^2).

        In these coordinates the likelihood separates and only the priors of beta and k_x tie the
        parts. In (beta, k_x) the tilt ties them, more closely the wider log pi~ and the stronger
        the selection. An alternating chain mixes as well as the better of the two allows.
        """
        s, norm = self.stats, np.einsum("bk,bk->b", e, e)
        tau, tau_pi = self.coefficient_precision[0], self.selection_precision[0]
        k_y = self.selection[:, 0]
        v_y, v_pi = self.variance.T
        precision = s.gram / v_y[:, None, None] + np.diag(self.coefficient_precision)
        linear = self.cross_y / v_y[:, None] + tau * (k_y * v_y)[:, None] * e
        b = primitives.normal_from_precision(precision, linear, self.n_beta[i])
        along = np.einsum("bk,bk->b", e, b)
        precision = self.design_gram / v_pi[:, None, None] + np.diag(self.selection_precision)
        precision[:, 0, 0] += tau * v_y * v_y * norm
        linear = self.design_cross / v_pi[:, None]
        linear[:, 0] += tau * v_y * along
        linear[:, 1:] += tau_pi * v_pi[:, None] * e
        draw = primitives.normal_from_precision(precision, linear, self.n_selection[i])
        k_y, c = draw[:, 0], draw[:, 1:]
        squares = s.sum_of_squares(np.stack([b, c + k_y[:, None] * b], axis=-1))
        squares_y, squares_both = squares[:, 0, 0], squares[:, 0, 1]
        squares_pi = squares[:, 1, 1] - 2.0 * k_y * squares_both + k_y * k_y * squares_y
        along_pi = np.einsum("bk,bk->b", e, c)
        level, uniforms, prior = self.u_level[i], self.u_variance[i], self.residual_scale
        v_y = primitives.slice_shifted_variances(
            v_y, s.count, squares_y, tau * k_y * k_y * norm, tau * k_y * along, prior,
            level[0], uniforms[0],
        )  # fmt: skip
        v_pi = primitives.slice_shifted_variances(
            v_pi, s.count, squares_pi, tau_pi * norm, tau_pi * along_pi, prior,
            level[1], uniforms[1],
        )  # fmt: skip
        self.variance = np.stack([v_y, v_pi], axis=1)
        self.beta = b - (k_y * v_y)[:, None] * e
        self.selection = np.concatenate([k_y[:, None], c - v_pi[:, None] * e], axis=1)

    def _sweep_of_population(self, i: int) -> None:
        s = self.stats
        k_y = self.selection[:, 0]
        v_y, v_pi = self.variance.T
        # beta | .: the denominator of the sample density is linear in beta.
        precision = s.gram / v_y[:, None, None] + np.diag(self.coefficient_precision)
        linear = self.cross_y / v_y[:, None] - k_y[:, None] * s.x_sum
        self.beta = primitives.normal_from_precision(precision, linear, self.n_beta[i])
        # (k_y, k_x) | .: linear in k_x, quadratic in k_y.
        precision = self.design_gram / v_pi[:, None, None] + np.diag(self.selection_precision)
        precision[:, 0, 0] += s.total * v_y
        mean_sum = np.einsum("bk,bk->b", s.x_sum, self.beta)
        denominator = np.concatenate([mean_sum[:, None], s.x_sum], axis=1)
        linear = self.design_cross / v_pi[:, None] - denominator
        self.selection = primitives.normal_from_precision(precision, linear, self.n_selection[i])
        k_y = self.selection[:, 0]
        squares_y = s.outcome_squares(self.beta)
        squares_pi = s.conditional_squares(self.selection)
        prior = self.residual_scale
        level, uniforms = self.u_level[i], self.u_variance[i]
        v_y = primitives.slice_variances(
            v_y, s.count, s.total * k_y * k_y, squares_y, prior, level[0], uniforms[0]
        )
        v_pi = primitives.slice_variances(
            v_pi, s.count, s.total, squares_pi, prior, level[1], uniforms[1]
        )
        self.variance = np.stack([v_y, v_pi], axis=1)


@dataclass(frozen=True)
class FBP(GaussianModel):
    """The population synthesizer.

    smoothing: "default" weights a cell of X by 1/E(pi | x); "outcome" is the paper's form, which
    leaves out x k_x and biases strata that differ in outcome. Parameters: beta (..., K), selection
    (..., 1 + K) = (k_y, k_x) and variance (..., 2) = (s_y^2, s_pi^2).
    """

    smoothing: str = "default"
    covariance_by: tuple[str, ...] | None = ()

    name = "fbp"
    title = "FBP (fully Bayes model for the population)"
    requires = frozenset({"weight", "confidential_weight", "population_size", "one_outcome"})
    tilted = True
    kinds = ("continuous", "semicontinuous", "count", "binary")
    stan = STAN
    gibbs = Gibbs
    scales = MappingProxyType({"variance": 0.5})
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smoothing not in ("default", "outcome"):
            raise InputError(
                f"smoothing must be 'default' or 'outcome', got {self.smoothing!r}."
            )

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
        form = conditional_form(beta, selection, variance, x_cells, centre)
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
        return np.asarray(np.exp(log_weight) * (design.population_size / design.n))

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



def _coefficients(theta: Theta) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return beta (S, K), k_y (S, 1) and k_x (S, K)."""
    return theta["beta"], theta["selection"][:, :1], theta["selection"][:, 1:]


def _means(theta: Theta, design: PublicDesign) -> FloatArray:
    """Return mean y~, mean log pi~ at the mean of y~ of each cell, and k_y, (S, 3)."""
    (beta, k_y, k_x), row = _coefficients(theta), mean_row(design.matrix)
    return np.column_stack([beta @ row, (k_x + k_y * beta) @ row, k_y])


def constant_direction(matrix: DesignMatrix) -> FloatArray:
    """Return e (K,) with X e nearest to 1, and on average 1 over the records."""
    ones = np.ones(len(matrix.x_cells))
    direction: FloatArray = np.linalg.lstsq(matrix.x_cells, ones, rcond=None)[0].astype(np.float64)
    return direction / float(mean_row(matrix) @ direction)


def mean_row(matrix: DesignMatrix) -> FloatArray:
    """Return the mean row (K,) of X over records.

    Its product with coefficients is their mean linear predictor, which changes by 1 along
    ``constant_direction``.
    """
    shares = np.bincount(matrix.cell, minlength=len(matrix.x_cells)) / matrix.n
    return np.asarray(shares @ matrix.x_cells)
