"""FBP's Gibbs samplers on weighted sufficient statistics, batched (methods 3 and 4).

With effects of PSUs:

    population: y~ ~ N(x beta + a_1, s_y^2);  log pi~ | y~ ~ N(k_y y~ + x k_x + a_2, s_pi^2)
    a ~ N(0, T) in the population, N(T b, T) in the sample, b = (k_y, 1)'

Sampling tilts a PSU by E(pi~ | a), which is proportional to exp(b'a). With a' = a - T b the sample
is

    y~ ~ N(x beta + o_1 + a'_1, s_y^2);  log pi~ | y~ ~ N(k_y y~ + x k_x + o_2 + a'_2, s_pi^2)
    o = (D + T) b,  D = diag(s_y^2, s_pi^2),  a' ~ N(0, T)

where o is linear in k_y: given D and T all coefficients and effects are jointly normal.
"""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.parts.coefficients import overdispersion
from surveysynth.models.parts.gaussian import GaussianStats
from surveysynth.models.parts.psu_effects import (
    PSU_COVARIANCE,
    PSU_EFFECT,
    JointCoordinates,
    PsuBlock,
)
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
        self._read(stats)
        self.shift = self._constant_coefficients()
        self._start()

    def _read(self, stats: GaussianStats) -> None:
        self.stats = stats
        self.design_gram, self.design_cross = stats.conditional_gram()
        self.cross_y = self.design_gram[:, 0, 1:]

    def observe(self, stats: GaussianStats) -> None:
        """Take other values z on the same X, for statistics that change between sweeps."""
        self._read(stats)

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


#: Starting values of T: a share of the residual variances.
START_SHARE = 0.2
#: Draws and rescalings of the effects in a sweep. With 100 PSUs of ten records at half their
#: weight, two left the variances fewer than 100 effective draws in one fit of six.
MOVES = 3


class ClusteredGibbs(Gibbs):
    """State of a batch of chains whose statistics have sums by PSU.

    A sweep draws beta, k_y and k_x at once with the effects integrated out, then the effects, the
    residual variances and T. These last draws keep the coefficients of the sample, beta + o_1 e
    and k_x + o_2 e with X e = 1, in odd sweeps, and those of the population in even ones.

    With the sample's coefficients kept, a' and T enter only through the priors of beta and k_x,
    and chains move freely however large C b'T b is. With the population's kept, variances move
    freely however narrow those priors are; the priors tie s_pi^2 and T to a coefficient of the
    sample that itself moves slowly. Without such an e (no intercept, no factor in X) every sweep
    keeps the population's: also exact, but mixing is good only while C b'T b is small.
    """

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        super().__init__(stats, priors, rng)
        if stats.psu is None:
            raise ValueError("statistics without sums by PSU have no effects to draw")
        start = START_SHARE * self.variance * np.exp(rng.standard_normal((self.batch, 2), 0))
        self.psu = PsuBlock(stats.psu, _diagonal(start), priors, rng, tied=True, moves=MOVES)
        self._read_sums(stats)
        self.effects = self.psu.effects

    def observe(self, stats: GaussianStats) -> None:
        """Take other values z on the same X, for statistics that change between sweeps."""
        super().observe(stats)
        self._read_sums(stats)

    def _read_sums(self, stats: GaussianStats) -> None:
        assert stats.psu is not None  # checked at the start
        self.psu.psu = own = stats.psu
        # Columns of X, one, and the residuals of y~ and log pi~ about their fits: every residual
        # of the model is a combination of them.
        self.psu_sum = np.concatenate([own.x_sum, own.total[:, :, None], own.residual], axis=2)
        self.products = self._products(stats)
        self.prior_form = self._prior_form()

    def _products(self, stats: GaussianStats) -> FloatArray:
        """Return weighted cross products (B, K + 3, K + 3) of those columns."""
        k = self.k
        result = np.zeros((self.batch, k + 3, k + 3))
        result[:, :k, :k] = stats.gram
        result[:, k, :k] = result[:, :k, k] = stats.x_sum
        result[:, k, k] = stats.total
        result[:, k, k + 1 :] = result[:, k + 1 :, k] = self.psu_sum[:, :, k + 1 :].sum(1)
        result[:, k + 1 :, k + 1 :] = stats.residual
        return result

    def _prior_form(self) -> FloatArray:
        """Return the quadratic form (B, 2 K + 2, 2 K + 2) of the priors.

        Its vector is that of ``_coefficients``.
        """
        k, fit, column = self.k, self.stats.fit, np.arange(self.k)
        root = np.zeros((self.batch, 2 * k + 1, 2 * k + 2))
        root[:, column, column] = root[:, k + 1 + column, k + 1 + column] = 1.0
        root[:, k, k] = 1.0
        root[:, :k, -1], root[:, k + 1 :, -1] = fit[:, :, 0], fit[:, :, 1]
        root[:, k + 1 :, k] = -fit[:, :, 0]
        precision = np.concatenate([self.coefficient_precision, self.selection_precision])
        form: FloatArray = root.swapaxes(-1, -2) @ (precision[:, None] * root)
        return form

    def state(self) -> Theta:
        """Return the parameters of the population, and the effects of the sampled PSUs."""
        psu = {PSU_COVARIANCE: self.psu.covariance, PSU_EFFECT: self.effects}
        return {**super().state(), **psu}

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        super().draw_random_numbers(c)
        self.n_coefficients = np.concatenate([self.n_beta, self.n_selection], axis=2)
        self.psu.draw_random_numbers(c)

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
        coordinates = JointCoordinates.of(_diagonal(self.variance), self.psu.covariance)
        self._coefficients(i, coordinates)
        if self.shift is None or i % 2 == 0:
            self._keep_the_population(i, coordinates)
        else:
            self._keep_the_sample(i, coordinates, self.shift)

    def _coefficients(self, i: int, coordinates: JointCoordinates) -> None:
        """Draw (beta, k_y, k_x) given s_y^2, s_pi^2 and T, the effects integrated out.

        In joint coordinates the log-likelihood is -1/2 of a sum of quadratic forms in residuals
        r, r'Ar - sum_c (sum of r)^2 t / (1 + A_c t). The residuals are linear in the vector
        (beta - fit_y, k_y, k_x - fit_pi + k_y fit_y, 1).
        """
        k, column = self.k, np.arange(self.k)
        v, t = self.variance, self.psu.covariance
        shrinkage = coordinates.shrinkage(self.psu.psu.total)
        form = self.prior_form.copy()
        for j in range(2):
            of_y, of_pi = coordinates.matrix[:, 0, j], coordinates.matrix[:, 1, j]
            shrunk = (shrinkage[:, :, j, None] * self.psu_sum).swapaxes(-1, -2)
            rows = np.zeros((self.batch, k + 3, 2 * k + 2))
            rows[:, column, column] = -of_y[:, None]
            rows[:, column, k + 1 + column] = -of_pi[:, None]
            rows[:, k, k] = -of_y * (v[:, 0] + t[:, 0, 0]) - of_pi * t[:, 0, 1]
            rows[:, k, -1] = -of_y * t[:, 0, 1] - of_pi * (v[:, 1] + t[:, 1, 1])
            rows[:, k + 1, k], rows[:, k + 1, -1] = -of_pi, of_y
            rows[:, k + 2, -1] = of_pi
            form += rows.swapaxes(-1, -2) @ (self.products - shrunk @ self.psu_sum) @ rows
        precision, linear = form[:, :-1, :-1], -form[:, :-1, -1]
        draw = primitives.normal_from_precision(precision, linear, self.n_coefficients[i])
        fit, k_y = self.stats.fit, draw[:, k, None]
        self.beta = fit[:, :, 0] + draw[:, :k]
        k_x = fit[:, :, 1] - k_y * fit[:, :, 0] + draw[:, k + 1 :]
        self.selection = np.concatenate([k_y, k_x], axis=1)

    def _tilt(self) -> FloatArray:
        """Return b = (k_y, 1), (B, 2)."""
        k_y = self.selection[:, 0]
        return np.stack([k_y, np.ones_like(k_y)], axis=1)

    def _residuals(self, beta: FloatArray, k_x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weighted sums of squares (B, 2, 2) and sums by PSU (B, C, 2) of residuals.

        The residuals are y~ - x beta and log pi~ - k_y y~ - x k_x.
        """
        k_y = self.selection[:, 0]
        turn = np.zeros((self.batch, 2, 2))
        turn[:, 0, 0] = turn[:, 1, 1] = 1.0
        turn[:, 0, 1] = -k_y
        coefficients = np.stack([beta, k_x + k_y[:, None] * beta], axis=-1)
        squares = self.stats.sum_of_squares(coefficients)
        sums = self.psu.psu.residual_at(coefficients - self.stats.fit)
        return turn.swapaxes(-1, -2) @ squares @ turn, sums @ turn

    def _keep_the_sample(self, i: int, coordinates: JointCoordinates, e: FloatArray) -> None:
        """Draw T, a', s_y^2 and s_pi^2 given the coefficients of the sample."""
        s, psu, tilt = self.stats, self.psu, self._tilt()
        tau = np.array([self.coefficient_precision[0], self.selection_precision[0]])
        offset = _offset(self.variance, psu.covariance, tilt)
        coefficients = np.stack([self.beta, self.selection[:, 1:]], axis=1)
        coefficients = coefficients + offset[:, :, None] * e[:, None, :]
        squares, sums = self._residuals(coefficients[:, 0], coefficients[:, 1])
        # The part of the priors of beta and k_x, normal about o e in these coordinates, that has o.
        norm = np.einsum("bk,bk->b", e, e)[:, None]
        along = np.einsum("bjk,bk->bj", coefficients, e)

        def log_tie(t: FloatArray) -> FloatArray:
            o = _offset(self.variance, t, tilt)
            log_prior: FloatArray = (tau * o * (along - 0.5 * norm * o)).sum(-1)
            return log_prior

        psu.draw_effects(i, coordinates, sums)
        squares = np.einsum("bjj->bj", psu.sum_of_squares(squares, sums))
        squares, free = np.maximum(squares, 0.0), along - norm * _mean_effect(psu.covariance, tilt)
        variance = [
            primitives.slice_shifted_variances(
                self.variance[:, j], s.count, squares[:, j],
                tau[j] * norm[:, 0] * tilt[:, j] ** 2, tau[j] * tilt[:, j] * free[:, j],
                self.residual_scale, self.u_level[i, j], self.u_variance[i, j],
            )
            for j in range(2)
        ]  # fmt: skip
        self.variance = np.stack(variance, axis=1)
        psu.update(i, _diagonal(self.variance), sums, log_tie)
        offset = _offset(self.variance, psu.covariance, tilt)
        coefficients = coefficients - offset[:, :, None] * e[:, None, :]
        self.beta = coefficients[:, 0]
        self.selection = np.concatenate([tilt[:, :1], coefficients[:, 1]], axis=1)
        self.effects = psu.effects + _mean_effect(psu.covariance, tilt)[:, None]

    def _keep_the_population(self, i: int, coordinates: JointCoordinates) -> None:
        """Draw a, s_y^2, s_pi^2 and T given the coefficients of the population."""
        s, psu, tilt = self.stats, self.psu, self._tilt()
        squares, sums = self._residuals(self.beta, self.selection[:, 1:])
        total = psu.psu.total[:, :, None]
        offset = _offset(self.variance, psu.covariance, tilt)
        psu.draw_effects(i, coordinates, sums - total * offset[:, None])
        psu.effects = psu.effects + _mean_effect(psu.covariance, tilt)[:, None]
        squares = np.einsum("bjj->bj", psu.sum_of_squares(squares, sums))
        squares = np.maximum(squares, 0.0)
        variance = [
            primitives.slice_variances(
                self.variance[:, j], s.count, s.total * tilt[:, j] ** 2, squares[:, j],
                self.residual_scale, self.u_level[i, j], self.u_variance[i, j],
            )
            for j in range(2)
        ]  # fmt: skip
        self.variance = np.stack(variance, axis=1)

        def log_tie(t: FloatArray) -> FloatArray:
            form: FloatArray = -0.5 * psu.size * np.einsum("bi,...bij,bj->...b", tilt, t, tilt)
            return form

        # The tilt of an effect, exp(b'a), is that of one more record whose residual is D b.
        sums = sums + (1.0 - total) * (self.variance * tilt)[:, None]
        psu.update(i, _diagonal(self.variance), sums, log_tie)
        self.effects = psu.effects


def _diagonal(variance: FloatArray) -> FloatArray:
    """Return D (B, 2, 2)."""
    return np.asarray(variance[:, :, None] * np.eye(2), dtype=np.float64)


def _mean_effect(psu_covariance: FloatArray, tilt: FloatArray) -> FloatArray:
    """Return T b, (..., B, 2): the mean effect of a sampled PSU."""
    mean: FloatArray = (psu_covariance @ tilt[:, :, None])[..., 0]
    return mean


def _offset(variance: FloatArray, psu_covariance: FloatArray, tilt: FloatArray) -> FloatArray:
    """Return o = (D + T) b, (..., B, 2): the shift of the sample's means by selection."""
    return np.asarray(variance * tilt + _mean_effect(psu_covariance, tilt), dtype=np.float64)
