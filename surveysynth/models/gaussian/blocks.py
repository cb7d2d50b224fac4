"""Gibbs blocks of the Gaussian models: coefficients and residual covariance (methods 3).

    beta_j ~ N(0, D_j Omega D_j), j = 1..q;  D_j = diag(sigma_j), sigma_jk ~ half-t3;  Omega ~ LKJ
    Sigma = D Omega D,  D = diag(sigma), sigma_j ~ half-t3;  Omega ~ LKJ(eta)

The first is of all columns of X but those of shrunken interactions, whose ridge is in the
statistics (``GaussianStats.with_ridge``); the second is drawn given the weighted sum of squares of
A effective records.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from scipy.special import chdtri

from surveysynth._support.types import FloatArray
from surveysynth.models.base import INTERACTION_PRIOR
from surveysynth.sampling import primitives
from surveysynth.sampling.plan import Streams
from surveysynth.survey.design_matrix import INTERACTION_SCALE

#: The prior of interactions and its default (methods 3).
INTERACTIONS: Mapping[str, float] = MappingProxyType({INTERACTION_PRIOR: INTERACTION_SCALE})
#: Degrees of freedom of the half-t priors ([T] App. C).
HALF_T_DF = 3.0
#: Sweeps between draws of Omega, and of D. q coefficients inform each of these: fewer draws halve
#: the time of a sweep and cost beta and the residual scales hardly any precision.
SELDOM = (4, 2)
#: Effective records per column of Sigma below which slices support the proposal.
FEW = 12.0
#: Steps to the mode of the conditional; each shrinks the distance by 2c/(A + 2c) at least.
MODE_STEPS = 2


class CoefficientBlocks:
    """beta (B, K, q), scale (B, q, L) and Omega of B chains, about the statistics X'AX and fit.

    L: columns of X except the last, ``shrunken`` ones. ``spread`` (B, q, q): a guess of the
    residual covariance, for overdispersed starts.
    """

    def __init__(
        self,
        gram: FloatArray,
        fit: FloatArray,
        spread: FloatArray,
        priors: Mapping[str, float],
        rng: Streams,
        shrunken: int = 0,
    ) -> None:
        self.gram, self.cross, self.rng = gram, gram @ fit, rng
        self.prior = (HALF_T_DF, priors["coefficient_scale"])
        self.batch, self.k, self.q = b, k, q = fit.shape
        self.free = free = k - shrunken
        # LKJ(eta) is the correlation of a Wishart with L - 1 + 2 eta degrees of freedom.
        self.columns = round(free - 1 + 2 * priors["lkj"])
        self.beta = fit + overdispersion(gram, rng, q) @ np.linalg.cholesky(spread).swapaxes(-1, -2)
        size = np.abs(self._free_beta()).swapaxes(-1, -2) + 1e-3
        self.scale = size * np.exp(0.5 + 0.5 * rng.standard_normal((b, q, free), 0))
        self.root = rng.standard_normal((b, free, self.columns), 0)
        self._set_correlation()

    def _free_beta(self) -> FloatArray:
        return self.beta[:, : self.free]

    def _set_correlation(self) -> None:
        self.correlation = primitives.wishart_correlation(self.root)
        self.inverse_correlation = np.linalg.inv(self.correlation)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps, a multiple of 4."""
        b, k, q, rng = self.batch, self.free, self.q, self.rng
        self.n_beta = rng.standard_normal((c, b, self.k * q), 1)
        of_omega, of_d = (c // each for each in SELDOM)
        self.n_root = rng.standard_normal((of_omega, b, k, self.columns), 1)
        self.n_split = rng.standard_normal((of_d, b, k, q), 1)
        self.u_level = rng.random((of_omega, b), 1)
        self.u_angle = rng.random((of_omega, primitives.MAX_SHRINKS, b), 2)
        self.u_scale = rng.random((of_d, 2, b, q, k), 2)

    def update(self, i: int, inverse_covariance: FloatArray) -> None:
        """Draw beta given the residual precision (B, q, q), and Omega and D in some sweeps.

        i counts the sweeps since ``draw_random_numbers``.
        """
        b, k, q, free = self.batch, self.k, self.q, slice(self.free)
        precision = inverse_covariance[:, :, None, :, None] * self.gram[:, None, :, None, :]
        linear = (self.cross @ inverse_covariance).swapaxes(-1, -2)
        # vec(beta) | D, Omega is normal, outcome by outcome in the vector.
        inverse_scale = 1.0 / self.scale
        for j in range(q):
            d = inverse_scale[:, j]
            own = self.inverse_correlation * d[:, :, None] * d[:, None, :]
            precision[:, j, free, j, free] += own
        draw = primitives.normal_from_precision(
            precision.reshape(b, q * k, q * k), linear.reshape(b, q * k), self.n_beta[i]
        )
        self.beta = draw.reshape(b, q, k).swapaxes(-1, -2)
        self.update_prior(i)

    def update_prior(self, i: int) -> None:
        """Draw Omega and D alone, given beta."""
        of_omega, of_d = SELDOM
        if i % of_omega == 0:
            # Omega | beta, D: q standardized coefficient vectors under LKJ.
            factor, of = self._free_beta() / self.scale.swapaxes(-1, -2), i // of_omega
            self.root = primitives.elliptical_correlation(
                self.root, self.n_root[of], np.full(self.batch, float(self.q)), factor,
                self.u_level[of], self.u_angle[of],
            )  # fmt: skip
            self._set_correlation()
        if (i + 1) % of_d == 0:
            self._scales(i // of_d)

    def _scales(self, i: int) -> None:
        """Draw D_j | beta, Omega, all at once.

        With P = Omega^-1, c > lambda_max(P) and u ~ N((cI - P) b, cI - P), the joint density of b =
        beta/sigma and u has exponent -c b'b/2 + u'b: given u the scales are independent.
        """
        largest = np.linalg.eigvalsh(self.inverse_correlation)[:, -1]
        bound = 1.02 * largest
        rest = bound[:, None, None] * np.eye(self.free) - self.inverse_correlation
        standardized = self._free_beta() / self.scale.swapaxes(-1, -2)
        split = rest @ standardized + np.linalg.cholesky(rest) @ self.n_split[i]
        beta = self._free_beta().swapaxes(-1, -2)
        self.scale = primitives.update_scales(
            self.scale, 1.0, bound[:, None, None] * beta * beta, split.swapaxes(-1, -2) * beta,
            self.prior, self.u_scale[i],
        )  # fmt: skip


def overdispersion(gram: FloatArray, rng: Streams, q: int) -> FloatArray:
    """Draw noise (B, K, q) of twice the SD of least-squares coefficients.

    Residual variances are taken as one.
    """
    k = gram.shape[-1]
    trace = np.trace(gram, axis1=1, axis2=2)[:, None, None]
    ridged = gram + np.eye(k) * (1e-8 * trace + 1e-8)
    noise = rng.standard_normal((*gram.shape[:-1], q), 0)
    return np.asarray(2.0 * np.linalg.cholesky(np.linalg.inv(ridged)) @ noise)


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
        correlation = primitives.wishart_correlation(root)
        self.covariance = correlation * scale[:, :, None] * scale[:, None, :]
