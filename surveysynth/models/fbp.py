"""FBP: fully Bayes for the population ([T] 2.2, App. D; methods 3).

    population: y~ ~ N(x beta, s_y^2);  log pi~ | y~ ~ N(k_y y~ + x k_x, s_pi^2),  pi~ = N / (n w)

The sample is the population tilted by pi~; its likelihood is exact and stays Gaussian in form, so
that weighted sufficient statistics and X'alpha are all that a draw needs (methods 4).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from surveysynth._types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models import _fbp_density, _log_lik, gaussian
from surveysynth.models._coefficients import overdispersion
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
    {"coefficient_sd": 10.0, "selection_sd": 10.0, "residual_scale": 1.0}
)

#: Effective records up to which chains stay with the parameters of the population.
FEW_RECORDS = 2.0


@dataclass(frozen=True)
class FBP:
    """The population synthesizer; ``priors`` overrides the scales of methods 3 by name.

    smoothing: "default" weights a cell of X by 1/E(pi | x); "outcome" is the paper's form, which
    leaves out x k_x and biases strata that differ in outcome. Raises ``InputError`` for another.
    """

    priors: Mapping[str, float] = field(default_factory=lambda: PRIORS)
    smoothing: Literal["default", "outcome"] = "default"
    name: str = "fbp"
    title: str = "FBP (fully Bayes model for the population)"
    requires: frozenset[str] = frozenset({"weight", "population_size", "one_outcome"})
    batched: bool = True
    identified: bool = True
    tilted: bool = True
    clustered: bool = False
    stan: StanProgramSpec | None = _fbp_density.STAN

    def __post_init__(self) -> None:
        if self.smoothing not in ("default", "outcome"):
            raise InputError(
                f"smoothing must be 'default' or 'outcome', got {self.smoothing!r}."
            )
        object.__setattr__(self, "priors", MappingProxyType({**PRIORS, **self.priors}))

    def records(self, design: PublicDesign, confidential: Confidential) -> GaussianRecords:
        """z (n, 2): the transformed outcome and log pi~ = log(N / (n w))."""
        require(self, design)
        assert confidential.sampling_weight is not None  # require() has checked the design
        assert design.population_size is not None
        outcome = design.transforms[0].forward(confidential.outcome[:, 0])
        log_pi = np.log(design.population_size / design.n) - np.log(confidential.sampling_weight)
        return self.records_from_simulated(design, Simulated(np.stack([outcome, log_pi], axis=1)))

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
        """Gibbs draws: beta (..., K), selection (..., 1 + K) = (k_y, k_x), variance (..., 2) =
        (s_y^2, s_pi^2), leading axes (databases, chains, draws)."""
        streams = Streams.of(rng, stats.total.shape[0], plan.chains)
        return run_sweeps(_Gibbs(stats.repeated(plan.chains), self.priors, streams), plan)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Coefficients of both parts and log residual SDs."""
        return {
            "beta": theta["beta"],
            "selection": theta["selection"],
            "log_residual_sd": self.log_scales(theta),
        }

    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray, psu: IntArray | None = None
    ) -> QuadraticForm:
        """Coefficients of the sample density of (y~, pi~) about ``centre`` (no Jacobian:
        it is the density in pi~, methods 3)."""
        beta, selection, variance = theta["beta"], theta["selection"], theta["variance"]
        form = _log_lik.conditional_form(beta, selection, variance, x_cells, centre)
        k_y, (v_y, v_pi) = selection[:, 0], variance.T
        # Minus log E(pi | x).
        tilt = (selection[:, 1:] + k_y[:, None] * beta) @ x_cells.T
        tilt = tilt + 0.5 * (v_pi + k_y * k_y * v_y)[:, None]
        return QuadraticForm(form.constant - tilt, form.linear, form.precision)

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
        """(y~*, log pi~*): from the population model ("release") or the implied sample
        ("sample"), where selection shifts the means by k_y s_y^2 and s_pi^2 (methods 3)."""
        cell, x_cells = design.matrix.cell, design.matrix.x_cells
        k_y, k_x = theta["selection"][0], theta["selection"][1:]
        v_y, v_pi = theta["variance"]
        shift_y, shift_pi = (k_y * v_y, v_pi) if kind == "sample" else (0.0, 0.0)
        noise = rng.standard_normal((2, design.n)) * np.sqrt(theta["variance"])[:, None]
        outcome = (x_cells @ theta["beta"])[cell] + shift_y + noise[0]
        log_pi = k_y * outcome + (x_cells @ k_x)[cell] + shift_pi + noise[1]
        return Simulated(np.stack([outcome, log_pi], axis=1))

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """1/E(pi | x), constant in a cell of X; with smoothing "outcome" the paper's
        exp(-k_y y~*) (methods 3). Both in units of N/n, to be scaled to N."""
        assert design.population_size is not None  # require() has checked the design
        k_y, k_x = theta["selection"][0], theta["selection"][1:]
        if self.smoothing == "outcome":
            log_weight = -k_y * simulated.z[:, 0]
        else:
            v_y, v_pi = theta["variance"]
            log_pi = design.matrix.x_cells @ (k_x + k_y * theta["beta"])
            log_weight = -(log_pi + 0.5 * (k_y * k_y * v_y + v_pi))[design.matrix.cell]
        weight: FloatArray = np.exp(log_weight) * (design.population_size / design.n)
        return weight

    def drawn_weight(self, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """N / (n pi~*), pi~* as it was drawn."""
        assert design.population_size is not None  # require() has checked the design
        return np.asarray(np.exp(-simulated.z[:, -1]) * (design.population_size / design.n))

    def log_scales(self, theta: Theta) -> FloatArray:
        """(log s_y, log s_pi), (..., 2)."""
        return np.asarray(0.5 * np.log(theta["variance"]))

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Other residual SDs; coefficients stay."""
        return {**theta, "variance": np.exp(2.0 * log_scales)}

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Residual SD ``spread`` of the outcome, 0.5 of log pi~; the same correlation as in FBS.

        A stand-in for data not yet looked at: location plays no part in the bound.
        """
        k = design.matrix.x_cells.shape[1]
        selection = np.zeros(k + 1)
        selection[0] = 0.25 / spread
        return {
            "beta": np.zeros(k),
            "selection": selection,
            "variance": np.array([spread * spread, 0.1875]),
        }

    def log_density(self, u: FloatArray, stats: GaussianStats) -> tuple[FloatArray, FloatArray]:
        """Weighted log posterior (...) and gradient (..., d) at u (..., d), as in ``fbp.stan``."""
        return _fbp_density.log_density(u, stats, self.priors)

    def constrain(self, u: FloatArray, shape: tuple[int, int]) -> Theta:
        """Parameters at u (..., d); ``shape`` (K, q)."""
        return _fbp_density.constrain(u, shape)

    def unconstrain(self, theta: Theta) -> FloatArray:
        """Inverse of ``constrain``, (..., d)."""
        return _fbp_density.unconstrain(theta)


class _Gibbs:
    """State of a batch of chains, B = databases x chains; one method a block of the sweep."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.stats, self.rng = stats, rng
        self.residual_scale = priors["residual_scale"]
        self.coefficient_precision = priors["coefficient_sd"] ** -2
        self.selection_precision = priors["selection_sd"] ** -2
        self.batch, self.k = stats.fit.shape[:2]
        self.design_gram, self.design_cross = stats.conditional_gram()
        self.cross_y = self.design_gram[:, 0, 1:]
        self.shift = self._constant_coefficients()
        self._start()

    def _constant_coefficients(self) -> FloatArray | None:
        """e (B, K) with X e = 1 on all records with weight, or None.

        None as well where hardly any record has weight: the shift would only be a burden.
        """
        s = self.stats
        if np.any(s.total <= FEW_RECORDS):
            return None
        length = np.sqrt(np.einsum("bkk->bk", s.gram))
        inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        scaled = s.gram * inverse[:, :, None] * inverse[:, None, :]
        solution = np.linalg.pinv(scaled, rcond=1e-12, hermitian=True)
        constant = inverse * np.einsum("bij,bj->bi", solution, inverse * s.x_sum)
        left_over = s.total - np.einsum("bk,bk->b", s.x_sum, constant)
        if np.any(np.abs(left_over) > 1e-9 * s.total):
            return None
        return np.asarray(constant, dtype=np.float64)

    def _start(self) -> None:
        """Overdispersed starts about the least-squares fits."""
        b, s = self.batch, self.stats
        guess = s.start_covariance()
        slope = guess[:, 0, 1] / guess[:, 0, 0]
        remaining = guess[:, 1, 1] - slope * guess[:, 0, 1]
        variance = np.stack([guess[:, 0, 0], remaining], axis=1)
        self.variance = variance * np.exp(0.2 * self.rng.standard_normal((b, 2), 0))
        jitter = overdispersion(s.gram, self.rng, 2) * np.sqrt(variance)[:, None, :]
        self.beta = s.fit[:, :, 0] + jitter[:, :, 0]
        k_y = slope + 0.1 * np.abs(slope) * self.rng.standard_normal((b,), 0)
        k_x = s.fit[:, :, 1] - k_y[:, None] * s.fit[:, :, 0] + jitter[:, :, 1]
        self.selection = np.concatenate([k_y[:, None], k_x], axis=1)

    def state(self) -> Theta:
        """The parameters of the population."""
        return {"beta": self.beta, "selection": self.selection, "variance": self.variance}

    def draw_random_numbers(self, c: int) -> None:
        b, k, tries = self.batch, self.k, primitives.MAX_SHRINKS
        self.n_beta = self.rng.standard_normal((c, b, k), 1)
        self.n_selection = self.rng.standard_normal((c, b, k + 1), 1)
        self.u_level = self.rng.random((c, 2, b), 2)
        self.u_variance = self.rng.random((c, 2, tries, b), 3)

    def sweep(self, i: int) -> None:
        if self.shift is not None and i % 2 == 1:
            self._sweep_of_sample(i, self.shift)
        else:
            self._sweep_of_population(i)

    def _sweep_of_sample(self, i: int, e: FloatArray) -> None:
        """One sweep over (b, k_y, c, s_y^2, s_pi^2) with b = beta + k_y s_y^2 e and
        c = k_x + s_pi^2 e, where X e = 1: the coefficients of the implied sample distribution
        (methods 3), y~ ~ N(x b, s_y^2) and log pi~ | y~ ~ N(k_y y~ + x c, s_pi^2).

        The likelihood keeps its parts apart there and only the priors of beta and k_x tie them.
        In (beta, k_x) the tilt ties them, the closer the wider log pi~ and the stronger the
        selection: a chain that alternates moves as freely as the better of the two allows.
        """
        s, norm = self.stats, np.einsum("bk,bk->b", e, e)
        tau, tau_pi = self.coefficient_precision, self.selection_precision
        k_y = self.selection[:, 0]
        v_y, v_pi = self.variance.T
        precision = s.gram / v_y[:, None, None] + tau * np.eye(self.k)
        linear = self.cross_y / v_y[:, None] + tau * (k_y * v_y)[:, None] * e
        b = primitives.normal_from_precision(precision, linear, self.n_beta[i])
        along = np.einsum("bk,bk->b", e, b)
        precision = self.design_gram / v_pi[:, None, None] + tau_pi * np.eye(self.k + 1)
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
            v_y, s.total, squares_y, tau * k_y * k_y * norm, tau * k_y * along, prior,
            level[0], uniforms[0],
        )  # fmt: skip
        v_pi = primitives.slice_shifted_variances(
            v_pi, s.total, squares_pi, tau_pi * norm, tau_pi * along_pi, prior,
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
        precision = s.gram / v_y[:, None, None] + self.coefficient_precision * np.eye(self.k)
        linear = self.cross_y / v_y[:, None] - k_y[:, None] * s.x_sum
        self.beta = primitives.normal_from_precision(precision, linear, self.n_beta[i])
        # (k_y, k_x) | .: linear in k_x, quadratic in k_y.
        precision = self.design_gram / v_pi[:, None, None]
        precision = precision + self.selection_precision * np.eye(self.k + 1)
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
            v_y, s.total, s.total * k_y * k_y, squares_y, prior, level[0], uniforms[0]
        )
        v_pi = primitives.slice_variances(
            v_pi, s.total, s.total, squares_pi, prior, level[1], uniforms[1]
        )
        self.variance = np.stack([v_y, v_pi], axis=1)
