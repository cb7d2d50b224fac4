"""Multinomial logits on weighted counts: likelihood, mode and sampler.

    log p_c / p_0 = x b_c,  c = 1 .. C - 1,  b_ck ~ N(0, s_k^2)

Counts are sums of risk weights, so any fractions. Arrays hold B databases with S points each; the
b of a point is flat (P (C - 1),), its columns fastest.

A sweep makes two moves. The first proposes from the normal about the mode (independence
Metropolis-Hastings), which is close to the posterior where all categories are frequent. The second
is a short Hamiltonian trajectory (Neal 2011) in coordinates where that normal is standard; it also
moves freely where a category is rare or absent. Both are exact and smooth in the counts, and a
sweep uses the same number of random numbers whatever is accepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import BoolArray, FloatArray
from surveysynth.sampling.sweeps import Streams

#: Newton halves a step until the density rises; it stops at a promised gain below ``_CLOSE``.
_STEPS = 60
_HALVINGS = 30
_CLOSE = 1e-12


@dataclass(frozen=True, repr=False)
class LogitSums(Unpickled):
    """Weighted counts of categories of B databases.

    x (B, T, P), or (1, T, P) where all share it; counts (B, T, C) of categories by row, zero where
    a database has no such row.
    """

    x: FloatArray
    counts: FloatArray

    @property
    def size(self) -> int:
        """P (C - 1), the number of coefficients."""
        return int(self.x.shape[-1] * (self.counts.shape[-1] - 1))

    @classmethod
    def stacked(cls, parts: Sequence["LogitSums"]) -> "LogitSums":
        """Join several databases, with empty rows where one has fewer."""
        shared = all(np.array_equal(part.x, parts[0].x) for part in parts)
        x = parts[0].x if shared else filled_up([part.x for part in parts])
        return cls(x, filled_up([part.counts for part in parts]))

    def eta(self, b: FloatArray) -> FloatArray:
        """Return linear predictors (B, S, T, C - 1) at b (B, S, P (C - 1))."""
        matrix = b.reshape(*b.shape[:2], self.x.shape[-1], -1)
        return np.asarray(self.x[:, None] @ matrix, dtype=np.float64)

    def value(self, b: FloatArray) -> FloatArray:
        """Return the log-likelihood (B, S) at b (B, S, P (C - 1))."""
        eta = self.eta(b)
        first = (eta * self.counts[:, None, :, 1:]).sum((-2, -1))
        mass = self.counts.sum(-1)[:, None]
        return np.asarray(first - (mass * log_total(eta)).sum(-1), dtype=np.float64)

    def value_and_slope(self, b: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``value`` and its gradient, of the shape of b."""
        eta, counts = self.eta(b), self.counts[:, None]
        (total, share), mass = totals_and_shares(eta), counts.sum(-1)
        value = (eta * counts[..., 1:]).sum((-2, -1)) - (mass * total).sum(-1)
        slope = self.x.swapaxes(-1, -2)[:, None] @ (counts[..., 1:] - mass[..., None] * share)
        return value, np.asarray(slope.reshape(b.shape), dtype=np.float64)

    def information(self, b: FloatArray) -> FloatArray:
        """Return minus the second derivatives (B, d, d) at one point of each database, b (B, d)."""
        share = shares(self.eta(b[:, None]))[:, 0]
        mass = self.counts.sum(-1)
        batch, (p, c) = b.shape[0], (self.x.shape[-1], share.shape[-1])
        result = np.empty((batch, p, c, p, c))
        columns = self.x.swapaxes(-1, -2)
        for i in range(c):
            for j in range(i, c):
                weight = mass * share[..., i] * ((i == j) - share[..., j])
                block = (columns * weight[:, None]) @ self.x
                result[:, :, i, :, j] = result[:, :, j, :, i] = block
        return result.reshape(batch, p * c, p * c)


def log_total(eta: FloatArray) -> FloatArray:
    """Return log(1 + sum of exp eta) over the last axis without overflow."""
    if eta.shape[-1] == 1:
        return np.asarray(np.logaddexp(0.0, eta[..., 0]), dtype=np.float64)
    largest = np.maximum(eta.max(-1), 0.0)
    rest = np.exp(eta - largest[..., None]).sum(-1) + np.exp(-largest)
    return np.asarray(largest + np.log(rest), dtype=np.float64)


#: The largest exponential of which sums do not overflow.
LARGE = 600.0


def totals_and_shares(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ``log_total`` and ``shares``, quickly: totals are exact to 1e-16, not relatively."""
    if eta.size and eta.max() > LARGE:
        return log_total(eta), shares(eta)
    odds = np.exp(eta)
    sums = 1.0 + odds[..., 0]
    for c in range(1, eta.shape[-1]):  # a sum over a short last axis would be slower
        sums += odds[..., c]
    return np.log(sums), odds / sums[..., None]


def shares(eta: FloatArray) -> FloatArray:
    """Return probabilities (..., C - 1) of the categories but the first."""
    return np.asarray(np.exp(eta - log_total(eta)[..., None]), dtype=np.float64)


def log_shares(eta: FloatArray) -> FloatArray:
    """Return log probabilities (..., C) of all categories."""
    total = log_total(eta)[..., None]
    return np.concatenate([-total, eta - total], axis=-1)


def _prior_precision(sums: LogitSums, sd: FloatArray | float) -> FloatArray:
    """Return the precisions (d,) of b from prior SDs, one or those of the columns of x (P,)."""
    columns, others = sums.x.shape[-1], sums.counts.shape[-1] - 1
    return np.repeat(np.broadcast_to(np.asarray(sd, dtype=np.float64) ** -2, (columns,)), others)


def find_mode(sums: LogitSums, sd: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """Find the posterior mode (B, d) under N(0, sd^2), and minus its second derivatives (B, d, d).

    ``sd``: one prior SD, or one of each column of x (P,). Newton steps are damped on a strictly
    concave density; databases do not affect each other.
    """
    precision = _prior_precision(sums, sd)
    b = np.zeros((sums.counts.shape[0], sums.size))

    def density(point: FloatArray) -> FloatArray:
        squares = (precision * point * point).sum(-1)
        return np.asarray(sums.value(point[:, None])[:, 0] - 0.5 * squares)

    value = density(b)
    for _ in range(_STEPS):
        information = sums.information(b) + np.diag(precision)
        slope = sums.value_and_slope(b[:, None])[1][:, 0] - precision * b
        step = np.linalg.solve(information, slope[..., None])[..., 0]
        promised = (step * slope).sum(-1)
        length = np.where(promised > _CLOSE, 1.0, 0.0)
        for _ in range(_HALVINGS):
            moved = b + length[:, None] * step
            reached = density(moved)
            worse = reached < value
            if not worse.any():
                break
            length = np.where(worse, 0.5 * length, length)
        better = reached > value
        b, value = np.where(better[:, None], moved, b), np.where(better, reached, value)
        if not better.any():
            break
    return b, sums.information(b) + np.diag(precision)


def filled_up(parts: Sequence[FloatArray]) -> FloatArray:
    """Join arrays (B_i, T_i, ...) along the first axis, zeros behind the second."""
    longest = max(part.shape[1] for part in parts)
    return np.concatenate(
        [
            np.pad(part, [(0, 0), (0, longest - part.shape[1]), *[(0, 0)] * (part.ndim - 2)])
            for part in parts
        ]
    )


#: Leapfrog steps of a trajectory and their size, give or take ``JITTER`` of it: about a quarter of
#: a period of the standard normal, after which a position is forgotten.
STEPS = 5
STEP = 0.35
JITTER = 0.4


class LogitBlocks:
    """State of one logit in B = databases x chains: u (B, d), d = P (C - 1).

    The coefficients are b = mode + root u. The roots (R, d, d) are those of R databases, whose
    chains are adjacent.
    """

    def __init__(self, sums: LogitSums, sd: FloatArray | float, rng: Streams) -> None:
        self.rng, self.sd, self.prior_precision = rng, sd, _prior_precision(sums, sd)
        self.lead, self.sums = (sums.counts.shape[0], rng.chains), sums
        self.batch, self.d = self.lead[0] * rng.chains, sums.size
        self._expand(sums)
        self.mode = self.origin
        # Overdispersed starts.
        self.u = 2.0 * rng.standard_normal((self.batch, self.d), 0)
        self.value, self.slope = self._density(self.u)

    def observe(self, sums: LogitSums, about: LogitSums | None = None) -> None:
        """Take other counts, where they change between sweeps; the coefficients stay.

        The mode follows by one step of Newton, a function of the counts alone, from where the last
        ``about`` had it: sums of R databases."""
        b = self.b
        if about is not None:
            self._expand(about)
        self.sums = sums
        slope = sums.value_and_slope(self.origin.reshape(*self.lead, self.d))[1]
        slope = slope.reshape(b.shape) - self.prior_precision * self.origin
        white = self._times(slope, self.root)
        self.mode = self.origin + self._times(white, self.root.swapaxes(-1, -2))
        self.u = self._times(b - self.mode, self.factor.swapaxes(-1, -2))
        self.value, self.slope = self._density(self.u)

    def _expand(self, sums: LogitSums) -> None:
        mode, precision = find_mode(sums, self.sd)
        lower: FloatArray = np.asarray(np.linalg.cholesky(precision), np.float64)
        self.factor = lower.swapaxes(-1, -2)
        eye = np.broadcast_to(np.eye(self.d), self.factor.shape)
        self.root: FloatArray = np.asarray(np.linalg.solve(self.factor, eye), np.float64)
        self.origin = np.repeat(mode, self.batch // len(mode), axis=0)

    def _times(self, vectors: FloatArray, matrices: FloatArray) -> FloatArray:
        """Return vectors (B, d) times the matrix (R, d, d) of their database."""
        split = vectors.reshape(len(matrices), -1, self.d)
        return np.asarray((split @ matrices).reshape(vectors.shape), dtype=np.float64)

    @property
    def b(self) -> FloatArray:
        """Coefficients (B, d)."""
        return np.asarray(self.mode + self._times(self.u, self.root.swapaxes(-1, -2)))

    def _density(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log posterior (B,) up to a constant, and its gradient (B, d), at u."""
        b = self.mode + self._times(u, self.root.swapaxes(-1, -2))
        value, slope = self.sums.value_and_slope(b.reshape(*self.lead, self.d))
        value = value.reshape(-1) - 0.5 * (self.prior_precision * b * b).sum(-1)
        slope = slope.reshape(b.shape) - self.prior_precision * b
        return value, self._times(slope, self.root)

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b, rng = self.batch, self.rng
        self.n_proposal = rng.standard_normal((c, b, self.d), 1)
        self.n_momentum = rng.standard_normal((c, b, self.d), 1)
        self.u_step = rng.random((c, b), 1)
        self.log_u = np.log(rng.random((c, 2, b), 2))

    def sweep(self, i: int) -> None:
        """Run one sweep; i counts the sweeps since the random numbers were drawn."""
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
