"""Stan's unconstrained parametrisation in NumPy, with Jacobians and gradients.

Positive parameters are logarithms; a Cholesky factor of a correlation matrix is Stan's canonical
partial correlations, row by row (Stan Reference Manual, "Cholesky factors of correlation
matrices"; Lewandowski, Kurowicka and Joe 2009). Densities keep every constant, so that values
compare with Stan's ``_lpdf`` functions. All work on leading axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from scipy.special import gammaln

from surveysynth._support.types import FloatArray, IntArray

LOG_2PI = float(np.log(2.0 * np.pi))
LOG_PI = float(np.log(np.pi))
LOG_2 = float(np.log(2.0))


#: (K, q), or (K, q, L) where the last K - L columns of X have a ridge.
Shape: TypeAlias = tuple[int, int] | tuple[int, int, int]


def shape_of(shape: Shape) -> tuple[int, int, int]:
    """(K, q, L)."""
    return shape if len(shape) == 3 else (*shape, shape[0])


def padded(values: FloatArray, size: int, axis: int = -1) -> FloatArray:
    """Zeros behind the values up to the size of an axis."""
    width = [(0, 0)] * values.ndim
    width[axis] = (0, size - values.shape[axis])
    return np.pad(values, width)


def split(u: FloatArray, sizes: Sequence[int]) -> list[FloatArray]:
    """Consecutive parts of the last axis of u.

    Raises ``ValueError`` if the sizes do not add up to that axis.
    """
    if u.shape[-1] != sum(sizes):
        raise ValueError(f"expected {sum(sizes)} unconstrained parameters, got {u.shape[-1]}")
    return np.split(u, np.cumsum(sizes)[:-1], axis=-1)


def correlation_size(d: int) -> int:
    """Number of unconstrained parameters of a d x d correlation matrix."""
    return d * (d - 1) // 2


@dataclass(frozen=True)
class CorrelationRoot:
    """The Cholesky factor of a d x d correlation matrix at canonical partial correlations.

    partial (..., d, d): tanh of the unconstrained values, strictly lower; root (..., d, d): the
    factor; log_diagonal (..., d): log of its diagonal; log_jacobian (...): of the whole transform.
    """

    partial: FloatArray
    root: FloatArray
    log_diagonal: FloatArray
    log_jacobian: FloatArray
    _left: FloatArray = field(repr=False)

    @classmethod
    def from_unconstrained(cls, u: FloatArray, d: int) -> "CorrelationRoot":
        """u (..., d (d - 1) / 2), in Stan's order."""
        row, column = _below_diagonal(d)
        partial = np.zeros((*u.shape[:-1], d, d))
        partial[..., row, column] = np.tanh(u)
        log_rest = np.zeros_like(partial)
        # log(1 - tanh²) = -2 log cosh, free of cancellation in the tails.
        size = np.abs(u)
        log_rest[..., row, column] = 2.0 * (LOG_2 - size - np.log1p(np.exp(-2.0 * size)))
        # What the entries to the left have taken of a row of length one, as a log.
        before = np.zeros_like(partial)
        before[..., 1:] = 0.5 * np.cumsum(log_rest, axis=-1)[..., :-1]
        left = np.exp(before)
        log_diagonal = np.einsum("...ii->...i", before).copy()
        index = np.arange(d)
        factor = partial.copy()
        factor[..., index, index] = 1.0
        log_jacobian = (log_rest * (1.0 + 0.5 * _entries_between(d))).sum((-2, -1))
        return cls(partial, factor * left, log_diagonal, log_jacobian, left)

    def gradient(self, root_gradient: FloatArray, log_diagonal_gradient: FloatArray) -> FloatArray:
        """Gradient in u of f(root) + c · log_diagonal + log_jacobian.

        root_gradient df/droot (..., d, d), of which the lower triangle is used; c broadcasts to
        (..., d).
        """
        d = self.root.shape[-1]
        row, column = _below_diagonal(d)
        # An entry moves itself and shrinks everything to its right in its row.
        product = np.tril(root_gradient * self.root)
        right = product.sum(-1, keepdims=True) - np.cumsum(product, axis=-1)
        own = root_gradient * self._left * (1.0 - self.partial**2)
        shrunk = right + log_diagonal_gradient[..., :, None] + 2.0 + _entries_between(d)
        result: FloatArray = (own - self.partial * shrunk)[..., row, column]
        return result


# Constants of a size are kept: a density in one point costs no more than making them would.
@lru_cache(maxsize=64)
def _below_diagonal(d: int) -> tuple[IntArray, IntArray]:
    """Rows and columns of the entries below the diagonal of a d x d matrix."""
    row, column = np.tril_indices(d, -1)
    row.setflags(write=False)
    column.setflags(write=False)
    return row, column


@lru_cache(maxsize=64)
def _entries_between(d: int) -> FloatArray:
    """(d, d): for entry (i, j) below the diagonal, the entries strictly between j and i."""
    index = np.arange(d)
    entries = np.asarray(np.tril(index[:, None] - index - 1.0, -1), dtype=np.float64)
    entries.setflags(write=False)
    return entries


def unconstrained_correlation(root: FloatArray) -> FloatArray:
    """Inverse of ``CorrelationRoot``: root (..., d, d) to (..., d (d - 1) / 2)."""
    row, column = np.tril_indices(root.shape[-1], -1)
    # The rest of a row summed from its right end: no difference of nearly equal numbers.
    rest = np.cumsum((root**2)[..., ::-1], axis=-1)[..., ::-1][..., row, column + 1]
    result: FloatArray = np.arcsinh(root[..., row, column] / np.sqrt(rest))
    return result


def correlation_of(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """SDs (..., d) and the Cholesky factor (..., d, d) of the correlation of a covariance."""
    sd = np.sqrt(np.einsum("...ii->...i", covariance))
    root: FloatArray = np.linalg.cholesky(covariance) / sd[..., :, None]
    return sd, root


def lkj_log_density(root: CorrelationRoot, shape: float) -> tuple[FloatArray, FloatArray]:
    """log LKJ(shape) density of a Cholesky factor, (...), and its weights on log_diagonal (d,).

    Lewandowski, Kurowicka and Joe (2009); the density of the factor, not of the matrix.
    """
    constant, weight = _lkj_parts(root.root.shape[-1], shape)
    return constant + root.log_diagonal @ weight, weight


@lru_cache(maxsize=64)
def _lkj_parts(d: int, shape: float) -> tuple[float, FloatArray]:
    """Log of the normalizing constant, and the weights (d,) on log_diagonal."""
    weight = np.asarray(d - 1.0 - np.arange(d) + 2.0 * (shape - 1.0), dtype=np.float64)
    weight[0] = 0.0  # the first diagonal element is one
    weight.setflags(write=False)
    order = np.arange(1, d)
    constant = (d - 1) * gammaln(shape + 0.5 * (d - 1)) - np.sum(
        0.5 * order * LOG_PI + gammaln(shape + 0.5 * (d - 1 - order))
    )
    return float(constant), weight


def half_t_log_density(
    log_scale: FloatArray, df: float, prior_scale: float
) -> tuple[FloatArray, FloatArray]:
    """log half-t(df, 0, prior_scale) of s = exp(log_scale), elementwise, with its slope in log s.

    Value and slope include the Jacobian of the logarithm. df = 1 is the half-Cauchy.
    """
    ratio = np.exp(2.0 * log_scale) / (df * prior_scale * prior_scale)
    constant = LOG_2 + gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df)
    constant -= 0.5 * (np.log(df) + LOG_PI) + np.log(prior_scale)
    value = constant - 0.5 * (df + 1.0) * np.log1p(ratio) + log_scale
    return value, 1.0 - (df + 1.0) * ratio / (1.0 + ratio)


def normal_log_density(values: FloatArray, sd: float) -> tuple[FloatArray, FloatArray]:
    """Sum over the last axis of log N(0, sd²), and its gradient."""
    precision = sd**-2
    constant = -0.5 * values.shape[-1] * (LOG_2PI + 2.0 * np.log(sd))
    return constant - 0.5 * precision * (values * values).sum(-1), -precision * values
