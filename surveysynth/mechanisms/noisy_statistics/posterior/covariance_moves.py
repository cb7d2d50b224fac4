"""Two moves of Sigma that take the noisy moments along, both drawn by slices.

**Rescaling**: Sigma with B and the standardized residuals of T and W fixed. One slice of each log
SD, then of each canonical partial correlation (``unconstrained``); residuals are multiplied by
g = L_new L_old^-1, L the Cholesky factor of Sigma.

**Shifting**: B, T, W and Sigma together, with the noise of Q~ and the root of Sigma over that of W
fixed.
Where the noise of T leaves more open of W = Q~ - F - T'G^-1 T than Sigma does, and W leaves little
open of Sigma, each of them given the others creeps. Here (B, T) moves on an ellipse, by the normal
that it has but for Q~ under a fixed ``reference`` in place of Sigma; W follows from T, and
Sigma = H S H' from W = H H', with S kept. The Wishart density of W and the volume of Sigma cancel:

    target / normal = p(Sigma | B) p(T | B, Sigma) / [p(B | reference) p(T | B, reference)],

where p(Sigma | B) stands for all of the prior of (B, Sigma) that Sigma plays a part in.

Correlation matrices move by their canonical partial correlations: Lewandowski, Kurowicka and Joe
(2009), in the order of Stan's Cholesky factors of correlation matrices (Stan Reference Manual).
Functions work on leading axes.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.moments import NoisyTarget
from surveysynth.mechanisms.noisy_statistics.posterior.slices import Chains, slice_step
from surveysynth.mechanisms.noisy_statistics.posterior.wishart import noise_log_density, on_ellipse

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


#: Log prior (b, t) of Sigma, up to a constant, given B (b, t, p, q) and the rest of theta of these
#: chains, for roots (b, t, q, q) of Sigma; axes t may be one.
LogCovariancePrior = Callable[[Chains, FloatArray, FloatArray], FloatArray]


class RescaledNoise:
    """Density of the noise when the residuals of T and the root of W are multiplied by g.

    mean and residual (B, r, q) of T, scatter (B, q, q).
    """

    def __init__(
        self, target: NoisyTarget, mean: FloatArray, residual: FloatArray, scatter: FloatArray
    ) -> None:
        self.residual, self.squares_sd = residual, target.squares_sd
        q = mean.shape[2]
        precision = target.cross_sd**-2
        gap = target.cross - mean
        # All products with the residuals at once: (B, q, 4q).
        others = np.concatenate([gap * precision, residual, mean, residual], axis=2)
        others[:, :, 2 * q :] /= target.lam[:, :, None]
        products = residual.swapaxes(-1, -2) @ others
        with_gap, own, with_mean, explained = (
            products[:, None, :, j * q : (j + 1) * q] for j in range(4)
        )
        self.with_gap, self.own = with_gap.swapaxes(-1, -2), own
        self.with_mean, self.total = with_mean, scatter[:, None] + explained
        self.precision = precision[:, None]
        self.rest = (target.squares - target.explained(mean))[:, None]

    def log_density(self, which: Chains, g: FloatArray) -> FloatArray:
        """Return the log density (b, t) at g (b, t, q, q)."""
        of_cross = g * (self.with_gap[which] - 0.5 * self.precision * (g @ self.own[which]))
        mixed = g @ (self.with_mean[which] + 0.5 * self.total[which] @ g.swapaxes(-1, -2))
        gap = self.rest[which] - mixed - mixed.swapaxes(-1, -2)
        noise = noise_log_density(gap, self.squares_sd)
        return np.asarray(of_cross.sum((-1, -2)) + noise, dtype=np.float64)


def rescaled_covariance(
    coefficients: FloatArray,
    covariance: FloatArray,
    log_prior: LogCovariancePrior,
    noise: RescaledNoise,
    level: FloatArray,
    shifts: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the new Sigma and g, both (B, q, q).

    From uniform levels (half, B) and tries (half, B, t) of the half = q(q+1)/2 coordinates in
    turn."""
    q = covariance.shape[-1]
    sd, correlation_root = correlation_of(covariance)
    inverse = np.linalg.inv(sd[:, :, None] * correlation_root)[:, None]
    log_sd, partial = np.log(sd), unconstrained_correlation(correlation_root)

    def log_density(
        which: Chains, log_sd: FloatArray, correlation: CorrelationRoot
    ) -> FloatArray:
        """Return the log density at (b, t, q) and as many correlations, or one for all tries."""
        log_jacobian = (q + 1.0) * log_sd.sum(-1) + correlation.log_jacobian
        log_jacobian = log_jacobian + correlation.log_diagonal @ np.arange(q - 1.0, -1.0, -1.0)
        root = np.exp(log_sd)[..., None] * correlation.root
        result = log_prior(which, coefficients[which][:, None], root) + log_jacobian
        result = result + noise.log_density(which, root @ inverse[which])
        return np.where(np.isfinite(result), result, -np.inf)

    correlation = CorrelationRoot.from_unconstrained(partial[:, None], q)
    for j in range(len(level)):

        def at(which: Chains, shift: FloatArray, j: int = j) -> FloatArray:
            of_sd, k = j < q, j if j < q else j - q
            moved = (log_sd if of_sd else partial)[which][:, None]
            moved = np.repeat(moved, shift.shape[1], axis=1)
            moved[:, :, k] += shift
            if of_sd:
                return log_density(which, moved, _chains_of(correlation, which))
            return log_density(
                which, log_sd[which][:, None], CorrelationRoot.from_unconstrained(moved, q)
            )

        with np.errstate(all="ignore"):
            step = slice_step(at, level[j], shifts[j])
        if j < q:
            log_sd[:, j] += step
        else:
            partial[:, j - q] += step
    correlation = CorrelationRoot.from_unconstrained(partial, q)
    new = np.exp(log_sd)[:, :, None] * correlation.root
    return new @ new.swapaxes(-1, -2), new @ inverse[:, 0]


def _chains_of(correlation: CorrelationRoot, which: Chains) -> CorrelationRoot:
    names = [each.name for each in fields(correlation)]
    return CorrelationRoot(*(getattr(correlation, name)[which] for name in names))


@dataclass(frozen=True, repr=False)
class Ellipse:
    """The ellipse that B and T move on, and what goes with them.

    beta (B, 3, p, q) and cross (B, 3, r, q): middle, along and across; scatters and residuals
    (B, 6, q, q): W and (T - mean)'G^-1 (T - mean), by the terms of ``square_weights``; root (B,
    q, q) of W now."""

    beta: FloatArray
    cross: FloatArray
    scatters: FloatArray
    residuals: FloatArray
    root: FloatArray

    @classmethod
    def of(
        cls,
        target: NoisyTarget,
        beta: list[FloatArray],
        cross: list[FloatArray],
        now: FloatArray,
        scatter: FloatArray,
    ) -> "Ellipse":
        """Return the ellipse of middle, along and across of B and of T.

        T now is (B, r, q) and W now (B, q, q)."""
        scatters = -squares_on_ellipse(cross, target.lam)
        scatters[:, 0] += scatter + target.explained(now)
        link, centred = target.lam[:, :, None] * target.link, list(beta)
        centred[0] = target.about_centre(beta[0])
        gaps = [t - link @ b for t, b in zip(cross, centred, strict=True)]
        residuals = squares_on_ellipse(gaps, target.lam)
        root = np.asarray(np.linalg.cholesky(scatter), dtype=np.float64)
        return cls(np.stack(beta, axis=1), np.stack(cross, axis=1), scatters, residuals, root)

    def angle(
        self,
        reference: FloatArray,
        covariance: FloatArray,
        log_prior: LogCovariancePrior,
        level: FloatArray,
        angles: FloatArray,
    ) -> FloatArray:
        """Return the angle (B,) of the next point.

        From Sigma now and its reference (B, q, q), level (B,) and tries (B, t)."""
        rows = self.cross.shape[2]
        ratio = self._ratio(covariance)
        precision = np.linalg.inv(reference)[:, None]
        reference_root = np.asarray(np.linalg.cholesky(reference), dtype=np.float64)[:, None]

        def log_ratio(which: Chains, angle: FloatArray) -> FloatArray:
            weights = square_weights(angle)
            root = small_cholesky(_by_terms(weights, self.scatters[which])) @ ratio[which][:, None]
            residual = _by_terms(weights, self.residuals[which])
            white = whitened_trace(root, residual)
            log_root = np.log(np.einsum("btii->bti", root)).sum(-1)
            beta = on_ellipse(self.beta[which], angle)
            there: FloatArray = log_prior(which, beta, root)
            there = there - 0.5 * white - rows * log_root
            normal: FloatArray = log_prior(which, beta, reference_root[which])
            normal = normal - 0.5 * (precision[which] * residual).sum((-1, -2))
            result = np.subtract(there, normal)
            return np.where(np.isfinite(result), result, -np.inf)

        with np.errstate(all="ignore"):
            return slice_step(log_ratio, level, angles)

    def at(
        self, angle: FloatArray, covariance: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return B, T, W and Sigma at angles (B,)."""
        scatter = _by_terms(square_weights(angle[:, None]), self.scatters)[:, 0]
        root = np.linalg.cholesky(scatter) @ self._ratio(covariance)
        beta, cross = (on_ellipse(x, angle[:, None])[:, 0] for x in (self.beta, self.cross))
        return beta, cross, scatter, root @ root.swapaxes(-1, -2)

    def _ratio(self, covariance: FloatArray) -> FloatArray:
        return np.asarray(np.linalg.solve(self.root, np.linalg.cholesky(covariance)))


def square_weights(angle: FloatArray) -> FloatArray:
    """Return weights (..., 6) of the products of middle, along and across on an ellipse."""
    cos, sin = np.cos(angle), np.sin(angle)
    each = [np.ones_like(cos), 2 * cos, 2 * sin, cos * cos, 2 * cos * sin, sin * sin]
    return np.stack(each, axis=-1)


def squares_on_ellipse(parts: list[FloatArray], lam: FloatArray) -> FloatArray:
    """Return T'G^-1 T (B, 6, q, q) by ``square_weights``, from parts (B, r, q) of T."""
    batch, q = lam.shape[0], parts[0].shape[2]
    scaled = np.concatenate(parts, axis=2) / np.sqrt(lam)[:, :, None]
    products = (scaled.swapaxes(-1, -2) @ scaled).reshape(batch, 3, q, 3, q)
    products = 0.5 * (products + products.transpose(0, 3, 2, 1, 4))
    first, second = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2])
    return np.asarray(products[:, first, :, second].swapaxes(0, 1), dtype=np.float64)


def small_cholesky(matrix: FloatArray) -> FloatArray:
    """Return roots of symmetric matrices (..., q, q), NaN where not positive definite.

    LAPACK would stop at the first of those."""
    q = matrix.shape[-1]
    root = np.zeros_like(matrix)
    for j in range(q):
        left = root[..., j, :j]
        root[..., j, j] = np.sqrt(matrix[..., j, j] - (left * left).sum(-1))
        for i in range(j + 1, q):
            rest = matrix[..., i, j] - (root[..., i, :j] * left).sum(-1)
            root[..., i, j] = rest / root[..., j, j]
    return root


def whitened_trace(root: FloatArray, square: FloatArray) -> FloatArray:
    """Return tr(L^-1 S L^-T) (...) for roots L and squares S (..., q, q)."""
    q = root.shape[-1]
    inverse = np.zeros_like(root)
    for j in range(q):
        inverse[..., j, j] = 1.0 / root[..., j, j]
        for i in range(j + 1, q):
            inner = (root[..., i, j:i] * inverse[..., j:i, j]).sum(-1)
            inverse[..., i, j] = -inner / root[..., i, i]
    return np.asarray(((inverse @ square) * inverse).sum((-1, -2)), dtype=np.float64)


def _by_terms(weights: FloatArray, terms: FloatArray) -> FloatArray:
    """Return (b, t, q, q) from weights (b, t, 6) and terms (b, 6, q, q)."""
    flat = weights @ terms.reshape(*terms.shape[:2], -1)
    return np.asarray(flat.reshape(*weights.shape[:2], *terms.shape[2:]), dtype=np.float64)
