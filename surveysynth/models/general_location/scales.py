"""Scales of all regressions of the general location model, side by side.

The regressions are independent given the data. Their scales are updated together, in arrays (J, B)
of J regressions in B chains, because many small arrays are slow. All steps are exact given what
``sampler`` knows of the coefficients.
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import gammainccinv, gammaln

from surveysynth._support.types import FloatArray
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: Half width of slice brackets on log scales, about that of the prior: farther out a half-t on a
#: log scale has fallen below exp(-40).
BRACKET = 42.0
#: Bracket of log nu. Little more than 1e-8 of the half-Cauchy lies outside, where a single variance
#: has no meaningful bounds, or all variances are equal.
LOG_NU = (-15.0, 20.0)
#: Limits of variances, which can be anything in a group without records.
VARIANCES = (1e-200, 1e200)
#: Slices of a sweep: tau, t, s_0, nu.
_TAU, _T, _POOLED, _NU = range(4)


class Scales:
    """Scales tau, t, s_0 and nu (J, B), and variances (J, B, g).

    Without groups (g = 1) the residual scale itself has the prior of s_0.
    """

    def __init__(
        self,
        spread: FloatArray,
        size: FloatArray,
        groups: int,
        grouped: bool,
        priors: Mapping[str, float],
        rng: Streams,
    ) -> None:
        """Set overdispersed starts about residual variances and mean squares of coefficients.

        spread: residual variances, size: mean squares, (J, B) both.
        """
        self.priors, self.rng, self.grouped = priors, rng, grouped
        self.j, self.batch = spread.shape
        #: Limits of variances.
        self.limits = VARIANCES
        jitter = rng.standard_normal((4, self.j, self.batch), 2)
        inflation = rng.standard_normal((self.j, self.batch, groups), 1)
        self.variance = spread[..., None] * np.exp(0.2 * inflation)
        self.tau = (np.sqrt(size) + 1e-3) * np.exp(0.5 + 0.5 * jitter[0])
        self.s_0 = np.sqrt(spread) * np.exp(0.2 * jitter[1])
        self.nu = 20.0 * np.exp(0.5 * jitter[2])
        self.t = 0.1 * priors["slope_scale"] * np.exp(0.5 * jitter[3])

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        rng, shape = self.rng, (self.j, self.batch)
        groups = self.variance.shape[-1]
        self.u_tau = rng.random((c, 1 + primitives.MAX_SHRINKS, *shape), 3)
        self.u_level = rng.random((c, 4, *shape), 3)
        self.u_slice = rng.random((c, 4, primitives.MAX_SHRINKS, *shape), 4)
        tries = 1 if self.grouped else 1 + primitives.MAX_SHRINKS
        self.u_variance = rng.random((c, tries, *shape, groups), 3)

    def update_tau(self, i: int, columns: FloatArray, squares: FloatArray) -> None:
        """Draw tau given b: columns (J, 1) of each, sums of squares (J, B)."""
        total = np.broadcast_to(columns, squares.shape)
        self.tau = _scale_of(
            self.tau, total, squares, self.priors["coefficient_scale"], self.u_tau[i]
        )

    def rescale(self, i: int, quadratic: FloatArray, slope: FloatArray) -> None:
        """Draw tau given b / tau.

        The likelihood is exp(slope tau - quadratic tau^2 / 2). Where b is small, tau given b itself
        moves slowly (Yu and Meng 2011).
        """

        def log_density(log_tau: FloatArray) -> FloatArray:
            tau = np.exp(log_tau)
            return np.asarray(tau * (slope - 0.5 * quadratic * tau), dtype=np.float64)

        self.tau = self._slice(i, _TAU, log_density, self.tau, self.priors["coefficient_scale"])

    def update_t(self, i: int, values: FloatArray, squares: FloatArray) -> None:
        """Draw t with the slopes summed out.

        In coordinates where they separate, their likelihoods are exp(root(square) d - value d^2 /
        2): both (J, B, m), zeros where there are fewer.
        """

        def log_density(log_t: FloatArray) -> FloatArray:
            square = np.exp(2.0 * log_t)[..., None]
            grown = 1.0 + square * values
            result = 0.5 * (square * squares / grown - np.log(grown)).sum(-1)
            return np.asarray(result, dtype=np.float64)

        self.t = self._slice(i, _T, log_density, self.t, self.priors["slope_scale"])

    def update_variances(self, i: int, total: FloatArray, squares: FloatArray) -> None:
        """Draw variances given weighted sums of squares of ``total`` records, (J, B, g) both."""
        if self.grouped:
            self._pooled(i, 0.5 * total, squares)
            return
        scale = _scale_of(
            np.sqrt(self.variance), total, squares, self.priors["residual_scale"],
            self.u_variance[i],
        )  # fmt: skip
        self.variance = scale * scale

    def _pooled(self, i: int, half_total: FloatArray, squares: FloatArray) -> None:
        """Draw s_0 and nu with the variances summed out, then the variances.

        Given the variances they would move slowly where nu is large.
        """

        def log_marginal(log_s: FloatArray, log_nu: FloatArray) -> FloatArray:
            """Return log p(residuals | s_0, nu) up to a constant: products of t densities."""
            half = 0.5 * np.exp(log_nu)[..., None]
            log_scale = (log_nu + 2.0 * log_s)[..., None]
            rest = np.log1p(squares * np.exp(-log_scale))
            result = gammaln(half + half_total) - gammaln(half)
            result = result - half_total * log_scale - (half + half_total) * rest
            return np.asarray(result.sum(-1), dtype=np.float64)

        log_nu = np.log(self.nu)
        scale = self.priors["residual_scale"]
        self.s_0 = self._slice(
            i, _POOLED, lambda log_s: log_marginal(log_s, log_nu), self.s_0, scale
        )
        log_s, df = np.log(self.s_0), self.priors["pooling_df"]
        self.nu = self._slice(
            i, _NU, lambda log_nu: log_marginal(log_s, log_nu), self.nu, df, 1.0, LOG_NU
        )
        shape = 0.5 * self.nu[..., None] + half_total
        gamma = np.maximum(gammainccinv(shape, self.u_variance[i, 0]), VARIANCES[0])
        scaled = 0.5 * (squares + (self.nu * self.s_0**2)[..., None])
        self.variance = np.clip(scaled / gamma, *self.limits)

    def log_variance_prior(self, step: FloatArray | float) -> FloatArray:
        """Return the log prior (J, B, g) of each log variance plus ``step``, up to a constant."""
        log_variance = np.log(self.variance) + step
        if not self.grouped:
            return self._log_residual_prior(0.5 * log_variance)
        half = 0.5 * self.nu[..., None]
        ratio = self.s_0[..., None] ** 2 * np.exp(-log_variance)
        return np.asarray(-half * (log_variance + ratio), dtype=np.float64)

    def log_pooled_prior(self, step: FloatArray | float) -> FloatArray:
        """Return the log prior (J, B) of log s_0 and all log variances, up to a constant.

        ``step`` is added to the log variances and half of it to log s_0.
        """
        return self._log_residual_prior(np.log(self.s_0) + 0.5 * step)

    def _log_residual_prior(self, log_scale: FloatArray) -> FloatArray:
        scale = self.priors["residual_scale"]
        density = primitives.half_t_log_density(np.exp(log_scale), HALF_T_DF, scale)
        return np.asarray(density + log_scale, dtype=np.float64)

    def _slice(
        self,
        i: int,
        which: int,
        log_likelihood: Callable[[FloatArray], FloatArray],
        current: FloatArray,
        prior_scale: float,
        df: float = HALF_T_DF,
        ends: tuple[float, float] | None = None,
    ) -> FloatArray:
        """Draw a positive parameter with a half-t prior by a slice on its logarithm."""
        centre = np.log(prior_scale)
        low, high = ends or (centre - BRACKET, centre + BRACKET)

        def log_density(log_value: FloatArray) -> FloatArray:
            prior = primitives.half_t_log_density(np.exp(log_value), df, prior_scale)
            return log_likelihood(log_value) + prior + log_value

        return np.exp(
            primitives.slice_sample(
                log_density, np.log(current), np.full(current.shape, low),
                np.full(current.shape, high), self.u_level[i, which], self.u_slice[i, which],
            )
        )  # fmt: skip


def _scale_of(
    scale: FloatArray,
    total: FloatArray,
    squares: FloatArray,
    prior_scale: float,
    uniforms: FloatArray,
) -> FloatArray:
    """Draw a scale with a half-t prior given sums of squares of ``total`` values of that scale."""
    variance = primitives.slice_variances(
        scale * scale, total, np.zeros_like(squares), squares, prior_scale,
        uniforms[0], uniforms[1:], df=HALF_T_DF,
    )  # fmt: skip
    return np.sqrt(variance)
