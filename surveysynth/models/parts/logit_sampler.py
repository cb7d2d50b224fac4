"""Draws of a multinomial logit on weighted counts: chains of many databases, as one batch.

Given the data its posterior is one fixed density. A sweep proposes from the normal about the mode
(Metropolis-Hastings, independent of where the chain is), and then turns about it on an elliptical
slice (Murray et al. 2010), which moves whatever the normal is worth: with few records, or none of
a category. All of it is exact, and a sweep uses as many random numbers whatever is accepted.
"""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.parts.logit import LogitSums, find_mode
from surveysynth.sampling import primitives
from surveysynth.sampling.streams import Streams


class LogitBlocks:
    """State b (B x chains, d) of one logit, d = P (C - 1)."""

    def __init__(self, sums: LogitSums, sd: float, rng: Streams) -> None:
        self.rng, self.prior_precision = rng, sd**-2
        self.lead = sums.counts.shape[0], rng.chains
        self.batch, self.d = self.lead[0] * rng.chains, sums.size
        self.observe(sums)
        # Overdispersed starts.
        noise = rng.standard_normal((self.batch, self.d), 0)
        self.b = self.mode + 2.0 * self._spread(noise)
        self.excess = self._excess(self.b)

    def observe(self, sums: LogitSums) -> None:
        """The counts, at the start and where they change between sweeps."""
        self.sums = sums
        mode, precision = find_mode(sums, self.prior_precision**-0.5)
        chains = self.rng.chains
        self.mode = np.repeat(mode, chains, axis=0)
        self.precision = np.repeat(precision, chains, axis=0)
        factor = np.linalg.cholesky(precision).swapaxes(-1, -2)
        root = np.linalg.solve(factor, np.broadcast_to(np.eye(self.d), factor.shape))
        self.root = np.repeat(root, chains, axis=0)
        if hasattr(self, "b"):
            self.excess = self._excess(self.b)

    def _spread(self, normals: FloatArray) -> FloatArray:
        """Deviations (B, d) of the normal about the mode."""
        return np.asarray((self.root @ normals[..., None])[..., 0], dtype=np.float64)

    def _excess(self, b: FloatArray) -> FloatArray:
        """Log of the posterior over that normal (B,), up to a constant."""
        value = self.sums.value(b.reshape(*self.lead, self.d)).reshape(-1)
        centred = b - self.mode
        squares = (centred * (self.precision @ centred[..., None])[..., 0]).sum(-1)
        prior = self.prior_precision * (b * b).sum(-1)
        return np.asarray(value + 0.5 * (squares - prior), dtype=np.float64)

    def draw_random_numbers(self, c: int) -> None:
        """Random numbers of the next c sweeps."""
        b, rng = self.batch, self.rng
        self.n_proposal = rng.standard_normal((c, b, self.d), 1)
        self.n_direction = rng.standard_normal((c, b, self.d), 1)
        self.log_u = np.log(rng.random((c, 2, b), 2))
        self.u_angle = rng.random((c, primitives.MAX_SHRINKS, b), 2)

    def sweep(self, i: int) -> None:
        """One sweep; i counts the sweeps since the numbers were drawn."""
        proposal = self.mode + self._spread(self.n_proposal[i])
        excess = self._excess(proposal)
        accept = self.log_u[i, 0] < excess - self.excess
        self.b = np.where(accept[:, None], proposal, self.b)
        self.excess = np.where(accept, excess, self.excess)
        self._slice(i)

    def _slice(self, i: int) -> None:
        """An elliptical slice about the mode, the whole batch at a time."""
        threshold = self.excess + self.log_u[i, 1]
        centred, direction = self.b - self.mode, self._spread(self.n_direction[i])
        angle = 2.0 * np.pi * self.u_angle[i, 0]
        low, high = angle - 2.0 * np.pi, angle.copy()
        pending = np.ones(self.batch, dtype=bool)
        for uniform in self.u_angle[i, 1:]:
            turned = np.cos(angle)[:, None] * centred + np.sin(angle)[:, None] * direction
            proposal = self.mode + turned
            excess = self._excess(proposal)
            taken = pending & (excess >= threshold)
            self.b = np.where(taken[:, None], proposal, self.b)
            self.excess = np.where(taken, excess, self.excess)
            pending &= ~taken
            if not pending.any():
                break
            low, high = np.where(angle < 0, angle, low), np.where(angle < 0, high, angle)
            angle = low + (high - low) * uniform
