"""Covariances of products of normal columns, on the upper triangle of a matrix of squares.

The moments of Q = sum u u' are in terms of P(X)_ab,cd = X_ac X_bd + X_ad X_bc for pairs (a, b) and
(c, d) of columns: P(Sigma) is the covariance of the products of one record without a mean.
"""

from collections.abc import Callable

import numpy as np

from surveysynth._support.types import FloatArray


class PairProducts:
    """P and its gradient for q columns; pairs a <= b are k = q (q + 1) / 2 in number."""

    def __init__(self, q: int) -> None:
        self.q = q
        self.first, self.second = np.triu_indices(q)
        self.diagonal = np.arange(len(self.first))
        #: Number of each pair (q, q), and its share in either of the two places that it has.
        self.number = np.zeros((q, q), dtype=np.int64)
        self.number[self.first, self.second] = self.number[self.second, self.first] = self.diagonal
        self.share = np.where(np.eye(q) > 0, 1.0, 0.5)

    def of(self, x: FloatArray) -> FloatArray:
        """Return P(X) (..., k, k) of symmetric matrices (..., q, q)."""
        a, b = self.first, self.second
        result = x[..., a[:, None], a] * x[..., b[:, None], b]
        result += x[..., a[:, None], b] * x[..., b[:, None], a]
        return np.asarray(result)

    def spread(self, upper: FloatArray) -> FloatArray:
        """Return the symmetric gradient (..., q, q) of gradients (..., k) in the upper triangle."""
        return np.asarray(upper[..., self.number] * self.share)

    def gradient(self, pull: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the function from X to the gradient of sum(pull * P(X)) in X.

        pull (b, G, k, k) is symmetric; X (b, G, q, q) or (b, G, r, q, q).
        """
        q, number = self.q, self.number
        full = pull[..., number[:, :, None, None], number]
        full *= self.share[:, :, None, None] * self.share
        # As a matrix from (b, d) to (a, c): the gradient is sum_bd full[a, b, c, d] X_bd.
        matrix = np.ascontiguousarray(full.swapaxes(-3, -2)).reshape(*pull.shape[:2], q * q, q * q)

        def at(x: FloatArray) -> FloatArray:
            flat = x.reshape(*x.shape[:-2], q * q)
            if x.ndim == matrix.ndim:
                return np.asarray(4.0 * (matrix @ flat[..., None])[..., 0]).reshape(x.shape)
            return np.asarray(4.0 * flat @ matrix.swapaxes(-1, -2)).reshape(x.shape)

        return at
