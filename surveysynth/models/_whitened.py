"""Coordinates without a funnel for coefficients under the hierarchical prior of methods 3.

    beta ~ N(0, D Omega D),  D = diag(sigma_k), sigma_k ~ half-t3;  Omega ~ LKJ

One coefficient informs each scale. Centred, NUTS diverges where a coefficient's posterior reaches
zero; non-centred, it crawls where the data pin the coefficients. Here

    beta = m + C z,   C C' = (H + Q)^-1,   m = C C' h,   Q = (D Omega D)^-1

where -beta' H beta / 2 + h' beta is a quadratic expansion of the log-likelihood, so that z is
nearly standard normal whatever scales and Omega are, with many records, few or none. H and h are
constants of a fit; the density that is sampled is exact however poor the expansion.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from surveysynth._types import FloatArray
from surveysynth.models._coefficient_prior import HALF_T_DF
from surveysynth.sampling import unconstrained
from surveysynth.sampling.unconstrained import CorrelationRoot


@dataclass(frozen=True, repr=False)
class Expansion:
    """log-likelihood(beta) = -beta' hessian beta / 2 + linear' beta + constant, about.

    hessian (K, K) positive semidefinite, linear (K,).
    """

    hessian: FloatArray
    linear: FloatArray


class _Point(NamedTuple):
    """The coefficients beta (K,) at one point, the log prior there, and what its gradient needs."""

    beta: FloatArray
    value: float
    z: FloatArray
    mean: FloatArray
    inverse: FloatArray  # of the Cholesky factor of H + Q
    white: FloatArray  # T with Q = T'T
    precision: FloatArray  # Q
    ratio: FloatArray  # of a squared scale to df times the squared scale of its prior
    partial: FloatArray  # partial correlations below the diagonal, in Stan's order
    rest: FloatArray  # 1 - partial^2
    left: FloatArray  # (K, K) what the entries to the left leave of a row of length one
    root: FloatArray  # Cholesky factor of Omega
    root_inverse: FloatArray


class WhitenedPrior:
    """The prior in these coordinates, for one expansion.

    Of ``sampling.unconstrained`` it does the same sums for one point, in a fifth of the time: NUTS
    calls it some ten thousand times a fit, and Python's calls are what it costs.
    """

    def __init__(self, expansion: Expansion, prior_scale: float, lkj: float) -> None:
        self.expansion = expansion
        self.columns = k = int(expansion.linear.size)
        row, column = np.tril_indices(k, -1)
        self._below = row * k + column
        self._right = self._below + 1
        self._identity = np.eye(k)
        self._half_identity = 0.5 * self._identity
        self._half_lower = np.tri(k) - self._half_identity
        self._ratio_of = 1.0 / (HALF_T_DF * prior_scale * prior_scale)
        # Half-t densities, LKJ, the normal's determinant and all Jacobians are linear in
        # log(1 - partial^2): these are its weights, then their constants.
        between = row - column - 1.0
        of_diagonal = (k - 1.0 - row + 2.0 * (lkj - 1.0)) - 1.0
        self._weight = 1.0 + 0.5 * between + 0.5 * of_diagonal
        half_t = unconstrained.half_t_log_density(np.array(0.0), HALF_T_DF, prior_scale)[0]
        half_t = half_t + 0.5 * (HALF_T_DF + 1.0) * np.log1p(self._ratio_of)
        identity = CorrelationRoot.from_unconstrained(np.zeros(row.size), k)
        at_identity = unconstrained.lkj_log_density(identity, lkj)[0]
        self._constant = float(k * half_t + at_identity - 0.5 * k * unconstrained.LOG_2PI)

    def at(self, z: FloatArray, log_scale: FloatArray, u: FloatArray) -> _Point | None:
        """beta and the log prior with all Jacobians at z (K,), log scales (K,) and the
        unconstrained Omega; None where a matrix is singular to working precision."""
        k = self.columns
        partial = np.tanh(u)
        rest = 1.0 - partial * partial
        factor, left = self._identity.copy(), np.ones((k, k))
        factor.ravel()[self._below] = partial
        left.ravel()[self._right] = rest
        left = np.sqrt(left.cumprod(axis=1))
        correlation_root = factor * left
        root_inverse, failed = dtrtri(correlation_root, lower=1)
        scale = np.exp(log_scale)
        white = root_inverse / scale
        precision = white.T @ white
        root, failed_root = dpotrf(self.expansion.hessian + precision, lower=1, clean=1)
        if failed or failed_root:
            return None
        inverse = dtrtri(root, lower=1)[0]
        mean = (inverse @ self.expansion.linear) @ inverse
        beta = mean + z @ inverse
        length, ratio = white @ beta, self._ratio_of * scale * scale
        # The Jacobian of the log scales and the determinant of D cancel.
        value = (
            self._constant
            - 0.5 * (length @ length)
            - 0.5 * (HALF_T_DF + 1.0) * np.log1p(ratio).sum()
            + self._weight @ np.log(rest)
            - np.log(root.diagonal()).sum()
        )
        return _Point(
            beta, float(value), z, mean, inverse, white, precision, ratio, partial, rest, left,
            correlation_root, root_inverse,
        )  # fmt: skip

    def gradient(
        self, at: _Point, by_beta: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Gradients in z (K,), log scales (K,) and the unconstrained Omega of the log prior plus a
        function of beta whose gradient there is ``by_beta``."""
        inverse, precision, white = at.inverse, at.precision, at.white
        by_z = inverse @ (by_beta - precision @ at.beta)
        # d beta along a change of H + Q: through the Cholesky factor, and through the mean.
        lower = at.z[:, None] * by_z * self._half_lower + self._half_identity
        outer = at.mean[:, None] * (by_z @ inverse) + 0.5 * at.beta[:, None] * at.beta
        half = inverse.T @ (lower @ inverse) + outer
        by_matrix = -0.5 * (half + half.T)
        moved = by_matrix @ precision
        by_log_scale = -(HALF_T_DF + 1.0) * at.ratio / (1.0 + at.ratio) - 2.0 * moved.diagonal()
        by_root = -2.0 * (at.root_inverse.T @ (white @ by_matrix @ white.T))
        # An entry of the root moves itself and shrinks everything to its right in its row.
        product = by_root * at.root
        right = product.sum(1)[:, None] - product.cumsum(axis=1)
        own = (by_root * at.left).ravel()[self._below] * at.rest
        shrunk = right.ravel()[self._below] + 2.0 * self._weight
        return by_z, by_log_scale, own - at.partial * shrunk

    def coefficients(
        self, z: FloatArray, log_scale: FloatArray, u: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """beta (..., K) and Omega (..., K, K) at any number of points."""
        omega = CorrelationRoot.from_unconstrained(u, self.columns)
        white = np.linalg.inv(omega.root) * np.exp(-log_scale)[..., None, :]
        precision = self.expansion.hessian + white.swapaxes(-1, -2) @ white
        inverse = np.linalg.inv(np.linalg.cholesky(precision))
        target = inverse @ self.expansion.linear + z
        beta: FloatArray = (inverse.swapaxes(-1, -2) @ target[..., None])[..., 0]
        return beta, omega.root @ omega.root.swapaxes(-1, -2)
