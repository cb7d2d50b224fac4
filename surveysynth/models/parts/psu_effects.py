"""Effects of PSUs in the Gaussian models (methods 3, clusters), batched.

    z_i = mean_i + a_c(i) + e_i,  e_i ~ N(0, Sigma),  a_c ~ N(0, T),  q columns each

T = D Omega D with half-t3 scales and an LKJ correlation, like the residual covariance. The
likelihood of a record given the effect of its PSU is down-weighted; the prior of the effects is
not. Data enter through sums by PSU (``PsuStats``), so nothing loops over records or PSUs. The
functions take any q x q covariance, one for each chain of the batch B.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from surveysynth._support.types import INTERNAL_SUFFIX, FloatArray, IntArray, Theta
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.models.parts.covariance import CovarianceBlock, LogTie
from surveysynth.models.parts.gaussian import GaussianStats, PsuStats
from surveysynth.models.parts.psu_turns import Turn
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: Entries of Theta: T (..., q, q), which may be released, and the effects (..., C, q) of the
#: sampled PSUs, which never leave the mechanism.
PSU_COVARIANCE = "psu_covariance"
PSU_EFFECT = "psu_effect" + INTERNAL_SUFFIX
#: Draws and rescalings of the effects in a sweep. For a variance that the data bound only from
#: above, two give twice the effective draws of one, for an eighth more time.
MOVES = 2
#: Share of the variance that lies between PSUs, in the guess of ``surveysynth check``.
INTRACLASS_GUESS = 0.05


def effects_of(theta: Theta, psu: IntArray | None) -> FloatArray | None:
    """Return effects (S, g, q) of the PSUs (g,) of some blocks of records, or None without any."""
    return None if psu is None else theta[PSU_EFFECT][:, psu]


def fresh_effects(
    theta: Theta,
    psu: IntArray | None,
    rng: np.random.Generator,
    mean: FloatArray | float = 0.0,
) -> FloatArray | float:
    """Draw new effects a* ~ N(mean, T) of every PSU, record by record (n, q); 0 without effects.

    theta: one draw; psu (n,) codes; mean (q,).
    """
    if PSU_COVARIANCE not in theta:
        return 0.0
    if psu is None:
        raise ValueError("parameters with effects of PSUs meet a design without PSUs")
    root = np.linalg.cholesky(theta[PSU_COVARIANCE])
    effects = mean + rng.standard_normal((int(psu.max()) + 1, root.shape[0])) @ root.T
    return np.asarray(effects[psu], dtype=np.float64)


def log_psu_sd(theta: Theta) -> FloatArray:
    """Return the logs (..., q) of the SDs of the effects, for diagnostics."""
    return np.asarray(0.5 * np.log(psu_variances(theta)))


def psu_variances(theta: Theta) -> FloatArray:
    """Return the variances (..., D) of the effects; D is 0 without any."""
    if PSU_COVARIANCE not in theta:
        return np.empty((*next(iter(theta.values())).shape[:1], 0))
    return np.asarray(np.einsum("...kk->...k", theta[PSU_COVARIANCE]))


def rescaled_psus(theta: Theta, factor: FloatArray) -> Theta:
    """Multiply the SDs of the effects by ``factor`` (..., q), if any; correlations stay.

    Where residual scales are replaced T follows them; debiasing then sets its variances by what
    its simulations show of them.
    """
    if PSU_COVARIANCE not in theta:
        return theta
    covariance = theta[PSU_COVARIANCE] * factor[..., :, None] * factor[..., None, :]
    return {**theta, PSU_COVARIANCE: covariance}


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
        """Compute those of Sigma and T, both (B, q, q)."""
        root = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        whitening = np.asarray(np.linalg.inv(root), dtype=np.float64)
        return cls.whitened(root, whitening, psu_covariance)

    @classmethod
    def whitened(
        cls, root: FloatArray, whitening: FloatArray, psu_covariance: FloatArray
    ) -> "JointCoordinates":
        """Compute the same from a Cholesky factor of Sigma and its inverse, and T."""
        values, vectors = np.linalg.eigh(
            whitening @ psu_covariance @ whitening.swapaxes(-1, -2)
        )
        matrix = whitening.swapaxes(-1, -2) @ vectors
        inverse = vectors.swapaxes(-1, -2) @ root.swapaxes(-1, -2)
        return cls(matrix, inverse, np.maximum(values, 0.0), vectors)

    def shrinkage(self, total: FloatArray) -> FloatArray:
        """Return variances t / (1 + A t) (B, C, q) of the effects given all else.

        They are in these coordinates; sums of residuals times them are the effects' means. total A
        (B, C).
        """
        variance = self.variance[:, None, :]
        result: FloatArray = variance / (1.0 + total[:, :, None] * variance)
        return result


def marginal_likelihood(
    psu: PsuStats, gram: FloatArray, fit: FloatArray, coordinates: JointCoordinates
) -> tuple[FloatArray, FloatArray]:
    """Return the likelihood of coefficients beta (B, K, q) with the effects integrated out.

    That is its precision (B, q, K, q, K) and linear term (B, q, K), both by column of z in its own
    units. In joint coordinates the Gram matrix of column j is X'AX - sum_c x_c x_c' t_j / (1 + A_c
    t_j), x_c the sum of a PSU. gram (B, K, K) and fit are those of all records.
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

    ``start``: T (B, q, q) to start from; ``priors`` has psu_scale and lkj; ``tied``: T's
    conditional has a further factor (``CovarianceBlock``); ``moves``: see ``MOVES``. A sweep draws
    the coefficients by ``marginal_likelihood``, calls ``draw_effects``, draws what else depends on
    the residuals, and calls ``update``.
    """

    def __init__(
        self,
        psu: PsuStats,
        start: FloatArray,
        priors: Mapping[str, float],
        rng: Streams,
        *,
        tied: bool = False,
        moves: int = MOVES,
    ) -> None:
        self.psu, self.rng, self.tied, self.moves = psu, rng, tied, moves
        self.batch, self.size, self.q = psu.residual.shape
        self.prior = priors["psu_scale"], priors["lkj"]
        count = np.full(self.batch, float(self.size))
        self.block = CovarianceBlock(start, count, *self.prior, rng, tied=tied)
        self.effects = np.zeros(psu.residual.shape)

    @property
    def covariance(self) -> FloatArray:
        """T (B, q, q)."""
        return self.block.covariance

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, q, rng = self.batch, self.q, self.rng
        self.block.draw_random_numbers(c)
        self.normals = rng.standard_normal((self.moves, c, b, self.size, q), 2)
        self.uniforms = rng.random((self.moves, c, 2, q, b), 4)
        self.n_turn = rng.standard_normal((c, q, q, b), 3)
        self.log_u_turn = np.log(rng.random((c, q, q, b), 3))

    def draw_effects(
        self, i: int, coordinates: JointCoordinates, residual: FloatArray, move: int = 0
    ) -> None:
        """Draw effects | coefficients, Sigma, T; residual (B, C, q): weighted sums of z - mean."""
        variance = coordinates.shrinkage(self.psu.total)
        # Rotated with the coordinates: eigenvectors have no fixed sign, so these may jump.
        normals = self.normals[move, i] @ coordinates.vectors
        white = variance * (residual @ coordinates.matrix) + np.sqrt(variance) * normals
        self.effects = white @ coordinates.inverse

    def sum_of_squares(self, squares: FloatArray, residual: FloatArray) -> FloatArray:
        """Return the weighted squares (B, q, q) of z - mean - effect from those of z - mean."""
        cross = residual.swapaxes(-1, -2) @ self.effects
        return squares - cross - cross.swapaxes(-1, -2) + self._weighted_squares()

    def _weighted_squares(self) -> FloatArray:
        weighted = self.psu.total[:, :, None] * self.effects
        return np.asarray(weighted.swapaxes(-1, -2) @ self.effects, dtype=np.float64)

    def update(
        self, i: int, covariance: FloatArray, residual: FloatArray, log_tie: LogTie | None = None
    ) -> None:
        """Draw T | effects, then T and the effects together.

        Given are the residual covariance (B, q, q) and the weighted sums (B, C, q) of z - mean.
        """
        self.block.update(i, self.effects.swapaxes(-1, -2) @ self.effects, log_tie)
        root = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        whitening = np.asarray(np.linalg.inv(root), dtype=np.float64)
        precision = whitening.swapaxes(-1, -2) @ whitening
        self._rescale(self.uniforms[0, i], precision, residual, log_tie)
        for move in range(1, self.moves):
            coordinates = JointCoordinates.whitened(root, whitening, self.covariance)
            self.draw_effects(i, coordinates, residual, move)
            self._rescale(self.uniforms[move, i], precision, residual, log_tie)
        for pair in itertools.permutations(range(self.q), 2):
            self._turn(i, pair, precision, residual, log_tie)

    def _turn(
        self,
        i: int,
        pair: tuple[int, int],
        precision: FloatArray,
        residual: FloatArray,
        log_tie: LogTie | None,
    ) -> None:
        """Turn one pair of columns of the effects; precision: of the residuals, (B, q, q)."""
        (j, k), along = pair, self.effects[..., pair[1], None]
        left = residual - self.psu.total[:, :, None] * self.effects
        slope = (precision[:, j] * (left * along).sum(1)).sum(-1)
        quadratic = precision[:, j, j] * (self.psu.total * along[..., 0] ** 2).sum(1)
        turn = Turn(self.covariance, pair, quadratic, self.prior)
        t = turn.draw(slope, self.n_turn[i, j, k], self.log_u_turn[i, j, k], log_tie)
        self.block.covariance = turn.turned(t)
        self.effects = self.effects.copy()  # draws that are kept are these arrays
        self.effects[..., j] += t[:, None] * along[..., 0]

    def _rescale(
        self,
        uniforms: FloatArray,
        precision: FloatArray,
        residual: FloatArray,
        log_tie: LogTie | None,
    ) -> None:
        """Draw scales s_j of T given the effects in units of their SDs, a_.j / s_j.

        T | a alone moves slowly where the data say less of the effects than their prior, above all
        for s near 0. In r = s_new / s_old the likelihood is exp(l r - m r^2 / 2). r is drawn from
        this normal cut at 0 and accepted by the prior ratio; where the likelihood is wider than the
        prior, s is drawn from the prior and accepted by the likelihood ratio. precision: of the
        residuals, (B, q, q); uniforms (2, q, B).
        """
        products = residual.swapaxes(-1, -2) @ self.effects
        linears = (precision * products.swapaxes(-1, -2)).sum(-1)
        quadratics = precision * self._weighted_squares()
        units = np.sqrt(np.einsum("bkk->bk", self.covariance)) / self.prior[0]
        factor, log_u = np.ones((self.batch, self.q)), np.log(uniforms[1])
        tie: FloatArray | float = 0.0 if log_tie is None else log_tie(self.covariance)
        for j in range(self.q):
            quadratic = quadratics[:, j, j]
            linear = linears[:, j] + quadratic - (quadratics[:, j] * factor).sum(1)
            ratio, log_accept = proposed_ratio(units[:, j], linear, quadratic, uniforms[0, j])
            moved = factor.copy()
            moved[:, j] = ratio
            after = tie
            if log_tie is not None:
                after = log_tie(self.covariance * moved[:, :, None] * moved[:, None, :])
            accept = log_u[j] < log_accept + after - tie
            factor = np.where(accept[:, None], moved, factor)
            tie = np.where(accept, after, tie)
        self.block.covariance = self.covariance * factor[:, :, None] * factor[:, None, :]
        self.effects = self.effects * factor[:, None, :]


def proposed_ratio(
    units: FloatArray, linear: FloatArray, quadratic: FloatArray, uniform: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Propose r = s_new / s_old > 0; return it and its log acceptance ratio without a tie.

    The likelihood is exp(linear r - quadratic r^2 / 2); units: s_old over the scale of its prior.
    """
    # The choice of proposal depends on what the move keeps: quadratic / s^2.
    narrow = quadratic > units * units
    precision = np.where(narrow, quadratic, 1.0)
    mean, sd = linear / precision, 1.0 / np.sqrt(precision)
    ratio = primitives.cut_at_zero(mean, uniform, sd)
    if not narrow.all():
        from_prior = stdtrit(HALF_T_DF, 0.5 + 0.5 * uniform) / units
        ratio = np.where(narrow, ratio, from_prior)
    possible = np.isfinite(ratio) & (ratio > 1e-290)
    ratio = np.where(possible, ratio, 1.0)
    new, old = (HALF_T_DF + value * value for value in (ratio * units, units))
    prior = 0.5 * (HALF_T_DF + 1.0) * np.log(old / new)
    likelihood = (ratio - 1.0) * (linear - 0.5 * quadratic * (ratio + 1.0))
    return ratio, np.where(possible, np.where(narrow, prior, likelihood), -np.inf)


def stan_data(stats: GaussianStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """Return what Stan programs need of the PSUs of one database; C = 0 switches effects off."""
    k, q = stats.shape
    psu, empty = stats.psu, np.zeros((0,))
    total, x_sum, residual = (
        (empty, empty.reshape(0, k), empty.reshape(0, q))
        if psu is None
        else (psu.total[0], psu.x_sum[0], psu.residual[0])
    )
    return {
        "C": total.size,
        "psu_total": total.tolist(),
        "psu_x_sum": x_sum.tolist(),
        "psu_residual": residual.tolist(),
        "psu_scale_prior": priors["psu_scale"],
    }


def stan_theta(draws: Mapping[str, FloatArray]) -> Theta:
    """Turn a Stan program's parameters (S, ...) into the entries of Theta."""
    # Without PSUs the arrays are empty, and CmdStan's files have no column for them.
    effects = draws.get("psu_effect")
    if effects is None or effects.shape[-2] == 0:
        return {}
    root = draws["psu_scale"][..., :, None] * draws["psu_root"][..., 0, :, :]
    return {PSU_COVARIANCE: root @ root.swapaxes(-1, -2), PSU_EFFECT: effects}
