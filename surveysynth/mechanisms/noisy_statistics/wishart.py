"""The scatter W of the residuals given its noisy value: Wishart(df, Sigma) times a normal.

    W ~ Wishart(df, Sigma);  W~ = W + F,  F symmetric normal noise, entry by entry independent

Two elliptical slices leave this invariant and keep W positive definite, neither with anything to
tune. One runs about the normal approximation of the Wishart times the noise: where records are
many it draws afresh. The other runs in Bartlett's coordinates, where the Wishart itself is nearly
normal: near singularity, or where the noise says next to nothing.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.elliptical import slice_angle


@dataclass(frozen=True, repr=False)
class NoisyScatter:
    """The target of B chains: df (B,), Sigma (B, q, q), W~ (B, q, q), SDs (q, q) of the noise."""

    df: FloatArray
    covariance: FloatArray
    observed: FloatArray
    noise_sd: FloatArray

    def draw_by_normal(
        self, scatter: FloatArray, normals: FloatArray, level: FloatArray, uniforms: FloatArray
    ) -> FloatArray:
        """The slice about the normal approximation: W (B, q, q), normals (B, q(q+1)/2), level (B,),
        uniforms (tries, B)."""
        approximation = NormalScatter.of(self.df, self.covariance, self.noise_sd)
        middle = approximation.mean(self.observed)
        along, across = scatter - middle, approximation.noise(normals)
        parts = [middle, along, across]

        def log_ratio(which: IntArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
            points = _on_ellipse([part[which] for part in parts], cos, sin)
            return approximation.log_wishart_over_normal(points, which)

        return _on_ellipse(parts, *slice_angle(log_ratio, level, uniforms))

    def draw_by_bartlett(
        self, scatter: FloatArray, normals: FloatArray, level: FloatArray, uniforms: FloatArray
    ) -> FloatArray:
        """The slice in Bartlett's coordinates; arguments as above.

        W = L B B'L', B lower triangular: standard normals below the diagonal, chi on it, which
        N(c, 1) at its mode c covers.
        """
        q = scatter.shape[-1]
        row, column = np.tril_indices(q)
        index = np.arange(q)
        left = self.df[:, None] - index - 1.0
        middle = np.zeros_like(scatter)
        middle[:, index, index] = np.sqrt(np.maximum(left, 0.0))
        root = np.linalg.cholesky(self.covariance)
        along = np.linalg.solve(root, np.linalg.cholesky(scatter)) - middle
        across = np.zeros_like(scatter)
        across[:, row, column] = normals
        weight = _noise_weight(self.noise_sd)

        def log_ratio(which: IntArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
            ellipse = [part[which] for part in (middle, along, across)]
            bartlett = _on_ellipse(ellipse, cos, sin)
            diagonal = np.einsum("bii->bi", bartlett)
            gap = self.observed[which] - _square(root[which] @ bartlett)
            with np.errstate(invalid="ignore", divide="ignore"):
                chi = left[which] * np.log(diagonal)
            chi -= diagonal * ellipse[0][:, index, index]
            result = chi.sum(-1) - 0.5 * (weight * gap * gap).sum((-1, -2))
            return np.where((diagonal > 0).all(-1), result, -np.inf)

        angle = slice_angle(log_ratio, level, uniforms)
        return _square(root @ _on_ellipse([middle, along, across], *angle))


@dataclass(frozen=True, repr=False)
class NormalScatter:
    """The normal N(df Sigma, C) in place of Wishart(df, Sigma), C its covariance, times the noise
    F: what stands for W given W~ (B chains; half = q(q+1)/2 lower entries).

    gain (B, half, half) C (C + F)^-1; posterior_root of C (C + F)^-1 F; marginal_whitening the
    inverse root of C + F; whitening (B, q, q) the inverse root of Sigma.
    """

    df: FloatArray
    expected: FloatArray
    gain: FloatArray
    posterior_root: FloatArray
    marginal_whitening: FloatArray
    whitening: FloatArray

    @classmethod
    def of(cls, df: FloatArray, covariance: FloatArray, noise_sd: FloatArray) -> "NormalScatter":
        """For df (B,), Sigma (B, q, q) and the SDs (q, q) of the noise."""
        row, column = np.tril_indices(noise_sd.shape[0])
        s = covariance
        own = s[:, row[:, None], row] * s[:, column[:, None], column]
        own = df[:, None, None] * (own + s[:, row[:, None], column] * s[:, column[:, None], row])
        # In axes where the noise is one and C is diagonal: nothing cancels, however small C is.
        sd = noise_sd[row, column]
        values, vectors = np.linalg.eigh(own / (sd[:, None] * sd))
        values = np.maximum(values, 0.0)[:, None]
        share, axes, into = values / (1.0 + values), sd[:, None] * vectors, vectors / sd[:, None]
        return cls(
            df=df,
            expected=df[:, None, None] * s,
            gain=(axes * share) @ into.swapaxes(-1, -2),
            posterior_root=axes * np.sqrt(share),
            marginal_whitening=(into / np.sqrt(1.0 + values)).swapaxes(-1, -2),
            whitening=np.linalg.inv(np.linalg.cholesky(s)),
        )

    def mean(self, observed: FloatArray) -> FloatArray:
        """Mean of W given W~ (B, q, q)."""
        return self.expected + self.moved(observed - self.expected)

    def moved(self, change: FloatArray, which: IntArray | slice = slice(None)) -> FloatArray:
        """By how much the mean moves with W~ (b, q, q)."""
        return _unfolded(np.einsum("bij,bj->bi", self.gain[which], _folded(change)))

    def noise(self, normals: FloatArray) -> FloatArray:
        """W less its mean, from standard normals (B, half)."""
        return _unfolded(np.einsum("bij,bj->bi", self.posterior_root, normals))

    def log_marginal(self, observed: FloatArray, which: IntArray) -> FloatArray:
        """Log density (b,), up to a constant, of W~ (b, q, q)."""
        gap = _folded(observed - self.expected[which])
        white = np.einsum("bij,bj->bi", self.marginal_whitening[which], gap)
        return np.asarray(-0.5 * (white * white).sum(-1), dtype=np.float64)

    def log_wishart_over_normal(self, scatter: FloatArray, which: IntArray) -> FloatArray:
        """log Wishart less log normal (b,), up to a constant, at W (b, q, q); -inf where W is not
        positive definite."""
        whitening, df = self.whitening[which], self.df[which]
        q = scatter.shape[-1]
        values = np.linalg.eigvalsh(whitening @ scatter @ whitening.swapaxes(-1, -2))
        result = np.full(df.shape, -np.inf)
        inside = values[:, 0] > 0
        v, d = values[inside], df[inside, None]
        terms = 0.5 * (d - q - 1.0) * np.log(v) - 0.5 * v + (v - d) ** 2 / (4.0 * d)
        result[inside] = terms.sum(-1)
        return result


def noise_log_density(gap: FloatArray, noise_sd: FloatArray) -> FloatArray:
    """Log density, up to a constant, of symmetric noise ``gap`` (..., q, q): (...)."""
    result: FloatArray = -0.5 * (_noise_weight(noise_sd) * gap * gap).sum((-1, -2))
    return result


def _noise_weight(noise_sd: FloatArray) -> FloatArray:
    """Precisions (q, q) such that a sum over the whole matrix counts every entry once."""
    weight: FloatArray = (0.5 + 0.5 * np.eye(noise_sd.shape[0])) / noise_sd**2
    return weight


def _on_ellipse(parts: list[FloatArray], cos: FloatArray, sin: FloatArray) -> FloatArray:
    middle, along, across = parts
    return middle + cos[:, None, None] * along + sin[:, None, None] * across


def _folded(matrix: FloatArray) -> FloatArray:
    """Lower entries (..., q(q+1)/2)."""
    row, column = np.tril_indices(matrix.shape[-1])
    return matrix[..., row, column]


def _unfolded(values: FloatArray) -> FloatArray:
    """The symmetric matrices (..., q, q) with these lower entries."""
    q = int(np.sqrt(2 * values.shape[-1]))
    row, column = np.tril_indices(q)
    result = np.empty((*values.shape[:-1], q, q))
    result[..., row, column] = result[..., column, row] = values
    return result


def _square(root: FloatArray) -> FloatArray:
    return np.asarray(root @ root.swapaxes(-1, -2), dtype=np.float64)
