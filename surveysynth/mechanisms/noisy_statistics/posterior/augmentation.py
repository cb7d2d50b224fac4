"""Data augmentation for noisy sufficient statistics: the confidential T and W as unknowns.

    T = A'V,  W = V'V - T'G^-1 T,  V = Z - 1 centre',  G = A'A
    T | theta ~ N(A'X~ B, G (x) Sigma),  W | theta ~ Wishart(n - r, Sigma), independent
    T~ = T + E,  Q~ = W + T'G^-1 T + F

after Bernstein and Sheldon (2018, 2019), in units of z. Four moves, each of which leaves the
posterior of (theta, T, W) invariant:

- B and T together given Sigma, W and the rest of theta: but for Q~ they are jointly normal. Drawn
  in turn they would creep wherever the noise exceeds what the records tell.
- B, T, W and Sigma together (``covariance_moves``): where records are many the noise of T leaves
  more open of W than Sigma does, and of Sigma than W does.
- W given T, Sigma (``wishart``).
- Sigma with the standardised residuals of T and W fixed: the counterpart of Sigma given T and W,
  which creeps likewise (interweaving, Yu & Meng 2011).

With theta given T and W, the model's own sweep, they make up a Gibbs sampler.
"""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.covariance_moves import (
    Ellipse,
    LogCovariancePrior,
    RescaledNoise,
    rescaled_covariance,
    square_weights,
    squares_on_ellipse,
)
from surveysynth.mechanisms.noisy_statistics.posterior.moments import NoisyTarget
from surveysynth.mechanisms.noisy_statistics.posterior.slices import (
    Chains,
    shrinking,
    shrinking_angles,
    slice_step,
)
from surveysynth.mechanisms.noisy_statistics.posterior.wishart import (
    NoisyScatter,
    NormalScatter,
    log_wishart_over_normal,
)
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling.sweeps import Streams

#: Tries on an ellipse: a bracket of angles shrinks by a third a try, 40 reach 1e-7 of a turn.
TRIES = 40
#: Tries of a slice of Sigma. Where more were needed the noise is small beside the records, and the
#: model's own sweep moves Sigma well enough: a chain whose tries run out stays.
RESCALE_TRIES = 12


@dataclass(frozen=True, repr=False)
class CoefficientPrior:
    """Normal prior of the coefficients (B, p, q) given the rest of theta.

    mean (B, p, q) and precision (B, q, p, q, p) of the columns in turn."""

    mean: FloatArray
    precision: FloatArray


class Augmentation:
    """T (B, r, q) and W (B, q, q) of B chains, and the moves that they take part in."""

    def __init__(self, target: NoisyTarget, spread: FloatArray, rng: Streams) -> None:
        self.target, self.rng = target, rng
        self.batch, self.r, self.q = target.cross.shape
        self.p = target.link.shape[2]
        # Of a log variance, what noise and sampling leave open at the declared spread: public.
        noise = np.diag(target.squares_sd) / spread**2
        open_sd = (noise.max() + np.sqrt(2.0 * target.df)) / target.df
        self.width = np.clip(4.0 * open_sd, 0.05, 4.0)
        # Overdispersed starts, but on the scale of what is open: from hundreds of SDs away, where
        # records are very many, chains would not arrive.
        inflation = np.exp(np.minimum(2.0 * open_sd, 0.3) * rng.standard_normal((self.batch,), 0))
        self.cross, scatter = target.start(spread)
        self.scatter = scatter * inflation[:, None, None]
        self.reference = scatter / target.df[:, None, None]

    def statistics(self) -> GaussianStats:
        """Return what the models' samplers read."""
        return self.target.statistics(self.cross, self.scatter)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, r, p, q, rng = self.batch, self.r, self.p, self.q, self.rng
        half = q * (q + 1) // 2
        self.n_coefficients = rng.standard_normal((c, 2, b, q * p), 2)
        self.n_cross = rng.standard_normal((c, 2, b, r, q), 2)
        self.n_scatter = rng.standard_normal((c, 2, b, half), 2)
        self.u_level = rng.random((c, 4, b), 2)
        self.angles = shrinking_angles(rng.random((c, 4, b, TRIES), 2))
        self.u_slice = rng.random((c, half, b), 2)
        low = -rng.random((c, half, b), 2)
        uniforms = rng.random((c, half, b, RESCALE_TRIES), 2)
        self.shifts = self.width[:, None] * shrinking(low, low + 1.0, uniforms)

    def draw_coefficients(
        self, i: int, coefficients: FloatArray, covariance: FloatArray, prior: CoefficientPrior
    ) -> FloatArray:
        """Draw B and T given all else by an elliptical slice; return the new B (B, p, q)."""
        target = self.target
        beta, cross = self._ellipse(i, 0, coefficients, covariance, prior)
        cos, sin = self._angle(i, cross, covariance)
        self.cross = cross[0] + cos * cross[1] + sin * cross[2]
        return target.about_zero(beta[0] + cos * beta[1] + sin * beta[2])

    def _ellipse(
        self,
        i: int,
        move: int,
        coefficients: FloatArray,
        covariance: FloatArray,
        prior: CoefficientPrior,
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return middle, along and across of B (about the centre) and of T.

        By the normal that they have but for Q~.

        In columns N that make both Sigma (tau) and the noise (1) diagonal every row of T and T~ is
        independent: T~_kj given B ~ N(lam_k (link B N)_kj, lam_k tau_j + 1).
        """
        target = self.target
        lam = target.lam[:, :, None]
        tau, turn, back = _joint_axes(covariance, target.cross_sd)
        signal = lam * tau[:, None, :]
        observed = target.cross @ turn
        normals = self.n_coefficients[i, move]
        middle, drawn = self._normal_coefficients(normals, prior, signal, observed, turn)
        share = 1.0 / (signal + 1.0)
        link = lam * target.link
        held = signal * share * observed
        means = [share * (link @ (part @ turn)) + held for part in (middle, drawn)]
        noise = np.sqrt(signal * share) * self.n_cross[i, move]
        beta = [middle, target.about_centre(coefficients) - middle, drawn - middle]
        cross = [means[0], self.cross @ turn - means[0], means[1] + noise - means[0]]
        return beta, [part @ back for part in cross]

    def _normal_coefficients(
        self,
        normals: FloatArray,
        prior: CoefficientPrior,
        signal: FloatArray,
        observed: FloatArray,
        turn: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean and a draw (B, p, q) of B given T~ alone, T integrated out."""
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
        noise = np.linalg.cholesky(precision) @ normals[..., None]
        solved = np.linalg.solve(precision, np.concatenate([total, total + noise], axis=2))
        first, second = (solved[..., j].reshape(b, q, p).swapaxes(-1, -2) for j in range(2))
        return first, second

    def _angle(
        self, i: int, cross: list[FloatArray], covariance: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return cosine and sine (B, 1, 1) on the ellipse of T, by what Q~ says of T'G^-1 T.

        W goes with T, by as much as its mean given T and Q~ moves: Q~ then speaks as with W
        integrated out, but for the ratio of the Wishart to its normal approximation.
        """
        target, scatter, q = self.target, self.scatter, self.q
        normal = NormalScatter.of(target.df, covariance, target.squares_sd)
        now = target.squares - target.explained(self.cross)
        # Squares less T'G^-1 T on the ellipse.
        terms = -squares_on_ellipse(cross, target.lam)
        terms[:, 0] += target.squares
        from_expected, from_now = terms.copy(), terms
        from_expected[:, 0] -= normal.expected
        from_now[:, 0] -= now
        moved = normal.moved(from_now)
        moved[:, 0] += scatter
        white = normal.whitened_noise(from_expected)
        half = white.shape[2]
        parts = [white, normal.whitened(moved).reshape(*white.shape[:2], -1)]
        whole = np.concatenate(parts, axis=2)

        def log_ratio(which: Chains, angle: FloatArray) -> FloatArray:
            both = square_weights(angle) @ whole[which]
            points = both[..., half:].reshape(*angle.shape, q, q)
            ratio = log_wishart_over_normal(points, target.df[which])
            return np.asarray(ratio - 0.5 * (both[..., :half] ** 2).sum(-1), dtype=np.float64)

        angle = slice_step(log_ratio, self.u_level[i, 0], self.angles[i, 0])
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        w = square_weights(angle[:, None])
        self.scatter = (w @ moved.reshape(*moved.shape[:2], -1)).reshape(scatter.shape)
        return cos[:, :, None], sin[:, :, None]

    def shift(
        self,
        i: int,
        coefficients: FloatArray,
        covariance: FloatArray,
        prior: CoefficientPrior,
        log_prior: LogCovariancePrior,
    ) -> tuple[FloatArray, FloatArray]:
        """Move B, T, W and Sigma (``covariance_moves``); return B (B, p, q) and Sigma (B, q, q).

        prior: of B given the rest of theta and ``reference`` in place of Sigma.
        """
        target = self.target
        beta, cross = self._ellipse(i, 1, coefficients, self.reference, prior)
        beta[0] = target.about_zero(beta[0])
        ellipse = Ellipse.of(target, beta, cross, self.cross, self.scatter)
        angle = ellipse.angle(
            self.reference, covariance, log_prior, self.u_level[i, 3], self.angles[i, 3]
        )
        return_beta, self.cross, self.scatter, new = ellipse.at(angle, covariance)
        return return_beta, new

    def draw_scatter(self, i: int, covariance: FloatArray) -> None:
        """Draw W given T and Sigma."""
        target = self.target
        observed = target.squares - target.explained(self.cross)
        noisy = NoisyScatter(target.df, covariance, observed, target.squares_sd)
        for j, draw in enumerate((noisy.draw_by_normal, noisy.draw_by_bartlett)):
            self.scatter = draw(
                self.scatter, self.n_scatter[i, j], self.u_level[i, 1 + j], self.angles[i, 1 + j]
            )

    def rescale(
        self,
        i: int,
        coefficients: FloatArray,
        covariance: FloatArray,
        log_prior: LogCovariancePrior,
    ) -> FloatArray:
        """Return Sigma (B, q, q), moved with the standardized residuals of T and W fixed."""
        target = self.target
        mean = target.lam[:, :, None] * (target.link @ target.about_centre(coefficients))
        density = RescaledNoise(target, mean, self.cross - mean, self.scatter)
        new, g = rescaled_covariance(
            coefficients, covariance, log_prior, density, self.u_slice[i], self.shifts[i]
        )
        self.cross = mean + density.residual @ g.swapaxes(-1, -2)
        self.scatter = g @ self.scatter @ g.swapaxes(-1, -2)
        return new


def _joint_axes(
    covariance: FloatArray, noise_sd: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return tau (B, q), N and N^-1 (B, q, q).

    N' Sigma N = diag(tau) and N' diag(noise_sd^2) N = I."""
    values, vectors = np.linalg.eigh(covariance / (noise_sd[:, None] * noise_sd))
    back = vectors.swapaxes(-1, -2) * noise_sd
    return np.maximum(values, 1e-300), vectors / noise_sd[:, None], back
