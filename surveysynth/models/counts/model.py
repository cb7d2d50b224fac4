"""Poisson and negative binomial regressions of a count (methods 3).

    y | x ~ a distribution of mean mu = exp(x beta)
    beta ~ N(0, D Omega D), Omega ~ LKJ(6), D = diag(sigma_k), sigma_k ~ half-t3(0, 1)
    beta_k ~ N(0, interaction_scale^2) for columns k of interactions
    log w | y, x ~ N(x gamma + delta log(1 + y), s^2)      where the design has a weight

The outcome enters without a transform: whole numbers. A negative binomial has the variance
mu + mu^2 / phi; ``log_phi`` (..., 1) is its, and (..., 0) a Poisson's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import INTERACTION_PRIOR, Simulated, SimulationKind, require
from surveysynth.models.counts.sampler import CountSampler
from surveysynth.models.counts.stats import CountStats, compress, count_records, log_rising
from surveysynth.models.parts import survey_weight
from surveysynth.models.parts.coefficients import INTERACTIONS
from surveysynth.models.parts.pairs import PairRecords, log_lik_blocks
from surveysynth.models.weighted import WeightedModel
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.sampling.sweeps import Streams, run_sweeps
from surveysynth.survey.survey import Confidential, PublicDesign
from surveysynth.survey.transforms import Transform

#: Means and counts above this are reported as infinite.
LARGEST = 1e15


def _data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """Return what the programs need of one database, JSON-ready."""
    inside, k = stats.mass[0] > 0, stats.x.shape[-1]
    data = {
        "K": k, "G": int(inside.sum()), "x": stats.x[0, inside].tolist(),
        "mass": stats.mass[0, inside].tolist(), "sums": stats.sums[0, inside].tolist(),
        "log_factorials": float(stats.log_factorials[0, 0]),
        "coefficient_scale_prior": priors["coefficient_scale"], "lkj": priors["lkj"],
        **survey_weight.stan_data(stats.weight, k, priors),
        "K_shrunken": stats.shrunken, INTERACTION_PRIOR: priors[INTERACTION_PRIOR],
    }  # fmt: skip
    if "overdispersion_scale" in priors:
        values = {"D": stats.values[0].size, "values": stats.values[0].tolist()}
        data |= {**values, "value_mass": stats.value_mass[0].tolist()}
        data["overdispersion_scale"] = priors["overdispersion_scale"]
    return data


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    """Turn Stan's draws by name into Theta."""
    names = [name for name in ("beta", "overdispersion", "coefficient_scale") if name in draws]
    root = draws["coefficient_root"]
    correlation = {"coefficient_correlation": root @ root.swapaxes(-1, -2)}
    return {name: draws[name] for name in names} | correlation | survey_weight.stan_theta(draws)


class CountModel(WeightedModel):
    """A count regression, with phi if its priors have a scale of it."""

    requires = frozenset({"one_outcome"})
    takes_count = True
    batched = True
    common_random_numbers = True
    scales = MappingProxyType({"overdispersion": 1.0, "weight_variance": 0.5})
    # Counts are skewed: their long upper tail loses most weight, and the mean with it.
    locations = ("beta",)
    default_priors = MappingProxyType(
        {"coefficient_scale": 1.0, "lkj": 6.0, **INTERACTIONS, **survey_weight.PRIORS}
    )

    def records(self, design: PublicDesign, confidential: Confidential) -> PairRecords:
        """Return the records.

        Raises ``InputError`` for an outcome that is transformed or not a count; the message counts
        the records and shows no value.
        """
        require(self.of(design), design)
        if design.transforms[0] != Transform("identity"):
            raise InputError(
                f"The model {self.name!r} takes a count without a transform, got "
                f"{design.transforms[0].describe('y')}: set transform = 'identity' and leave out "
                "transform_scale."
            )
        y = confidential.outcome[:, 0]
        wrong = int(np.count_nonzero(~((y >= 0) & (y == np.rint(y)) & np.isfinite(y))))
        if wrong:
            raise InputError(
                f"The model {self.name!r} takes an outcome of whole numbers, zero or above; "
                f"{design.outcome_names[0]!r} has other values in {wrong:,} of {design.n:,} "
                "records. Correct them, or use the model 'normal' or 'fbs' for a measured outcome."
            )
        records: PairRecords = super().records(design, confidential)
        return records

    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> PairRecords:
        """Return the records of a simulated dataset: the count, then any log weight."""
        (y, *rest), matrix = simulated.z.T, design.matrix
        log_weight, pseudo = (rest[0] if rest else None), design.pseudo or 0.0
        return count_records(matrix.x_cells, matrix.cell, y, log_weight, matrix.shrunken, pseudo)

    def compress(self, records: PairRecords, risk_weights: FloatArray) -> CountStats:
        """Compute sums by cell and by distinct count (methods 4)."""
        return compress(records, risk_weights, self.priors[INTERACTION_PRIOR])

    def sample(
        self,
        stats: CountStats,
        plan: SamplingPlan,
        rng: np.random.Generator | Sequence[np.random.Generator],
    ) -> Theta:
        """Draw the count's parameters, then those of the weight, independent given the data.

        Leading axes (databases, chains, draws): beta (..., K), overdispersion (..., 1) where the
        model has it, coefficient_scale (..., K), coefficient_correlation (..., K, K) and, with a
        weight, weight_coefficients (..., 1 + K) = (delta, gamma) and weight_variance (..., 1).
        """
        streams = Streams.of(rng, stats.mass.shape[0], plan.chains)
        with np.errstate(over="ignore", under="ignore"):
            theta = run_sweeps(CountSampler(stats, self.priors, streams), plan)
        if stats.weight is not None:
            theta |= survey_weight.sample(stats.weight, self.priors, plan, streams)
        return theta

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return coefficients of both parts and logs of scales."""
        of_phi = {"log_overdispersion": log_phi(theta)} if "overdispersion" in theta else {}
        return {"beta": theta["beta"], **of_phi, **survey_weight.monitored(theta)}

    def log_lik_blocks(
        self, theta: Theta, records: PairRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Stream unweighted log-likelihoods, (rows, (S, rows)), of count and weight together."""
        return log_lik_blocks(_log_mass, theta, records)

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Draw y* and log w*; both kinds are the same. An impossibly large count is infinite."""
        x = design.matrix.x_cells[design.matrix.cell]
        with np.errstate(over="ignore"):
            mu = np.exp(x @ theta["beta"])
        if "overdispersion" in theta:
            # A gamma variable of mean one; its shape is cut where that is constant to a double.
            shape = np.full(mu.shape, np.minimum(theta["overdispersion"], LARGEST))
            mu = mu * rng.standard_gamma(shape) / shape
        drawn = rng.poisson(np.where(mu < LARGEST, mu, 0.0))
        y = np.where(mu < LARGEST, drawn, np.inf)
        return survey_weight.joined(theta, y, np.log1p(y), x, rng)

    def smooth_weight(self, theta: Theta, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """Return E(w | y*) (methods 3); a survey without weights counts every record once."""
        coefficients, variance = theta.get("weight_coefficients"), theta.get("weight_variance")
        return survey_weight.smoothed(coefficients, variance, np.log1p(simulated.z[:, 0]), design)

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Guess a coefficient of variation ``spread`` of the count, SD 0.5 of the log weight.

        Where the count has two sources of variance, each holds half.
        """
        x, overdispersed = design.matrix.x_cells, "overdispersion_scale" in self.priors
        mean = (1.0 + overdispersed) / (spread * spread)
        beta = np.linalg.lstsq(x, np.full(x.shape[0], np.log(mean)), rcond=None)[0]
        theta: Theta = {"beta": beta}
        if overdispersed:
            theta["overdispersion"] = np.array([mean])
        return theta | survey_weight.guessed(design, spread)


def log_phi(theta: Theta) -> FloatArray:
    """Return log phi (..., 1), or (..., 0) for a model without it."""
    return np.log(theta.get("overdispersion", theta["beta"][..., :0]))


def _log_mass(theta: Theta, y: FloatArray, x: FloatArray) -> FloatArray:
    """Return log probabilities (S, P) of pairs y (P,), x (P, K) under S draws."""
    eta, at = theta["beta"] @ x.T, log_phi(theta)
    if not at.size:
        return np.asarray(y * eta - np.exp(eta) - gammaln(y + 1.0))
    values, code = np.unique(y, return_inverse=True)
    constant = log_rising(np.exp(at), values)[0] - gammaln(values + 1.0)
    log_rest = np.logaddexp(0.0, eta - at)
    return np.asarray(y * (eta - at - log_rest) - np.exp(at) * log_rest + constant[:, code])


@dataclass(frozen=True)
class Poisson(CountModel):
    """Poisson regression: y ~ Poisson(exp(x beta))."""

    name = "poisson"
    title = "a Poisson regression of the count"
    stan = StanProgramSpec("poisson.stan", _data, _theta)
    dispersion = 2.0


@dataclass(frozen=True)
class NegativeBinomial(CountModel):
    """Negative binomial regression: 1/phi ~ half-Cauchy(0, 5)."""

    name = "negative_binomial"
    title = "a negative binomial regression of the count"
    stan = StanProgramSpec("negative_binomial.stan", _data, _theta)
    default_priors = MappingProxyType({"overdispersion_scale": 5.0, **CountModel.default_priors})
