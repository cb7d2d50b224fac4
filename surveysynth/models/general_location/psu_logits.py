"""A multinomial logit with effects of PSUs (methods 3.5 and 3.6).

    log p_c / p_0 = x b_c + a_kc,  k the PSU of a record

Given the covariance of all effects, those a of one logit are normal given the others: precision Q,
linear term h by PSU. A short Hamiltonian trajectory (Neal 2011) moves b and a together. It is taken
in coordinates where b is about standard normal given a, and each a about so given all else. Their
scales move with the likelihood, the effects in units of these scales given.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.models.general_location.psu_predictors import Point, PsuPredictors
from surveysynth.models.general_location.psu_records import BetweenDirections
from surveysynth.models.general_location.psu_sums import PsuCounts
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.models.parts.logit import (
    JITTER,
    STEP,
    STEPS,
    LogitSums,
    find_mode,
    shares,
)
from surveysynth.models.parts.psu_turns import Turn
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams


class PsuLogit:
    """Coefficients b (B, P, c) and effects a (B, C, c) of one logit in B = databases x chains.

    sums: without PSUs, to start from; counts: by PSU, one for each database; sd (P,): prior SDs of
    coefficients; between: directions of all chains, with the number C of PSUs.
    """

    def __init__(
        self,
        sums: LogitSums,
        counts: Sequence[PsuCounts],
        sd: FloatArray,
        between: BetweenDirections,
        rng: Streams,
    ) -> None:
        self.rng, self.chains, self.between = rng, rng.chains, between
        self.p, self.c = sums.x.shape[-1], sums.counts.shape[-1] - 1
        self.batch, self.size = between.mean.shape[:2]
        self.prior = np.broadcast_to(sd**-2.0, (self.p,))
        mode, precision = find_mode(sums, sd)
        factor = np.linalg.cholesky(precision).swapaxes(-1, -2)
        root = np.linalg.solve(factor, np.broadcast_to(np.eye(self.p * self.c), factor.shape))
        self.root = np.repeat(root, rng.chains, axis=0)
        # Overdispersed starts.
        start = 2.0 * rng.standard_normal((self.batch, self.p * self.c), 0)
        start = np.repeat(mode, rng.chains, axis=0) + (self.root @ start[..., None])[..., 0]
        self.b = start.reshape(self.batch, self.p, self.c)
        self.predictors = PsuPredictors(counts, self.size, rng.chains)
        self.information, self.within = self._information(mode)
        self.begin(np.zeros((self.batch, self.size, self.c)))

    def begin(self, effects: FloatArray) -> None:
        """Start from effects (B, C, c)."""
        self.a = effects
        self.predictors.begin(self.b, effects)

    def _information(self, mode: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the information of each effect (B, C, c), and of shifts (B, c, r, r).

        At the modes without effects; that of a shift is of what it changes within PSUs."""
        of, directions = self.predictors, self.between.coefficients
        share = shares(of.x @ mode.reshape(-1, self.p, self.c))
        weight = of.mass[:, 0, :, None] * share * (1.0 - share)
        rows = of.x[..., : len(directions)] @ directions
        along = self.between.along[:: self.chains]
        rows = rows - np.take_along_axis(along, of.psu[..., None], axis=1)
        sums = np.stack(
            [np.add.reduceat(each, at, axis=0) for each, at in zip(weight, of.first, strict=True)]
        )
        weighted = weight.swapaxes(-1, -2)[..., None] * rows[:, None]
        within = weighted.swapaxes(-1, -2) @ rows[:, None]
        return np.repeat(sums, self.chains, axis=0), np.repeat(within, self.chains, axis=0)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        rng = self.rng
        self.n_b = rng.standard_normal((c, self.batch, self.p * self.c), 1)
        self.n_a = rng.standard_normal((c, self.batch, self.size, self.c), 1)
        self.u_scale = rng.random((c, self.c, self.batch), 2)
        self.u_step = rng.random((c, self.batch), 1)
        self.log_u = np.log(rng.random((c, 1 + self.c, self.batch), 2))
        self.n_shift = rng.standard_normal((c, self.c, self.batch, self.between.along.shape[-1]), 2)
        self.log_u_shift = np.log(rng.random((c, self.c, self.batch), 2))

    def trajectory(self, i: int, precision: FloatArray, linear: FloatArray) -> None:
        """Move b and a; Q (B, c, c) and h (B, C, c) are the normal law of a given other effects."""
        step = STEP * (1.0 + JITTER * (2.0 * self.u_step[i] - 1.0))[:, None]
        scale = (self.information + np.einsum("bcc->bc", precision)[:, None]) ** -0.5
        law = precision, linear
        position, point = (self.b, self.a), self.predictors.at
        value, force = self._density(position, point, law, scale)
        first, momentum = value, (self.n_b[i], self.n_a[i])
        momentum = _moved(momentum, 0.5 * step, force)
        for last in [False] * (STEPS - 1) + [True]:
            along = self._turned(momentum[0]), scale * momentum[1]
            position = _moved(position, step, along)
            point = self.predictors.point(*position)
            value, force = self._density(position, point, law, scale)
            momentum = _moved(momentum, (0.5 if last else 1.0) * step, force)
        energy = _squares(momentum) - _squares((self.n_b[i], self.n_a[i]))
        accept = self.log_u[i, 0] < value - first - 0.5 * energy
        self.predictors.take(accept, point)
        wide = accept[:, None, None]
        self.b, self.a = np.where(wide, position[0], self.b), np.where(wide, position[1], self.a)

    def rescale(self, i: int, scale: FloatArray, prior_scale: float) -> FloatArray:
        """Draw the scales (B, c) of the effects given these over their scales; return the ratios.

        The scales have half-t priors. In a scale s the likelihood is nearly a normal one, whose
        information is known beforehand: s is proposed from the normal about one step of Newton,
        cut at zero, and the way back is proposed likewise.
        """
        ratio = np.ones(scale.shape)
        for k in range(self.c):
            ratio[:, k] = self._rescaled(i, k, scale[:, k], prior_scale)
        return ratio

    def _rescaled(self, i: int, k: int, scale: FloatArray, prior_scale: float) -> FloatArray:
        standard = self.a[..., k] / scale[:, None]
        information = (standard * standard * self.information[..., k]).sum(1)
        sd = (information + prior_scale**-2) ** -0.5

        def about(scale: FloatArray, by_a: FloatArray) -> FloatArray:
            return np.asarray(scale / sd + sd * (standard * by_a).sum(1))

        mean = about(scale, self._slope(k))
        white = primitives.cut_at_zero(mean, self.u_scale[i, k])
        possible = np.isfinite(white) & (white * sd > 1e-290)
        proposed = np.where(possible, white * sd, scale)
        change = standard * (proposed - scale)[:, None]
        moved = self.predictors.moved(k, change)
        back = about(proposed, self._slope(k, moved))
        log_ratio = self._gain(moved)
        for value, middle, sign in ((proposed, mean, 1.0), (scale, back, -1.0)):
            prior = primitives.half_t_log_density(value, HALF_T_DF, prior_scale)
            drawn = -0.5 * (value / sd - middle) ** 2 - log_ndtr(middle)
            log_ratio = log_ratio + sign * (prior - drawn)
        accept = possible & (self.log_u[i, 1 + k] < log_ratio)
        self.predictors.take_move(k, accept, moved)
        self._add(k, accept, change)
        return np.where(accept, proposed / scale, 1.0)

    def told(self, c: int, along: FloatArray) -> FloatArray:
        """Return about how much the likelihood tells (B,) of t in a_c + t along; along (B, C)."""
        return np.asarray((along * along * self.information[..., c]).sum(1))

    def turn(
        self, c: int, along: FloatArray, turn: Turn, normal: FloatArray, log_u: FloatArray
    ) -> FloatArray:
        """Draw t (B,) and add t along, (B, C), to the effects of category c; log_u (B,)."""
        slope = (along * self._slope(c)).sum(1)
        t = turn.propose(slope, normal)
        change = t[:, None] * along
        moved = self.predictors.moved(c, change)
        slopes = slope, (along * self._slope(c, moved)).sum(1)
        accept = log_u < turn.log_accept(t, self._gain(moved), slopes)
        self.predictors.take_move(c, accept, moved)
        self._add(c, accept, change)
        return np.where(accept, t, 0.0)

    def shift(self, i: int, c: int, precision: FloatArray, linear: FloatArray) -> None:
        """Shift coefficients of category c against effects.

        precision (B, r, r), linear (B, r): what priors say of the shift. It is proposed from the
        normal about one step of Newton, and the way back likewise. Where no direction varies
        within PSUs the likelihood stays, and the proposal is the law itself.
        """
        directions, normals = self.between.coefficients, self.n_shift[i, c]
        whole = precision + self.within[:, c]
        slope = linear + self._slope_of_shift(c)
        shift = primitives.normal_from_precision(whole, slope, normals)
        coefficients = np.zeros((self.batch, self.p))
        coefficients[:, : len(directions)] = shift @ directions.T
        change = -(self.between.along @ shift[..., None])[..., 0]
        accept = np.ones(self.batch, dtype=bool)
        if not self.between.constant:
            moved = self.predictors.moved(c, change, coefficients)
            pulled = (precision @ shift[..., None])[..., 0]
            value = self._gain(moved) + (shift * (linear - 0.5 * pulled)).sum(-1)
            # The shift back, less its mean, times the precision of the proposal.
            off = (self.within[:, c] @ shift[..., None])[..., 0]
            off = off + linear + self._slope_of_shift(c, moved)
            squares = (off * np.linalg.solve(whole, off[..., None])[..., 0]).sum(-1)
            value = value - 0.5 * (squares - (normals * normals).sum(-1))
            accept = self.log_u_shift[i, c] < value
            self.predictors.take_move(c, accept, moved)
        self._add(c, accept, change, coefficients)

    def _slope(self, c: int, moved: Point | None = None) -> FloatArray:
        """Return the gradient (B, C) of the likelihood in effects of a category."""
        return self.predictors.by_effects(self.predictors.left(c, moved))

    def _gain(self, moved: Point) -> FloatArray:
        """Return what a move adds to the log-likelihood (B,)."""
        return (moved.value - self.predictors.at.value).ravel()

    def _slope_of_shift(self, c: int, moved: Point | None = None) -> FloatArray:
        """Return the gradient (B, r) of the likelihood in a shift of category c."""
        directions, left = self.between.coefficients, self.predictors.left(c, moved)
        of_b = self.predictors.by_coefficients(left)[:, : len(directions)] @ directions
        of_a = self.between.along.swapaxes(-1, -2) @ self.predictors.by_effects(left)[..., None]
        return np.asarray(of_b - of_a[..., 0], dtype=np.float64)

    def _add(
        self, c: int, accept: BoolArray, effects: FloatArray, b: FloatArray | None = None
    ) -> None:
        """Add changes of effects (B, C) and coefficients (B, P) of category c where accepted."""
        self.a = self.a.copy()
        self.a[..., c] += np.where(accept[:, None], effects, 0.0)
        if b is not None:
            self.b = self.b.copy()
            self.b[..., c] += np.where(accept[:, None], b, 0.0)

    def _turned(self, momentum: FloatArray) -> FloatArray:
        """Return what a momentum (B, P c) adds to b (B, P, c)."""
        return (self.root @ momentum[..., None]).reshape(self.b.shape)

    def _density(
        self,
        position: tuple[FloatArray, FloatArray],
        point: Point,
        law: tuple[FloatArray, FloatArray],
        scale: FloatArray,
    ) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        """Return the log posterior (B,), and its gradient in the coordinates of the move."""
        (b, a), (precision, linear) = position, law
        by_b, by_a = self.predictors.slopes(point)
        pulled = self.prior[:, None] * b
        precise = a @ precision
        value = point.value.ravel() - 0.5 * (b * pulled).sum((-2, -1))
        value = value + ((linear - 0.5 * precise) * a).sum((-2, -1))
        slope = (by_b - pulled).reshape(self.batch, 1, -1)
        return value, ((slope @ self.root)[:, 0], scale * (by_a + linear - precise))


def _moved(
    values: tuple[FloatArray, FloatArray], step: FloatArray, along: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return values of b and a, shifted by a step (B, 1)."""
    first, second = (
        each + step.reshape(-1, *(1,) * (each.ndim - 1)) * change
        for each, change in zip(values, along, strict=True)
    )
    return first, second


def _squares(momentum: tuple[FloatArray, FloatArray]) -> FloatArray:
    first, second = momentum
    return np.asarray((first * first).sum(-1) + (second * second).sum((-2, -1)))
