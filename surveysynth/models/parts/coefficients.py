"""Gibbs blocks of regression coefficients under the hierarchical prior of methods 3.

    beta_j ~ N(0, D_j Omega D_j), j = 1..q;  D_j = diag(sigma_j), sigma_jk ~ half-t3;  Omega ~ LKJ

of all columns of X but those of shrunken interactions, whose ridge is in the statistics
(``GaussianStats.with_ridge``).

Shared by FBS (q = outcomes and the log weight) and the normal regression (q = 1).
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.base import INTERACTION_PRIOR
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams
from surveysynth.survey.design_matrix import INTERACTION_SCALE

#: The prior of interactions and its default (methods 3).
INTERACTIONS: Mapping[str, float] = MappingProxyType({INTERACTION_PRIOR: INTERACTION_SCALE})
#: Degrees of freedom of the half-t priors ([T] App. C).
HALF_T_DF = 3.0
#: Sweeps between draws of Omega, and of D. q coefficients inform each of these: fewer draws halve
#: the time of a sweep and cost beta and the residual scales hardly any precision.
SELDOM = (4, 2)


class CoefficientBlocks:
    """beta (B, K, q), scale (B, q, L) and Omega of B chains, about the statistics X'AX and fit.

    L: columns of X but the ``shrunken`` last ones. ``spread`` (B, q, q): a guess of the residual
    covariance, for overdispersed starts.
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
        precision = inverse_covariance[:, :, None, :, None] * self.gram[:, None, :, None, :]
        linear = (self.cross @ inverse_covariance).swapaxes(-1, -2)
        self._coefficients(i, precision, linear)
        self.update_prior(i)

    def update_prior(self, i: int) -> None:
        """Draw Omega and D alone, given beta."""
        of_omega, of_d = SELDOM
        if i % of_omega == 0:
            self._correlation(i // of_omega)
        if (i + 1) % of_d == 0:
            self._scales(i // of_d)

    def _coefficients(self, i: int, precision: FloatArray, linear: FloatArray) -> None:
        """Draw vec(beta) | D, Omega: normal, outcome by outcome in the vector."""
        b, k, q = self.batch, self.k, self.q
        inverse_scale = 1.0 / self.scale
        for j in range(q):
            d, free = inverse_scale[:, j], slice(self.free)
            own = self.inverse_correlation * d[:, :, None] * d[:, None, :]
            precision[:, j, free, j, free] += own
        draw = primitives.normal_from_precision(
            precision.reshape(b, q * k, q * k), linear.reshape(b, q * k), self.n_beta[i]
        )
        self.beta = draw.reshape(b, q, k).swapaxes(-1, -2)

    def _correlation(self, i: int) -> None:
        """Draw Omega | beta, D: q standardized coefficient vectors under LKJ."""
        factor = self._free_beta() / self.scale.swapaxes(-1, -2)
        self.root = primitives.elliptical_correlation(
            self.root, self.n_root[i], np.full(self.batch, float(self.q)), factor,
            self.u_level[i], self.u_angle[i],
        )  # fmt: skip
        self._set_correlation()

    def _scales(self, i: int) -> None:
        """Draw D_j | beta, Omega, all at once.

        With P = Omega^-1, c > lambda_max(P) and u ~ N((cI - P) b, cI - P), the joint density of b =
        beta/sigma and u has exponent -c b'b/2 + u'b: given u the scales are independent.
        """
        largest = np.linalg.eigvalsh(self.inverse_correlation)[:, -1]
        bound = 1.02 * largest
        rest = bound[:, None, None] * np.eye(self.free) - self.inverse_correlation
        standardised = self._free_beta() / self.scale.swapaxes(-1, -2)
        split = rest @ standardised + np.linalg.cholesky(rest) @ self.n_split[i]
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
    result: FloatArray = 2.0 * np.linalg.cholesky(np.linalg.inv(ridged)) @ noise
    return result
