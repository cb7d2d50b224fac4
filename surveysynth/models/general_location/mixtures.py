"""Mixtures of normals: the law of a log weight whose mean depends on categories."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from surveysynth._support.types import FloatArray

#: Scores are cut here; those of quantiles are exact to ``EXACT``.
FARTHEST, EXACT, STEPS = 8.0, 1e-10, 60


@dataclass(frozen=True, repr=False)
class Mixture:
    """Mixtures of normals, one for each row: shares, means and SDs (..., D)."""

    share: FloatArray
    mean: FloatArray
    sd: FloatArray

    def score(self, v: FloatArray) -> FloatArray:
        """Return Phi^-1(F(v)) (...): of the smaller tail, which loses no digits."""
        t = (v[..., None] - self.mean) / self.sd
        below, above = ((self.share * ndtr(each)).sum(-1) for each in (t, -t))
        tail = np.clip(np.minimum(below, above), np.finfo(np.float64).tiny, 0.5)
        return np.asarray(np.where(below < above, 1.0, -1.0) * ndtri(tail), dtype=np.float64)

    def log_density(self, v: FloatArray) -> FloatArray:
        """Return the log density (...) at v, without a constant."""
        t = (v[..., None] - self.mean) / self.sd
        with np.errstate(divide="ignore"):
            log_mass = np.log(self.share) - np.log(self.sd) - 0.5 * t * t
        return np.asarray(logsumexp(log_mass, axis=-1), dtype=np.float64)

    def at_score(self, g: FloatArray) -> FloatArray:
        """Return v (...) with these scores, which are cut at ``FARTHEST``.

        A quantile of a mixture lies between those of its components. Within these ends by steps of
        Newton on scores, which are nearly linear in v; by halves where such a step would leave.
        """
        g = np.clip(g, -FARTHEST, FARTHEST)
        ends = self.mean + self.sd * g[..., None]
        low, high = ends.min(-1), ends.max(-1)
        v = 0.5 * (low + high)
        for _ in range(STEPS):
            off = self.score(v) - g
            low, high = np.where(off <= 0.0, v, low), np.where(off >= 0.0, v, high)
            slope = np.exp(self.log_density(v) + 0.5 * (off + g) ** 2)
            step = v - off / np.maximum(slope, np.finfo(np.float64).tiny)
            inside = (step > low) & (step < high)
            v = np.where(inside, step, 0.5 * (low + high))
            if np.abs(off).max(initial=0.0) < EXACT:
                break
        return np.asarray(v, dtype=np.float64)


def differences(t: FloatArray) -> FloatArray:
    """Return the mass (..., G - 1) of a standard normal between points (..., G) in order."""
    flipped = t > 0.0
    below = ndtr(np.where(flipped, -t, t))
    both = flipped[..., 1:] & flipped[..., :-1]
    plain = np.where(flipped, 1.0 - below, below)
    made = np.where(both, below[..., :-1] - below[..., 1:], plain[..., 1:] - plain[..., :-1])
    return np.asarray(np.maximum(made, 0.0), dtype=np.float64)


def middles(t: FloatArray, mass: FloatArray) -> FloatArray:
    """Return means (..., G - 1) of a standard normal between points (..., G), of this mass."""
    density = np.exp(-0.5 * t * t) / np.sqrt(2.0 * np.pi)
    low, high = t[..., :-1], t[..., 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (density[..., :-1] - density[..., 1:]) / mass
    return np.where(mass > 1e-12, np.clip(mean, low, high), 0.5 * (low + high))
