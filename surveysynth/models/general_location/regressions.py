"""Gibbs blocks of the regressions of the general location model (methods 4).

    z ~ N(u b + z_earlier d_g, s_g^2)   of the records that have z, u = (x, e(d), earlier z)
    b ~ N(0, tau^2 I),  d_g ~ N(0, t^2 I),  s_g^2 ~ scaled inverse chi^2(nu, s_0^2)

Without groups there are no d, and s itself has the prior of s_0. Blocks, each exact:

    tau | b               ``update_scales``
    b | tau, t, s         normal, d summed out
    t | b, s              slice, d summed out
    d | b, t, s           normal
    s_0, nu | b, d        slices, s summed out: with s they creep where nu is large
    s | s_0, nu, b, d     inverse gamma
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import gammainccinv, gammaln

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.general_location.layout import RegressionPart
from surveysynth.models.general_location.stats import RegressionSums
from surveysynth.models.parts.coefficient_prior import HALF_T_DF
from surveysynth.models.parts.coefficients import overdispersion
from surveysynth.sampling import primitives, unconstrained
from surveysynth.sampling.streams import Streams

#: Half of the bracket of slices on the logs of s_0, nu and t, about those of their prior scales.
#: Farther out a half-t on a log scale has fallen below exp(-40).
BRACKET = 42.0
#: nu beyond exp(this) is as good as infinite, and no half-Cauchy tail to speak of is left.
LARGEST_LOG_NU = 20.0
#: The smallest log nu: below, a single variance has no bounds that mean anything, and the
#: half-Cauchy has no mass.
SMALLEST_LOG_NU = -15.0


class RegressionBlocks:
    """State of one regression in B chains: core (B, C), slopes (B, g, k) what a group adds to the
    coefficients of earlier z, variance (B, g), and tau, t, s_0, nu (B,)."""

    def __init__(
        self,
        part: RegressionPart,
        sums: RegressionSums,
        grouped: bool,
        priors: Mapping[str, float],
        rng: Streams,
    ) -> None:
        self.part, self.grouped, self.priors, self.rng = part, grouped, priors, rng
        self.batch, self.groups = sums.total.shape
        self.k = part.earlier.size if grouped else 0
        self.sums = sums
        self._start()

    def observe(self, sums: RegressionSums) -> None:
        """The sums, where they change between sweeps."""
        self.sums = sums

    def _start(self) -> None:
        """Overdispersed starts about the least-squares fit."""
        s, b, rng = self.sums, self.batch, self.rng
        mass = np.maximum(s.total.sum(1), 1.0)
        gram = s.gram.sum(1)
        explained = (s.fit * (gram @ s.fit[..., None])[..., 0]).sum(-1)
        squares = s.residual.sum(1)
        total = squares + explained
        # A perfect fit would start chains at zero, where precisions overflow.
        floor = np.where(total > 1e-290, 1e-6 * total / mass, 1.0)
        spread = squares / mass + floor
        inflation = np.exp(0.2 * rng.standard_normal((b, self.groups), 0))
        self.variance = spread[:, None] * inflation
        noise = overdispersion(gram, rng, 1)[:, :, 0]
        self.core = s.fit + noise * np.sqrt(spread)[:, None]
        jitter = rng.standard_normal((b, 4), 0)
        size = np.sqrt((self.core**2).mean(-1)) + 1e-3
        self.tau = size * np.exp(0.5 + 0.5 * jitter[:, 0])
        self.s_0 = np.sqrt(spread) * np.exp(0.2 * jitter[:, 1])
        self.nu = 20.0 * np.exp(0.5 * jitter[:, 2])
        self.t = 0.1 * self.priors["slope_scale"] * np.exp(0.5 * jitter[:, 3])
        self.slopes = np.zeros((b, self.groups, self.k))

    def state(self) -> Theta:
        """Parameters by name; what the part's prior has no use for is left out."""
        name = self.part.name
        state = {
            f"coefficients_{name}": self.core,
            f"variance_{name}": self.variance,
            f"coefficient_scale_{name}": self.tau,
        }
        if self.grouped:
            state |= {f"pooled_scale_{name}": self.s_0, f"pooled_df_{name}": self.nu}
        if self.k:
            state |= {f"slopes_{name}": self.slopes, f"slope_scale_{name}": self.t}
        return state

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps."""
        b, g, rng, tries = self.batch, self.groups, self.rng, primitives.MAX_SHRINKS
        self.n_core = rng.standard_normal((c, b, self.core.shape[1]), 1)
        self.u_tau = rng.random((c, 2, b), 2)
        if not self.grouped:
            self.u_variance = rng.random((c, 2, b, g), 2)
            return
        self.u_variance = rng.random((c, b, g), 1)
        self.n_slopes = rng.standard_normal((c, b, g, self.k), 1)
        self.u_level = rng.random((c, 3, b), 2)
        self.u_slice = rng.random((c, 3, tries, b), 3)

    def sweep(self, i: int) -> None:
        """One sweep; i counts the sweeps since the numbers were drawn."""
        prior = (HALF_T_DF, self.priors["coefficient_scale"])
        zeros = np.zeros(self.batch)
        squares = (self.core * self.core).sum(-1)
        size = float(self.core.shape[1])
        self.tau = primitives.update_scales(self.tau, size, squares, zeros, prior, self.u_tau[i])
        self._coefficients(i)
        squares = self.sums.squares(self.core, self.slopes)
        if self.grouped:
            self._pooled(i, squares)
        else:
            scale = primitives.update_scales(
                np.sqrt(self.variance), self.sums.total, squares, np.zeros_like(squares),
                (HALF_T_DF, self.priors["residual_scale"]), self.u_variance[i],
            )  # fmt: skip
            self.variance = scale * scale

    def log_variance_prior(self, step: FloatArray | float) -> FloatArray:
        """Log prior (B, g) of each log variance, ``step`` added to it, up to a constant."""
        log_variance = np.log(self.variance) + step
        if not self.grouped:
            return _half_t(0.5 * log_variance, self.priors["residual_scale"])
        half = 0.5 * self.nu[:, None]
        ratio = self.s_0[:, None] ** 2 * np.exp(-log_variance)
        return np.asarray(-half * (log_variance + ratio), dtype=np.float64)

    def log_pooled_prior(self, step: FloatArray | float) -> FloatArray:
        """Log prior (B,) of log s_0 and all log variances about it, when ``step`` is added to
        these and half of it to log s_0, up to a constant."""
        return _half_t(np.log(self.s_0) + 0.5 * step, self.priors["residual_scale"])

    # --- coefficients -----------------------------------------------------------------------

    def _coefficients(self, i: int) -> None:
        s, c = self.sums, self.core.shape[1]
        weight = 1.0 / self.variance
        gram = s.gram * weight[..., None, None]
        cross = s.cross * weight[..., None]
        precision, linear = gram.sum(1), cross.sum(1)
        if self.k:
            corner = gram[:, :, c - self.k :, c - self.k :]
            side = gram[:, :, :, c - self.k :]
            inner = corner + np.eye(self.k) / (self.t * self.t)[:, None, None, None]
            both = np.concatenate([side.swapaxes(-1, -2), cross[:, :, c - self.k :, None]], -1)
            solved = np.linalg.solve(inner, both)
            precision = precision - (side @ solved[..., :-1]).sum(1)
            linear = linear - (side @ solved[..., -1:])[..., 0].sum(1)
        shrink = 1.0 / (self.tau * self.tau)
        precision = precision + shrink[:, None, None] * np.eye(c)
        linear = linear - shrink[:, None] * s.fit
        shift = primitives.normal_from_precision(precision, linear, self.n_core[i])
        self.core = s.fit + shift
        if self.k:
            score = cross[:, :, c - self.k :] - (side.swapaxes(-1, -2) @ shift[:, None, :, None])[
                ..., 0
            ]
            self._slopes(i, corner, score)

    def _slopes(self, i: int, corner: FloatArray, score: FloatArray) -> None:
        """t given all but the slopes, and then these: the likelihood of a group's slopes d is
        exp(-d' corner d / 2 + score' d)."""
        values, vectors = np.linalg.eigh(corner)
        values = np.maximum(values, 0.0)
        turned = (vectors.swapaxes(-1, -2) @ score[..., None])[..., 0]
        flat = values.reshape(self.batch, -1), (turned * turned).reshape(self.batch, -1)
        prior_scale = self.priors["slope_scale"]

        def log_density(log_t: FloatArray) -> FloatArray:
            square = np.exp(2.0 * log_t)[:, None]
            grown = 1.0 + square * flat[0]
            result: FloatArray = 0.5 * (square * flat[1] / grown - np.log(grown)).sum(-1)
            return result + _half_t(log_t, prior_scale)

        log_t = self._slice(i, 0, log_density, np.log(self.t), np.log(prior_scale))
        self.t = np.exp(log_t)
        sd = 1.0 / np.sqrt(values + (self.t**-2)[:, None, None])
        drawn = sd * (sd * turned + self.n_slopes[i])
        self.slopes = (vectors @ drawn[..., None])[..., 0]

    # --- variances --------------------------------------------------------------------------

    def _pooled(self, i: int, squares: FloatArray) -> None:
        """s_0 and nu with the variances summed out, then the variances."""
        half_total = 0.5 * self.sums.total

        def log_marginal(log_s: FloatArray, log_nu: FloatArray) -> FloatArray:
            """log p(residuals | s_0, nu) up to a constant: a product of t densities."""
            half = 0.5 * np.exp(log_nu)[:, None]
            log_scale = log_nu[:, None] + 2.0 * log_s[:, None]
            rest = np.log1p(squares * np.exp(-log_scale))
            result = gammaln(half + half_total) - gammaln(half)
            result = result - half_total * log_scale - (half + half_total) * rest
            return np.asarray(result.sum(-1), dtype=np.float64)

        def of_scale(log_s: FloatArray) -> FloatArray:
            return log_marginal(log_s, log_nu) + _half_t(log_s, self.priors["residual_scale"])

        def of_nu(log_nu: FloatArray) -> FloatArray:
            prior = unconstrained.half_t_log_density(log_nu, 1.0, self.priors["pooling_df"])[0]
            return log_marginal(log_s, log_nu) + prior

        log_nu = np.log(self.nu)
        centre = float(np.log(self.priors["residual_scale"]))
        log_s = self._slice(i, 1, of_scale, np.log(self.s_0), centre)
        log_nu = self._slice(i, 2, of_nu, log_nu)
        self.s_0, self.nu = np.exp(log_s), np.exp(log_nu)
        shape = 0.5 * (self.nu[:, None] + self.sums.total)
        gamma = np.maximum(gammainccinv(shape, self.u_variance[i]), 1e-200)
        scale = 0.5 * (squares + (self.nu * self.s_0**2)[:, None])
        self.variance = np.maximum(scale / gamma, 1e-200)

    def _slice(
        self,
        i: int,
        which: int,
        log_density: Callable[[FloatArray], FloatArray],
        current: FloatArray,
        centre: float | None = None,
    ) -> FloatArray:
        if centre is None:
            ends = (SMALLEST_LOG_NU, LARGEST_LOG_NU)
        else:
            ends = (centre - BRACKET, centre + BRACKET)
        lower, upper = (np.full(self.batch, end) for end in ends)
        return primitives.slice_sample(
            log_density, current, lower, upper, self.u_level[i, which], self.u_slice[i, which]
        )


def _half_t(log_scale: FloatArray, prior_scale: float) -> FloatArray:
    return unconstrained.half_t_log_density(log_scale, HALF_T_DF, prior_scale)[0]
