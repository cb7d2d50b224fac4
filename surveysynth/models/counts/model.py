"""Poisson and negative binomial regressions of a count (methods 3).

    y | x ~ a distribution of mean exp(x beta)
    beta ~ N(0, D Omega D), Omega ~ LKJ(6), D = diag(sigma_k), sigma_k ~ half-t3(0, 1)
    beta_k ~ N(0, interaction_scale^2) for columns k of interactions
    log w | y, x ~ N(x gamma + delta log(1 + y), s^2)      where the design has a weight

The outcome enters without a transform: whole numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import INTERACTION_PRIOR, Simulated, SimulationKind, require
from surveysynth.models.counts import sampler
from surveysynth.models.counts.family import NEGATIVE_BINOMIAL, POISSON, CountFamily
from surveysynth.models.counts.stats import CountStats, compress, count_records
from surveysynth.models.parts import survey_weight
from surveysynth.models.parts.coefficients import INTERACTIONS
from surveysynth.models.parts.pairs import PairRecords, log_lik_blocks
from surveysynth.models.weighted import Coordinates, WeightedModel
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.sampling.sweeps import Streams
from surveysynth.survey.survey import Confidential, PublicDesign
from surveysynth.survey.transforms import Transform


def _data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """Return what the programs of both models need of one database, JSON-ready."""
    counts, k = stats.counts, stats.shape[0]
    inside = counts.mass[0] > 0
    return {
        "K": k,
        "G": int(inside.sum()),
        "x": counts.x[0, inside].tolist(),
        "mass": counts.mass[0, inside].tolist(),
        "sums": counts.sums[0, inside].tolist(),
        "log_factorials": float(counts.log_factorials[0]),
        "coefficient_scale_prior": priors["coefficient_scale"],
        "lkj": priors["lkj"],
        **survey_weight.stan_data(stats.weight, k, priors),
        "K_shrunken": counts.shrunken,
        INTERACTION_PRIOR: priors[INTERACTION_PRIOR],
    }


def _overdispersed_data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    values, mass = stats.counts.values[0], stats.counts.value_mass[0]
    return {
        **_data(stats, priors),
        "D": values.size,
        "values": values.tolist(),
        "value_mass": mass.tolist(),
        "overdispersion_scale": priors["overdispersion_scale"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    """Turn Stan's draws by name into Theta."""
    theta = {"beta": draws["beta"]}
    if "overdispersion" in draws:
        theta["overdispersion"] = draws["overdispersion"]
    root = draws["coefficient_root"]
    theta["coefficient_scale"] = draws["coefficient_scale"]
    theta["coefficient_correlation"] = root @ root.swapaxes(-1, -2)
    return {**theta, **survey_weight.stan_theta(draws)}


POISSON_PROGRAM = StanProgramSpec("poisson.stan", _data, _theta)


NEGATIVE_BINOMIAL_PROGRAM = StanProgramSpec("negative_binomial.stan", _overdispersed_data, _theta)


class CountModel(WeightedModel):
    """A count regression; its ``family`` distinguishes the two."""

    requires = frozenset({"one_outcome"})
    takes_count = True
    batched = True
    common_random_numbers = True
    default_priors = MappingProxyType(
        {"coefficient_scale": 1.0, "lkj": 6.0, **INTERACTIONS, **survey_weight.PRIORS}
    )

    family: ClassVar[CountFamily]

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
        z = simulated.z
        log_weight = z[:, 1] if z.shape[1] > 1 else None
        matrix = design.matrix
        return count_records(
            matrix.x_cells, matrix.cell, z[:, 0], log_weight, matrix.shrunken, design.pseudo or 0.0
        )

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
        streams = Streams.of(rng, stats.counts.mass.shape[0], plan.chains)
        theta = sampler.sample(self.family, stats.counts, self.priors, plan, streams)
        if stats.weight is not None:
            theta |= survey_weight.sample(stats.weight, self.priors, plan, streams)
        return theta

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return coefficients of both parts and logs of scales."""
        logs = {"overdispersion": "log_overdispersion", "weight_variance": "log_weight_variance"}
        monitored = {"beta": theta["beta"]}
        for name, log_name in logs.items():
            if name in theta:
                monitored[log_name] = np.log(theta[name])
        if "weight_coefficients" in theta:
            monitored["weight_coefficients"] = theta["weight_coefficients"]
        return monitored

    def log_scales(self, theta: Theta) -> FloatArray:
        """Return (..., d): log phi where the model has it, log s where there is a weight."""
        parts = [np.empty((*theta["beta"].shape[:-1], 0))]
        if "overdispersion" in theta:
            parts.append(np.log(theta["overdispersion"]))
        if "weight_variance" in theta:
            parts.append(0.5 * np.log(theta["weight_variance"]))
        return np.concatenate(parts, axis=-1)

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Replace phi and s; everything else stays."""
        result = dict(theta)
        if "overdispersion" in theta:
            result["overdispersion"] = np.exp(log_scales[..., :1])
        if "weight_variance" in theta:
            result["weight_variance"] = np.exp(2.0 * log_scales[..., -1:])
        return result

    def debiased(self, theta: Theta, design: PublicDesign) -> Coordinates:
        """Return log scales and the coefficients of the log mean.

        Counts are skewed: their long upper tail loses most weight, and the mean with it.
        """
        return Coordinates.joined(
            super().debiased(theta, design), Coordinates.of("location", theta["beta"])
        )

    def with_debiased(self, theta: Theta, values: FloatArray, design: PublicDesign) -> Theta:
        """Replace phi, s and the coefficients of the log mean."""
        scales = self.log_scales(theta).shape[-1]
        return {**self.with_log_scales(theta, values[:, :scales]), "beta": values[:, scales:]}

    def log_lik_blocks(
        self, theta: Theta, records: PairRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Stream unweighted log-likelihoods, (rows, (S, rows)), of count and weight together."""
        return log_lik_blocks(self._log_mass, theta, records)

    def _log_mass(self, theta: Theta, y: FloatArray, x: FloatArray) -> FloatArray:
        return self.family.log_mass(y, theta["beta"] @ x.T, log_phi(theta))

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
            y = self.family.draw(np.exp(x @ theta["beta"]), log_phi(theta), rng)
        columns = [y]
        if "weight_coefficients" in theta:
            coefficients, variance = theta["weight_coefficients"], theta["weight_variance"][0]
            columns.append(survey_weight.simulate(coefficients, variance, np.log1p(y), x, rng))
        return Simulated(np.stack(columns, axis=1))

    def smooth_weight(self, theta: Theta, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """Return E(w | y*) (methods 3); a survey without weights counts every record once."""
        coefficients, variance = theta.get("weight_coefficients"), theta.get("weight_variance")
        return survey_weight.smoothed(coefficients, variance, np.log1p(simulated.z[:, 0]), design)

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Guess a coefficient of variation ``spread`` of the count, SD 0.5 of the log weight.

        Where the count has two sources of variance, each holds half.
        """
        x = design.matrix.x_cells
        sources = 2.0 if self.family.overdispersed else 1.0
        mean = sources / (spread * spread)
        beta = np.linalg.lstsq(x, np.full(x.shape[0], np.log(mean)), rcond=None)[0]
        theta: Theta = {"beta": beta}
        if self.family.overdispersed:
            theta["overdispersion"] = np.array([mean])
        if design.weight_name is not None:
            coefficients, variance = survey_weight.prior_guess(x.shape[1], spread)
            theta["weight_coefficients"] = coefficients
            theta["weight_variance"] = variance[None]
        return theta


def log_phi(theta: Theta) -> FloatArray:
    """Return log phi (..., 1), or (..., 0) for a model without it."""
    if "overdispersion" in theta:
        return np.log(theta["overdispersion"])
    return np.empty((*theta["beta"].shape[:-1], 0))


@dataclass(frozen=True)
class Poisson(CountModel):
    """Poisson regression: y ~ Poisson(exp(x beta))."""

    name = "poisson"
    title = "a Poisson regression of the count"
    stan = POISSON_PROGRAM
    family = POISSON


@dataclass(frozen=True)
class NegativeBinomial(CountModel):
    """Negative binomial regression of mean mu = exp(x beta), variance mu + mu^2 / phi.

    1/phi ~ half-Cauchy(0, 5).
    """

    name = "negative_binomial"
    title = "a negative binomial regression of the count"
    stan = NEGATIVE_BINOMIAL_PROGRAM
    family = NEGATIVE_BINOMIAL
    default_priors = MappingProxyType(
        {"overdispersion_scale": 5.0, **CountModel.default_priors}
    )
