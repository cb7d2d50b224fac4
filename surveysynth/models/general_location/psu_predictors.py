"""The likelihood of a multinomial logit with effects of PSUs, as its sampler moves (methods 3.6).

Most moves change the predictor of one category: exponentials of all others are kept, and slopes are
summed for that category alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.models.general_location.psu_sums import PsuCounts
from surveysynth.models.parts.logit import LARGE, filled_up


class Point(NamedTuple):
    """Predictors of the c categories but the first, in D databases of T rows, at one point a chain.

    eta, odds = exp(eta): (D, chains, c, T), of one category (D, chains, T); total (D, chains, T):
    1 + the sum of all odds; log_total, its logarithm; value (D, chains): the log-likelihood.
    """

    eta: FloatArray
    odds: FloatArray
    total: FloatArray
    log_total: FloatArray
    value: FloatArray


class PsuPredictors:
    """Predictors eta_c = x b_c + a_kc of B = D databases x chains, and where the chains are.

    counts: by PSU k, one for each database; size: the number C of PSUs. Predictors above ``LARGE``
    count as that: no likelihood of an answer that is possible at all comes near it.
    """

    def __init__(self, counts: Sequence[PsuCounts], size: int, chains: int) -> None:
        # Where one database has fewer rows than others, its last PSU has empty ones.
        by_category = filled_up([each.counts[None] for each in counts])
        #: x (D, T, P); counts (D, 1, c, T); mass (D, 1, T); psu (D, T).
        self.x = filled_up([each.x[None] for each in counts])
        self.x_turned = self.x.swapaxes(-1, -2).copy()
        self.counts = by_category[..., 1:].swapaxes(-1, -2).copy()[:, None]
        self.mass = by_category.sum(-1)[:, None]
        databases, rows, self.p = self.x.shape
        self.psu = np.full((databases, rows), size - 1)
        for place, each in zip(self.psu, counts, strict=True):
            place[: len(each.psu)] = each.psu
        #: Of each database and PSU, its first row.
        self.first = np.stack([np.searchsorted(each.psu, np.arange(size)) for each in counts])
        self.size, self.c, self.lead = size, self.counts.shape[2], (databases, chains)
        self._place, self._starts = self._positions(1)
        self._all_places, self._all_starts = self._positions(self.c)

    def _positions(self, c: int) -> tuple[IntArray, IntArray]:
        """Return positions of rows among effects, and of first rows, of c categories, flattened."""
        databases, chains = self.lead
        blocks = np.arange(databases * chains * c).reshape(databases, -1, 1)
        place = blocks * self.size + self.psu[:, None]
        starts = blocks * self.x.shape[1] + self.first[:, None]
        return place.reshape(*self.lead, *((c,) if c > 1 else ()), -1), starts.ravel()

    def begin(self, b: FloatArray, a: FloatArray) -> None:
        """Start from coefficients b (B, P, c) and effects a (B, C, c)."""
        self.at = self.point(b, a)

    def point(self, b: FloatArray, a: FloatArray) -> Point:
        """Return the predictors at coefficients b (B, P, c) and effects a (B, C, c)."""
        rows = b.swapaxes(-1, -2).reshape(self.lead[0], -1, self.p) @ self.x_turned
        eta = rows.reshape(*self.lead, self.c, -1)
        effects = a.swapaxes(-1, -2).ravel()
        eta = np.minimum(eta + effects[self._all_places].reshape(eta.shape), LARGE)
        odds = np.exp(eta)
        total = _sum(1.0, odds)
        log_total = np.log(total)
        value = (eta * self.counts).sum((-2, -1)) - (self.mass * log_total).sum(-1)
        return Point(eta, odds, total, log_total, value)

    def moved(self, c: int, effects: FloatArray, b: FloatArray | None = None) -> Point:
        """Return the predictors of category c after a change of effects (B, C), and of b (B, P)."""
        change = effects.ravel()[self._place]
        if b is not None:
            change += b.reshape(self.lead[0], -1, self.p) @ self.x_turned
        before = self.at.eta[:, :, c]
        eta = np.minimum(before + change, LARGE)
        odds = np.exp(eta)
        total = _sum(1.0, self.at.odds[:, :, :c], self.at.odds[:, :, c + 1 :]) + odds
        log_total = np.log(total)
        value = self.at.value + ((eta - before) * self.counts[:, :, c]).sum(-1)
        value = value - (self.mass * (log_total - self.at.log_total)).sum(-1)
        return Point(eta, odds, total, log_total, value)

    def slopes(self, point: Point) -> tuple[FloatArray, FloatArray]:
        """Return the gradients of the log-likelihood in all of b and a."""
        left = self.counts - self.mass[:, :, None] * (point.odds / point.total[:, :, None])
        flat = left.reshape(self.lead[0], -1, self.x.shape[1])
        by_b = self.by_coefficients(flat).reshape(-1, self.c, self.p)
        by_a = np.add.reduceat(left.ravel(), self._all_starts).reshape(-1, self.c, self.size)
        return by_b.swapaxes(-1, -2), by_a.swapaxes(-1, -2)

    def left(self, c: int, moved: Point | None = None) -> FloatArray:
        """Return counts of category c less expected ones (D, chains, T), here or after a move."""
        odds = self.at.odds[:, :, c] if moved is None else moved.odds
        total = self.at.total if moved is None else moved.total
        return np.asarray(self.counts[:, :, c] - self.mass * (odds / total))

    def by_effects(self, left: FloatArray) -> FloatArray:
        """Return the gradient (B, C) in effects of a category; left (D, chains, T)."""
        return np.add.reduceat(left.ravel(), self._starts).reshape(-1, self.size)

    def by_coefficients(self, left: FloatArray) -> FloatArray:
        """Return the gradient (B, P) in coefficients of a category; left (D, chains, T).

        Of several, (B c, P), if left is (D, chains c, T)."""
        return np.asarray((left @ self.x).reshape(-1, self.p), dtype=np.float64)

    def take(self, accept: BoolArray, point: Point) -> None:
        """Go to a point where chains accept (B,)."""
        accept = accept.reshape(self.lead)
        wide = accept[..., None, None]
        self.at = Point(
            np.where(wide, point.eta, self.at.eta),
            np.where(wide, point.odds, self.at.odds),
            *self._taken(accept, point),
        )

    def take_move(self, c: int, accept: BoolArray, moved: Point) -> None:
        """Go where predictors of category c have moved, where chains accept (B,)."""
        accept = accept.reshape(self.lead)
        np.copyto(self.at.eta[:, :, c], moved.eta, where=accept[..., None])
        np.copyto(self.at.odds[:, :, c], moved.odds, where=accept[..., None])
        self.at = Point(self.at.eta, self.at.odds, *self._taken(accept, moved))

    def _taken(self, accept: BoolArray, point: Point) -> tuple[FloatArray, FloatArray, FloatArray]:
        wide = accept[..., None]
        return (
            np.where(wide, point.total, self.at.total),
            np.where(wide, point.log_total, self.at.log_total),
            np.where(accept, point.value, self.at.value),
        )


def _sum(start: float, *odds: FloatArray) -> FloatArray:
    """Return start plus the sum over categories of odds (D, chains, ., T)."""
    # One by one: a sum over a short axis would be slower.
    total = np.asarray(start)
    for each in odds:
        for c in range(each.shape[2]):
            total = total + each[:, :, c]
    return total
