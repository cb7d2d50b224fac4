"""Correlation matrices by their canonical partial correlations.

Lewandowski, Kurowicka and Joe (2009), in the order of Stan's Cholesky factors of correlation
matrices (Stan Reference Manual). Functions work on leading axes.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray

_LOG_2 = float(np.log(2.0))


@dataclass(frozen=True)
class CorrelationRoot:
    """The Cholesky factor of a d x d correlation matrix at canonical partial correlations.

    root (..., d, d): the factor; log_diagonal (..., d): log of its diagonal; log_jacobian (...): of
    the transform from unconstrained values to the factor.
    """

    root: FloatArray
    log_diagonal: FloatArray
    log_jacobian: FloatArray

    @classmethod
    def from_unconstrained(cls, u: FloatArray, d: int) -> "CorrelationRoot":
        """Return the factor at u (..., d (d - 1) / 2), inverse hyperbolic tangents row by row."""
        row, column = np.tril_indices(d, -1)
        partial = np.zeros((*u.shape[:-1], d, d))
        partial[..., row, column] = np.tanh(u)
        log_rest = np.zeros_like(partial)
        # log(1 - tanh²) = -2 log cosh, free of cancellation in the tails.
        size = np.abs(u)
        log_rest[..., row, column] = 2.0 * (_LOG_2 - size - np.log1p(np.exp(-2.0 * size)))
        # Log of what the entries to the left leave of a row of length one.
        before = np.zeros_like(partial)
        before[..., 1:] = 0.5 * np.cumsum(log_rest, axis=-1)[..., :-1]
        log_diagonal = np.einsum("...ii->...i", before).copy()
        index = np.arange(d)
        partial[..., index, index] = 1.0
        # Entries strictly between (i, j) and the diagonal.
        between = np.tril(index[:, None] - index - 1.0, -1)
        log_jacobian = (log_rest * (1.0 + 0.5 * between)).sum((-2, -1))
        return cls(partial * np.exp(before), log_diagonal, log_jacobian)


def unconstrained_correlation(root: FloatArray) -> FloatArray:
    """Invert ``CorrelationRoot``: root (..., d, d) to (..., d (d - 1) / 2)."""
    row, column = np.tril_indices(root.shape[-1], -1)
    # The rest of a row is summed from its right end to avoid cancellation.
    rest = np.cumsum((root**2)[..., ::-1], axis=-1)[..., ::-1][..., row, column + 1]
    result: FloatArray = np.arcsinh(root[..., row, column] / np.sqrt(rest))
    return result


def correlation_of(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return SDs (..., d) and the Cholesky factor (..., d, d) of a covariance's correlation."""
    sd = np.sqrt(np.einsum("...ii->...i", covariance))
    root: FloatArray = np.linalg.cholesky(covariance) / sd[..., :, None]
    return sd, root
