"""Coordinates of the coefficients of a logit: its predictors on rows of the table (strict 9)."""

from collections.abc import Mapping

import numpy as np
from scipy.linalg import qr
from scipy.special import expit

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.models.general_location.layout import Layout, log_shares

#: Steps of Newton's method to a predictor.
NEWTON = 8


class LogitRows:
    """One logit on the rows of the table: its own category given x and earlier categories.

    Coordinates are those of predictors eta of P rows that determine its coefficients, against the
    most frequent category. If noise hides a rare category, only the prior bounds eta from below;
    otherwise eta is known well. In y = r eta + (s - r) log(1 + exp(eta - e)) the posterior is about
    as wide on both sides: r is the precision of the prior, s that of the noisy counts.
    """

    def __init__(
        self, table: NoisyTable, part: int, priors: Mapping[str, float], layout: Layout
    ) -> None:
        shape, logit = table.shape, layout.logits[part]
        categories, own = shape.combinations, shape.combinations[:, logit.outcome]
        # Earlier combinations (De), and of each combination its own earlier one.
        earlier, of = np.unique(categories[:, : logit.outcome], axis=0, return_inverse=True)
        size, cells, k = len(earlier), len(shape.x_cells), logit.categories
        first = np.array([np.flatnonzero(of.reshape(-1) == e)[0] for e in range(size)])
        x = np.repeat(shape.x_cells, size, axis=0)
        tilde = np.hstack([x, np.tile(shape.indicators[first], (cells, 1))])
        self.rows = tilde[:, logit.columns]
        self.place = of.reshape(-1) * k + own
        self.sum = np.zeros((len(categories), size * k))
        self.sum[np.arange(len(categories)), self.place] = 1.0
        self.sd = layout.logit_sds(priors)[part]
        self.shape = logit.columns.size, logit.own.size
        counts = np.maximum(table.counts @ self.sum, 0.0).reshape(len(self.rows), k)
        self.base = int(counts.sum(0).argmax())
        self.others = np.delete(np.arange(k), self.base)
        # Rows with many records that determine the coefficients.
        number = counts.sum(1)
        scaled = self.rows * np.sqrt(number + 1.0)[:, None]
        pivots = qr(scaled.T, mode="economic", pivoting=True)[2][: self.shape[0]]
        self.inverse = np.linalg.inv(self.rows[pivots])
        noise = table.count_variance * len(categories) / (size * k)
        share = (counts.sum(0) + noise**0.5) / (counts.sum() + k * noise**0.5)
        expected = (counts[pivots] + share)[:, self.others]
        base = np.log((counts[pivots] + share)[:, [self.base]])
        precision = expected / np.sqrt(expected + noise)
        self.least = np.full(self.shape, 1.0 / priors["logit_sd"])
        self.more = np.maximum(precision - self.least, 0.0)
        # Half of the precision is reached where half of the records are expected, or noise begins.
        self.end = np.log(0.5 * np.maximum(expected, noise**0.5)) - base
        self.center = self._y(np.log(expected) - base)

    def _y(self, eta: FloatArray) -> FloatArray:
        return np.asarray(self.least * eta + self.more * np.logaddexp(0.0, eta - self.end))

    def predictors(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return eta (b, P, k - 1) at coordinates, its slope, and the gradient of its log in eta.

        By Newton's method from above, where it cannot overshoot: y is convex in eta.
        """
        y = self.center + x
        eta = np.minimum(y / self.least, (y + self.more * self.end) / (self.least + self.more))
        for _ in range(NEWTON):
            eta = eta - (self._y(eta) - y) / (self.least + self.more * expit(eta - self.end))
        share = expit(eta - self.end)
        slope = 1.0 / (self.least + self.more * share)
        return eta, slope, -self.more * share * (1.0 - share) * slope

    def coefficients(self, eta: FloatArray) -> FloatArray:
        """Return coefficients (b, P, k - 1) against the first category."""
        whole = np.zeros((*eta.shape[:2], eta.shape[2] + 1))
        whole[..., self.others] = self.inverse @ eta
        return np.asarray(whole[..., 1:] - whole[..., :1])

    def log_p(self, coefficients: FloatArray, cells: int) -> tuple[FloatArray, FloatArray]:
        """Return log probabilities (b, C, D) of the own categories, and of all (b, C De, k)."""
        log_p = log_shares(self.rows @ coefficients)
        flat = log_p.reshape(len(coefficients), cells, -1)
        return flat[..., self.place], log_p

    def gradient(self, given: FloatArray, log_p: FloatArray) -> FloatArray:
        """Return the gradient in coefficients (b, P, k - 1) of one in log probabilities."""
        each = (given @ self.sum).reshape(log_p.shape)
        each = each - np.exp(log_p) * each.sum(-1, keepdims=True)
        return np.asarray(self.rows.T @ each[..., 1:])

    def in_coordinates(
        self, coefficients: FloatArray, x: FloatArray, given: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the log prior (b,) with the volume of coordinates, and the gradient in them.

        given (b, P, k - 1): the gradient of all else in coefficients.
        """
        _, slope, in_slope = self.predictors(x)
        scaled = coefficients / self.sd[:, None] ** 2
        value = -0.5 * (coefficients * scaled).sum((1, 2)) + np.log(slope).sum((1, 2))
        whole = np.concatenate([np.zeros_like(given[..., :1]), given - scaled], axis=-1)
        whole[..., 0] = -whole.sum(-1)
        in_eta = self.inverse.T @ whole[..., self.others] + in_slope
        return np.asarray(value), np.asarray(in_eta * slope)
