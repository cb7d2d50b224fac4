"""Exact draws of a count regression about the normal at the mode of its likelihood.

t = (beta, log phi). The likelihood of t, with the prior of log phi, is expanded once, at its mode:
exp(linear' t - t' bend t / 2) times exp(excess). Given D and Omega the prior of beta is normal, so
without the excess t would be normal too. That normal proposes, and the excess decides. A sweep in
four takes an elliptical slice about the normal, which leaves tails where few proposals are taken.
"""

from collections.abc import Mapping

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import INTERACTION_PRIOR
from surveysynth.models.counts.stats import CountStats
from surveysynth.models.parts.coefficients import CoefficientBlocks
from surveysynth.sampling import primitives
from surveysynth.sampling.sweeps import Streams

#: One sweep in so many takes an elliptical slice.
SLICE_EVERY = 4
#: The mode is sought under a normal prior of so many coefficient scales, by so many Newton steps
#: at most, until none promises more than CLOSE of the log density.
WIDE, STEPS, CLOSE = 3.0, 60, 1e-10
#: Difference of coordinates in second derivatives, and what is added to that of log phi.
DIFFERENCE, LEAST = 1e-3, 0.1
#: Longest step of log phi, and where it is cut: there and beyond the posterior has no mass.
LONGEST, LARGEST_LOG_PHI = 2.0, 300.0


class CountPosterior:
    """Log density of t (b, d) but for the prior of beta, with its expansion.

    ``phi_scale``: of 1/phi ~ half-Cauchy; None without phi. ridge (d,): precision of the normal
    that stands for the prior of beta while the mode is sought.
    """

    def __init__(self, stats: CountStats, phi_scale: float | None, ridge: FloatArray) -> None:
        self.stats, self.phi_scale, self.ridge = stats, phi_scale, ridge
        self.k, self.d = stats.x.shape[-1], ridge.size

    def repeated(self, times: int) -> "CountPosterior":
        """Return the same with ``times`` points for each database."""
        which = np.repeat(np.arange(len(self.stats.mass)), times)
        return CountPosterior(self.stats.taken(which), self.phi_scale, self.ridge)

    def density(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log-likelihood plus log prior of log phi (b,), and the gradient (b, d)."""
        log_phi = np.clip(t[:, self.k :], -LARGEST_LOG_PHI, LARGEST_LOG_PHI)
        value, gradient = self.stats.log_likelihood(np.append(t[:, : self.k], log_phi, 1))
        if self.phi_scale is not None:
            square = (self.phi_scale * np.exp(log_phi[:, 0])) ** -2
            value = value - np.log1p(square) - log_phi[:, 0]
            gradient[:, -1] += 1.0 - 2.0 / (1.0 + square)
        return value, gradient

    def penalized(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the same under the normal of precision ``ridge``."""
        value, gradient = self.density(t)
        return value - 0.5 * (t * t) @ self.ridge, gradient - self.ridge * t

    def expanded(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return mode (b, d), linear (b, d) and bend (b, d, d). No database affects another."""
        # From the least-squares fit of the log of the cells' means.
        s, k, around = self.stats, self.k, self.repeated(self.d)
        gram = (s.x.swapaxes(1, 2) * s.mass[:, None]) @ s.x + np.diag(self.ridge[:k])
        cross = (s.mass * np.log((s.sums + 0.1) / (s.mass + 0.1)))[:, None] @ s.x
        start = np.linalg.solve(gram, cross.swapaxes(1, 2))[:, :, 0]
        least = np.diag(LEAST * (np.arange(self.d) >= k))
        t: FloatArray = np.pad(start, [(0, 0), (0, self.d - k)])
        (value, slope), length = self.penalized(t), np.ones(len(t))
        for _ in range(STEPS):
            steps = DIFFERENCE * np.tile(np.eye(self.d), (len(t), 1))
            ends = [around.density(np.repeat(t, self.d, 0) + h)[1] for h in (-steps, steps)]
            bend = ((ends[0] - ends[1]) / (2.0 * DIFFERENCE)).reshape(-1, self.d, self.d)
            sizes, axes = np.linalg.eigh(0.5 * (bend + bend.swapaxes(1, 2)))
            bend = (axes * np.maximum(sizes, 0.0)[:, None]) @ axes.swapaxes(1, 2) + least
            step = np.linalg.solve(bend + np.diag(self.ridge), slope[:, :, None])[:, :, 0]
            step /= np.maximum(1.0, np.abs(step[:, k:]) / LONGEST).prod(1, keepdims=True)
            moving = (step * slope).sum(1) > CLOSE
            if not moving.any():
                break
            trial = t + length[:, None] * step
            new, there = self.penalized(trial)
            climbs = moving & (new >= value)
            t, slope = (
                np.where(climbs[:, None], *each) for each in ((trial, t), (there, slope))
            )
            value = np.where(climbs, new, value)
            length = np.where(climbs, np.minimum(1.0, 2.0 * length), 0.25 * length)
        # Where log phi is uncertain its tails are long, and it moves the coefficients' spread.
        variance = (1.0 / np.einsum("bkk->bk", bend)[:, k:]).sum(1)
        bend /= 1.0 + 2.0 * variance[:, None, None]
        return t, self.density(t)[1] + (bend @ t[:, :, None])[:, :, 0], bend


class CountSampler:
    """State of C chains of each of B databases: t (B x C, d), its excess, D and Omega.

    own (d,): prior precisions of shrunken columns. Raises ``FloatingPointError`` for counts that
    are not finite, as simulated ones can be.
    """

    def __init__(self, stats: CountStats, priors: Mapping[str, float], rng: Streams) -> None:
        if not np.isfinite(stats.sums + stats.log_factorials).all():
            raise FloatingPointError("the sums of the counts are not finite")
        scale, self.k = priors.get("overdispersion_scale"), stats.x.shape[-1]
        self.rng, self.free = rng, slice(self.k - stats.shrunken)
        self.own, wide = np.zeros((2, self.k + (scale is not None)))
        self.own[self.free.stop : self.k] = priors[INTERACTION_PRIOR] ** -2
        wide[self.free] = (WIDE * priors["coefficient_scale"]) ** -2
        posterior = CountPosterior(stats, scale, self.own + wide)
        mode, self.linear, self.bend = (
            np.repeat(each, rng.chains, axis=0) for each in posterior.expanded()
        )
        self.posterior = posterior.repeated(rng.chains)
        # Overdispersed starts about the mode.
        noise = rng.standard_normal(mode[:, self.k :].shape, 0)
        log_phi = mode[:, self.k :] + noise / np.sqrt(self.bend[:, self.k :, -1])
        gram = (self.bend + np.diag(posterior.ridge))[:, : self.k, : self.k]
        self.blocks = CoefficientBlocks(
            gram, mode[:, : self.k, None], np.ones((len(mode), 1, 1)), priors, rng, stats.shrunken
        )
        self.t = np.append(self.blocks.beta[:, :, 0], log_phi, 1)
        self.excess = self._excess(self.t)

    def _excess(self, t: FloatArray) -> FloatArray:
        quadratic = 0.5 * (self.bend @ t[:, :, None])[:, :, 0] - self.linear
        return np.asarray(self.posterior.density(t)[0] + (t * quadratic).sum(1))

    def state(self) -> Theta:
        """Return beta, overdispersion if there is one, D and Omega."""
        phi = {"overdispersion": np.exp(self.t[:, self.k :])} if self.own.size > self.k else {}
        return {
            "beta": self.t[:, : self.k], **phi, "coefficient_scale": self.blocks.scale[:, 0],
            "coefficient_correlation": self.blocks.correlation,
        }  # fmt: skip

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        self.blocks.draw_random_numbers(c)
        self.normals = self.rng.standard_normal((c, *self.t.shape), 1)
        self.level = self.rng.random((c, len(self.t)), 1)
        tries = (c // SLICE_EVERY, primitives.MAX_SHRINKS, len(self.t))
        self.angles = self.rng.random(tries, 2)

    def sweep(self, i: int) -> None:
        """Draw t given D and Omega, then these; i counts sweeps since the numbers were drawn."""
        inverse = 1.0 / self.blocks.scale[:, 0]
        precision = self.bend + np.diag(self.own)
        precision[:, self.free, self.free] += (
            self.blocks.inverse_correlation * inverse[:, :, None] * inverse[:, None, :]
        )
        root = np.linalg.cholesky(precision).swapaxes(1, 2)
        mean = np.linalg.solve(precision, self.linear[:, :, None])[:, :, 0]
        drawn = np.linalg.solve(root, self.normals[i, :, :, None])[:, :, 0]
        centered = self.t - mean

        def at(angle: FloatArray) -> FloatArray:
            turned = np.cos(angle)[:, None] * centered + np.sin(angle)[:, None] * drawn
            return np.asarray(mean + turned)

        def excess(which: IntArray, angle: FloatArray) -> FloatArray:
            everywhere = np.zeros(len(mean))
            everywhere[which] = angle
            return np.asarray(self._excess(at(everywhere))[which])

        if i % SLICE_EVERY == 1:
            angle = primitives.slice_angle(excess, self.level[i], self.angles[i // SLICE_EVERY])
            self.t = at(angle)
            self.excess = self._excess(self.t)
        else:
            new = self._excess(proposal := np.asarray(mean + drawn))
            accepted = np.log(self.level[i]) < new - self.excess
            self.t = np.where(accepted[:, None], proposal, self.t)
            self.excess = np.where(accepted, new, self.excess)
        self.blocks.beta = self.t[:, : self.k, None]
        self.blocks.update_prior(i)
