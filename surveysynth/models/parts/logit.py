"""Multinomial logits on weighted counts: likelihood and mode.

    log p_c / p_0 = x b_c,  c = 1 .. C - 1,  b ~ N(0, s^2 I)

Counts are sums of risk weights: any fractions. Arrays of B databases, with S points each; b of a
point is flat (P (C - 1),), its columns fastest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray

#: Newton halves a step until the density rises, and stops where one promises less than this.
_STEPS = 60
_HALVINGS = 30
_CLOSE = 1e-12


@dataclass(frozen=True, repr=False)
class LogitSums(Unpickled):
    """x (B, T, P), or (1, T, P) where all share it; counts (B, T, C) of categories by row, zero
    where a database has no such row."""

    x: FloatArray
    counts: FloatArray

    @property
    def size(self) -> int:
        """P (C - 1), the number of coefficients."""
        return int(self.x.shape[-1] * (self.counts.shape[-1] - 1))

    @classmethod
    def stacked(cls, parts: Sequence["LogitSums"]) -> "LogitSums":
        """Those of several databases side by side, filled up with rows without counts."""
        shared = all(np.array_equal(part.x, parts[0].x) for part in parts)
        x = parts[0].x if shared else _filled_up([part.x for part in parts])
        return cls(x, _filled_up([part.counts for part in parts]))

    def eta(self, b: FloatArray) -> FloatArray:
        """Linear predictors (B, S, T, C - 1) at b (B, S, P (C - 1))."""
        matrix = b.reshape(*b.shape[:2], self.x.shape[-1], -1)
        return np.asarray(self.x[:, None] @ matrix, dtype=np.float64)

    def value(self, b: FloatArray) -> FloatArray:
        """Log-likelihood (B, S) at b (B, S, P (C - 1))."""
        eta = self.eta(b)
        first = (eta * self.counts[:, None, :, 1:]).sum((-2, -1))
        mass = self.counts.sum(-1)[:, None]
        return np.asarray(first - (mass * log_total(eta)).sum(-1), dtype=np.float64)

    def value_and_slope(self, b: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``value`` and its gradient, of the shape of b."""
        eta, counts = self.eta(b), self.counts[:, None]
        total, mass = log_total(eta), counts.sum(-1)
        value = (eta * counts[..., 1:]).sum((-2, -1)) - (mass * total).sum(-1)
        expected = mass[..., None] * np.exp(eta - total[..., None])
        slope = self.x.swapaxes(-1, -2)[:, None] @ (counts[..., 1:] - expected)
        return value, np.asarray(slope.reshape(b.shape), dtype=np.float64)

    def information(self, b: FloatArray) -> FloatArray:
        """Minus the second derivatives (B, d, d) at one point a database, b (B, d)."""
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
    """log(1 + sum of exp eta) over the last axis, free of overflow."""
    if eta.shape[-1] == 1:
        return np.asarray(np.logaddexp(0.0, eta[..., 0]), dtype=np.float64)
    largest = np.maximum(eta.max(-1), 0.0)
    rest = np.exp(eta - largest[..., None]).sum(-1) + np.exp(-largest)
    return np.asarray(largest + np.log(rest), dtype=np.float64)


def shares(eta: FloatArray) -> FloatArray:
    """Probabilities (..., C - 1) of the categories but the first."""
    return np.asarray(np.exp(eta - log_total(eta)[..., None]), dtype=np.float64)


def log_shares(eta: FloatArray) -> FloatArray:
    """Log probabilities (..., C) of all categories."""
    total = log_total(eta)[..., None]
    return np.concatenate([-total, eta - total], axis=-1)


def find_mode(sums: LogitSums, sd: float) -> tuple[FloatArray, FloatArray]:
    """Mode (B, d) of the posterior under N(0, sd^2), and minus its second derivatives (B, d, d).

    Damped Newton steps on a strictly concave density; no database depends on others."""
    d, precision = sums.size, sd**-2
    b = np.zeros((sums.counts.shape[0], d))

    def density(point: FloatArray) -> FloatArray:
        squares = (point * point).sum(-1)
        return np.asarray(sums.value(point[:, None])[:, 0] - 0.5 * precision * squares)

    value = density(b)
    for _ in range(_STEPS):
        information = sums.information(b) + precision * np.eye(d)
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
    return b, sums.information(b) + precision * np.eye(d)


def _filled_up(parts: Sequence[FloatArray]) -> FloatArray:
    """Arrays (B_i, T_i, ...) joined along the first axis, zeros behind the second."""
    longest = max(part.shape[1] for part in parts)
    return np.concatenate(
        [
            np.pad(part, [(0, 0), (0, longest - part.shape[1]), *[(0, 0)] * (part.ndim - 2)])
            for part in parts
        ]
    )
