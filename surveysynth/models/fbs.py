"""FBS: fully Bayes for the observed sample ([T] 2.1, App. C; methods 3).

    (y~_i, w~_i) ~ N(x_i [beta_y beta_w], Sigma),  y~ = transform(y), w~ = log w

for any number of outcomes: q = p + 1 columns, the log weight last. Blocked Gibbs on weighted
sufficient statistics (methods 4), batched over databases and chains.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from surveysynth._types import FloatArray, IntArray, Theta
from surveysynth.models import _fbs_density, gaussian
from surveysynth.models._coefficient_prior import HALF_T_DF
from surveysynth.models._coefficients import CoefficientBlocks
from surveysynth.models.base import (
    SamplingPlan,
    Simulated,
    SimulationKind,
    StanProgramSpec,
    by_chain,
    require,
)
from surveysynth.models.gaussian import GaussianRecords, GaussianStats, QuadraticForm
from surveysynth.sampling import primitives
from surveysynth.survey import Confidential, PublicDesign

PRIORS: Mapping[str, float] = MappingProxyType(
    {"coefficient_scale": 10.0, "residual_scale": 10.0, "lkj": 6.0}
)


@dataclass(frozen=True)
class FBS:
    """The sample synthesizer. ``priors`` overrides the scales of methods 3 by name."""

    priors: Mapping[str, float] = field(default_factory=lambda: PRIORS)
    name: str = "fbs"
    title: str = "FBS (fully Bayes model for the observed sample)"
    requires: frozenset[str] = frozenset({"weight"})
    batched: bool = True
    identified: bool = True
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
        return GaussianRecords(design.matrix.x_cells, design.matrix.cell, simulated.z)

    def compress(self, records: GaussianRecords, risk_weights: FloatArray) -> GaussianStats:
        """Weighted sufficient statistics (methods 4)."""
        return gaussian.compress(records, risk_weights)

    def sample(self, stats: GaussianStats, plan: SamplingPlan, rng: np.random.Generator) -> Theta:
        """Gibbs draws: beta (..., K, q), covariance (..., q, q), coefficient_scale (..., q, K),
        coefficient_correlation (..., K, K), leading axes (databases, chains, draws)."""
        return _Gibbs(stats.repeated(plan.chains), self.priors, rng).run(plan)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Coefficients, log residual SDs, residual correlations (Fisher's z)."""
        covariance = theta["covariance"]
        log_sd = 0.5 * np.log(np.einsum("...kk->...k", covariance))
        sd = np.exp(log_sd)
        row, column = np.tril_indices(covariance.shape[-1], -1)
        correlation = covariance[..., row, column] / (sd[..., row] * sd[..., column])
        beta = theta["beta"]
        return {
            "beta": beta.reshape(*beta.shape[:-2], -1),
            "log_residual_sd": log_sd,
            "residual_correlation": np.arctanh(correlation),
        }

    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray
    ) -> QuadraticForm:
        """Coefficients of log N(z | x beta, Sigma) about ``centre``: S draws, the cells given."""
        return gaussian.normal_form(theta["beta"], theta["covariance"], x_cells, centre)

    def log_lik_blocks(
        self, theta: Theta, records: GaussianRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Streams unweighted log-likelihoods, (rows, (S, rows)) (methods 4)."""
        return gaussian.log_lik_blocks(self.quadratic_form, theta, records)

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draws (y~*, w~*); the sample's own model, so both kinds are the same."""
        mean = (design.matrix.x_cells @ theta["beta"])[design.matrix.cell]
        root = np.linalg.cholesky(theta["covariance"])
        return Simulated(mean + rng.standard_normal(mean.shape) @ root.T)

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """E(w | y~*), methods 3: the conditional mean, for any number of outcomes."""
        beta, covariance = theta["beta"], theta["covariance"]
        mean = (design.matrix.x_cells @ beta)[design.matrix.cell]
        slope = np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
        remaining = covariance[-1, -1] - covariance[-1, :-1] @ slope
        deviation = simulated.z[:, :-1] - mean[:, :-1]
        smoothed: FloatArray = np.exp(mean[:, -1] + deviation @ slope + 0.5 * remaining)
        return smoothed

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Residual SD ``spread`` of each outcome and 0.5 of the log weight, correlated by -0.5.

        A stand-in for data not yet looked at: location plays no part in the bound.
        """
        q = len(design.outcome_names) + 1
        correlation = np.eye(q)
        correlation[-1, :-1] = correlation[:-1, -1] = -0.5 / np.sqrt(q - 1)
        sd = np.array([spread] * (q - 1) + [0.5])
        beta = np.zeros((design.matrix.x_cells.shape[1], q))
        return {"beta": beta, "covariance": correlation * sd[:, None] * sd}

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

    def __init__(
        self, stats: GaussianStats, priors: Mapping[str, float], rng: np.random.Generator
    ) -> None:
        self.stats, self.rng = stats, rng
        self.residual_prior = (HALF_T_DF, priors["residual_scale"])
        self.lkj = priors["lkj"]
        self.batch, _, self.q = stats.fit.shape
        # LKJ(eta) is the correlation of a Wishart with q - 1 + 2 eta degrees of freedom.
        self.columns = round(self.q - 1 + 2 * self.lkj)
        # Below this many effective records the inverse-Wishart proposal is not usable.
        self.few = bool(np.any(stats.total <= self.q + 2))
        spread = self._start()
        self.coefficients = CoefficientBlocks(stats.gram, stats.fit, spread, priors, rng)

    def _start(self) -> FloatArray:
        """An overdispersed start about the least-squares fit, whose covariance it returns."""
        b, q = self.batch, self.q
        spread = self.stats.start_covariance()
        self.covariance = spread * np.exp(self.rng.normal(0.0, 0.2, (b, 1, 1)))
        self.residual_root = self.rng.standard_normal((b, q, self.columns))
        self.correction = self._correction(self.covariance)
        return spread

    def run(self, plan: SamplingPlan) -> Theta:
        """Runs the plan; leading axes of the result (databases, chains, draws)."""
        kept: dict[str, list[FloatArray]] = {
            "beta": [], "covariance": [], "coefficient_scale": [], "coefficient_correlation": []
        }  # fmt: skip
        coefficients = self.coefficients
        chunk = primitives.sweeps_at_once(self.batch * self.q * coefficients.k)
        for sweep in range(plan.warmup + plan.draws):
            if sweep % chunk == 0:
                self._draw_random_numbers(chunk)
            self._sweep(sweep % chunk)
            if sweep >= plan.warmup:
                kept["beta"].append(coefficients.beta)
                kept["covariance"].append(self.covariance)
                kept["coefficient_scale"].append(coefficients.scale)
                kept["coefficient_correlation"].append(coefficients.correlation)
        return by_chain(kept, plan.chains)

    def _draw_random_numbers(self, c: int) -> None:
        b, q, rng = self.batch, self.q, self.rng
        self.coefficients.draw_random_numbers(c)
        if not self.few:
            n_covariance = rng.standard_normal((c, b, q, q))
            u_covariance = rng.random((c, b, q + 1))
            self.wishart_root = primitives.inverse_wishart_root(
                self.stats.total - 1.0, n_covariance, u_covariance[..., :q]
            )
            self.log_u_covariance = np.log(u_covariance[..., q])
        else:
            self.n_residual_root = rng.standard_normal((c, b, q, self.columns))
            self.u_residual_level = rng.random((c, b))
            self.u_residual_angle = rng.random((c, primitives.MAX_SHRINKS, b))
            self.u_residual_scale = rng.random((c, 2, b, q))

    def _sweep(self, i: int) -> None:
        squares = self.stats.sum_of_squares(self.coefficients.beta)
        if self.few:
            self._covariance_by_slice(i, squares)
        else:
            self._covariance_by_proposal(i, squares)
        self.coefficients.update(i, np.asarray(np.linalg.inv(self.covariance), dtype=np.float64))

    def _covariance_by_proposal(self, i: int, squares: FloatArray) -> None:
        """Sigma | beta: IW(A - 1, SSE) differs from the conditional only by the half-t of the
        scales and |Omega|^(eta - 1 + q/2); accept by that ratio."""
        root = np.linalg.cholesky(squares) @ self.wishart_root[i]
        proposal = root @ root.swapaxes(-1, -2)
        correction = self._correction(proposal)
        accept = self.log_u_covariance[i] < correction - self.correction
        self.covariance = np.where(accept[:, None, None], proposal, self.covariance)
        self.correction = np.where(accept, correction, self.correction)

    def _correction(self, covariance: FloatArray) -> FloatArray:
        variance = np.einsum("bkk->bk", covariance)
        log_det = np.log(np.linalg.det(covariance) / variance.prod(axis=1))
        half_t = primitives.half_t_log_density(np.sqrt(variance), *self.residual_prior).sum(1)
        result: FloatArray = half_t + (self.lkj - 1.0 + 0.5 * self.q) * log_det
        return result

    def _covariance_by_slice(self, i: int, squares: FloatArray) -> None:
        """Sigma | beta for few effective records: each scale by slice, Omega_S by an elliptical
        slice. Exact for any A >= 0, the prior itself at A = 0."""
        scale = np.sqrt(np.einsum("bkk->bk", self.covariance))
        total = self.stats.total
        precision = np.linalg.inv(primitives.wishart_correlation(self.residual_root))
        weighted = precision * squares
        for j in range(self.q):
            others = (weighted[:, j] / scale).sum(1) - weighted[:, j, j] / scale[:, j]
            scale[:, j] = primitives.update_scales(
                scale[:, j], total, weighted[:, j, j], -others, self.residual_prior,
                self.u_residual_scale[i, :, :, j],
            )  # fmt: skip
        values, vectors = np.linalg.eigh(squares)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :] / scale[:, :, None]
        self.residual_root = primitives.elliptical_correlation(
            self.residual_root, self.n_residual_root[i], total, factor,
            self.u_residual_level[i], self.u_residual_angle[i],
        )  # fmt: skip
        correlation = primitives.wishart_correlation(self.residual_root)
        self.covariance = correlation * scale[:, :, None] * scale[:, None, :]
