"""FBS: fully Bayes for the observed sample ([T] 2.1, App. C; methods 3).

    (y~_i, w~_i) ~ N(x_i [beta_y beta_w], Sigma),  y~ = transform(y), w~ = log w

for any number of outcomes: q = p + 1 columns, the log weight last. With PSUs the mean has an effect
a_c ~ N(0, T) of each besides. Blocked Gibbs on weighted sufficient statistics (methods 4), batched
over databases and chains.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from surveysynth._types import FloatArray, IntArray, Theta
from surveysynth.models import _fbs_density, _log_lik, _psu_effects, gaussian
from surveysynth.models._coefficients import CoefficientBlocks
from surveysynth.models._covariance import CovarianceBlock
from surveysynth.models._log_lik import QuadraticForm
from surveysynth.models._psu_effects import (
    PSU_COVARIANCE,
    PSU_EFFECT,
    JointCoordinates,
    PsuBlock,
    marginal_likelihood,
)
from surveysynth.models._sweeps import run_sweeps
from surveysynth.models.base import (
    SamplingPlan,
    Simulated,
    SimulationKind,
    StanProgramSpec,
    psu_codes,
    require,
)
from surveysynth.models.gaussian import GaussianRecords, GaussianStats
from surveysynth.sampling.streams import Streams
from surveysynth.survey import Confidential, PublicDesign

PRIORS: Mapping[str, float] = MappingProxyType(
    {"coefficient_scale": 10.0, "residual_scale": 10.0, "psu_scale": 10.0, "lkj": 6.0}
)

#: Share of the variance that lies between PSUs, in the guess of ``surveysynth check``.
INTRACLASS_GUESS = 0.05


@dataclass(frozen=True)
class FBS:
    """The sample synthesizer. ``priors`` overrides the scales of methods 3 by name."""

    priors: Mapping[str, float] = field(default_factory=lambda: PRIORS)
    name: str = "fbs"
    title: str = "FBS (fully Bayes model for the observed sample)"
    requires: frozenset[str] = frozenset({"weight"})
    batched: bool = True
    identified: bool = True
    tilted: bool = False
    clustered: bool = True
    stan: StanProgramSpec | None = _fbs_density.STAN

    def __post_init__(self) -> None:
        object.__setattr__(self, "priors", MappingProxyType({**PRIORS, **self.priors}))

    def records(self, design: PublicDesign, confidential: Confidential) -> GaussianRecords:
        """z (n, p + 1): transformed outcomes, then the log weight."""
        require(self, design)
        assert confidential.sampling_weight is not None  # require() has checked the design
        outcomes = [
            transform.forward(confidential.outcome[:, j])
            for j, transform in enumerate(design.transforms)
        ]
        z = np.stack([*outcomes, np.log(confidential.sampling_weight)], axis=1)
        return self.records_from_simulated(design, Simulated(z))

    def records_from_simulated(
        self, design: PublicDesign, simulated: Simulated
    ) -> GaussianRecords:
        """Records of a dataset that is already on the model's scale."""
        matrix = design.matrix
        return GaussianRecords(matrix.x_cells, matrix.cell, simulated.z, psu_codes(self, design))

    def compress(self, records: GaussianRecords, risk_weights: FloatArray) -> GaussianStats:
        """Weighted sufficient statistics (methods 4)."""
        return gaussian.compress(records, risk_weights)

    def sample(
        self,
        stats: GaussianStats,
        plan: SamplingPlan,
        rng: np.random.Generator | Sequence[np.random.Generator],
    ) -> Theta:
        """Gibbs draws: beta (..., K, q), covariance (..., q, q), coefficient_scale (..., q, K),
        coefficient_correlation (..., K, K), leading axes (databases, chains, draws); with PSUs
        psu_covariance (..., q, q) and the effects (..., C, q), which stay in the mechanism."""
        streams = Streams.of(rng, stats.total.shape[0], plan.chains)
        sampler = _Gibbs if stats.psu is None else _ClusteredGibbs
        return run_sweeps(sampler(stats.repeated(plan.chains), self.priors, streams), plan)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Coefficients, log residual SDs, residual correlations (Fisher's z), log PSU SDs."""
        covariance = theta["covariance"]
        log_sd = self.log_scales(theta)
        sd = np.exp(log_sd)
        row, column = np.tril_indices(covariance.shape[-1], -1)
        correlation = covariance[..., row, column] / (sd[..., row] * sd[..., column])
        beta = theta["beta"]
        monitored = {
            "beta": beta.reshape(*beta.shape[:-2], -1),
            "log_residual_sd": log_sd,
            "residual_correlation": np.arctanh(correlation),
        }
        if PSU_COVARIANCE in theta:
            monitored["log_psu_sd"] = _psu_effects.log_psu_sd(theta)
        return monitored

    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray, psu: IntArray | None = None
    ) -> QuadraticForm:
        """Coefficients of log N(z | x beta + a_c, Sigma) about ``centre``: S draws, the blocks
        given, conditional on the effects of their PSUs."""
        effect = _psu_effects.effects_of(theta, psu)
        return _log_lik.normal_form(theta["beta"], theta["covariance"], x_cells, centre, effect)

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
        """Draws (y~*, w~*), with fresh effects of all PSUs; the sample's own model, so both kinds
        are the same."""
        mean = (design.matrix.x_cells @ theta["beta"])[design.matrix.cell]
        mean = mean + _psu_effects.fresh_effects(theta, design.psu, rng)
        root = np.linalg.cholesky(theta["covariance"])
        return Simulated(mean + rng.standard_normal(mean.shape) @ root.T)

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """E(w | y~*), methods 3: the conditional mean, for any number of outcomes, record by record
        (with PSUs under the covariance of residuals and effects together)."""
        beta, covariance = theta["beta"], theta["covariance"]
        if PSU_COVARIANCE in theta:
            covariance = covariance + theta[PSU_COVARIANCE]
        mean = (design.matrix.x_cells @ beta)[design.matrix.cell]
        slope = np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
        remaining = covariance[-1, -1] - covariance[-1, :-1] @ slope
        deviation = simulated.z[:, :-1] - mean[:, :-1]
        smoothed: FloatArray = np.exp(mean[:, -1] + deviation @ slope + 0.5 * remaining)
        return smoothed

    def drawn_weight(self, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """w* as it was drawn."""
        return np.asarray(np.exp(simulated.z[:, -1]))

    def log_scales(self, theta: Theta) -> FloatArray:
        """Log residual SDs (..., q)."""
        return np.asarray(0.5 * np.log(np.einsum("...kk->...k", theta["covariance"])))

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Other residual SDs, and SDs of PSU effects in the same ratio; coefficients and
        correlations stay."""
        factor = np.exp(log_scales - self.log_scales(theta))
        theta = _psu_effects.rescaled_psus(theta, factor)
        covariance = theta["covariance"] * factor[..., :, None] * factor[..., None, :]
        return {**theta, "covariance": covariance}

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Residual SD ``spread`` of each outcome and 0.5 of the log weight, correlated by -0.5.

        A stand-in for data not yet looked at: location plays no part in the bound. With PSUs, their
        effects hold a twentieth of the variance, as in many household surveys.
        """
        q = len(design.outcome_names) + 1
        correlation = np.eye(q)
        correlation[-1, :-1] = correlation[:-1, -1] = -0.5 / np.sqrt(q - 1)
        sd = np.array([spread] * (q - 1) + [0.5])
        beta = np.zeros((design.matrix.x_cells.shape[1], q))
        covariance = correlation * sd[:, None] * sd
        if psu_codes(self, design) is None:
            return {"beta": beta, "covariance": covariance}
        share = INTRACLASS_GUESS
        return {
            "beta": beta,
            "covariance": (1.0 - share) * covariance,
            PSU_COVARIANCE: share * covariance,
        }

    def log_density(self, u: FloatArray, stats: GaussianStats) -> tuple[FloatArray, FloatArray]:
        """Weighted log posterior (...) and gradient (..., d) at u (..., d), as in ``fbs.stan``."""
        return _fbs_density.log_density(u, stats, self.priors)

    def constrain(self, u: FloatArray, shape: tuple[int, int]) -> Theta:
        """Parameters at u (..., d); ``shape`` (K, q)."""
        return _fbs_density.constrain(u, shape)

    def unconstrain(self, theta: Theta) -> FloatArray:
        """Inverse of ``constrain``, (..., d)."""
        return _fbs_density.unconstrain(theta)


class _Gibbs:
    """State of a batch of chains, B = databases x chains; one method a block of the sweep."""

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
        """The parameters of both blocks."""
        return {
            "beta": self.coefficients.beta,
            "covariance": self.residual.covariance,
            "coefficient_scale": self.coefficients.scale,
            "coefficient_correlation": self.coefficients.correlation,
        }

    def observe(self, stats: GaussianStats) -> None:
        """Other values z on the same X, for statistics that change between sweeps."""
        self.stats = stats
        self.coefficients.observe(stats.fit)

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps of both blocks."""
        self.coefficients.draw_random_numbers(c)
        self.residual.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        squares = self.stats.sum_of_squares(self.coefficients.beta)
        self.residual.update(i, squares)
        inverse = np.asarray(np.linalg.inv(self.residual.covariance), dtype=np.float64)
        self.coefficients.update(i, inverse)


class _ClusteredGibbs(_Gibbs):
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
        return {
            **super().state(),
            PSU_COVARIANCE: self.psu.covariance,
            PSU_EFFECT: self.psu.effects,
        }

    def observe(self, stats: GaussianStats) -> None:
        super().observe(stats)
        assert stats.psu is not None  # they were there at the start
        self.psu_stats = self.psu.psu = stats.psu

    def draw_random_numbers(self, c: int) -> None:
        super().draw_random_numbers(c)
        self.psu.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        stats, psu = self.stats, self.psu
        coordinates = JointCoordinates.of(self.residual.covariance, psu.covariance)
        likelihood = marginal_likelihood(self.psu_stats, stats.gram, stats.fit, coordinates)
        self.coefficients.update_given(i, *likelihood)
        beta = self.coefficients.beta
        residual = self.psu_stats.residual_at(beta - stats.fit)
        psu.draw_effects(i, coordinates, residual)
        self.residual.update(i, psu.sum_of_squares(stats.sum_of_squares(beta), residual))
        psu.update(i, self.residual.covariance, residual)
