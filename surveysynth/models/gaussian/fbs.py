"""FBS: fully Bayes for the observed sample ([T] 2.1, App. C; methods 3).

    (y~_i, w~_i) ~ N(x_i [beta_y beta_w], Sigma),  y~ = transform(y), w~ = log w

for any number of outcomes: q = p + 1 columns, the log weight last. With PSUs the mean also has an
effect of the PSU, a_c ~ N(0, T). The sampler is blocked Gibbs on weighted sufficient statistics
(methods 4), batched over databases and chains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import Model, Simulated, SimulationKind, psu_codes
from surveysynth.models.gaussian.gaussian_model import GaussianModel
from surveysynth.models.general_location.forms import GeneralFBS, general_form
from surveysynth.models.general_location.model import OWN_PRIORS
from surveysynth.models.options import ColumnNames
from surveysynth.models.parts import log_lik, psu_effects
from surveysynth.models.parts.coefficient_shifts import CoefficientShifts
from surveysynth.models.parts.coefficients import SELDOM, CoefficientBlocks
from surveysynth.models.parts.covariance import CovarianceBlock
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.models.parts.log_lik import QuadraticForm
from surveysynth.models.parts.psu_effects import (
    INTRACLASS_GUESS,
    PSU_COVARIANCE,
    PSU_EFFECT,
    JointCoordinates,
    PsuBlock,
    marginal_likelihood,
)
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.sampling.sweeps import Streams, run_sweeps
from surveysynth.survey.survey import PublicDesign


def _data(stats: GaussianStats, priors: Mapping[str, float]) -> dict[str, Any]:
    k, q = stats.fit.shape[-2:]
    return {
        "K": k,
        "q": q,
        **stats.stan_data(),
        **psu_effects.stan_data(stats, priors),
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
        **psu_effects.stan_theta(draws),
    }


STAN = StanProgramSpec(program="fbs.stan", data=_data, theta=_theta)


class Gibbs:
    """State of a batch of chains, B = databases x chains."""

    #: Sweeps between draws of what the coefficients' prior learns.
    every = SELDOM

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
            stats.gram, stats.fit, spread, priors, rng, stats.ridges, self.every
        )

    def state(self) -> Theta:
        """Return the parameters of both blocks."""
        return {
            "beta": self.coefficients.beta,
            "covariance": self.residual.covariance,
            "coefficient_scale": self.coefficients.scale,
            "coefficient_correlation": self.coefficients.correlation,
        }

    def observe(self, stats: GaussianStats) -> None:
        """Take other values z on the same X, for statistics that change between sweeps."""
        self.stats = stats
        self.coefficients.observe(stats.fit)

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


class ClusteredGibbs(Gibbs):
    """The same with effects of PSUs.

    A sweep moves coefficients with their scales (``CoefficientShifts``), then draws them, both with
    the effects integrated out, then effects, then both covariances. PSUs lie within strata, whose
    coefficients compete with mean effects: drawn in turn, both would move slowly. Where two PSUs
    are all that a stratum has, the scales of its coefficients matter.
    """

    every = (1, 1)

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        super().__init__(stats, priors, rng)
        assert stats.psu is not None  # the sampler is chosen by that
        self.psu_stats = stats.psu
        inflation = np.exp(rng.standard_normal((stats.total.shape[0], 1, 1), 0))
        start = INTRACLASS_GUESS * inflation * stats.start_covariance()
        self.psu = PsuBlock(stats.psu, start, priors, rng)
        residual = self.residual.covariance
        coordinates = JointCoordinates.of(residual, start)
        precision, _ = marginal_likelihood(stats.psu, stats.gram, stats.fit, coordinates)
        variance = np.einsum("bjj->bj", residual)
        self.shifts = CoefficientShifts(precision, variance, self.coefficients.free, rng)

    def state(self) -> Theta:
        """Return the parameters of all blocks, and the effects of the sampled PSUs."""
        return {
            **super().state(),
            PSU_COVARIANCE: self.psu.covariance,
            PSU_EFFECT: self.psu.effects,
        }

    def observe(self, stats: GaussianStats) -> None:
        """Take other values z on the same X, for statistics that change between sweeps."""
        super().observe(stats)
        assert stats.psu is not None  # they were there at the start
        self.psu_stats = self.psu.psu = stats.psu

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps of all blocks."""
        super().draw_random_numbers(c)
        self.shifts.draw_random_numbers(c)
        self.psu.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        stats, psu = self.stats, self.psu
        coordinates = JointCoordinates.of(self.residual.covariance, psu.covariance)
        likelihood = marginal_likelihood(self.psu_stats, stats.gram, stats.fit, coordinates)
        self.shifts.move(i, self.coefficients, *likelihood)
        self.coefficients.update_given(i, *likelihood)
        beta = self.coefficients.beta
        residual = self.psu_stats.residual_at(beta - stats.fit)
        psu.draw_effects(i, coordinates, residual)
        self.residual.update(i, psu.sum_of_squares(stats.sum_of_squares(beta), residual))
        psu.update(i, self.residual.covariance, residual)


@dataclass(frozen=True)
class FBS(GaussianModel):
    """The sample synthesizer: z (n, p + 1), transformed outcomes, then the log weight.

    Where weights are public, z is (n, p): the same model of the outcomes alone.

    covariance_by: public columns whose cells differ in residual spread; None for by and strata.
    With any, or with outcomes that have a discrete part or bounds, the model takes the form of a
    general location model (``of``); ``general``: for every design.
    """

    covariance_by: tuple[str, ...] | None = ()
    general: bool = False

    name = "fbs"
    title = "FBS (fully Bayes model for the observed sample)"
    requires = frozenset({"weight"})
    clustered = True
    takes_learned_weight = True
    kinds = ("continuous", "semicontinuous", "count", "binary", "categorical")
    stan = STAN
    options = MappingProxyType({"covariance_by": ColumnNames(None)})
    default_priors = MappingProxyType(
        {
            "coefficient_scale": 10.0,
            "residual_scale": 10.0,
            "psu_scale": 10.0,
            "lkj": 6.0,
            **OWN_PRIORS,
        }
    )

    def of(self, design: PublicDesign) -> Model:
        """Return the model itself, or its general form where the design needs that."""
        return general_form(
            GeneralFBS, design, self.covariance_by, self.changed_priors, self.engine,
            always=self.general,
        ) or self  # fmt: skip

    def under_noise(self) -> Model:
        """Return the model that always takes its general form."""
        return replace(self, general=True)

    def sample(
        self,
        stats: GaussianStats,
        plan: SamplingPlan,
        rng: np.random.Generator | Sequence[np.random.Generator],
    ) -> Theta:
        """Draw by Gibbs: beta (..., K, q), covariance (..., q, q) and the coefficients' prior.

        That is coefficient_scale (..., q, K) and coefficient_correlation (..., K, K). Leading axes
        are (databases, chains, draws). With PSUs also psu_covariance (..., q, q) and the effects
        (..., C, q), which stay in the mechanism.
        """
        streams = Streams.of(rng, stats.total.shape[0], plan.chains)
        sampler = Gibbs if stats.psu is None else ClusteredGibbs
        return run_sweeps(sampler(stats.repeated(plan.chains), self.priors, streams), plan)

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return coefficients, log SDs (residuals, PSUs) and residual correlations (Fisher's z)."""
        covariance = theta["covariance"]
        log_sd = self.log_scales(theta)
        sd = np.exp(log_sd)
        row, column = np.tril_indices(covariance.shape[-1], -1)
        beta = theta["beta"]
        monitored = {"beta": beta.reshape(*beta.shape[:-2], -1), "log_residual_sd": log_sd}
        if row.size:  # one outcome and public weights have none
            correlation = covariance[..., row, column] / (sd[..., row] * sd[..., column])
            monitored["residual_correlation"] = np.arctanh(correlation)
        if PSU_COVARIANCE in theta:
            monitored["log_psu_sd"] = psu_effects.log_psu_sd(theta)
        return monitored

    def quadratic_form(
        self, theta: Theta, x_cells: FloatArray, centre: FloatArray, psu: IntArray | None = None
    ) -> QuadraticForm:
        """Return the coefficients of log N(z | x beta + a_c, Sigma) about ``centre``.

        They are for S draws and the blocks given, conditional on the effects of their PSUs.
        """
        effect = psu_effects.effects_of(theta, psu)
        return log_lik.normal_form(theta["beta"], theta["covariance"], x_cells, centre, effect)

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draw (y~*, w~*) with fresh effects of all PSUs; both kinds are the same."""
        mean = (design.matrix.x_cells @ theta["beta"])[design.matrix.cell]
        mean = mean + psu_effects.fresh_effects(theta, design.psu, rng)
        root = np.linalg.cholesky(theta["covariance"])
        return Simulated(mean + rng.standard_normal(mean.shape) @ root.T)

    def smooth_weight(
        self, theta: Theta, design: PublicDesign, simulated: Simulated
    ) -> FloatArray:
        """Return E(w | y~*) (methods 3), for any number of outcomes.

        With PSUs the covariance is that of residuals and effects together.
        """
        if design.weight_name is None:
            return self.drawn_weight(design, simulated)
        beta, covariance = theta["beta"], theta["covariance"]
        if PSU_COVARIANCE in theta:
            covariance = covariance + theta[PSU_COVARIANCE]
        mean = (design.matrix.x_cells @ beta)[design.matrix.cell]
        slope = np.linalg.solve(covariance[:-1, :-1], covariance[:-1, -1])
        remaining = covariance[-1, -1] - covariance[-1, :-1] @ slope
        deviation = simulated.z[:, :-1] - mean[:, :-1]
        return design.weight_transform.mean_of_inverse(mean[:, -1] + deviation @ slope, remaining)

    def log_scales(self, theta: Theta) -> FloatArray:
        """Return log residual SDs (..., q)."""
        return np.asarray(0.5 * np.log(np.einsum("...kk->...k", theta["covariance"])))

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Replace residual SDs, and SDs of PSU effects in the same ratio.

        Coefficients and correlations stay.
        """
        factor = np.exp(log_scales - self.log_scales(theta))
        theta = psu_effects.rescaled_psus(theta, factor)
        covariance = theta["covariance"] * factor[..., :, None] * factor[..., None, :]
        return {**theta, "covariance": covariance}

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Guess residual SD ``spread`` of each outcome, that of the weight, correlation -0.5.

        Location does not affect the bound. With PSUs, their effects hold a twentieth of the
        variance, as in many household surveys.
        """
        p = len(design.outcome_names)
        q = p if design.weight_name is None else p + 1
        correlation, sd = np.eye(q), np.full(q, spread)
        if q > p:
            correlation[-1, :-1] = correlation[:-1, -1] = -0.5 / np.sqrt(p)
            sd[-1] = design.guessed_weight_sd
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
