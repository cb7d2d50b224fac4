"""Poisson and negative binomial regressions of a count (methods 3).

    y | x ~ a distribution of mean mu = exp(x beta)
    beta ~ N(0, D Omega D), Omega ~ LKJ(6), D = diag(sigma_k), sigma_k ~ half-t3(0, 1)
    beta_k ~ N(0, interaction_scale^2) for columns k of interactions
    log w | y, x ~ N(x gamma + delta log(1 + y), s^2)      where the design has a weight

The outcome enters without a transform: whole numbers. A negative binomial has the variance mu +
mu^2 / phi; its ``log_phi`` is (..., 1), that of a Poisson (..., 0).

Statistics are sums by cell of X and, for the negative binomial, the weight of each distinct count:
a value costs the same at any number of records. The sampler is exact. The likelihood of t = (beta,
log phi), with the prior of log phi, is expanded once, at its mode: exp(linear' t - t' bend t / 2)
times exp(excess). Given D and Omega the prior of beta is normal, so without the excess t would be
normal too. The normal proposes, and the excess decides on acceptance. A sweep in four takes an
elliptical slice about the normal, which leaves tails where few proposals are taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import gammaln, psi

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models import survey_weight
from surveysynth.models.base import INTERACTION_PRIOR, Simulated, SimulationKind, require
from surveysynth.models.gaussian.blocks import INTERACTIONS, CoefficientBlocks
from surveysynth.models.gaussian.model import GaussianStats
from surveysynth.models.survey_weight import PairModel, PairRecords, sum_by
from surveysynth.models.weighted import stacked
from surveysynth.sampling import primitives
from surveysynth.sampling.plan import SamplingPlan, Streams, run_sweeps
from surveysynth.sampling.stan.source import StanProgramSpec
from surveysynth.survey.survey import Confidential, PublicDesign
from surveysynth.survey.transforms import Transform

#: Means and counts above this are reported as infinite.
LARGEST = 1e15
#: Share of pseudo-records that are an event.
EVENTS = 0.5
#: Larger log means are cut here, so that sums do not overflow; all are equally impossible.
LARGEST_ETA = 600.0
#: Arrays of ``CountStats`` with an axis of databases, whether they share X or not.
ARRAYS = ("mass", "sums", "values", "value_mass", "log_factorials")
#: From this phi on Stirling's series is exact to a double's last digits, where differences of log
#: gamma functions lose theirs.
LARGE_PHI = 1e4
#: One sweep in so many takes an elliptical slice.
SLICE_EVERY = 4
#: The mode is sought under a normal prior of so many coefficient scales, by so many Newton steps
#: at most, until none promises more than CLOSE of the log density.
WIDE, STEPS, CLOSE = 3.0, 60, 1e-10
#: Difference of coordinates in second derivatives, and what is added to that of log phi.
DIFFERENCE, LEAST = 1e-3, 0.1
#: Longest step of log phi, and where it is cut: there and beyond the posterior has no mass.
LONGEST, LARGEST_LOG_PHI = 2.0, 300.0


def log_rising(phi: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log Gamma(phi + y) - log Gamma(phi) and its slope in phi, elementwise, y >= 0."""
    value, slope = gammaln(phi + y) - gammaln(phi), psi(phi + y) - psi(phi)
    if np.any(large := phi > LARGE_PHI):
        ratio, end, begin = np.log1p(y / phi), 1.0 / (phi + y), 1.0 / phi
        series = (phi + y - 0.5) * ratio + y * np.log(phi) - y + (end - begin) / 12.0
        value = np.where(large, series, value)
        series = ratio + 0.5 * (begin - end) + (begin**2 - end**2) / 12.0
        slope = np.where(large, series, slope)
    return np.asarray(value), np.asarray(slope)


@dataclass(frozen=True, repr=False)
class CountStats(Unpickled):
    """Weighted data of B databases, over G cells of X and D distinct counts each.

    x (B, G, K), or (1, G, K) where all share it; mass (B, G): sum of alpha, sums (B, G): sum of
    alpha y, by cell; values (B, D) and value_mass (B, D), the sum of alpha of each; log_factorials
    (B, 1): sum of alpha log y!. Cells and counts without weight have no effect. weight: statistics
    of any weight component. shrunken: number of shrunken columns of X, which come last.
    """

    x: FloatArray
    mass: FloatArray
    sums: FloatArray
    values: FloatArray
    value_mass: FloatArray
    log_factorials: FloatArray
    weight: GaussianStats | None
    shrunken: int = 0

    @classmethod
    def stacked(cls, parts: Sequence["CountStats"]) -> "CountStats":
        """Join databases, all with a weight or without, filled up with cells without weight."""

        def joined(name: str) -> FloatArray:
            arrays: list[FloatArray] = [getattr(part, name) for part in parts]
            longest = max(each.shape[1] for each in arrays)
            more = [[(0, 0), (0, longest - a.shape[1]), (0, 0)][: a.ndim] for a in arrays]
            return np.concatenate(list(map(np.pad, arrays, more)))

        made: dict[str, Any] = {name: joined(name) for name in ARRAYS}
        if not all(np.array_equal(part.x, parts[0].x) for part in parts):
            made["x"] = joined("x")
        weights = [part.weight for part in parts if part.weight is not None]
        return replace(parts[0], weight=stacked(weights) if weights else None, **made)

    def repeated(self, times: int) -> "CountStats":
        """Return the statistics of the count, ``times`` for each database."""
        names = ARRAYS if len(self.x) == 1 else ("x", *ARRAYS)
        made: dict[str, Any] = {name: np.repeat(getattr(self, name), times, 0) for name in names}
        return replace(self, weight=None, **made)


class CountPosterior:
    """Log density of t (b, d) but for the prior of beta, with its expansion.

    ``phi_scale``: of 1/phi ~ half-Cauchy; None without phi. ridge (d,): precision of the normal
    that stands for the prior of beta while the mode is sought.
    """

    def __init__(self, stats: CountStats, phi_scale: float | None, ridge: FloatArray) -> None:
        self.stats, self.phi_scale, self.ridge = stats, phi_scale, ridge
        self.k, self.d = stats.x.shape[-1], ridge.size

    def repeated(self, times: int) -> "CountPosterior":
        """Return the same with ``times`` points for each database."""
        return CountPosterior(self.stats.repeated(times), self.phi_scale, self.ridge)

    def density(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log-likelihood without log y! plus log prior of log phi (b,), and gradient (b, d).

        A point is beta and, for a negative binomial, log phi; one for each database, or many for
        one.
        """
        s = self.stats

        def by_beta(by_eta: FloatArray) -> FloatArray:
            return np.asarray((by_eta[:, None] @ s.x)[:, 0])

        eta = np.minimum((s.x @ t[:, : self.k, None])[:, :, 0], LARGEST_ETA)
        if self.phi_scale is None:
            mean = s.mass * np.exp(eta)
            return (s.sums * eta - mean).sum(1), by_beta(s.sums - mean)
        log_phi = np.clip(t[:, self.k :], -LARGEST_LOG_PHI, LARGEST_LOG_PHI)
        phi, log_odds = np.exp(log_phi), eta - log_phi
        log_rest = np.logaddexp(0.0, log_odds)
        share = np.exp(log_odds - log_rest)
        rising, slope = (s.value_mass * each for each in log_rising(phi, s.values))
        value = s.sums * (log_odds - log_rest) - s.mass * phi * log_rest
        of_mass = phi * s.mass * (log_rest - share) + s.sums * np.exp(-log_rest)
        square = (self.phi_scale * np.exp(log_phi)) ** -2
        by_log_phi = phi * slope.sum(1, keepdims=True) - of_mass.sum(1, keepdims=True)
        by_log_phi += 1.0 - 2.0 / (1.0 + square)
        prior = np.log1p(square[:, 0])
        total = value.sum(1) + rising.sum(1) - prior - log_phi[:, 0]
        return total, np.append(by_beta(s.sums - (s.sums + s.mass * phi) * share), by_log_phi, 1)

    def penalized(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the same under the normal of precision ``ridge``."""
        value, gradient = self.density(t)
        return value - 0.5 * (t * t) @ self.ridge, gradient - self.ridge * t

    def expanded(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mode (b, d), linear (b, d) and bend (b, d, d), for each database alone."""
        # From the least-squares fit of the log of the cells' means.
        s, k, around = self.stats, self.k, self.repeated(self.d)
        gram = (s.x.swapaxes(1, 2) * s.mass[:, None]) @ s.x + np.diag(self.ridge[:k])
        cross = (s.mass * np.log((s.sums + 0.1) / (s.mass + 0.1)))[:, None] @ s.x
        start = np.linalg.solve(gram, cross.swapaxes(1, 2))[:, :, 0]
        least = np.diag(LEAST * (np.arange(self.d) >= k))
        t: FloatArray = np.pad(start, [(0, 0), (0, self.d - k)])
        (value, slope), length = self.penalized(t), np.ones(len(t))
        for _ in range(STEPS):
            steps = DIFFERENCE * np.tile(np.eye(self.d), (len(t), 1))
            ends = [around.density(np.repeat(t, self.d, 0) + h)[1] for h in (-steps, steps)]
            bend = ((ends[0] - ends[1]) / (2.0 * DIFFERENCE)).reshape(-1, self.d, self.d)
            sizes, axes = np.linalg.eigh(0.5 * (bend + bend.swapaxes(1, 2)))
            bend = (axes * np.maximum(sizes, 0.0)[:, None]) @ axes.swapaxes(1, 2) + least
            step = np.linalg.solve(bend + np.diag(self.ridge), slope[:, :, None])[:, :, 0]
            step /= np.maximum(1.0, np.abs(step[:, k:]) / LONGEST).prod(1, keepdims=True)
            moving = (step * slope).sum(1) > CLOSE
            if not moving.any():
                break
            trial = t + length[:, None] * step
            new, there = self.penalized(trial)
            climbs = moving & (new >= value)
            t, slope = (
                np.where(climbs[:, None], *each) for each in ((trial, t), (there, slope))
            )
            value = np.where(climbs, new, value)
            length = np.where(climbs, np.minimum(1.0, 2.0 * length), 0.25 * length)
        # Where log phi is uncertain its tails are long, and it moves the coefficients' spread.
        variance = (1.0 / np.einsum("bkk->bk", bend)[:, k:]).sum(1)
        bend /= 1.0 + 2.0 * variance[:, None, None]
        return t, self.density(t)[1] + (bend @ t[:, :, None])[:, :, 0], bend


class CountSampler:
    """State of C chains of each of B databases: t (B x C, d), its excess, D and Omega.

    own (d,): prior precisions of shrunken columns. Raises ``FloatingPointError`` for counts that
    are not finite, as simulated ones can be.
    """

    def __init__(self, stats: CountStats, priors: Mapping[str, float], rng: Streams) -> None:
        if not np.isfinite(stats.sums + stats.log_factorials).all():
            raise FloatingPointError("the sums of the counts are not finite")
        scale, self.k = priors.get("overdispersion_scale"), stats.x.shape[-1]
        self.rng, self.free = rng, slice(self.k - stats.shrunken)
        self.own, wide = np.zeros((2, self.k + (scale is not None)))
        self.own[self.free.stop : self.k] = priors[INTERACTION_PRIOR] ** -2
        wide[self.free] = (WIDE * priors["coefficient_scale"]) ** -2
        posterior = CountPosterior(stats, scale, self.own + wide)
        mode, self.linear, self.bend = (
            np.repeat(each, rng.chains, axis=0) for each in posterior.expanded()
        )
        self.posterior = posterior.repeated(rng.chains)
        # Overdispersed starts about the mode.
        noise = rng.standard_normal(mode[:, self.k :].shape, 0)
        log_phi = mode[:, self.k :] + noise / np.sqrt(self.bend[:, self.k :, -1])
        gram = (self.bend + np.diag(posterior.ridge))[:, : self.k, : self.k]
        self.blocks = CoefficientBlocks(
            gram, mode[:, : self.k, None], np.ones((len(mode), 1, 1)), priors, rng, stats.shrunken
        )
        self.t = np.append(self.blocks.beta[:, :, 0], log_phi, 1)
        self.excess = self._excess(self.t)

    def _excess(self, t: FloatArray) -> FloatArray:
        quadratic = 0.5 * (self.bend @ t[:, :, None])[:, :, 0] - self.linear
        return np.asarray(self.posterior.density(t)[0] + (t * quadratic).sum(1))

    def state(self) -> Theta:
        """Return beta, overdispersion if there is one, D and Omega."""
        phi = {"overdispersion": np.exp(self.t[:, self.k :])} if self.own.size > self.k else {}
        return {
            "beta": self.t[:, : self.k], **phi, "coefficient_scale": self.blocks.scale[:, 0],
            "coefficient_correlation": self.blocks.correlation,
        }  # fmt: skip

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        self.blocks.draw_random_numbers(c)
        self.normals = self.rng.standard_normal((c, *self.t.shape), 1)
        self.level = self.rng.random((c, len(self.t)), 1)
        tries = (c // SLICE_EVERY, primitives.MAX_SHRINKS, len(self.t))
        self.angles = self.rng.random(tries, 2)

    def sweep(self, i: int) -> None:
        """Draw t given D and Omega, then these."""
        inverse = 1.0 / self.blocks.scale[:, 0]
        precision = self.bend + np.diag(self.own)
        precision[:, self.free, self.free] += (
            self.blocks.inverse_correlation * inverse[:, :, None] * inverse[:, None, :]
        )
        root = np.linalg.cholesky(precision).swapaxes(1, 2)
        mean = np.linalg.solve(precision, self.linear[:, :, None])[:, :, 0]
        drawn = np.linalg.solve(root, self.normals[i, :, :, None])[:, :, 0]
        centered = self.t - mean

        def at(angle: FloatArray) -> FloatArray:
            turned = np.cos(angle)[:, None] * centered + np.sin(angle)[:, None] * drawn
            return np.asarray(mean + turned)

        def excess(which: IntArray, angle: FloatArray) -> FloatArray:
            everywhere = np.zeros(len(mean))
            everywhere[which] = angle
            return np.asarray(self._excess(at(everywhere))[which])

        if i % SLICE_EVERY == 1:
            uniforms = self.angles[i // SLICE_EVERY]
            self.t = at(primitives.slice_angle(excess, self.level[i], uniforms))
            self.excess = self._excess(self.t)
        else:
            new = self._excess(proposal := np.asarray(mean + drawn))
            accepted = np.log(self.level[i]) < new - self.excess
            self.t = np.where(accepted[:, None], proposal, self.t)
            self.excess = np.where(accepted, new, self.excess)
        self.blocks.beta = self.t[:, : self.k, None]
        self.blocks.update_prior(i)


def _data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """Return the data that the programs need for one database, JSON-ready."""
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


class CountModel(PairModel):
    """A count regression, with phi if its priors have a scale of it."""

    takes_count = True
    batched = True
    common_random_numbers = True
    scales = MappingProxyType({"overdispersion": 1.0, "weight_variance": 0.5})
    # Counts are skewed: their long upper tail loses most weight, and the mean with it.
    locations = ("beta",)
    default_priors = MappingProxyType(
        {"coefficient_scale": 1.0, "lkj": 6.0, **INTERACTIONS, **survey_weight.PRIORS}
    )

    @staticmethod
    def h(y: FloatArray) -> FloatArray:
        """Return log(1 + y)."""
        return np.log1p(y)

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
                "scale."
            )
        y = confidential.outcome[:, 0]
        wrong = int(np.count_nonzero(~((y >= 0) & (y == np.rint(y)) & np.isfinite(y))))
        if wrong:
            raise InputError(
                f"The model {self.name!r} takes an outcome of whole numbers, zero or above; "
                f"{design.outcome_names[0]!r} has other values in {wrong:,} of {design.n:,} "
                "records. Correct them, or use the model 'normal' or 'fbs' for a measured outcome."
            )
        return super().records(design, confidential)  # type: ignore[no-any-return]

    def compress(self, records: PairRecords, risk_weights: FloatArray) -> CountStats:
        """Compute the sums in one pass over the records (methods 4), without counts of no weight.

        Half of the R pseudo-records are events, spread like the design, and add no exposure:
        otherwise a mean near zero would rest on the few records above it. The weight's slope has a
        prior worth R records of one event (methods 2.11).
        """
        cells = len(records.x_cells)
        mass = sum_by(records.cell, risk_weights, cells)
        share = np.bincount(records.cell, minlength=cells) / max(records.n, 1)
        events = EVENTS * records.pseudo * share
        sums = sum_by(records.cell, risk_weights * records.y, cells) + events
        value_mass = sum_by(records.code, risk_weights, records.values.size)
        values, value_mass = records.values[value_mass > 0], value_mass[value_mass > 0]
        weight = records.weight_stats(risk_weights, self.priors[INTERACTION_PRIOR])
        if weight is not None and records.pseudo:
            weight = weight.with_slope_prior(float(np.sqrt(records.pseudo) * np.log(2.0)))
        log_factorials = value_mass[None] @ gammaln(values + 1.0)
        return CountStats(
            records.x_cells[None], mass[None], sums[None], values[None], value_mass[None],
            log_factorials[None], weight, records.shrunken,
        )  # fmt: skip

    def sample(
        self, stats: CountStats, plan: SamplingPlan, rng: np.random.Generator | Sequence[Any]
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
            repeated = stats.weight.repeated(plan.chains)
            theta |= run_sweeps(survey_weight.WeightBlocks(repeated, self.priors, streams), plan)
        return theta

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return coefficients of both parts and logs of scales."""
        of_phi = {"log_overdispersion": log_phi(theta)} if "overdispersion" in theta else {}
        return {"beta": theta["beta"], **of_phi, **survey_weight.monitored(theta)}

    def log_mass(self, theta: Theta, y: FloatArray, x: FloatArray) -> FloatArray:
        """Return log probabilities (S, P) of pairs y (P,), x (P, K) under S draws."""
        eta, at = theta["beta"] @ x.T, log_phi(theta)
        if not at.size:
            return np.asarray(y * eta - np.exp(eta) - gammaln(y + 1.0))
        values, code = np.unique(y, return_inverse=True)
        constant = log_rising(np.exp(at), values)[0] - gammaln(values + 1.0)
        log_rest = np.logaddexp(0.0, eta - at)
        return np.asarray(y * (eta - at - log_rest) - np.exp(at) * log_rest + constant[:, code])

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

    def prior_guess(self, design: PublicDesign, spread: float) -> Theta:
        """Guess a coefficient of variation ``spread`` of the count, SD 0.5 of the log weight.

        If the count has two sources of variance, each has half.
        """
        x, overdispersed = design.matrix.x_cells, "overdispersion_scale" in self.priors
        mean = (1.0 + overdispersed) / (spread * spread)
        beta = np.linalg.lstsq(x, np.full(x.shape[0], np.log(mean)), rcond=None)[0]
        of_phi = {"overdispersion": np.array([mean])} if overdispersed else {}
        return {"beta": beta, **of_phi, **survey_weight.guessed(design, spread)}


def log_phi(theta: Theta) -> FloatArray:
    """Return log phi (..., 1), or (..., 0) for a model without it."""
    return np.log(theta.get("overdispersion", theta["beta"][..., :0]))


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
