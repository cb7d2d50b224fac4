"""Coordinates without a funnel for coefficients under the hierarchical prior of methods 3.

    beta_j ~ N(0, D Omega D), j = 1..q;  D = diag(sigma_k), sigma_k ~ half-t3;  Omega ~ LKJ

(A mixture has one vector a component, all of one D and Omega.) Few
coefficients inform each scale. Centred, NUTS diverges where a coefficient's posterior reaches
zero; non-centred, it crawls where the data pin the coefficients. Here

    beta_j = m_j + C_j z_j,   C_j C_j' = (H_j + Q)^-1,   m_j = C_j C_j' h_j,   Q = (D Omega D)^-1

where -b' H_j b / 2 + h_j' b is a quadratic expansion of the log-likelihood in beta_j, so that z is
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
    """log-likelihood = sum over j of -beta_j' hessian_j beta_j / 2 + linear_j' beta_j, about.

    hessian (q, K, K) positive semidefinite, linear (q, K).
    """

    hessian: FloatArray
    linear: FloatArray


class _Point(NamedTuple):
    """Coefficients beta (q, K) at one point, the log prior there, and what its gradient needs."""

    beta: FloatArray
    value: float
    z: FloatArray
    mean: FloatArray
    inverse: FloatArray  # (q, K, K) of the Cholesky factors of H + Q
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
        self.vectors, self.columns = q, k = expansion.linear.shape
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
        of_diagonal = (k - 1.0 - row + 2.0 * (lkj - 1.0)) - q
        self._weight = 1.0 + 0.5 * between + 0.5 * of_diagonal
        half_t = unconstrained.half_t_log_density(np.array(0.0), HALF_T_DF, prior_scale)[0]
        half_t = half_t + 0.5 * (HALF_T_DF + 1.0) * np.log1p(self._ratio_of)
        identity = CorrelationRoot.from_unconstrained(np.zeros(row.size), k)
        at_identity = unconstrained.lkj_log_density(identity, lkj)[0]
        self._constant = float(k * half_t + at_identity - 0.5 * q * k * unconstrained.LOG_2PI)

    def at(self, z: FloatArray, log_scale: FloatArray, u: FloatArray) -> _Point | None:
        """beta and the log prior with all Jacobians at z (q, K), log scales (K,) and the
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
        inverse, log_determinant = np.empty_like(self.expansion.hessian), 0.0
        for j, hessian in enumerate(self.expansion.hessian):
            root, failed_root = dpotrf(hessian + precision, lower=1, clean=1)
            if failed or failed_root:
                return None
            log_determinant += float(np.log(root.diagonal()).sum())
            inverse[j] = dtrtri(root, lower=1)[0]
        transposed = inverse.swapaxes(1, 2)
        mean = _product(transposed, _product(inverse, self.expansion.linear))
        beta = mean + _product(transposed, z)
        length, ratio = beta @ white.T, self._ratio_of * scale * scale
        value = (
            self._constant
            - 0.5 * np.vdot(length, length)
            + (1 - self.vectors) * log_scale.sum()
            - 0.5 * (HALF_T_DF + 1.0) * np.log1p(ratio).sum()
            + self._weight @ np.log(rest)
            - log_determinant
        )
        return _Point(
            beta, float(value), z, mean, inverse, white, precision, ratio, partial, rest, left,
            correlation_root, root_inverse,
        )  # fmt: skip

    def gradient(
        self, at: _Point, by_beta: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Gradients in z (q, K), log scales (K,) and the unconstrained Omega of the log prior plus
        a function of beta whose gradient there is ``by_beta``."""
        inverse, precision, white = at.inverse, at.precision, at.white
        transposed = inverse.swapaxes(1, 2)
        by_z = _product(inverse, by_beta - at.beta @ precision)
        # d beta along a change of H + Q: through the Cholesky factor, and through the mean.
        lower = at.z[:, :, None] * by_z[:, None, :] * self._half_lower + self._half_identity
        half = (transposed @ (lower @ inverse)).sum(0)
        half += at.mean.T @ _product(transposed, by_z) + 0.5 * at.beta.T @ at.beta
        by_matrix = -0.5 * (half + half.T)
        moved = by_matrix @ precision
        by_log_scale = -(HALF_T_DF + 1.0) * at.ratio / (1.0 + at.ratio) - 2.0 * moved.diagonal()
        by_log_scale += 1 - self.vectors
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
        """beta (..., q, K) and Omega (..., K, K) at any number of points, z (..., q, K)."""
        omega = CorrelationRoot.from_unconstrained(u, self.columns)
        white = np.linalg.inv(omega.root) * np.exp(-log_scale)[..., None, :]
        shared = (white.swapaxes(-1, -2) @ white)[..., None, :, :]
        inverse = np.linalg.inv(np.linalg.cholesky(self.expansion.hessian + shared))
        target = _product(inverse, self.expansion.linear) + z
        beta = _product(inverse.swapaxes(-1, -2), target)
        return beta, omega.root @ omega.root.swapaxes(-1, -2)


def _product(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    result: FloatArray = (matrix @ vector[..., None])[..., 0]
    return result
