"""Mixtures of normals: the law of a log weight whose mean depends on categories."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from surveysynth._support.types import FloatArray

#: Scores are cut here; those of quantiles are exact to ``EXACT``.
FARTHEST, EXACT, STEPS = 8.0, 1e-10, 60
_BEYOND, _TINY = 2.0 * FARTHEST, np.finfo(np.float64).tiny


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
        tail = np.clip(np.minimum(below, above), _TINY, 0.5)
        return np.asarray(np.where(below < above, 1.0, -1.0) * ndtri(tail), dtype=np.float64)

    def at_score(self, g: FloatArray) -> FloatArray:
        """Return v (...) with these scores, which are cut at ``FARTHEST``.

        A quantile of a mixture lies between those of its components. Within these ends by steps of
        Newton on scores, which are nearly linear in v, from that of a normal of the same variance;
        by halves where a step would leave.
        """
        g = np.clip(g, -FARTHEST, FARTHEST)
        rows, d = self.mean.shape[:-1], self.mean.shape[-1]
        row = np.broadcast_to(np.arange(self.mean.size // d).reshape(rows), g.shape).ravel()
        share, mean, sd = (each.reshape(-1, d) for each in (self.share, self.mean, self.sd))
        middle = (share * mean).sum(-1)
        spread = np.sqrt((share * (sd * sd + (mean - middle[:, None]) ** 2)).sum(-1))
        target = g.ravel()
        ends = mean[row] + sd[row] * target[:, None]
        low, high = ends.min(-1), ends.max(-1)
        v = np.clip(middle[row] + spread[row] * target, low, high)
        left = np.arange(g.size)  # those that are not exact yet
        for _ in range(STEPS):
            own, sign = row[left], np.where(target[left] < 0.0, 1.0, -1.0)
            t = (v[left, None] - mean[own]) / sd[own]
            # The tail on the side of the target is the smaller one near it.
            tail = (share[own] * ndtr(sign[:, None] * t)).sum(-1)
            score = sign * np.clip(ndtri(np.clip(tail, _TINY, 1.0)), -_BEYOND, _BEYOND)
            off = score - target[left]
            low[left] = np.where(off <= 0.0, v[left], low[left])
            high[left] = np.where(off >= 0.0, v[left], high[left])
            slope = (share[own] / sd[own] * np.exp(-0.5 * t * t)).sum(-1)
            with np.errstate(over="ignore"):  # between components far apart there is no slope
                step = v[left] - off / np.maximum(slope * np.exp(0.5 * score * score), _TINY)
            inside = (step > low[left]) & (step < high[left])
            moved = np.where(inside, step, 0.5 * (low[left] + high[left]))
            far = np.abs(off) >= EXACT
            left = left[far]
            v[left] = moved[far]
            if not left.size:
                break
        return np.asarray(v.reshape(g.shape), dtype=np.float64)


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
