"""Effects of PSUs (methods 3, clusters), batched: what the Gaussian models share.

    z_i = mean_i + a_c(i) + e_i,  e_i ~ N(0, Sigma),  a_c ~ N(0, T),  q columns each

T = D Omega D with half-t3 scales and an LKJ correlation, as of the residuals; the likelihood of a
record, conditional on the effect of its PSU, is down-weighted, the prior of the effects is not.
The data enter through sums by PSU (``PsuStats``): nothing here runs over records, or over PSUs in
a loop. The functions take any q x q covariance, one a chain of the batch B.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, ndtri_exp, stdtrit

from surveysynth._types import INTERNAL_SUFFIX, FloatArray, IntArray, Theta
from surveysynth.models._coefficient_prior import HALF_T_DF
from surveysynth.models._covariance import CovarianceBlock, LogTie
from surveysynth.models.gaussian import PsuStats
from surveysynth.sampling import primitives
from surveysynth.sampling.streams import Streams

#: Entries of Theta: T (..., q, q), which may be released, and the effects (..., C, q) of the
#: sampled PSUs, which never leave the mechanism.
PSU_COVARIANCE = "psu_covariance"
PSU_EFFECT = "psu_effect" + INTERNAL_SUFFIX
#: Times a sweep that effects are drawn and rescaled. Of a variance that the data bound from above
#: only, three leave four times the effective draws of one, for a fourth of the time more.
MOVES = 3


def effects_of(theta: Theta, psu: IntArray | None) -> FloatArray | None:
    """Effects (S, g, q) of the PSUs (g,) of some blocks of records, or None without any."""
    return None if psu is None else theta[PSU_EFFECT][:, psu]


def fresh_effects(
    theta: Theta,
    psu: IntArray | None,
    rng: np.random.Generator,
    mean: FloatArray | float = 0.0,
) -> FloatArray | float:
    """New effects a* ~ N(mean, T) of every PSU, record by record (n, q); 0 without effects.

    theta: one draw; psu (n,) codes; mean (q,)."""
    if PSU_COVARIANCE not in theta:
        return 0.0
    if psu is None:
        raise ValueError("parameters with effects of PSUs meet a design without PSUs")
    root = np.linalg.cholesky(theta[PSU_COVARIANCE])
    effects = mean + rng.standard_normal((int(psu.max()) + 1, root.shape[0])) @ root.T
    return np.asarray(effects[psu], dtype=np.float64)


def log_psu_sd(theta: Theta) -> FloatArray:
    """Logs (..., q) of the SDs of the effects, for diagnostics."""
    return np.asarray(0.5 * np.log(np.einsum("...kk->...k", theta[PSU_COVARIANCE])))


@dataclass(frozen=True)
class JointCoordinates:
    """Coordinates z M in which residuals and effects are independent, one by one.

    matrix M (B, q, q) and its inverse: M' Sigma M = I and M' T M = diag(variance), (B, q). vectors
    (B, q, q), orthonormal: with Sigma = L L', M is L^-T times these.
    """

    matrix: FloatArray
    inverse: FloatArray
    variance: FloatArray
    vectors: FloatArray

    @classmethod
    def of(cls, covariance: FloatArray, psu_covariance: FloatArray) -> "JointCoordinates":
        """Those of Sigma and T, both (B, q, q)."""
        root = np.linalg.cholesky(covariance)
        whitening = np.linalg.inv(root)
        values, vectors = np.linalg.eigh(
            whitening @ psu_covariance @ whitening.swapaxes(-1, -2)
        )
        matrix = whitening.swapaxes(-1, -2) @ vectors
        inverse = vectors.swapaxes(-1, -2) @ root.swapaxes(-1, -2)
        return cls(matrix, inverse, np.maximum(values, 0.0), vectors)

    def shrinkage(self, total: FloatArray) -> FloatArray:
        """Variances t / (1 + A t) (B, C, q) of the effects given all else, in these coordinates:
        sums of residuals times this are their means. total A (B, C)."""
        variance = self.variance[:, None, :]
        result: FloatArray = variance / (1.0 + total[:, :, None] * variance)
        return result


def marginal_likelihood(
    psu: PsuStats, gram: FloatArray, fit: FloatArray, coordinates: JointCoordinates
) -> tuple[FloatArray, FloatArray]:
    """Likelihood of coefficients beta (B, K, q) with the effects integrated out: its precision
    (B, q, K, q, K) and linear term (B, q, K), both by column of z in its own units.

    In joint coordinates the Gram matrix of column j is X'AX - sum_c x_c x_c' t_j / (1 + A_c t_j),
    x_c the sum of a PSU. gram (B, K, K) and fit are of the whole.
    """
    shrinkage = coordinates.shrinkage(psu.total).swapaxes(-1, -2)[..., None]
    shrunk = (shrinkage * psu.x_sum[:, None]).swapaxes(-1, -2)
    gram_j = gram[:, None] - shrunk @ psu.x_sum[:, None]
    matrix = coordinates.matrix
    white_fit = (fit @ matrix).swapaxes(-1, -2)[..., None]
    white_residual = (psu.residual @ matrix).swapaxes(-1, -2)[..., None]
    linear_j = (gram_j @ white_fit - shrunk @ white_residual)[..., 0]
    b, q, k = linear_j.shape
    pairs = (matrix[:, :, None, :] * matrix[:, None, :, :]).reshape(b, q * q, q)
    precision = (pairs @ gram_j.reshape(b, q, k * k)).reshape(b, q, q, k, k)
    return np.ascontiguousarray(precision.swapaxes(2, 3)), matrix @ linear_j


class PsuBlock:
    """T (B, q, q) and the effects (B, C, q) of B chains, for the statistics of their PSUs.

    ``start`` (B, q, q) of T; ``priors`` has psu_scale and lkj; ``tied``: whether T's conditional
    has a further factor (``CovarianceBlock``). A sweep draws the coefficients by
    ``marginal_likelihood``, then ``draw_effects``, what else depends on the residuals, and
    ``update``.
    """

    def __init__(
        self,
        psu: PsuStats,
        start: FloatArray,
        priors: Mapping[str, float],
        rng: Streams,
        *,
        tied: bool = False,
    ) -> None:
        self.psu, self.rng, self.tied = psu, rng, tied
        self.batch, self.size, self.q = psu.residual.shape
        self.prior_scale = priors["psu_scale"]
        count = np.full(self.batch, float(self.size))
        self.block = CovarianceBlock(
            start, count, self.prior_scale, priors["lkj"], rng, tied=tied
        )
        self.effects = np.zeros(psu.residual.shape)

    @property
    def covariance(self) -> FloatArray:
        """T (B, q, q)."""
        return self.block.covariance

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps."""
        b, q, rng = self.batch, self.q, self.rng
        self.block.draw_random_numbers(c)
        self.normals = rng.standard_normal((MOVES, c, b, self.size, q), 2)
        self.uniforms = rng.random((MOVES, c, 2, q, b), 4)

    def draw_effects(
        self, i: int, coordinates: JointCoordinates, residual: FloatArray, move: int = 0
    ) -> None:
        """Effects | coefficients, Sigma, T; residual (B, C, q) the weighted sums of z - mean."""
        variance = coordinates.shrinkage(self.psu.total)
        # Turned with the coordinates, which may jump where the effects must not: eigenvectors have
        # no sign of their own.
        normals = self.normals[move, i] @ coordinates.vectors
        white = variance * (residual @ coordinates.matrix) + np.sqrt(variance) * normals
        self.effects = white @ coordinates.inverse

    def sum_of_squares(self, squares: FloatArray, residual: FloatArray) -> FloatArray:
        """Weighted sum of squares (B, q, q) of z - mean - effect, from that of z - mean."""
        cross = residual.swapaxes(-1, -2) @ self.effects
        return squares - cross - cross.swapaxes(-1, -2) + self._weighted_squares()

    def _weighted_squares(self) -> FloatArray:
        weighted = self.psu.total[:, :, None] * self.effects
        return np.asarray(weighted.swapaxes(-1, -2) @ self.effects, dtype=np.float64)

    def update(
        self, i: int, covariance: FloatArray, residual: FloatArray, log_tie: LogTie | None = None
    ) -> None:
        """T | effects, then T and the effects together given the residual covariance (B, q, q)
        and the weighted sums (B, C, q) of z - mean."""
        self.block.update(i, self.effects.swapaxes(-1, -2) @ self.effects, log_tie)
        precision = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        self._rescale(self.uniforms[0, i], precision, residual, log_tie)
        for move in range(1, MOVES):
            coordinates = JointCoordinates.of(covariance, self.covariance)
            self.draw_effects(i, coordinates, residual, move)
            self._rescale(self.uniforms[move, i], precision, residual, log_tie)

    def _rescale(
        self,
        uniforms: FloatArray,
        precision: FloatArray,
        residual: FloatArray,
        log_tie: LogTie | None,
    ) -> None:
        """Scales s_j of T given a_.j / s_j, the effects in units of their SDs, which stay.

        T | a alone creeps where the data say less of the effects than their prior does, s near 0
        above all. In r = s_new / s_old the likelihood is exp(l r - m r^2 / 2): r comes from this
        normal cut off at 0 and is accepted by the prior ratio, or, where the likelihood is wider
        than the prior, s from the prior and is accepted by the likelihood ratio. precision of the
        residuals (B, q, q); uniforms (2, q, B).
        """
        products = residual.swapaxes(-1, -2) @ self.effects
        squares = self._weighted_squares()
        for j in range(self.q):
            uniform, log_u = uniforms[0, j], np.log(uniforms[1, j])
            row = precision[:, j]
            linear = (row * (products[:, :, j] - squares[:, :, j])).sum(1)
            quadratic = row[:, j] * squares[:, j, j]
            linear = linear + quadratic
            scale = np.sqrt(self.covariance[:, j, j])
            ratio, log_accept = self._proposed_ratio(scale, linear, quadratic, uniform)
            factor = np.ones((self.batch, self.q))
            factor[:, j] = ratio
            proposal = self.covariance * factor[:, :, None] * factor[:, None, :]
            if log_tie is not None:
                after, before = log_tie(np.stack([proposal, self.covariance]))
                log_accept = log_accept + after - before
            factor = np.where((log_u < log_accept)[:, None], factor, 1.0)
            self.block.covariance = self.covariance * factor[:, :, None] * factor[:, None, :]
            self.effects = self.effects * factor[:, None, :]
            products = products * factor[:, None, :]
            squares = squares * factor[:, :, None] * factor[:, None, :]

    def _proposed_ratio(
        self, scale: FloatArray, linear: FloatArray, quadratic: FloatArray, uniform: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Proposed s_new / s_old > 0 and the log of its acceptance ratio without a tie."""
        units = scale / self.prior_scale
        # Which of both proposals is made depends on what stays: m / s^2.
        narrow = quadratic > units * units
        precision = np.where(narrow, quadratic, 1.0)
        mean, sd = linear / precision, 1.0 / np.sqrt(precision)
        tail = np.log1p(-uniform) + log_ndtr(mean / sd)
        from_likelihood = mean - sd * ndtri_exp(tail)
        from_prior = stdtrit(HALF_T_DF, 0.5 + 0.5 * uniform) / units
        ratio = np.where(narrow, from_likelihood, from_prior)
        possible = np.isfinite(ratio) & (ratio > 1e-290)
        ratio = np.where(possible, ratio, 1.0)
        new, old = (
            primitives.half_t_log_density(value, HALF_T_DF, 1.0) for value in (ratio * units, units)
        )
        likelihood = (ratio - 1.0) * (linear - 0.5 * quadratic * (ratio + 1.0))
        log_accept = np.where(narrow, new - old, likelihood)
        return ratio, np.where(possible, log_accept, -np.inf)
