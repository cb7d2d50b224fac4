"""Turns of effects of PSUs: a_j + t a_k in place of a_j, and T turned along (methods 3).

T given the effects moves correlations slowly where the data say little of the effects, as it does
scales (``psu_effects``). Under a turn the density of the effects given T stays, and that of T
depends on the scale s of a_j alone:

    p(T) ~ half-t(s) s^-(D + 2 eta - 2),   s^2 = b^2 + beta^2 T_kk

with beta the slope of a_j on a_k, which t is added to, and b^2 what a_k leaves of the variance of
a_j, which stays. It is a move along a group of transformations of volume one (Liu and Sabatti
2000).
"""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.models.parts.covariance import LogTie

EPS = np.finfo(np.float64).eps


class Turn:
    """A turn of one pair of effects in B chains, proposed from a normal.

    covariance: T (B, D, D); pair: j and k; quadratic (B,): minus the second derivative of the
    log-likelihood in t, or a number near it that no turn of this pair moves; prior: psu_scale and
    lkj. Where the likelihood is wider than the prior of beta, a normal about zero stands for that.
    """

    def __init__(
        self,
        covariance: FloatArray,
        pair: tuple[int, int],
        quadratic: FloatArray,
        prior: tuple[float, float],
    ) -> None:
        (j, k), (self.scale, lkj) = pair, prior
        self.covariance, self.pair, self.quadratic = covariance, pair, quadratic
        self.power = covariance.shape[-1] + 2.0 * lkj - 2.0
        self.variance = covariance[:, k, k]
        self.beta = covariance[:, j, k] / self.variance
        rest = covariance[:, j, j] - self.beta**2 * self.variance
        self.rest = np.maximum(rest, EPS * covariance[:, j, j])  # effects that are nearly one
        told = self.power * self.variance / self.rest
        self.precision = quadratic + np.where(quadratic > told, 0.0, told)

    def propose(self, slope: FloatArray, normal: FloatArray) -> FloatArray:
        """Return t (B,); slope (B,): of the log-likelihood before the turn; normal (B,)."""
        return np.asarray(
            self._mean(self.beta, slope) + normal / np.sqrt(self.precision) - self.beta
        )

    def _mean(self, beta: FloatArray, slope: FloatArray) -> FloatArray:
        return np.asarray((slope + self.quadratic * beta) / self.precision)

    def draw(
        self,
        slope: FloatArray,
        normal: FloatArray,
        log_u: FloatArray,
        log_tie: LogTie | None = None,
    ) -> FloatArray:
        """Return t (B,) where ``quadratic`` is exact, zero where it is not accepted.

        log_u (B,): logs of uniforms; log_tie: a further factor of the prior of T.
        """
        t = self.propose(slope, normal)
        gain, slopes = t * (slope - 0.5 * self.quadratic * t), (slope, slope - self.quadratic * t)
        log_accept = self.log_accept(t, gain, slopes)
        if log_tie is not None:
            log_accept = log_accept + log_tie(self.turned(t)) - log_tie(self.covariance)
        return np.where(log_u < log_accept, t, 0.0)

    def log_accept(
        self, t: FloatArray, gain: FloatArray, slopes: tuple[FloatArray, FloatArray]
    ) -> FloatArray:
        """Return the log acceptance ratio (B,).

        gain: of the log-likelihood; slopes: its slopes before and after.
        """
        old, new = self.beta, self.beta + t
        there = 0.5 * self.precision * (new - self._mean(old, slopes[0])) ** 2
        back = 0.5 * self.precision * (old - self._mean(new, slopes[1])) ** 2
        return gain + self._log_prior(new) - self._log_prior(old) + there - back

    def _log_prior(self, beta: FloatArray) -> FloatArray:
        square = self.rest + beta * beta * self.variance
        half_t = 0.5 * (HALF_T_DF + 1.0) * np.log(HALF_T_DF + square / self.scale**2)
        return np.asarray(-0.5 * self.power * np.log(square) - half_t)

    def turned(self, t: FloatArray) -> FloatArray:
        """Return T (B, D, D) after the turn t (B,)."""
        j, k = self.pair
        result = self.covariance.copy()
        result[:, j] += t[:, None] * self.covariance[:, k]
        result[:, :, j] += t[:, None] * result[:, :, k]
        return result
