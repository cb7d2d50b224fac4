"""Finite mixture of normal regressions of a transformed outcome ([P] 6.1, methods 3).

    y~ | x ~ sum_h pi_h N(x beta_h, s_h^2), h = 1..H;  H fixed beforehand, larger than needed
    pi ~ Dirichlet(a/H, .., a/H), a ~ Gamma(1, 20): superfluous components stay nearly empty
    beta_h ~ N(0, D Omega D), Omega ~ LKJ(6), D = diag(sigma_k), sigma_k ~ half-t3(0, 1)
    s_h - least_sd ~ half-t3(0, 1)

A design with a survey weight adds log w | y, x ~ N(x gamma + delta y~, s^2). The likelihood raised
to the risk weight of a record is the marginal one, a sum over components.

``least_sd`` is a public constant on the scale of the transform. Without it, values that occur many
times (zeros, rounded figures) would draw a component's SD to zero and the likelihood to infinity.
Labels switch, so monitored scalars do not depend on them. The Stan program is the only sampler.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models import survey_weight
from surveysynth.models.base import Simulated, SimulationKind
from surveysynth.models.gaussian.model import GaussianStats
from surveysynth.models.survey_weight import PairModel, PairRecords, sum_by
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import StanEngine
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.survey.survey import PublicDesign

#: Default of H, and its largest value.
COMPONENTS, MOST_COMPONENTS = 5, 50


@dataclass(frozen=True, repr=False)
class MixtureStats(Unpickled):
    """Weighted data of one database: P pairs of cell and outcome, sorted by cell.

    x (G, K): cells with weight; cell (P,); y (P,); mass (P,): sum of alpha. weight: statistics of
    any weight component. A mixture has no sufficient statistics.
    """

    x: FloatArray
    cell: IntArray
    y: FloatArray
    mass: FloatArray
    weight: GaussianStats | None


def log_shares(logits: FloatArray) -> FloatArray:
    """Return log pi (..., H) of logits (..., H - 1); the first component's logit is zero."""
    full = np.concatenate([np.zeros((*logits.shape[:-1], 1)), logits], axis=-1)
    largest = full.max(axis=-1, keepdims=True)
    total = np.log(np.exp(full - largest).sum(axis=-1, keepdims=True))
    return np.asarray(full - largest - total, dtype=np.float64)


def stan_program(components: int, least_sd: float) -> StanProgramSpec:
    """Return ``normal_mixture.stan`` for a number of components."""

    def data(stats: MixtureStats, priors: Mapping[str, float]) -> dict[str, Any]:
        cells, k = stats.x.shape
        own = ("least_sd", "lkj", "concentration_shape", "concentration_rate")
        return {
            "K": k, "H": components, "G": cells, "x": stats.x.tolist(),
            "P": stats.y.size, "cell": (stats.cell + 1).tolist(), "y": stats.y.tolist(),
            "mass": stats.mass.tolist(),
            "coefficient_scale_prior": priors["coefficient_scale"],
            "residual_scale_prior": priors["residual_scale"],
            **{name: priors[name] for name in own},
            **survey_weight.stan_data(stats.weight, k, priors),
        }  # fmt: skip

    def theta(draws: Mapping[str, FloatArray]) -> Theta:
        root, sd = draws["coefficient_root"], draws["above_least_sd"]
        # One component has no logits, and some interfaces then omit them.
        logits = draws.get("logits", np.empty((*sd.shape[:-1], 0)))
        return {
            "log_shares": log_shares(logits),
            "concentration": draws["concentration"],
            "beta": draws["beta"].swapaxes(-1, -2),
            "residual_sd": least_sd + sd,
            "coefficient_scale": draws["coefficient_scale"],
            "coefficient_correlation": root @ root.swapaxes(-1, -2),
            **survey_weight.stan_theta(draws),
        }

    return StanProgramSpec("normal_mixture.stan", data, theta)


@dataclass(frozen=True)
class NormalMixture(PairModel):
    """The mixture synthesizer with H ``components``, fitted by its Stan program."""

    components: int = COMPONENTS

    name = "normal_mixture"
    title = "a finite mixture of normal regressions of the transformed outcome"
    identified = False
    compiled = True
    default_priors = MappingProxyType(
        {
            "coefficient_scale": 1.0,
            "residual_scale": 1.0,
            "lkj": 6.0,
            "concentration_shape": 1.0,
            "concentration_rate": 20.0,
            "least_sd": 0.1,
            **survey_weight.PRIORS,
        }
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.components
        if type(count) is not int or not 1 <= count <= MOST_COMPONENTS:
            raise InputError(
                f"components must be a whole number from 1 to {MOST_COMPONENTS}, got {count!r}."
            )

    @property
    def stan(self) -> StanProgramSpec | None:
        """Stan program of the mixture."""
        return stan_program(self.components, self.priors["least_sd"])

    @property
    def runner(self) -> StanEngine:
        """The engine given, else that of the environment."""
        return self.engine or StanEngine()

    def sample(
        self, stats: MixtureStats, plan: SamplingPlan, rng: np.random.Generator
    ) -> Theta:
        """Draw by NUTS, leading axes (1, chains, draws).

        log_shares (..., H), concentration (..., 1), beta (..., H, K), residual_sd (..., H),
        coefficient_scale (..., K), coefficient_correlation (..., K, K) and, with a weight,
        weight_coefficients (..., 1 + K) and weight_variance (..., 1).
        """
        return self.posterior_draws(stats, plan, rng)

    def compress(self, records: PairRecords, risk_weights: FloatArray) -> MixtureStats:
        """Sum weights by pair, without pairs of no weight; statistics of the survey weight."""
        mass = sum_by(records.pairs.cell, risk_weights, records.pair_y.size)
        seen = mass > 0
        cells, cell = np.unique(records.pair_cell[seen], return_inverse=True)
        return MixtureStats(
            records.x_cells[cells], cell, records.pair_y[seen], mass[seen],
            records.weight_stats(risk_weights),
        )  # fmt: skip

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return scalars of the outcome that do not depend on how components are labeled.

        These are mean and SD over components of the coefficients, and the residual variance within
        components. A mixture is not identified: components trade places, split and merge while
        these functionals stay, so its parameters cannot show whether chains agree.
        """
        share, beta = np.exp(theta["log_shares"]), theta["beta"]
        mean = np.einsum("...h,...hk->...k", share, beta)
        squares = np.einsum("...h,...hk->...k", share, (beta - mean[..., None, :]) ** 2)
        variance = (share * theta["residual_sd"] ** 2).sum(-1, keepdims=True)
        return {
            "mean_beta": mean,
            "sd_beta": np.sqrt(squares),
            "log_residual_variance": np.log(variance),
            **survey_weight.monitored(theta),
        }

    def log_mass(self, theta: Theta, y: FloatArray, x: FloatArray) -> FloatArray:
        """Return log-likelihoods (S, P) of pairs y (P,), x (P, K) under S draws."""
        log_shares, sd, beta = theta["log_shares"], theta["residual_sd"], theta["beta"]
        constant = log_shares - np.log(sd) - 0.5 * np.log(2.0 * np.pi)
        result = np.full((beta.shape[0], y.size), -np.inf)
        for h in range(beta.shape[1]):
            residual = (y - beta[:, h] @ x.T) / sd[:, h, None]
            result = np.logaddexp(result, constant[:, h, None] - 0.5 * residual * residual)
        return result

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draw component, y~* and log w* afresh for every record; both kinds are the same."""
        x, share = design.matrix.x_cells[design.matrix.cell], np.exp(theta["log_shares"])
        component = rng.choice(share.size, design.n, p=share / share.sum())
        mean = np.einsum("nk,nk->n", x, theta["beta"][component])
        outcome = mean + theta["residual_sd"][component] * rng.standard_normal(design.n)
        return survey_weight.joined(theta, outcome, outcome, x, rng)
