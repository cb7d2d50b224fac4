"""The scatter W of the residuals given its noisy value: Wishart(df, Sigma) times a normal.

    W ~ Wishart(df, Sigma);  W~ = W + F,  F symmetric normal noise, entry by entry independent

Two elliptical slices leave this invariant and keep W positive definite, neither with anything to
tune. One runs about the normal approximation of the Wishart times the noise: where records are
many it draws afresh. The other runs in Bartlett's coordinates, where the Wishart itself is nearly
normal: near singularity, or where the noise says next to nothing.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.posterior.slices import Chains, slice_step


@dataclass(frozen=True, repr=False)
class NoisyScatter:
    """The target of B chains: df (B,), Sigma (B, q, q), W~ (B, q, q), SDs (q, q) of the noise."""

    df: FloatArray
    covariance: FloatArray
    observed: FloatArray
    noise_sd: FloatArray

    def draw_by_normal(
        self, scatter: FloatArray, normals: FloatArray, level: FloatArray, angles: FloatArray
    ) -> FloatArray:
        """Draw W (B, q, q) by the slice about the normal approximation.

        normals (B, q(q+1)/2), level (B,), angles (B, tries)."""
        approximation = NormalScatter.of(self.df, self.covariance, self.noise_sd)
        middle = approximation.mean(self.observed)
        parts = [middle, scatter - middle, approximation.noise(normals)]
        white = approximation.whitened(np.stack(parts, axis=1))

        def log_ratio(which: Chains, angle: FloatArray) -> FloatArray:
            points = on_ellipse(white[which], angle)
            return log_wishart_over_normal(points, self.df[which])

        return _moved(parts, slice_step(log_ratio, level, angles))

    def draw_by_bartlett(
        self, scatter: FloatArray, normals: FloatArray, level: FloatArray, angles: FloatArray
    ) -> FloatArray:
        """Draw W by the slice in Bartlett's coordinates; arguments as above.

        W = L B B'L', B lower triangular: standard normals below the diagonal, chi on it, which
        N(c, 1) at its mode c covers.
        """
        q = scatter.shape[-1]
        row, column = _lower(q)
        index = np.arange(q)
        left = self.df[:, None] - index - 1.0
        mode = np.sqrt(np.maximum(left, 0.0))
        middle, across = np.zeros_like(scatter), np.zeros_like(scatter)
        middle[:, index, index] = mode
        across[:, row, column] = normals
        root = np.linalg.cholesky(self.covariance)
        along = np.linalg.solve(root, np.linalg.cholesky(scatter)) - middle
        parts = [root @ part for part in (middle, along, across)]
        diagonals = np.stack([np.einsum("bii->bi", x) for x in (middle, along, across)], axis=1)
        roots, weight = np.stack(parts, axis=1), _noise_weight(self.noise_sd)

        def log_ratio(which: Chains, angle: FloatArray) -> FloatArray:
            diagonal = _weights(angle) @ diagonals[which]
            gap = self.observed[which][:, None] - _square(on_ellipse(roots[which], angle))
            with np.errstate(invalid="ignore", divide="ignore"):
                chi = left[which][:, None] * np.log(diagonal)
            chi -= diagonal * mode[which][:, None]
            result = chi.sum(-1) - 0.5 * _total(weight * gap * gap)
            return np.where((diagonal > 0).all(-1), result, -np.inf)

        return _square(_moved(parts, slice_step(log_ratio, level, angles)))


@dataclass(frozen=True, repr=False)
class NormalScatter:
    """The normal N(df Sigma, C) instead of Wishart(df, Sigma), times the noise F.

    C is the covariance of the Wishart: what the model says of W given W~ (B chains; half =
    q(q+1)/2 lower entries).

    gain (B, half, half) C (C + F)^-1; posterior_root of C (C + F)^-1 F; marginal_whitening the
    inverse root of C + F; whitening (B, q, q) the inverse root of Sigma.
    """

    expected: FloatArray
    gain: FloatArray
    posterior_root: FloatArray
    marginal_whitening: FloatArray
    whitening: FloatArray

    @classmethod
    def of(cls, df: FloatArray, covariance: FloatArray, noise_sd: FloatArray) -> "NormalScatter":
        """Return the normal for df (B,), Sigma (B, q, q) and the SDs (q, q) of the noise."""
        row, column = _lower(noise_sd.shape[0])
        s = covariance
        own = s[:, row[:, None], row] * s[:, column[:, None], column]
        own = df[:, None, None] * (own + s[:, row[:, None], column] * s[:, column[:, None], row])
        # In axes where the noise is one and C is diagonal: nothing cancels, however small C is.
        sd = noise_sd[row, column]
        values, vectors = np.linalg.eigh(own / (sd[:, None] * sd))
        values = np.maximum(values, 0.0)[:, None]
        share, axes, into = values / (1.0 + values), sd[:, None] * vectors, vectors / sd[:, None]
        return cls(
            expected=df[:, None, None] * s,
            gain=(axes * share) @ into.swapaxes(-1, -2),
            posterior_root=axes * np.sqrt(share),
            marginal_whitening=(into / np.sqrt(1.0 + values)).swapaxes(-1, -2),
            whitening=np.linalg.inv(np.linalg.cholesky(s)),
        )

    def mean(self, observed: FloatArray) -> FloatArray:
        """Return the mean of W given W~ (B, q, q)."""
        return self.expected + self.moved((observed - self.expected)[:, None])[:, 0]

    def moved(self, changes: FloatArray) -> FloatArray:
        """Return by how much the mean moves with W~ (B, c, q, q)."""
        return _unfolded(_folded(changes) @ self.gain.swapaxes(-1, -2))

    def noise(self, normals: FloatArray) -> FloatArray:
        """Return W less its mean, from standard normals (B, half)."""
        return _unfolded((self.posterior_root @ normals[:, :, None])[:, :, 0])

    def whitened_noise(self, changes: FloatArray) -> FloatArray:
        """Return changes of W~ (B, c, q, q) in units of its noise and of C: (B, c, half)."""
        white = _folded(changes) @ self.marginal_whitening.swapaxes(-1, -2)
        return np.asarray(white, dtype=np.float64)

    def whitened(self, scatters: FloatArray) -> FloatArray:
        """Return W (B, c, q, q) where Sigma is I."""
        root = self.whitening[:, None]
        return np.asarray(root @ scatters @ root.swapaxes(-1, -2), dtype=np.float64)


def log_wishart_over_normal(scatter: FloatArray, df: FloatArray) -> FloatArray:
    """Return log Wishart(df, I) less log N(df I, C) (b, t), up to a constant, at W (b, t, q, q).

    -inf where W is not positive definite. df (b,)."""
    q = scatter.shape[-1]
    index, d = np.arange(q), df[:, None]
    trace = np.einsum("btii->bt", scatter)
    gap = scatter.copy()
    gap[..., index, index] -= d[..., None]
    result = 0.5 * (d - q - 1.0) * log_det(scatter) - 0.5 * trace + _total(gap * gap) / (4.0 * d)
    return np.asarray(result, dtype=np.float64)


def noise_log_density(gap: FloatArray, noise_sd: FloatArray) -> FloatArray:
    """Return the log density (...), up to a constant, of symmetric noise ``gap`` (..., q, q)."""
    return -0.5 * _total(_noise_weight(noise_sd) * gap * gap)


def on_ellipse(parts: FloatArray, angle: FloatArray) -> FloatArray:
    """Return matrices (b, t, q, q) at angles (b, t) of an ellipse.

    Of middle, along and across (b, 3, q, q)."""
    flat = _weights(angle) @ parts.reshape(*parts.shape[:2], -1)
    return np.asarray(flat.reshape(*angle.shape, *parts.shape[2:]), dtype=np.float64)


def _weights(angle: FloatArray) -> FloatArray:
    result = np.empty((*angle.shape, 3))
    result[..., 0], result[..., 1], result[..., 2] = 1.0, np.cos(angle), np.sin(angle)
    return result


def _moved(parts: list[FloatArray], angle: FloatArray) -> FloatArray:
    middle, along, across = parts
    return middle + np.cos(angle)[:, None, None] * along + np.sin(angle)[:, None, None] * across


def log_det(matrix: FloatArray) -> FloatArray:
    """Return log determinants of symmetric matrices (..., q, q); -inf where not positive definite.

    By elimination over all at once: LAPACK takes longer to begin with so small ones, and stops
    at the first that has no root."""
    rest, result = matrix, np.zeros(matrix.shape[:-2])
    for _ in range(matrix.shape[-1]):
        pivot = rest[..., 0, 0]
        positive = pivot > 0
        pivot = np.where(positive, pivot, 1.0)
        result = np.where(positive, result + np.log(pivot), -np.inf)
        column = rest[..., 1:, 0]
        taken = column[..., :, None] * (column / pivot[..., None])[..., None, :]
        rest = rest[..., 1:, 1:] - taken
    return result


def _total(values: FloatArray) -> FloatArray:
    """Return sums (...) over matrices (..., q, q)."""
    return np.asarray(values.sum((-1, -2)), dtype=np.float64)


def _noise_weight(noise_sd: FloatArray) -> FloatArray:
    """Return precisions (q, q) such that a sum over the whole matrix counts every entry once."""
    weight: FloatArray = (0.5 + 0.5 * np.eye(noise_sd.shape[0])) / noise_sd**2
    return weight


# Kept for each size: to make it takes longer than to use it.
@lru_cache(maxsize=16)
def _lower(q: int) -> tuple[IntArray, IntArray]:
    """Return rows and columns (q(q+1)/2,) of the lower entries of a q x q matrix."""
    row, column = np.tril_indices(q)
    row.setflags(write=False)
    column.setflags(write=False)
    return row, column


def _folded(matrix: FloatArray) -> FloatArray:
    """Return lower entries (..., q(q+1)/2)."""
    row, column = _lower(matrix.shape[-1])
    return matrix[..., row, column]


def _unfolded(values: FloatArray) -> FloatArray:
    """Return the symmetric matrices (..., q, q) with these lower entries."""
    q = int(np.sqrt(2 * values.shape[-1]))
    row, column = _lower(q)
    result = np.empty((*values.shape[:-1], q, q))
    result[..., row, column] = result[..., column, row] = values
    return result


def _square(root: FloatArray) -> FloatArray:
    return np.asarray(root @ root.swapaxes(-1, -2), dtype=np.float64)
