"""Data augmentation for noisy sufficient statistics: the confidential T and W as unknowns.

    T = A'V,  W = V'V - T'G^-1 T,  V = Z - 1 centre',  G = A'A
    T | theta ~ N(A'X~ B, G (x) Sigma),  W | theta ~ Wishart(n - r, Sigma), independent
    T~ = T + E,  Q~ = W + T'G^-1 T + F

after Bernstein and Sheldon (2018, 2019), in units of z. Three moves, each of which leaves the
posterior of (theta, T, W) invariant:

- B and T together given Sigma, W and the rest of theta: but for Q~ they are jointly normal. Drawn
  in turn they would creep wherever the noise exceeds what the records tell.
- W given T, Sigma (``wishart``).
- Sigma with the standardised residuals of T and W fixed: the counterpart of Sigma given T and W,
  which creeps likewise (interweaving, Yu & Meng 2011).

With theta given T and W, the model's own sweep, they make up a Gibbs sampler.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.elliptical import TRIES, slice_angle
from surveysynth.mechanisms.noisy_statistics.moments import (
    NoisySums,
    PublicSums,
    check_freedom,
    rank,
)
from surveysynth.mechanisms.noisy_statistics.wishart import (
    NoisyScatter,
    NormalScatter,
    noise_log_density,
)
from surveysynth.models.parts.gaussian import GaussianStats, PsuStats
from surveysynth.sampling import primitives
from surveysynth.sampling.streams import Streams
from surveysynth.sampling.unconstrained import (
    CorrelationRoot,
    correlation_of,
    unconstrained_correlation,
)

#: Least share of a column's declared variance that chains start from as its residual variance.
LEAST_START = 0.05
#: Tries of a slice of Sigma. Where more were needed the noise is small beside the records, and the
#: model's own sweep moves Sigma well enough: a chain whose tries run out stays.
RESCALE_TRIES = 12


@dataclass(frozen=True, repr=False)
class CoefficientPrior:
    """Normal prior of the coefficients (B, p, q) given the rest of theta: mean (B, p, q) and
    precision (B, q, p, q, p) of their columns in turn."""

    mean: FloatArray
    precision: FloatArray


@dataclass(frozen=True, repr=False)
class NoisyTarget:
    """Noisy moments of B chains in units of z about the centres, in the axes of G.

    lam (B, r) eigenvalues of G; link (B, r, p): T has mean lam * (link @ B), where the p rows of
    B are the coefficients of X and the effects of PSUs; cross (B, r, q) and squares (B, q, q) with
    the SDs (q,) and (q, q) of their noise; df (B,) = n - r; ones (B, K): X ones = 1.
    """

    public: PublicSums
    lam: FloatArray
    link: FloatArray
    cross: FloatArray
    cross_sd: FloatArray
    squares: FloatArray
    squares_sd: FloatArray
    df: FloatArray
    ones: FloatArray
    centre: FloatArray
    to_fit: FloatArray

    @classmethod
    def of(cls, noisy: NoisySums, public: PublicSums, chains: int) -> "NoisyTarget":
        """Of the databases, ``chains`` chains each.

        Where columns of A depend on each other so do the rows of T, exactly: axes without any
        record carry noise alone, and are left out.
        """
        columns, q = rank(public.white_gram), noisy.cross.shape[2]
        check_freedom(public.total, columns, q)
        lam, vectors = np.linalg.eigh(public.white_gram)
        lam, vectors = lam[:, -columns:], vectors[:, :, -columns:]
        sums = np.concatenate([public.white_cross, public.white_psu], axis=2)
        link = (vectors.swapaxes(-1, -2) @ sums) / lam[:, :, None]
        inverse = _pseudo_inverse(public.gram)
        k = public.gram.shape[-1]
        scale = noisy.spread
        parts = {
            "lam": lam,
            "link": link,
            "cross": (vectors.swapaxes(-1, -2) @ noisy.cross) * scale,
            "squares": noisy.squares * scale[:, None] * scale,
            "df": public.total - lam.shape[1],
            "ones": _constant(public, inverse),
            "to_fit": inverse @ link[:, :, :k].swapaxes(-1, -2),
        }
        return cls(
            public=_repeated_sums(public, chains),
            cross_sd=noisy.sigma * scale,
            squares_sd=noisy.squares_sd * scale[:, None] * scale,
            centre=noisy.centre,
            **{name: np.repeat(part, chains, axis=0) for name, part in parts.items()},
        )

    def start(self, spread: FloatArray, inflation: FloatArray) -> tuple[FloatArray, FloatArray]:
        """T (B, r, q) and W (B, q, q) to start from: T~ shrunk as for coefficients of the size of
        the ``spread`` (q,), W with no eigenvalue too small, times ``inflation`` (B,)."""
        sd = self.cross_sd / spread
        signal = (self.lam**2 + self.lam)[:, :, None]
        cross = self.cross * signal / (signal + sd * sd)
        scatter = (self.squares - self.explained(cross)) / (spread[:, None] * spread)
        values, vectors = np.linalg.eigh(scatter)
        values = np.maximum(values, LEAST_START * self.df[:, None]) * inflation[:, None]
        scatter = (vectors * values[:, None]) @ vectors.swapaxes(-1, -2)
        return cross, scatter * spread[:, None] * spread

    def explained(self, cross: FloatArray) -> FloatArray:
        """T'G^-1 T (B, q, q)."""
        return np.asarray((cross / self.lam[:, :, None]).swapaxes(-1, -2) @ cross)

    def statistics(self, cross: FloatArray, scatter: FloatArray) -> GaussianStats:
        """What the models' samplers read, for T (B, r, q) and W (B, q, q)."""
        public, k = self.public, self.public.gram.shape[-1]
        fit = self.to_fit @ cross
        residual = scatter
        psu = None
        if public.psu_total.shape[1]:
            fitted = fit.swapaxes(-1, -2) @ public.gram @ fit
            residual = scatter + self.explained(cross) - fitted
            sums = self.link[:, :, k:].swapaxes(-1, -2) @ cross - public.psu_x_sum @ fit
            psu = PsuStats(public.psu_total, public.psu_x_sum, sums)
        fit = fit + self.ones[:, :, None] * self.centre
        return GaussianStats(public.total, public.x_sum, public.gram, fit, residual, psu)

    def about_centre(self, coefficients: FloatArray) -> FloatArray:
        """Coefficients (B, p, q) of z as coefficients of z - centre."""
        return self._shifted(coefficients, -self.centre)

    def about_zero(self, coefficients: FloatArray) -> FloatArray:
        """The inverse."""
        return self._shifted(coefficients, self.centre)

    def _shifted(self, coefficients: FloatArray, by: FloatArray) -> FloatArray:
        result = coefficients.copy()
        k = self.ones.shape[1]
        result[:, :k] += self.ones[:, :, None] * by
        return result


class Augmentation:
    """T (B, r, q) and W (B, q, q) of B chains, and the moves that they take part in."""

    def __init__(self, target: NoisyTarget, spread: FloatArray, rng: Streams) -> None:
        self.target, self.rng = target, rng
        self.batch, self.r, self.q = target.cross.shape
        self.p = target.link.shape[2]
        inflation = np.exp(0.3 * rng.standard_normal((self.batch,), 0))
        self.cross, self.scatter = target.start(spread, inflation)
        # Of a log variance, what noise and sampling leave open at the declared spread: public.
        noise = np.diag(target.squares_sd) / spread**2
        width = 4.0 * (noise.max() + np.sqrt(2.0 * target.df)) / target.df
        self.width = np.clip(width, 0.05, 4.0)

    def statistics(self) -> GaussianStats:
        """What the models' samplers read."""
        return self.target.statistics(self.cross, self.scatter)

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps."""
        b, r, p, q, rng = self.batch, self.r, self.p, self.q, self.rng
        half = q * (q + 1) // 2
        self.n_coefficients = rng.standard_normal((c, b, q * p), 1)
        self.n_cross = rng.standard_normal((c, b, r, q), 1)
        self.n_scatter = rng.standard_normal((c, 2, b, half), 2)
        self.u_level = rng.random((c, 3, b), 2)
        self.u_angle = rng.random((c, 3, TRIES, b), 3)
        self.u_root = rng.random((c, half, 2, b), 3)
        self.u_slice = rng.random((c, half, RESCALE_TRIES, b), 3)

    def draw_coefficients(
        self, i: int, coefficients: FloatArray, covariance: FloatArray, prior: CoefficientPrior
    ) -> FloatArray:
        """B and T given all else: an elliptical slice, new B (B, p, q).

        In columns N that make both Sigma (tau) and the noise (1) diagonal every row of T and T~ is
        independent: T~_kj given B ~ N(lam_k (link B N)_kj, lam_k tau_j + 1).
        """
        target = self.target
        lam = target.lam[:, :, None]
        tau, turn, back = _joint_axes(covariance, target.cross_sd)
        signal = lam * tau[:, None, :]
        observed = target.cross @ turn
        middle, drawn = self._normal_coefficients(i, prior, signal, observed, turn)
        held = signal / (signal + 1.0) * observed
        means = [(lam * (target.link @ b @ turn) / (signal + 1.0)) + held for b in (middle, drawn)]
        noise = np.sqrt(signal / (signal + 1.0)) * self.n_cross[i]
        now = target.about_centre(coefficients)
        cross = [means[0], self.cross @ turn - means[0], means[1] + noise - means[0]]
        cos, sin = self._angle(i, [part @ back for part in cross], covariance)
        self.cross = (cross[0] + cos * cross[1] + sin * cross[2]) @ back
        return target.about_zero(middle + cos * (now - middle) + sin * (drawn - middle))

    def _normal_coefficients(
        self,
        i: int,
        prior: CoefficientPrior,
        signal: FloatArray,
        observed: FloatArray,
        turn: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and a draw (B, p, q) of B given T~ alone, T integrated out."""
        b, p, q, target = self.batch, self.p, self.q, self.target
        weight = (target.lam[:, :, None] / (signal + 1.0)).swapaxes(-1, -2)
        link = target.link
        weighted = (weight[..., None] * link[:, None]).swapaxes(-1, -2)
        gram = weighted @ (target.lam[:, None, :, None] * link[:, None])
        linear = (weighted @ observed.swapaxes(-1, -2)[..., None])[..., 0]
        pairs = (turn[:, :, None, :] * turn[:, None, :, :]).reshape(b, q * q, q)
        data = (pairs @ gram.reshape(b, q, p * p)).reshape(b, q, q, p, p).swapaxes(2, 3)
        precision = (data + prior.precision).reshape(b, q * p, q * p)
        mean = target.about_centre(prior.mean).swapaxes(-1, -2).reshape(b, q * p, 1)
        total = prior.precision.reshape(b, q * p, q * p) @ mean
        total = total + (turn @ linear).reshape(b, q * p, 1)
        root = np.linalg.cholesky(precision)
        white = np.linalg.solve(root, total)
        both = np.concatenate([white, white + self.n_coefficients[i][..., None]], axis=2)
        solved = np.linalg.solve(root.swapaxes(-1, -2), both)
        first, second = (solved[..., j].reshape(b, q, p).swapaxes(-1, -2) for j in range(2))
        return first, second

    def _angle(
        self, i: int, cross: list[FloatArray], covariance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Cosine and sine (B, 1, 1) on the ellipse of T, by what Q~ tells of T'G^-1 T.

        W goes with T, by as much as its mean given T and Q~ moves: Q~ then speaks as with W
        integrated out, but for the ratio of the Wishart to its normal approximation.
        """
        target, scatter = self.target, self.scatter
        scaled = [part / np.sqrt(target.lam)[:, :, None] for part in cross]
        pairs = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
        products = np.stack([_symmetric_product(scaled[a], scaled[c]) for a, c in pairs], axis=1)
        normal = NormalScatter.of(target.df, covariance, target.squares_sd)
        now = target.squares - target.explained(self.cross)

        def observed(which: IntArray | slice, cos: FloatArray, sin: FloatArray) -> FloatArray:
            weights = [np.ones_like(cos), 2 * cos, 2 * sin, cos * cos, 2 * cos * sin, sin * sin]
            explained = np.einsum("cb,bcij->bij", np.stack(weights), products[which])
            return np.asarray(target.squares[which] - explained, dtype=np.float64)

        def log_ratio(which: IntArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
            there = observed(which, cos, sin)
            moved = scatter[which] + normal.moved(there - now[which], which)
            return normal.log_marginal(there, which) + normal.log_wishart_over_normal(moved, which)

        cos, sin = slice_angle(log_ratio, self.u_level[i, 0], self.u_angle[i, 0])
        self.scatter = scatter + normal.moved(observed(slice(None), cos, sin) - now)
        return cos[:, None, None], sin[:, None, None]

    def draw_scatter(self, i: int, covariance: FloatArray) -> None:
        """W given T and Sigma."""
        target = self.target
        observed = target.squares - target.explained(self.cross)
        noisy = NoisyScatter(target.df, covariance, observed, target.squares_sd)
        for j, draw in enumerate((noisy.draw_by_normal, noisy.draw_by_bartlett)):
            self.scatter = draw(
                self.scatter, self.n_scatter[i, j], self.u_level[i, 1 + j], self.u_angle[i, 1 + j]
            )

    def rescale(
        self,
        i: int,
        coefficients: FloatArray,
        covariance: FloatArray,
        log_prior: Callable[[FloatArray, FloatArray], FloatArray],
    ) -> FloatArray:
        """Sigma with B and the standardised residuals of T and W fixed: new Sigma (B, q, q).

        A slice of each log SD, then of each canonical partial correlation (``unconstrained``);
        residuals go with g = L_new L_old^-1, L the Cholesky factor of Sigma. ``log_prior``: of
        Sigma given B, to (B,), for B and a root of Sigma.
        """
        target, q = self.target, self.q
        mean = target.lam[:, :, None] * (target.link @ target.about_centre(coefficients))
        move = _Rescaling(target, mean, self.cross - mean, self.scatter)
        inverse = np.linalg.inv(np.linalg.cholesky(covariance))
        power = np.arange(q - 1.0, -1.0, -1.0)

        def root_at(point: FloatArray) -> tuple[FloatArray, FloatArray]:
            """L at (log SDs, unconstrained correlation) (B, q(q+1)/2), and the log Jacobian."""
            correlation = CorrelationRoot.from_unconstrained(point[:, q:], q)
            root = np.exp(point[:, :q])[:, :, None] * correlation.root
            log_jacobian = (q + 1.0) * point[:, :q].sum(-1) + correlation.log_jacobian
            return root, log_jacobian + correlation.log_diagonal @ power

        sd, root = correlation_of(covariance)
        point = np.concatenate([np.log(sd), unconstrained_correlation(root)], axis=1)
        for j in range(point.shape[1]):

            def log_density(value: FloatArray, point: FloatArray = point, j: int = j) -> FloatArray:
                there = point.copy()
                there[:, j] = value
                with np.errstate(all="ignore"):
                    new, log_jacobian = root_at(there)
                    result = log_prior(coefficients, new) + log_jacobian
                    result = result + move.log_density(new @ inverse)
                return np.where(np.isfinite(result), result, -np.inf)

            lower = point[:, j] - self.width * self.u_root[i, j, 0]
            moved = primitives.slice_sample(
                log_density, point[:, j], lower, lower + self.width,
                self.u_root[i, j, 1], self.u_slice[i, j],
            )  # fmt: skip
            point = np.concatenate([point[:, :j], moved[:, None], point[:, j + 1 :]], axis=1)
        new = root_at(point)[0]
        g = new @ inverse
        self.cross = mean + move.residual @ g.swapaxes(-1, -2)
        self.scatter = g @ self.scatter @ g.swapaxes(-1, -2)
        return _square(new)


class _Rescaling:
    """Density of the noise when the residuals of T and the root of W are multiplied by g."""

    def __init__(
        self, target: NoisyTarget, mean: FloatArray, residual: FloatArray, scatter: FloatArray
    ) -> None:
        self.residual, self.squares_sd = residual, target.squares_sd
        gap = target.cross - mean
        self.precision = target.cross_sd**-2
        self.with_gap = gap.swapaxes(-1, -2) @ residual
        self.own = residual.swapaxes(-1, -2) @ residual
        whitened = residual / target.lam[:, :, None]
        self.with_mean = whitened.swapaxes(-1, -2) @ mean
        self.total = scatter + whitened.swapaxes(-1, -2) @ residual
        self.rest = target.squares - target.explained(mean)

    def log_density(self, g: FloatArray) -> FloatArray:
        """At g (B, q, q)."""
        linear = (g * self.with_gap).sum(-1) @ self.precision
        quadratic = ((g @ self.own) * g).sum(-1) @ self.precision
        mixed = g @ self.with_mean
        gap = self.rest - mixed - mixed.swapaxes(-1, -2) - g @ self.total @ g.swapaxes(-1, -2)
        return np.asarray(
            linear - 0.5 * quadratic + noise_log_density(gap, self.squares_sd), dtype=np.float64
        )


def _joint_axes(
    covariance: FloatArray, noise_sd: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """tau (B, q), N and N^-1 (B, q, q): N' Sigma N = diag(tau), N' diag(noise_sd^2) N = I."""
    values, vectors = np.linalg.eigh(covariance / (noise_sd[:, None] * noise_sd))
    back = vectors.swapaxes(-1, -2) * noise_sd
    return np.maximum(values, 1e-300), vectors / noise_sd[:, None], back


def _pseudo_inverse(gram: FloatArray) -> FloatArray:
    """Of Gram matrices (B, K, K), in columns of one length."""
    length = np.sqrt(np.einsum("bkk->bk", gram))
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    outer = inverse[:, :, None] * inverse[:, None, :]
    return np.asarray(
        np.linalg.pinv(gram * outer, rcond=1e-12, hermitian=True) * outer, dtype=np.float64
    )


def _constant(public: PublicSums, inverse: FloatArray) -> FloatArray:
    """e (B, K) with X e = 1; raises ``ValueError`` without one."""
    ones = np.einsum("bij,bj->bi", inverse, public.x_sum)
    left = public.total - np.einsum("bk,bk->b", public.x_sum, ones)
    if np.any(np.abs(left) > 1e-8 * public.total):
        raise ValueError("noisy statistics about a centre need an intercept in the span of X")
    return np.asarray(ones, dtype=np.float64)


def _repeated_sums(public: PublicSums, chains: int) -> PublicSums:
    values = vars(public).items()
    return PublicSums(**{name: np.repeat(value, chains, axis=0) for name, value in values})


def _symmetric_product(a: FloatArray, c: FloatArray) -> FloatArray:
    product = a.swapaxes(-1, -2) @ c
    return np.asarray(0.5 * (product + product.swapaxes(-1, -2)), dtype=np.float64)


def _square(root: FloatArray) -> FloatArray:
    return np.asarray(root @ root.swapaxes(-1, -2), dtype=np.float64)
