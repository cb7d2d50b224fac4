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
from surveysynth.models.general_location.psu_records import BetweenDirections
from surveysynth.models.general_location.psu_sums import PsuCounts
from surveysynth.models.parts.coefficients import HALF_T_DF
from surveysynth.models.parts.logit import (
    JITTER,
    STEP,
    STEPS,
    LogitSums,
    filled_up,
    find_mode,
    shares,
    totals_and_shares,
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
        self._stack(counts)
        self.information, self.within = self._information(mode)
        self.begin(np.zeros((self.batch, self.size, self.c)))

    def begin(self, effects: FloatArray) -> None:
        """Start from effects (B, C, c)."""
        self.a, self.likelihood = effects, self._likelihood(self.b, effects)

    def _stack(self, counts: Sequence[PsuCounts]) -> None:
        """Join the counts of D databases; where one has fewer rows, its last PSU has empty ones."""
        by_category = filled_up([each.counts[None] for each in counts])[:, None]
        self.counts, self.mass = by_category[..., 1:].copy(), by_category.sum(-1)
        self.x = filled_up([each.x[None] for each in counts])[:, None]
        self.x_turned = self.x.swapaxes(-1, -2).copy()
        rows, chain = self.x.shape[-2], np.arange(self.batch).reshape(len(counts), -1, 1)
        psu = np.full((len(counts), 1, rows), self.size - 1)
        for place, each in zip(psu, counts, strict=True):
            place[:, : len(each.psu)] = each.psu
        #: Of each chain and row, the place of its PSU among those of all chains; and of each chain
        #: and PSU, that of its first row.
        self.place = chain * self.size + psu
        first = np.stack([np.searchsorted(each.psu, np.arange(self.size)) for each in counts])
        self.starts = (chain * rows + first[:, None]).ravel()

    def _information(self, mode: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the information of each effect (B, C, c), and of shifts (B, c, r, r).

        At the modes without effects; that of a shift is of what it changes within PSUs."""
        share = shares(self.x @ mode.reshape(len(mode), 1, self.p, self.c))
        weight = self.mass[..., None] * share * (1.0 - share)
        directions = self.between.coefficients
        rows = self.x[..., : len(directions)] @ directions
        weight, rows = (np.repeat(each, self.chains, axis=1) for each in (weight, rows))
        weight = weight.reshape(self.batch, -1, self.c)
        rows = rows.reshape(*weight.shape[:2], -1)
        along = self.between.along.reshape(-1, rows.shape[-1])
        rows = rows - along[self.place.reshape(self.batch, -1)]
        sums = np.add.reduceat(weight.reshape(-1, self.c), self.starts, axis=0)
        weighted = weight.swapaxes(-1, -2)[..., None] * rows[:, None]
        within = weighted.swapaxes(-1, -2) @ rows[:, None]
        return sums.reshape(self.batch, self.size, self.c), within

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
        position, likelihood = (self.b, self.a), self.likelihood
        value, force = self._density(position, likelihood, law, scale)
        first, momentum = value, (self.n_b[i], self.n_a[i])
        momentum = _moved(momentum, 0.5 * step, force)
        for last in [False] * (STEPS - 1) + [True]:
            along = self._turned(momentum[0]), scale * momentum[1]
            position = _moved(position, step, along)
            likelihood = self._likelihood(*position)
            value, force = self._density(position, likelihood, law, scale)
            momentum = _moved(momentum, (0.5 if last else 1.0) * step, force)
        energy = _squares(momentum) - _squares((self.n_b[i], self.n_a[i]))
        self._take(self.log_u[i, 0] < value - first - 0.5 * energy, position, likelihood)

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
            return np.asarray(scale / sd + sd * (standard * by_a[..., k]).sum(1))

        mean = about(scale, self.likelihood[2])
        white = primitives.cut_at_zero(mean, self.u_scale[i, k])
        possible = np.isfinite(white) & (white * sd > 1e-290)
        proposed = np.where(possible, white * sd, scale)
        position = self.b, self.a.copy()
        position[1][..., k] = standard * proposed[:, None]
        likelihood = self._likelihood(*position)
        back = about(proposed, likelihood[2])
        log_ratio = likelihood[0] - self.likelihood[0]
        for value, middle, sign in ((proposed, mean, 1.0), (scale, back, -1.0)):
            prior = primitives.half_t_log_density(value, HALF_T_DF, prior_scale)
            drawn = -0.5 * (value / sd - middle) ** 2 - log_ndtr(middle)
            log_ratio = log_ratio + sign * (prior - drawn)
        accept = possible & (self.log_u[i, 1 + k] < log_ratio)
        self._take(accept, position, likelihood)
        return np.where(accept, proposed / scale, 1.0)

    def told(self, c: int, along: FloatArray) -> FloatArray:
        """Return about how much the likelihood tells (B,) of t in a_c + t along; along (B, C)."""
        return np.asarray((along * along * self.information[..., c]).sum(1))

    def turn(
        self, c: int, along: FloatArray, turn: Turn, normal: FloatArray, log_u: FloatArray
    ) -> FloatArray:
        """Draw t (B,) and add t along, (B, C), to the effects of category c; log_u (B,)."""
        slope = (along * self.likelihood[2][..., c]).sum(1)
        t = turn.propose(slope, normal)
        position = self.b, self.a.copy()
        position[1][..., c] += t[:, None] * along
        likelihood = self._likelihood(*position)
        slopes = slope, (along * likelihood[2][..., c]).sum(1)
        accept = log_u < turn.log_accept(t, likelihood[0] - self.likelihood[0], slopes)
        self._take(accept, position, likelihood)
        return np.where(accept, t, 0.0)

    def shift(self, i: int, c: int, precision: FloatArray, linear: FloatArray) -> None:
        """Shift coefficients of category c against effects.

        precision (B, r, r), linear (B, r): what priors say of the shift. It is proposed from the
        normal about one step of Newton, and the way back likewise. Where no direction varies
        within PSUs the likelihood stays, and the proposal is the law itself.
        """
        directions, normals = self.between.coefficients, self.n_shift[i, c]
        whole = precision + self.within[:, c]
        slope = linear + self._slope_of_shift(c, self.likelihood)
        shift = primitives.normal_from_precision(whole, slope, normals)
        position, likelihood = (self.b.copy(), self.a.copy()), self.likelihood
        position[0][:, : len(directions), c] += shift @ directions.T
        position[1][..., c] -= (self.between.along @ shift[..., None])[..., 0]
        accept = np.ones(self.batch, dtype=bool)
        if not self.between.constant:
            likelihood = self._likelihood(*position)
            pulled = (precision @ shift[..., None])[..., 0]
            value = likelihood[0] - self.likelihood[0]
            value = value + (shift * (linear - 0.5 * pulled)).sum(-1)
            # The shift back, less its mean, times the precision of the proposal.
            off = (self.within[:, c] @ shift[..., None])[..., 0]
            off = off + linear + self._slope_of_shift(c, likelihood)
            squares = (off * np.linalg.solve(whole, off[..., None])[..., 0]).sum(-1)
            value = value - 0.5 * (squares - (normals * normals).sum(-1))
            accept = self.log_u_shift[i, c] < value
        self._take(accept, position, likelihood)

    def _slope_of_shift(
        self, c: int, likelihood: tuple[FloatArray, FloatArray, FloatArray]
    ) -> FloatArray:
        """Return the gradient (B, r) of the likelihood in a shift of category c."""
        directions, (_, by_b, by_a) = self.between.coefficients, likelihood
        of_b = by_b[:, : len(directions), c] @ directions
        of_a = self.between.along.swapaxes(-1, -2) @ by_a[..., c, None]
        return np.asarray(of_b - of_a[..., 0], dtype=np.float64)

    def _take(
        self,
        accept: BoolArray,
        position: tuple[FloatArray, FloatArray],
        likelihood: tuple[FloatArray, FloatArray, FloatArray],
    ) -> None:
        wide = accept[:, None, None]
        self.b, self.a = np.where(wide, position[0], self.b), np.where(wide, position[1], self.a)
        value, by_b, by_a = likelihood
        self.likelihood = (
            np.where(accept, value, self.likelihood[0]),
            np.where(wide, by_b, self.likelihood[1]),
            np.where(wide, by_a, self.likelihood[2]),
        )

    def _turned(self, momentum: FloatArray) -> FloatArray:
        """Return what a momentum (B, P c) adds to b (B, P, c)."""
        return (self.root @ momentum[..., None]).reshape(self.b.shape)

    def _density(
        self,
        position: tuple[FloatArray, FloatArray],
        likelihood: tuple[FloatArray, FloatArray, FloatArray],
        law: tuple[FloatArray, FloatArray],
        scale: FloatArray,
    ) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        """Return the log posterior (B,), and its gradient in the coordinates of the move."""
        (b, a), (value, by_b, by_a), (precision, linear) = position, likelihood, law
        pulled = self.prior[:, None] * b
        precise = a @ precision
        value = value - 0.5 * (b * pulled).sum((-2, -1))
        value = value + ((linear - 0.5 * precise) * a).sum((-2, -1))
        slope = (by_b - pulled).reshape(self.batch, 1, -1)
        return value, ((slope @ self.root)[:, 0], scale * (by_a + linear - precise))

    def _likelihood(
        self, b: FloatArray, a: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the log-likelihood (B,), and its gradients in b and a."""
        eta = self.x @ b.reshape(len(self.x), -1, self.p, self.c)
        eta += a.reshape(-1, self.c)[self.place]
        total, share = totals_and_shares(eta)
        value = (eta * self.counts).sum((-2, -1)) - (self.mass * total).sum(-1)
        left = self.counts - self.mass[..., None] * share
        by_a = np.add.reduceat(left.reshape(-1, self.c), self.starts, axis=0)
        return value.ravel(), (self.x_turned @ left).reshape(b.shape), by_a.reshape(a.shape)


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
