"""Gibbs block of a covariance under separate priors for scales and correlations.

    Sigma = D Omega D,  D = diag(sigma), sigma_j ~ half-t3;  Omega ~ LKJ(eta)      (methods 3)

given the weighted sum of squares of A effective records.
"""

import numpy as np
from scipy.special import chdtri

from surveysynth._support.types import FloatArray
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: Effective records per column of Sigma below which slices support the proposal.
FEW = 12.0
#: Steps to the mode of the conditional; each shrinks the distance by 2c/(A + 2c) at least.
MODE_STEPS = 2


class CovarianceBlock:
    """Sigma (B, q, q) of B chains, started from ``covariance``; ``total`` A (B,).

    With many effective records Sigma is proposed from an inverse Wishart with the mode of the
    conditional; Metropolis-Hastings nearly always accepts. With few, where the shapes differ,
    slices also draw scales and correlations; they are exact for any A >= 0.
    """

    def __init__(
        self,
        covariance: FloatArray,
        total: FloatArray,
        prior_scale: float,
        lkj: float,
        rng: Streams,
    ) -> None:
        self.covariance, self.total, self.rng = covariance, total, rng
        self.batch, self.q = covariance.shape[:2]
        self.prior = (HALF_T_DF, prior_scale)
        # In the density of Sigma the LKJ prior leaves |Omega| to this power over an inverse
        # Wishart with A - 1 degrees of freedom: eta - 1, and q/2 for the Jacobian.
        self.power = lkj - 1.0 + 0.5 * self.q
        # LKJ(eta) is the correlation of a Wishart with q - 1 + 2 eta degrees of freedom.
        self.columns = round(self.q - 1 + 2 * lkj)
        self.by_slice = bool(np.any(total <= FEW * self.q))
        self.by_proposal = bool(np.all(total > self.q + 2))
        # Heavier tails than the conditional's, to cover it.
        self.df = np.maximum(total - 1.0 - self.power, self.q + 1.0)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, q, rng, tries = self.batch, self.q, self.rng, primitives.MAX_SHRINKS
        if self.by_proposal:
            normals, uniforms = rng.standard_normal((c, b, q, q), 1), rng.random((c, b, q + 1), 1)
            self.wishart_root = primitives.inverse_wishart_root(
                self.df, normals, uniforms[..., :q]
            )
            self.log_u = np.log(uniforms[..., q])
        if self.by_slice:
            self.direction = rng.standard_normal((c, b, q, self.columns), 1)
            self.u_root = rng.random((c, b, q), 1)
            self.u_level = rng.random((c, b), 1)
            self.u_angle = rng.random((c, tries, b), 2)
            self.u_scale = rng.random((c, 2, b, q), 2)

    def update(self, i: int, squares: FloatArray) -> None:
        """Draw Sigma given the weighted sum of squares (B, q, q).

        i counts the sweeps since ``draw_random_numbers``.
        """
        if self.by_slice:
            self._scales_and_correlation(i, squares)
        if self.by_proposal:
            self._proposal(i, squares)

    def _proposal(self, i: int, squares: FloatArray) -> None:
        scale = self._mode(squares) * (self.df + self.q + 1.0)[:, None, None]
        root = np.linalg.cholesky(scale) @ self.wishart_root[i]
        proposal = root @ root.swapaxes(-1, -2)
        rest = squares - scale
        new, old = self._log_ratio(np.stack([proposal, self.covariance]), rest)
        accept = self.log_u[i] < new - old
        self.covariance = np.where(accept[:, None, None], proposal, self.covariance)

    def _log_ratio(self, covariance: FloatArray, rest: FloatArray) -> FloatArray:
        """Return the log of the conditional over the proposal's density: (2, B, q, q) to (2, B).

        It is up to a constant.
        """
        variance = np.einsum("cbkk->cbk", covariance)
        log_det = np.linalg.slogdet(covariance)[1]
        half_t = primitives.half_t_log_density(np.sqrt(variance), *self.prior).sum(-1)
        trace = np.einsum("cbij,bji->cb", np.linalg.inv(covariance), rest)
        excess = 0.5 * (self.df - self.total + 1.0)
        result = half_t + (self.power + excess) * log_det - 0.5 * trace
        result -= self.power * np.log(variance).sum(-1)
        return np.asarray(result, dtype=np.float64)

    def _mode(self, squares: FloatArray) -> FloatArray:
        """Return the mode of the conditional in Sigma, a few steps from that without a prior.

        It solves (A + q - 2c) S + S U S = squares, where c is ``power`` and the diagonal U_jj =
        2c/S_jj + 4/(3 s^2 + S_jj) comes from the priors. Given U this is a quadratic equation with
        a positive definite root.
        """
        df, prior_scale = self.prior
        mode = squares / (self.total + self.q)[:, None, None]
        mass = (self.total + self.q - 2.0 * self.power)[:, None]
        for _ in range(MODE_STEPS):
            variance = np.einsum("bkk->bk", mode)
            shrink = 2.0 * self.power / variance
            root = np.sqrt(shrink + (df + 1.0) / (df * prior_scale**2 + variance))
            values, vectors = np.linalg.eigh(squares * root[:, :, None] * root[:, None, :])
            larger = np.sqrt(mass * mass + 4.0 * np.maximum(values, 0.0)) + np.abs(mass)
            half = np.where(mass > 0, 2.0 * values / larger, 0.5 * larger)
            solution = (vectors * half[:, None, :]) @ vectors.swapaxes(-1, -2)
            mode = solution / (root[:, :, None] * root[:, None, :])
        return np.asarray(mode, dtype=np.float64)

    def _scales_and_correlation(self, i: int, squares: FloatArray) -> None:
        scale = np.sqrt(np.einsum("bkk->bk", self.covariance))
        correlation = self.covariance / (scale[:, :, None] * scale[:, None, :])
        weighted = np.linalg.inv(correlation) * squares
        for j in range(self.q):
            others = (weighted[:, j] / scale).sum(1) - weighted[:, j, j] / scale[:, j]
            scale[:, j] = primitives.update_scales(
                scale[:, j], self.total, weighted[:, j, j], -others, self.prior,
                self.u_scale[i, :, :, j],
            )  # fmt: skip
        values, vectors = np.linalg.eigh(squares)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :] / scale[:, :, None]
        # A root G of a Wishart matrix with this correlation: its scales are independent chi, and
        # its rotation does not matter.
        chi = np.sqrt(chdtri(float(self.columns), self.u_root[i]))
        root = np.zeros_like(self.direction[i])
        root[:, :, : self.q] = chi[:, :, None] * np.linalg.cholesky(correlation)
        root = primitives.elliptical_correlation(
            root, self.direction[i], self.total, factor, self.u_level[i], self.u_angle[i]
        )
        self.covariance = _scaled(scale, primitives.wishart_correlation(root))


def _scaled(scale: FloatArray, correlation: FloatArray) -> FloatArray:
    return correlation * scale[:, :, None] * scale[:, None, :]
