"""Draws of a multinomial logit on weighted counts: chains of many databases, as one batch.

Given the data its posterior is one fixed density. A sweep proposes from the normal about the mode
(Metropolis-Hastings, independent of where the chain is), which is nearly the posterior where all
categories are frequent; and then runs a short Hamiltonian trajectory (Neal 2011) in coordinates
where that normal is standard, which moves as freely where a category is rare or absent and the
posterior far from normal. Both are exact and smooth in the counts, and a sweep uses as many random
numbers whatever is accepted.
"""

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.models.parts.logit import LogitSums, find_mode
from surveysynth.sampling.streams import Streams

#: Leapfrog steps of a trajectory, of this size give or take ``JITTER`` of it: about a quarter of a
#: period of the standard normal, after which a position is forgotten.
STEPS = 5
STEP = 0.35
JITTER = 0.4


class LogitBlocks:
    """State of one logit in B = databases x chains: u (B, d), d = P (C - 1), coefficients
    b = mode + root u."""

    def __init__(self, sums: LogitSums, sd: float, rng: Streams) -> None:
        self.rng, self.prior_precision = rng, sd**-2
        self.lead = sums.counts.shape[0], rng.chains
        self.batch, self.d = self.lead[0] * rng.chains, sums.size
        self._expand(sums)
        # Overdispersed starts.
        self.u = 2.0 * rng.standard_normal((self.batch, self.d), 0)
        self.value, self.slope = self._density(self.u)

    def observe(self, sums: LogitSums) -> None:
        """Other counts, where they change between sweeps: the coefficients stay."""
        b = self.b
        self._expand(sums)
        self.u = (self.factor @ (b - self.mode)[..., None])[..., 0]
        self.value, self.slope = self._density(self.u)

    def _expand(self, sums: LogitSums) -> None:
        self.sums = sums
        mode, precision = find_mode(sums, self.prior_precision**-0.5)
        factor = np.linalg.cholesky(precision).swapaxes(-1, -2)
        root = np.linalg.solve(factor, np.broadcast_to(np.eye(self.d), factor.shape))
        self.mode, self.factor, self.root = (
            np.repeat(part, self.rng.chains, axis=0) for part in (mode, factor, root)
        )

    @property
    def b(self) -> FloatArray:
        """Coefficients (B, d)."""
        return np.asarray(self.mode + (self.root @ self.u[..., None])[..., 0])

    def _density(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log posterior (B,) up to a constant, and its gradient (B, d), at u."""
        b = self.mode + (self.root @ u[..., None])[..., 0]
        value, slope = self.sums.value_and_slope(b.reshape(*self.lead, self.d))
        value = value.reshape(-1) - 0.5 * self.prior_precision * (b * b).sum(-1)
        slope = slope.reshape(b.shape) - self.prior_precision * b
        return value, np.asarray((slope[:, None, :] @ self.root)[:, 0], dtype=np.float64)

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps."""
        b, rng = self.batch, self.rng
        self.n_proposal = rng.standard_normal((c, b, self.d), 1)
        self.n_momentum = rng.standard_normal((c, b, self.d), 1)
        self.u_step = rng.random((c, b), 1)
        self.log_u = np.log(rng.random((c, 2, b), 2))

    def sweep(self, i: int) -> None:
        """One sweep; i counts the sweeps since the numbers were drawn."""
        proposal = self.n_proposal[i]
        value, slope = self._density(proposal)
        ratio = value - self.value + 0.5 * (_squares(proposal) - _squares(self.u))
        self._move(self.log_u[i, 0] < ratio, proposal, value, slope)
        self._trajectory(i)

    def _trajectory(self, i: int) -> None:
        step = STEP * (1.0 + JITTER * (2.0 * self.u_step[i] - 1.0))[:, None]
        position, slope = self.u, self.slope
        momentum = self.n_momentum[i] + 0.5 * step * slope
        for last in [False] * (STEPS - 1) + [True]:
            position = position + step * momentum
            value, slope = self._density(position)
            momentum = momentum + (0.5 if last else 1.0) * step * slope
        ratio = value - self.value + 0.5 * (_squares(self.n_momentum[i]) - _squares(momentum))
        self._move(self.log_u[i, 1] < ratio, position, value, slope)

    def _move(
        self, accept: BoolArray, u: FloatArray, value: FloatArray, slope: FloatArray
    ) -> None:
        self.u = np.where(accept[:, None], u, self.u)
        self.slope = np.where(accept[:, None], slope, self.slope)
        self.value = np.where(accept, value, self.value)


def _squares(vectors: FloatArray) -> FloatArray:
    return np.asarray((vectors * vectors).sum(-1), dtype=np.float64)
