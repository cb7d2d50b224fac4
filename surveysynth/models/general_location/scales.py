"""Scales of all regressions of the general location model, side by side.

Given the coefficients the regressions are independent. Their scales are updated together, in arrays
(J, B) of J regressions in B chains, because many small arrays are slow. All steps are exact given
what ``sampler`` knows of the coefficients.
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
#: Normal SDs beyond which a likelihood is negligible.
FAR = 9.5
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
        least_df: float = 0.0,
    ) -> None:
        """Set overdispersed starts about residual variances and mean squares of coefficients.

        spread: residual variances, size: mean squares, (J, B) both; least_df: lower end of nu.
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
        #: Bracket of log nu.
        self.log_nu = max(LOG_NU[0], np.log(least_df)) if least_df else LOG_NU[0], LOG_NU[1]
        self.nu = least_df + 20.0 * np.exp(0.5 * jitter[2])
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

    def rescale(self, i: int, j: int, quadratic: FloatArray, slope: FloatArray) -> None:
        """Draw tau (B,) of one regression given b / tau.

        quadratic, slope (B,): minus the second and the first derivative of the log-likelihood in
        tau. Where b is small, tau given b itself moves slowly (Yu and Meng 2011).
        """
        now = self.tau[j]

        def log_density(log_tau: FloatArray) -> FloatArray:
            step = np.exp(log_tau) - now
            return np.asarray(step * (slope - 0.5 * quadratic * step), dtype=np.float64)

        # A normal likelihood in tau; where it reaches zero the prior falls to the left of both.
        scale = self.priors["coefficient_scale"]
        sd = np.maximum(quadratic, 1e-300) ** -0.5
        peak = np.clip(now + slope / np.maximum(quadratic, 1e-300), 0.0, None)
        left = BRACKET - 0.5 * np.minimum(peak / sd, FAR) ** 2
        near = np.minimum(sd, scale) * np.exp(-np.maximum(left, 0.0))
        ends = np.log(np.maximum(peak - FAR * sd, near)), np.log(peak + FAR * sd)
        drawn = self._slice(i, _TAU, log_density, now, scale, ends=ends, part=j)
        # Draws that are kept are these arrays: they are replaced, never written into.
        self.tau = np.where(np.arange(self.j)[:, None] == j, drawn, self.tau)

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

    def update_variances(
        self,
        i: int,
        total: FloatArray,
        squares: FloatArray,
        prior: tuple[FloatArray, FloatArray],
    ) -> None:
        """Draw variances given weighted sums of squares of ``total`` records, (J, B, g) both.

        prior: the number (J, 1) of the prior's records, whose scale groups share, and their sums of
        squares (J, B).
        """
        if self.grouped:
            self._pooled(i, 0.5 * total, squares, prior)
            return
        scale = _scale_of(
            np.sqrt(self.variance), total + prior[0][..., None], squares + prior[1][..., None],
            self.priors["residual_scale"], self.u_variance[i],
        )  # fmt: skip
        self.variance = scale * scale

    def _pooled(
        self,
        i: int,
        half_total: FloatArray,
        squares: FloatArray,
        prior: tuple[FloatArray, FloatArray],
    ) -> None:
        """Draw s_0 and nu with the variances summed out, in every second sweep; then the variances.

        Given the variances they would move slowly where nu is large.
        """

        def log_marginal(log_s: FloatArray, log_nu: FloatArray) -> FloatArray:
            """Return log p(residuals | s_0, nu): products of t densities without their gammas."""
            half = 0.5 * np.exp(log_nu)[..., None]
            log_scale = (log_nu + 2.0 * log_s)[..., None]
            rest = np.log1p(squares * np.exp(-log_scale))
            result = half_total * log_scale + (half + half_total) * rest
            return np.asarray(-result.sum(-1), dtype=np.float64)

        def of_scale(log_s: FloatArray) -> FloatArray:
            return log_marginal(log_s, log_nu) + _log_prior(log_s, prior)

        def of_df(log_nu: FloatArray) -> FloatArray:
            half = 0.5 * np.exp(log_nu)[..., None]
            gammas = (gammaln(half + half_total) - gammaln(half)).sum(-1)
            return np.asarray(log_marginal(log_s, log_nu) + gammas)

        if i % 2:
            log_nu, scale = np.log(self.nu), self.priors["residual_scale"]
            ends = _pooled_ends(half_total, squares, prior, self.nu)
            self.s_0 = self._slice(i, _POOLED, of_scale, self.s_0, scale, ends=ends)
            log_s, df = np.log(self.s_0), self.priors["pooling_df"]
            self.nu = self._slice(i, _NU, of_df, self.nu, df, 1.0, self.log_nu)
        shape = 0.5 * self.nu[..., None] + half_total
        gamma = np.maximum(gammainccinv(shape, self.u_variance[i, 0]), VARIANCES[0])
        scaled = 0.5 * (squares + (self.nu * self.s_0**2)[..., None])
        self.variance = np.clip(scaled / gamma, *self.limits)

    @property
    def common(self) -> FloatArray:
        """The residual scale (J, B) that groups share."""
        return self.s_0 if self.grouped else np.sqrt(self.variance[..., 0])

    def _slice(
        self,
        i: int,
        which: int,
        log_likelihood: Callable[[FloatArray], FloatArray],
        current: FloatArray,
        prior_scale: float,
        df: float = HALF_T_DF,
        ends: tuple[FloatArray | float, FloatArray | float] = (-np.inf, np.inf),
        part: int | slice = slice(None),
    ) -> FloatArray:
        """Draw a positive parameter with a half-t prior by a slice on its logarithm.

        ends: of the likelihood's mass. They do not depend on the current value, so that draws with
        the same random numbers come together. part: the regression whose random numbers are used,
        all by default.
        """
        centre, now = np.log(prior_scale), np.log(current)
        low, high = self.log_nu if which == _NU else (centre - BRACKET, centre + BRACKET)
        # Only a start value can lie outside the bracket, and it must be included.
        lower = np.minimum(np.clip(ends[0], low, high), now - 0.01)
        upper = np.maximum(np.clip(ends[1], low, high), now + 0.01)

        def log_density(log_value: FloatArray) -> FloatArray:
            prior = primitives.half_t_log_density(np.exp(log_value), df, prior_scale)
            return log_likelihood(log_value) + prior + log_value

        drawn = primitives.slice_sample(
            log_density, now, lower, upper,
            self.u_level[i, which, part], self.u_slice[i, which, :, part],
        )  # fmt: skip
        return np.exp(drawn)


def _pooled_ends(
    half_total: FloatArray,
    squares: FloatArray,
    prior: tuple[FloatArray, FloatArray],
    nu: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the ends (J, B) of the mass of log s_0, or what is farther out.

    From one unit beyond the residual SDs of the groups on, a group's log density falls with a slope
    of about the smaller of its records and nu, or more; the prior alone has a slope of 1.
    """
    total = 2.0 * half_total
    there = total > 0
    with np.errstate(divide="ignore"):
        log_sd = 0.5 * np.log(squares / np.where(there, total, 1.0))
        of_prior = 0.5 * np.log(prior[1] / np.maximum(prior[0], 1e-300))
    low = np.where(there, log_sd, np.inf).min(-1)
    high = np.where(there, log_sd, -np.inf).max(-1)
    known = prior[0] > 0
    low = np.where(known, np.minimum(low, of_prior), low)
    high = np.where(known, np.maximum(high, of_prior), high)
    some = low < np.inf
    low, high = np.where(some, low, -np.inf), np.where(some, high, np.inf)
    rate = 0.8 * np.minimum(total, nu[..., None]).sum(-1)
    right = np.where(rate > 2.0, 80.0 / np.maximum(rate - 1.0, 1.0), np.inf)
    return low - 1.0 - 80.0 / (rate + 1.0), high + 1.0 + right


def _log_prior(log_scale: FloatArray, prior: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Return the log density (J, B) of the prior's records at a scale."""
    count, squares = prior
    return np.asarray(-count * log_scale - 0.5 * squares * np.exp(-2.0 * log_scale))


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
