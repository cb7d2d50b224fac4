"""The sample that a model implies, z ~ N(X B, Sigma), as the augmentation sees it.

FBS, the normal regression with or without a weight, and FBP have one likelihood in (B, Sigma) and
differ in their priors: FBP's sample is normal after completing the square (methods 3). Each class
reads a model's Gibbs sampler, hands it new statistics, and writes new (B, Sigma) back into it.
Effects of PSUs are further rows of B. Samplers have the ridge of interactions in their statistics;
here it is part of the prior, with a precision of scale^-2 times that of the residuals.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.posterior.augmentation import CoefficientPrior
from surveysynth.mechanisms.noisy_statistics.posterior.covariance_moves import whitened_trace
from surveysynth.mechanisms.noisy_statistics.posterior.ridge import Ridge
from surveysynth.mechanisms.noisy_statistics.posterior.slices import Chains
from surveysynth.models.base import Model
from surveysynth.models.gaussian import fbp_sampler, fbs, normal
from surveysynth.models.gaussian.fbp_sampler import Gibbs
from surveysynth.models.parts.coefficients import HALF_T_DF, CoefficientBlocks
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams, Sweeps


class ImpliedSample(Protocol):
    """A batch of chains of one model, in coordinates that all of these models share."""

    @property
    def sampler(self) -> Sweeps:
        """The model's own sampler, whose state is read and written here."""

    def observe(self, stats: GaussianStats) -> None:
        """Replace the statistics that the sampler reads."""

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return B (B, p, q) and Sigma (B, q, q); p counts columns of X, then PSUs."""

    def prior(self) -> CoefficientPrior:
        """Return the normal prior of B given Sigma and the rest of theta."""

    def log_covariance_prior(
        self, which: Chains, coefficients: FloatArray, root: FloatArray
    ) -> FloatArray:
        """Return the log prior (b, t) of Sigma up to a constant, given B (b, t, p, q) and all else.

        The rest of theta is that of these chains; root: Cholesky factors (b, t, q, q) of
        Sigma; axes t may be one."""

    def assign(self, coefficients: FloatArray, covariance: FloatArray) -> None:
        """Write B and Sigma into the sampler."""


class ImpliedFBS:
    """FBS is the sample's own model."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        clustered = stats.psu is not None
        sampler = fbs.ClusteredGibbs if clustered else fbs.Gibbs
        self.ridge = Ridge.of(stats, priors)
        self.sampler = sampler(self.ridge.added(stats), priors, rng)
        self.residual_prior = (HALF_T_DF, priors["residual_scale"])
        self.lkj = priors["lkj"]

    def observe(self, stats: GaussianStats) -> None:
        """Hand new statistics to the sampler."""
        self.sampler.observe(self.ridge.added(stats))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return B and Sigma."""
        s = self.sampler
        beta = s.coefficients.beta
        if isinstance(s, fbs.ClusteredGibbs):
            beta = np.concatenate([beta, s.psu.effects], axis=1)
        return beta, s.residual.covariance

    def prior(self) -> CoefficientPrior:
        """Return the prior of B given all else."""
        s = self.sampler
        b, k, q = s.coefficients.beta.shape
        effects = s.psu.covariance if isinstance(s, fbs.ClusteredGibbs) else None
        size = s.psu.size if isinstance(s, fbs.ClusteredGibbs) else 0
        mean = np.zeros((b, k + size, q))
        own = _hierarchical(s.coefficients)
        self.ridge.add_to(own, np.asarray(np.linalg.inv(s.residual.covariance)))
        return CoefficientPrior(mean, _precision(own, effects, size))

    def log_covariance_prior(
        self, which: Chains, coefficients: FloatArray, root: FloatArray
    ) -> FloatArray:
        """Return the log prior of Sigma given B and all else."""
        sd = np.sqrt((root * root).sum(-1))
        half_t = primitives.half_t_log_density(sd, *self.residual_prior).sum(-1)
        log_sd = np.log(sd).sum(-1)
        log_root = np.log(np.einsum("...kk->...k", root)).sum(-1)
        # Sigma = D Omega D: D has q further powers, of the volume of Sigma.
        result: FloatArray = half_t + 2.0 * (self.lkj - 1.0) * (log_root - log_sd)
        result -= sd.shape[-1] * log_sd
        own = self.ridge.rows(coefficients)
        squares = whitened_trace(root, own.swapaxes(-1, -2) @ own)
        result = result - self.ridge.count * log_root - 0.5 * self.ridge.precision * squares
        return result

    def assign(self, coefficients: FloatArray, covariance: FloatArray) -> None:
        """Write B and Sigma into the sampler."""
        s = self.sampler
        k = s.coefficients.k
        s.coefficients.beta = coefficients[:, :k]
        s.residual.covariance = covariance
        if isinstance(s, fbs.ClusteredGibbs):
            s.psu.effects = coefficients[:, k:]


class ImpliedNormal:
    """Normal regression, and log w given y~ as a second one: Sigma by its regressions."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.ridge = Ridge.of(stats, priors)
        self.sampler = normal.Gibbs(self.ridge.added(stats), priors, rng)
        self.scales = [priors["residual_scale"], priors["weight_residual_scale"]]

    def observe(self, stats: GaussianStats) -> None:
        """Hand new statistics to the sampler."""
        self.sampler.observe(self.ridge.added(stats))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return B and Sigma."""
        s = self.sampler
        beta, variance = s.coefficients.beta, s.variance[:, None, None]
        if s.weight is None:
            return beta, variance
        slope = s.weight.coefficients[:, 0]
        own = np.concatenate([beta, s.weight.coefficients[:, 1:, None]], axis=2)
        variances = np.stack([s.variance, s.weight.variance], axis=1)
        turn = _turn(slope)
        return own @ turn, _covariance(slope, variances)

    def prior(self) -> CoefficientPrior:
        """Return the prior of B given all else."""
        s = self.sampler
        blocks = _hierarchical(s.coefficients)
        b, _, k, _, _ = blocks.shape
        self.ridge.add_to(blocks, 1.0 / s.variance[:, None, None])
        if s.weight is None:
            return CoefficientPrior(np.zeros((b, k, 1)), blocks)
        own = np.zeros((b, 2, k, 2, k))
        own[:, :1, :, :1] = blocks
        own[:, 1, :, 1] = np.diag(s.weight.prior_precision[1:])
        self.ridge.add_to(own[:, 1:, :, 1:], 1.0 / s.weight.variance[:, None, None])
        turned = _turned_precision(own, s.weight.coefficients[:, 0])
        return CoefficientPrior(np.zeros((b, k, 2)), turned)

    def log_covariance_prior(
        self, which: Chains, coefficients: FloatArray, root: FloatArray
    ) -> FloatArray:
        """Return the log prior of Sigma given B and all else."""
        s = self.sampler
        slope, sd = _regressions(root)
        result = np.zeros(slope.shape)
        for j in range(sd.shape[-1]):
            each = sd[..., j]
            half_t = primitives.half_t_log_density(each, HALF_T_DF, self.scales[j])
            result += half_t - np.log(each)
        result = result + self.ridge.log_density(coefficients[..., 0], sd[..., 0])
        if s.weight is None:
            return result
        gamma, precision = self._gamma(coefficients, slope), s.weight.prior_precision
        squares = precision[0] * slope * slope + (precision[1:] * gamma * gamma).sum(-1)
        # Sigma has the volume v_y d(slope) d(v_y) d(v_w).
        own = 0.5 * squares + 2.0 * np.log(sd[..., 0])
        result = result + self.ridge.log_density(gamma, sd[..., 1])
        return np.asarray(result - own, dtype=np.float64)

    @staticmethod
    def _gamma(coefficients: FloatArray, slope: FloatArray) -> FloatArray:
        gamma = coefficients[..., 1] - slope[..., None] * coefficients[..., 0]
        return np.asarray(gamma, dtype=np.float64)

    def assign(self, coefficients: FloatArray, covariance: FloatArray) -> None:
        """Write B and Sigma into the sampler."""
        s = self.sampler
        slope, sd = _regressions(_root(covariance))
        variance = sd * sd
        s.coefficients.beta, s.variance = coefficients[:, :, :1], variance[:, 0]
        if s.weight is not None:
            gamma = self._gamma(coefficients, slope)
            s.weight.coefficients = np.concatenate([slope[:, None], gamma], axis=1)
            s.weight.variance = variance[:, 1]


class ImpliedFBP:
    """FBP's sample.

    b = beta + o_1 e and c = k_x + o_2 e given y~, o = (D + T) (k_y, 1)', X e = 1; effects of
    PSUs about their tilted mean (methods 3)."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        sampler = Gibbs if stats.psu is None else fbp_sampler.ClusteredGibbs
        self.ridge = Ridge.of(stats, priors)
        self.sampler: Any = sampler(self.ridge.added(stats), priors, rng)
        self.ones = _ones(stats)
        self.residual_scale = priors["residual_scale"]
        s = self.sampler
        self.slope_precision = s.selection_precision[0]
        self.precisions = np.stack([s.coefficient_precision, s.selection_precision[1:]], axis=1)

    def observe(self, stats: GaussianStats) -> None:
        """Hand new statistics to the sampler."""
        self.sampler.observe(self.ridge.added(stats))

    @property
    def clustered(self) -> bool:
        """True if PSUs have effects."""
        return isinstance(self.sampler, fbp_sampler.ClusteredGibbs)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return B and Sigma."""
        s = self.sampler
        slope = s.selection[:, 0]
        own = np.stack([s.beta, s.selection[:, 1:]], axis=2)
        own = own + self._shift(slope, s.variance)
        if self.clustered:
            effects = s.effects - self._mean_effect(slope)[:, None]
            own = np.concatenate([own, effects], axis=1)
        return own @ _turn(slope), _covariance(slope, s.variance)

    def prior(self) -> CoefficientPrior:
        """Return the prior of B given all else."""
        s = self.sampler
        slope, k = s.selection[:, 0], s.k
        size = s.psu.size if self.clustered else 0
        mean = np.zeros((s.batch, k + size, 2))
        mean[:, :k] = self._shift(slope, s.variance)
        blocks = np.zeros((s.batch, 2, k, 2, k))
        for j in range(2):
            blocks[:, j, :, j] = np.diag(self.precisions[:, j])
            own_column = blocks[:, j : j + 1, :, j : j + 1]
            self.ridge.add_to(own_column, 1.0 / s.variance[:, j, None, None])
        own = _precision(blocks, s.psu.covariance if self.clustered else None, size)
        return CoefficientPrior(mean @ _turn(slope), _turned_precision(own, slope))

    def log_covariance_prior(
        self, which: Chains, coefficients: FloatArray, root: FloatArray
    ) -> FloatArray:
        """Return the log prior of Sigma given B and all else."""
        s = self.sampler
        slope, sd = _regressions(root)
        own = coefficients @ _turn(-slope)
        population = own[:, :, : s.k] - self._shift(slope, sd * sd, which)
        squares = (self.precisions * population**2).sum((-1, -2))
        result = -0.5 * (squares + self.slope_precision * slope**2)
        for j in range(2):
            result = result + self.ridge.log_density(population[..., j], sd[..., j])
        half_t = primitives.half_t_log_density(sd, 1.0, self.residual_scale)
        # Sigma has the volume v_y d(k_y) d(v_y) d(v_pi).
        result = result + (half_t - np.log(sd)).sum(-1) - 2.0 * np.log(sd[..., 0])
        if self.clustered:
            effects = own[:, :, s.k :]
            inverse = np.linalg.inv(s.psu.covariance)[which][:, None]
            result -= 0.5 * ((effects @ inverse) * effects).sum((-1, -2))
        return np.asarray(result, dtype=np.float64)

    def assign(self, coefficients: FloatArray, covariance: FloatArray) -> None:
        """Write B and Sigma into the sampler."""
        s = self.sampler
        slope, sd = _regressions(_root(covariance))
        variance = sd * sd
        own = coefficients @ _turn(-slope)
        population = own[:, : s.k] - self._shift(slope, variance)
        s.beta = population[:, :, 0]
        s.selection = np.concatenate([slope[:, None], population[:, :, 1]], axis=1)
        s.variance = variance
        if self.clustered:
            s.effects = own[:, s.k :] + self._mean_effect(slope)[:, None]

    def _mean_effect(self, slope: FloatArray, which: Chains = slice(None)) -> FloatArray:
        tilt = np.stack([slope, np.ones_like(slope)], axis=-1)
        return np.asarray(np.einsum("bij,b...j->b...i", self.sampler.psu.covariance[which], tilt))

    def _shift(
        self, slope: FloatArray, variance: FloatArray, which: Chains = slice(None)
    ) -> FloatArray:
        """Return o e (b, ..., K, 2): what selection adds to beta and k_x."""
        offset = variance * np.stack([slope, np.ones_like(slope)], axis=-1)
        if self.clustered:
            offset = offset + self._mean_effect(slope, which)
        ones = self.ones[which].reshape(len(offset), *(1,) * (offset.ndim - 2), -1, 1)
        return np.asarray(ones * offset[..., None, :], dtype=np.float64)


_IMPLIED: Mapping[str, Callable[..., ImpliedSample]] = {
    "fbs": ImpliedFBS, "normal": ImpliedNormal, "fbp": ImpliedFBP
}  # fmt: skip


def implied_sample(model: Model) -> Callable[..., ImpliedSample]:
    """Return the adapter of a model.

    Raise ``InputError`` for a model without sufficient statistics of fixed size."""
    if model.name not in _IMPLIED:
        raise InputError(
            f"The model {model.name!r} has no sufficient statistics of fixed size, which noisy "
            f"statistics need: use one of {', '.join(map(repr, _IMPLIED))}."
        )
    return _IMPLIED[model.name]


def _hierarchical(blocks: CoefficientBlocks) -> FloatArray:
    """Return the prior precision (B, q, K, q, K) of beta given D and Omega; shrunken columns: 0."""
    result, free = np.zeros((blocks.batch, *(blocks.q, blocks.k) * 2)), slice(blocks.free)
    for j in range(blocks.q):
        d = 1.0 / blocks.scale[:, j]
        own = blocks.inverse_correlation * d[:, :, None] * d[:, None, :]
        result[:, j, free, j, free] = own
    return result


def _precision(blocks: FloatArray, effects: FloatArray | None, size: int) -> FloatArray:
    """Return the precision of coefficients (B, q, K, q, K) joined by that of ``size`` effects.

    The effects have the covariance ``effects`` (B, q, q); the result is (B, q, K + C, q, K +
    C)."""
    if effects is None:
        return blocks
    b, q, k = blocks.shape[:3]
    result = np.zeros((b, q, k + size, q, k + size))
    result[:, :, :k, :, :k] = blocks
    c = k + np.arange(size)
    # Advanced indices around slices: the axis of PSUs comes first.
    result[:, :, c, :, c] = np.linalg.inv(effects)
    return result


def _turn(slope: FloatArray) -> FloatArray:
    """Return (..., 2, 2): (y, v - slope y) times this is (y, v); of -slope, its inverse."""
    result = np.zeros((*slope.shape, 2, 2))
    result[..., 0, 0] = result[..., 1, 1] = 1.0
    result[..., 0, 1] = slope
    return result


def _turned_precision(own: FloatArray, slope: FloatArray) -> FloatArray:
    """Return the precision of columns (y, v) from that of (y, v - slope y)."""
    turn = _turn(-slope)
    return np.asarray(np.einsum("bai,bikjl,bcj->bakcl", turn, own, turn), dtype=np.float64)


def _covariance(slope: FloatArray, variance: FloatArray) -> FloatArray:
    """Return Sigma (B, 2, 2) of (y, v) from v_y and v_v given y (B, 2)."""
    turn = _turn(slope)
    return np.asarray((turn.swapaxes(-1, -2) * variance[:, None]) @ turn, dtype=np.float64)


def _root(covariance: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)


def _regressions(root: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the slope (...) of the second column on the first, and residual SDs (..., q).

    From the Cholesky factor (..., q, q) of Sigma; the slope is zero without a second column."""
    sd = np.einsum("...kk->...k", root)
    if root.shape[-1] == 1:
        return np.zeros(root.shape[:-2]), sd
    slope = root[..., -1, 0] / root[..., 0, 0]
    return slope, sd


def _ones(stats: GaussianStats) -> FloatArray:
    """Return e (B, K) with X e = 1."""
    return np.asarray(
        np.einsum("bij,bj->bi", np.linalg.pinv(stats.gram, hermitian=True), stats.x_sum)
    )
