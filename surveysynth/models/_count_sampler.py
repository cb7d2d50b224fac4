"""Draws of a count regression by NUTS, in coordinates without a funnel (``_whitened``).

v = (z (K), log phi (1 or 0), log coefficient scales (K), unconstrained Omega). The survey weight
needs no NUTS: given the data its parameters are independent of these (``survey_weight``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from surveysynth._types import DIVERGENT, FloatArray, Theta
from surveysynth.models._count_family import CountFamily, CountSums
from surveysynth.models._whitened import Expansion, WhitenedPrior
from surveysynth.models.base import SamplingPlan
from surveysynth.sampling import nuts, unconstrained

#: The mode serves as a point of expansion alone: a few steps and a wide normal prior will do.
_MODE_STEPS = 25
_ROUNDS = 4
_WIDE = 3.0
#: Where log phi is looked for.
_LOG_PHI_RANGE = (-12.0, 25.0)


def overdispersion_log_prior(log_phi: FloatArray, scale: float) -> tuple[FloatArray, FloatArray]:
    """Log density of log phi, elementwise, and its slope: 1/phi ~ half-Cauchy(0, scale)."""
    value, slope = unconstrained.half_t_log_density(-log_phi, 1.0, scale)
    return value, -slope


@dataclass(frozen=True, repr=False)
class Mode:
    """Where the posterior is, about: the expansion in beta, and log phi with its SD (1 or 0,)."""

    expansion: Expansion
    log_phi: FloatArray
    log_phi_sd: FloatArray


def find_mode(
    family: CountFamily, sums: CountSums, columns: int, priors: Mapping[str, float]
) -> Mode:
    """Newton steps for beta and, in turn, the root of the slope in log phi."""
    ridge = (_WIDE * priors["coefficient_scale"]) ** -2
    beta = _start(sums, columns, ridge)
    log_phi = np.zeros(1 if family.overdispersed else 0)
    sd = np.ones_like(log_phi)
    for _ in range(_ROUNDS if family.overdispersed else 1):
        if family.overdispersed:
            log_phi, sd = _overdispersion(family, sums, beta, priors)
        beta = _newton(family, sums, beta, log_phi, ridge)
    gradient = family.log_likelihood(sums, beta, log_phi)[1]
    curvature = family.curvature(np.exp(sums.x @ beta), sums, log_phi)
    hessian = (sums.x * curvature[:, None]).T @ sums.x
    expansion = Expansion(hessian[None], (hessian @ beta + gradient)[None])
    return Mode(expansion, log_phi, sd)


def _start(sums: CountSums, columns: int, ridge: float) -> FloatArray:
    """Least squares of the log of the cells' means."""
    target = np.log((sums.sums + 0.1) / (sums.mass + 0.1))
    weighted = sums.x * sums.mass[:, None]
    gram = weighted.T @ sums.x + ridge * np.eye(columns)
    return np.asarray(np.linalg.solve(gram, weighted.T @ target), dtype=np.float64)


def _newton(
    family: CountFamily, sums: CountSums, beta: FloatArray, log_phi: FloatArray, ridge: float
) -> FloatArray:
    """Fisher scoring with halved steps, under beta ~ N(0, 1 / ridge)."""

    def penalised(at: FloatArray) -> tuple[float, FloatArray]:
        value, gradient, _ = family.log_likelihood(sums, at, log_phi)
        return float(value) - 0.5 * ridge * float(at @ at), gradient - ridge * at

    value, gradient = penalised(beta)
    for _ in range(_MODE_STEPS):
        curvature = family.curvature(np.exp(sums.x @ beta), sums, log_phi)
        hessian = (sums.x * curvature[:, None]).T @ sums.x + ridge * np.eye(beta.size)
        step = np.linalg.solve(hessian, gradient)
        expected = float(step @ gradient)
        if not expected > 1e-10:
            break
        for _ in range(20):
            new_value, new_gradient = penalised(beta + step)
            if new_value >= value:  # false for nan
                break
            step = 0.5 * step
        else:
            break
        beta, value, gradient = beta + step, new_value, new_gradient
    return beta


def _overdispersion(
    family: CountFamily, sums: CountSums, beta: FloatArray, priors: Mapping[str, float]
) -> tuple[FloatArray, FloatArray]:
    """Mode of log phi given beta, with its SD, (1,) each."""

    def slope(log_phi: float) -> float:
        at = np.array([log_phi])
        prior = overdispersion_log_prior(at, priors["overdispersion_scale"])[1]
        return float((family.log_likelihood(sums, beta, at)[2] + prior)[0])

    low, high = _LOG_PHI_RANGE
    if not slope(low) > 0 > slope(high):
        return np.zeros(1), np.ones(1)
    mode = float(brentq(slope, low, high, xtol=1e-3))
    curvature = (slope(mode - 0.05) - slope(mode + 0.05)) / 0.1
    sd = 1.0 / np.sqrt(curvature) if curvature > 0.25 else 2.0
    return np.array([mode]), np.array([sd])


@dataclass(frozen=True, repr=False)
class WhitenedPosterior:
    """The weighted posterior in the coordinates that NUTS moves in."""

    family: CountFamily
    sums: CountSums
    priors: Mapping[str, float]
    mode: Mode
    prior: WhitenedPrior

    @classmethod
    def of(
        cls, family: CountFamily, sums: CountSums, columns: int, priors: Mapping[str, float]
    ) -> "WhitenedPosterior":
        """Expanded about the mode."""
        with np.errstate(all="ignore"):
            mode = find_mode(family, sums, columns, priors)
        prior = WhitenedPrior(mode.expansion, priors["coefficient_scale"], priors["lkj"])
        return cls(family, sums, priors, mode, prior)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Lengths of z, log phi, log scales and Omega."""
        k = self.prior.columns
        return k, self.mode.log_phi.size, k, unconstrained.correlation_size(k)

    def log_density(self, v: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient at v (d,); not finite where it cannot be computed."""
        k, extra = self.prior.columns, self.mode.log_phi.size
        z, log_phi, log_scale = v[:k], v[k : k + extra], v[k + extra : 2 * k + extra]
        omega = v[2 * k + extra :]
        point = self.prior.at(z[None], log_scale, omega)
        if point is None:
            return -np.inf, np.zeros_like(v)
        value, by_beta, by_log_phi = self.family.log_likelihood(self.sums, point.beta[0], log_phi)
        by_z, by_log_scale, by_omega = self.prior.gradient(point, by_beta[None])
        total = float(value) + point.value
        if log_phi.size:
            scale = self.priors["overdispersion_scale"]
            prior, slope = overdispersion_log_prior(log_phi, scale)
            total, by_log_phi = total + float(prior[0]), by_log_phi + slope
        return total, np.concatenate([by_z[0], by_log_phi, by_log_scale, by_omega])

    def start(self, rng: np.random.Generator) -> FloatArray:
        """An overdispersed first point (d,)."""
        noise = rng.standard_normal(sum(self.sizes))
        z, log_phi, log_scale, omega = unconstrained.split(noise, self.sizes)
        return np.concatenate(
            [
                1.5 * z,
                self.mode.log_phi + 1.5 * self.mode.log_phi_sd * log_phi,
                np.log(self.priors["coefficient_scale"]) + log_scale,
                0.3 * omega,
            ]
        )

    def theta(self, v: FloatArray) -> Theta:
        """Parameters at v (..., d)."""
        z, log_phi, log_scale, omega = unconstrained.split(v, self.sizes)
        beta, correlation = self.prior.coefficients(z[..., None, :], log_scale, omega)
        theta = {"beta": beta[..., 0, :]}
        if log_phi.shape[-1]:
            theta["overdispersion"] = np.exp(log_phi)
        theta["coefficient_scale"] = np.exp(log_scale)
        theta["coefficient_correlation"] = correlation
        return theta


def sample(
    family: CountFamily,
    sums: CountSums,
    columns: int,
    priors: Mapping[str, float],
    plan: SamplingPlan,
    rng: np.random.Generator,
) -> Theta:
    """Draws (1, chains, draws, ...) of beta, phi, coefficient scales and Omega, and ``divergent__``
    where a draw diverged."""
    posterior = WhitenedPosterior.of(family, sums, columns, priors)
    drawn = nuts.sample(posterior.log_density, posterior.start, sum(posterior.sizes), plan, rng)
    theta = {name: values[None] for name, values in posterior.theta(drawn.u).items()}
    return {**theta, DIVERGENT: drawn.divergent[None].astype(np.float64)}
