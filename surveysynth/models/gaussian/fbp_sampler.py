"""FBP's Gibbs sampler on weighted sufficient statistics, batched (methods 3 and 4)."""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.parts.coefficients import overdispersion
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: With at most so many effective records, chains keep the population's parameters.
FEW_RECORDS = 2.0


class Gibbs:
    """State of a batch of chains, B = databases x chains."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.rng = rng
        self.residual_scale = priors["residual_scale"]
        self.batch, self.k = stats.fit.shape[:2]
        self.free = self.k - stats.ridges  # columns whose prior is not in the statistics
        free = (np.arange(1 + self.k) < 1 + self.free).astype(np.float64)
        self.coefficient_precision = priors["coefficient_sd"] ** -2 * free[1:]
        self.selection_precision = priors["selection_sd"] ** -2 * free
        self.stats = stats
        self.design_gram, self.design_cross = stats.conditional_gram()
        self.cross_y = self.design_gram[:, 0, 1:]
        self.shift = self._constant_coefficients()
        self._start()

    def _constant_coefficients(self) -> FloatArray | None:
        """Return e (B, K), zero in shrunken columns, with X e = 1 on all records with weight.

        None without one, and where hardly any record has weight: there the shift does not help.
        """
        s, free = self.stats, self.free
        if np.any(s.total <= FEW_RECORDS):
            return None
        gram, x_sum = s.gram[:, :free, :free], s.x_sum[:, :free]
        length = np.sqrt(np.einsum("bkk->bk", gram))
        inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        scaled = gram * inverse[:, :, None] * inverse[:, None, :]
        solution = np.linalg.pinv(scaled, rcond=1e-12, hermitian=True)
        constant = inverse * np.einsum("bij,bj->bi", solution, inverse * x_sum)
        left_over = s.total - np.einsum("bk,bk->b", x_sum, constant)
        if np.any(np.abs(left_over) > 1e-9 * s.total):
            return None
        return np.pad(constant, [(0, 0), (0, self.k - free)])

    def _start(self) -> None:
        """Set overdispersed starts about the least-squares fits."""
        b, s = self.batch, self.stats
        guess = s.start_covariance()
        slope = guess[:, 0, 1] / guess[:, 0, 0]
        remaining = guess[:, 1, 1] - slope * guess[:, 0, 1]
        variance = np.stack([guess[:, 0, 0], remaining], axis=1)
        self.variance = variance * np.exp(0.2 * self.rng.standard_normal((b, 2), 0))
        jitter = overdispersion(s.gram, self.rng, 2) * np.sqrt(variance)[:, None, :]
        self.beta = s.fit[:, :, 0] + jitter[:, :, 0]
        k_y = slope + 0.1 * np.abs(slope) * self.rng.standard_normal((b,), 0)
        k_x = s.fit[:, :, 1] - k_y[:, None] * s.fit[:, :, 0] + jitter[:, :, 1]
        self.selection = np.concatenate([k_y[:, None], k_x], axis=1)

    def state(self) -> Theta:
        """Return the parameters of the population."""
        return {"beta": self.beta, "selection": self.selection, "variance": self.variance}

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, k, tries = self.batch, self.k, primitives.MAX_SHRINKS
        self.n_beta = self.rng.standard_normal((c, b, k), 1)
        self.n_selection = self.rng.standard_normal((c, b, k + 1), 1)
        self.u_level = self.rng.random((c, 2, b), 2)
        self.u_variance = self.rng.random((c, 2, tries, b), 3)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        if self.shift is not None and i % 2 == 1:
            self._sweep_of_sample(i, self.shift)
        else:
            self._sweep_of_population(i)

    def _sweep_of_sample(self, i: int, e: FloatArray) -> None:
        """Run a sweep in the coefficients of the implied sample distribution (methods 3).

        These are b = beta + k_y s_y^2 e and c = k_x + s_pi^2 e, where X e = 1, with y~ ~ N(x b,
        s_y^2) and log pi~ | y~ ~ N(k_y y~ + x c, s_pi^2). Drawn are (b, k_y, c, s_y^2, s_pi^2).

        In these coordinates the likelihood separates and only the priors of beta and k_x tie the
        parts. In (beta, k_x) the tilt ties them, more closely the wider log pi~ and the stronger
        the selection. A chain that alternates moves as freely as the better of the two allows.
        """
        s, norm = self.stats, np.einsum("bk,bk->b", e, e)
        tau, tau_pi = self.coefficient_precision[0], self.selection_precision[0]
        k_y = self.selection[:, 0]
        v_y, v_pi = self.variance.T
        precision = s.gram / v_y[:, None, None] + np.diag(self.coefficient_precision)
        linear = self.cross_y / v_y[:, None] + tau * (k_y * v_y)[:, None] * e
        b = primitives.normal_from_precision(precision, linear, self.n_beta[i])
        along = np.einsum("bk,bk->b", e, b)
        precision = self.design_gram / v_pi[:, None, None] + np.diag(self.selection_precision)
        precision[:, 0, 0] += tau * v_y * v_y * norm
        linear = self.design_cross / v_pi[:, None]
        linear[:, 0] += tau * v_y * along
        linear[:, 1:] += tau_pi * v_pi[:, None] * e
        draw = primitives.normal_from_precision(precision, linear, self.n_selection[i])
        k_y, c = draw[:, 0], draw[:, 1:]
        squares = s.sum_of_squares(np.stack([b, c + k_y[:, None] * b], axis=-1))
        squares_y, squares_both = squares[:, 0, 0], squares[:, 0, 1]
        squares_pi = squares[:, 1, 1] - 2.0 * k_y * squares_both + k_y * k_y * squares_y
        along_pi = np.einsum("bk,bk->b", e, c)
        level, uniforms, prior = self.u_level[i], self.u_variance[i], self.residual_scale
        v_y = primitives.slice_shifted_variances(
            v_y, s.count, squares_y, tau * k_y * k_y * norm, tau * k_y * along, prior,
            level[0], uniforms[0],
        )  # fmt: skip
        v_pi = primitives.slice_shifted_variances(
            v_pi, s.count, squares_pi, tau_pi * norm, tau_pi * along_pi, prior,
            level[1], uniforms[1],
        )  # fmt: skip
        self.variance = np.stack([v_y, v_pi], axis=1)
        self.beta = b - (k_y * v_y)[:, None] * e
        self.selection = np.concatenate([k_y[:, None], c - v_pi[:, None] * e], axis=1)

    def _sweep_of_population(self, i: int) -> None:
        s = self.stats
        k_y = self.selection[:, 0]
        v_y, v_pi = self.variance.T
        # beta | .: the denominator of the sample density is linear in beta.
        precision = s.gram / v_y[:, None, None] + np.diag(self.coefficient_precision)
        linear = self.cross_y / v_y[:, None] - k_y[:, None] * s.x_sum
        self.beta = primitives.normal_from_precision(precision, linear, self.n_beta[i])
        # (k_y, k_x) | .: linear in k_x, quadratic in k_y.
        precision = self.design_gram / v_pi[:, None, None] + np.diag(self.selection_precision)
        precision[:, 0, 0] += s.total * v_y
        mean_sum = np.einsum("bk,bk->b", s.x_sum, self.beta)
        denominator = np.concatenate([mean_sum[:, None], s.x_sum], axis=1)
        linear = self.design_cross / v_pi[:, None] - denominator
        self.selection = primitives.normal_from_precision(precision, linear, self.n_selection[i])
        k_y = self.selection[:, 0]
        squares_y = s.outcome_squares(self.beta)
        squares_pi = s.conditional_squares(self.selection)
        prior = self.residual_scale
        level, uniforms = self.u_level[i], self.u_variance[i]
        v_y = primitives.slice_variances(
            v_y, s.count, s.total * k_y * k_y, squares_y, prior, level[0], uniforms[0]
        )
        v_pi = primitives.slice_variances(
            v_pi, s.count, s.total, squares_pi, prior, level[1], uniforms[1]
        )
        self.variance = np.stack([v_y, v_pi], axis=1)
