"""Gaussian noise on weighted totals by cell, and the Fay-Herriot model on top of them.

A record adds w and w (y - c) to the totals of its public cell; c is a public constant. Outcome and
weight are clipped to the ball of the declared centers and spreads, as noisy statistics clip them.
Neighbors differ in the outcome and the weight of one record, so the two totals of one cell change
by at most the diameter of the image of the ball. Sampling variances follow from public constants
and sizes, so that nothing confidential is used beside the noisy totals.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from surveysynth._support.numeric import chi_square_quantile
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping

#: Points on the boundary of the ball.
POINTS = 400
#: A set of rows has its own Fay-Herriot model if it has so many rows more than coefficients.
LEAST_DF = 3


@dataclass(frozen=True)
class Ball:
    """The public ball of log outcome and log weight that records are clipped to."""

    clipping: Clipping

    def holding(self, share: float) -> "Ball":
        """Return the ball that holds this share of normal records."""
        radius = chi_square_quantile(share, 2) ** 0.5
        return Ball(Clipping(self.clipping.centre, self.clipping.spread, radius))

    def clipped(self, y: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return outcomes and weights (n,), moved to the ball along the ray from its center."""
        u = (np.log(np.column_stack([y, w])) - self.clipping.centre) / self.clipping.spread
        norm = np.linalg.norm(u, axis=1, keepdims=True)
        u *= np.minimum(1.0, self.clipping.radius / np.maximum(norm, 1e-12))
        return self._values(u)

    def _values(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        y, w = np.exp(u * self.clipping.spread + self.clipping.centre).T
        return y, w

    @cached_property
    def boundary(self) -> tuple[FloatArray, FloatArray]:
        """Outcomes and weights of points on the boundary."""
        angle = np.linspace(0.0, 2.0 * np.pi, POINTS, endpoint=False)
        return self._values(self.clipping.radius * np.column_stack([np.cos(angle), np.sin(angle)]))

    @cached_property
    def limits(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Least and largest outcome, and least and largest weight."""
        (y, w) = self.boundary
        return (y.min(), y.max()), (w.min(), w.max())

    @cached_property
    def offset(self) -> float:
        """c, for which w (y - c) has the smallest range."""
        y, w = self.boundary
        found = minimize_scalar(lambda c: np.ptp(w * (y - c)), bounds=self.limits[0],
                                method="bounded")  # fmt: skip
        return float(found.x)

    def noise_sd(self, rho: float) -> tuple[float, float]:
        """Return the SDs of noise on totals of w and w (y - c) that together are rho-zCDP."""
        y, w = self.boundary
        image = np.column_stack([w, w * (y - self.offset)])
        ranges = np.ptp(image, axis=0)
        scaled = image / ranges
        diameter = np.linalg.norm(scaled[:, None] - scaled, axis=2).max()
        first, second = ranges * diameter / np.sqrt(2.0 * rho)
        return float(first), float(second)


@dataclass(frozen=True)
class Rows:
    """The rows of a table as sums of its cells.

    labels: by columns of each row (R,), "All" for margins; cell (n,): codes of the records' cells;
    sizes (H, C): records of each stratum in each cell; members (R, C): which cells a row has;
    sets: rows with the same by columns, with their covariates.
    """

    labels: pd.DataFrame
    cell: IntArray
    sizes: FloatArray
    members: FloatArray
    sets: tuple[tuple[IntArray, FloatArray], ...]

    @classmethod
    def of(cls, labels: pd.DataFrame, records: pd.DataFrame, strata: IntArray) -> "Rows":
        """Return the rows; by columns and strata of the records of the sample."""
        names = list(labels)
        interior = labels[(labels != "All").all(axis=1)].reset_index(drop=True)
        index = pd.MultiIndex.from_frame(interior)
        cell = index.get_indexer(pd.MultiIndex.from_frame(records[names].astype(str)))
        own, cells = labels.to_numpy(), interior.to_numpy()
        members = ((own[:, None] == cells) | (own[:, None] == "All")).all(axis=2)
        sizes = np.zeros((int(strata.max()) + 1, len(cells)))
        np.add.at(sizes, (strata, cell), 1.0)
        sets = tuple(_sets(labels))
        return cls(labels, np.asarray(cell), sizes, members.astype(np.float64), sets)

    def sampling_variances(self, clipping: Clipping) -> dict[str, FloatArray]:
        """Return relative sampling variances (R,) of counts and means, by public constants.

        Log outcomes and log weights have the declared spreads, and are independent.
        """
        of_outcome, of_weight = np.exp(clipping.spread**2) - 1.0
        by_stratum = self.members @ self.sizes.T
        records, whole = by_stratum.sum(axis=1), self.sizes.sum()
        fixed = (by_stratum**2 / self.sizes.sum(axis=1)).sum(axis=1) / records**2
        count = (1.0 - records / whole) * ((1.0 + of_weight) / records - fixed)
        return {"count": count, "mean": of_outcome * (1.0 + of_weight) / records}


def _sets(labels: pd.DataFrame) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield the rows of each set with main effects, or an intercept alone for one by column."""
    shown = (labels != "All").to_numpy()
    for pattern in np.unique(shown, axis=0):
        rows = np.flatnonzero((shown == pattern).all(axis=1))
        x = [np.ones((rows.size, 1))]
        if pattern.sum() > 1:
            own = labels.iloc[rows, np.flatnonzero(pattern)]
            x.append(pd.get_dummies(own, drop_first=True).to_numpy(np.float64))
        yield rows, np.hstack(x)


def fay_herriot(
    y: FloatArray, variance: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the empirical best linear unbiased predictors (R,) and their mean squared errors (R,).

    y (R,): direct estimates with known variances (R,); x (R, K). The variance of areas is estimated
    by REML, and the error is that of Prasad and Rao (1990).
    """

    def solved(area: float) -> tuple[FloatArray, FloatArray, float]:
        weight = 1.0 / (area + variance)
        gram = (x * weight[:, None]).T @ x
        beta = np.linalg.solve(gram, (x * weight[:, None]).T @ y)
        rest = y - x @ beta
        deviance = -np.log(weight).sum() + np.linalg.slogdet(gram)[1] + (weight * rest**2).sum()
        return beta, gram, float(deviance)

    largest = 10.0 * (np.var(y) + variance.max()) + 1e-300
    grid = np.concatenate([[0.0], largest * np.logspace(-8, 0, 81)])
    best = int(np.argmin([solved(each)[2] for each in grid]))
    area = grid[best]
    if best:
        bounds = (grid[best - 1], grid[min(best + 1, grid.size - 1)])
        found = minimize_scalar(lambda a: solved(a)[2], bounds=bounds, method="bounded",
                                options={"xatol": 1e-6 * bounds[1]})  # fmt: skip
        area = float(found.x)
    beta, gram, _ = solved(area)
    kept = area / (area + variance)
    leverage = (x * np.linalg.solve(gram, x.T).T).sum(axis=1)
    of_area = 2.0 / np.sum((area + variance) ** -2)
    mse = kept * variance + (1 - kept) ** 2 * leverage
    mse += 2 * variance**2 / (area + variance) ** 3 * of_area
    return kept * y + (1 - kept) * (x @ beta), mse


def _by_set(rows: Rows, y: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Apply Fay-Herriot to each set of rows that is large enough; leave the others as they are."""
    y, variance = y.copy(), variance.copy()
    for own, x in rows.sets:
        usable = np.isfinite(y[own]) & np.isfinite(variance[own]) & (variance[own] > 0)
        if usable.sum() - x.shape[1] < LEAST_DF or np.linalg.matrix_rank(x[usable]) < x.shape[1]:
            continue
        chosen = own[usable]
        y[chosen], variance[chosen] = fay_herriot(y[chosen], variance[chosen], x[usable])
    return y, variance


@dataclass(frozen=True)
class NoisyTotals:
    """Noisy totals (C,) of w and w (y - c), with SDs of their noise."""

    rows: Rows
    ball: Ball
    totals: tuple[FloatArray, FloatArray]
    sd: tuple[float, float]
    population: float

    @classmethod
    def of(
        cls,
        rows: Rows,
        ball: Ball,
        y: FloatArray,
        w: FloatArray,
        *,
        rho: float,
        population: float,
        rng: np.random.Generator,
    ) -> "NoisyTotals":
        """Release the totals of records with outcomes y (n,) and weights w (n,)."""
        y, w = ball.clipped(y, w)
        cells, sd = rows.members.shape[1], ball.noise_sd(rho)
        exact = (np.bincount(rows.cell, each, cells) for each in (w, w * (y - ball.offset)))
        noisy = [each + s * rng.standard_normal(cells) for each, s in zip(exact, sd, strict=True)]
        return cls(rows, ball, (noisy[0], noisy[1]), sd, population)

    def estimates(self, *, borrowing: bool) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Return estimates and variances (R,) of counts and means; borrowing: by Fay-Herriot."""
        members = self.rows.members
        records = self.rows.sizes.sum(axis=0)
        sizes, own = members @ records, members.sum(axis=1)
        relative = self.rows.sampling_variances(self.ball.clipping)
        weights, amounts = (members @ each for each in self.totals)
        least = self.ball.limits[1][0]
        of_weight, of_amount = (sd**2 for sd in self.sd)
        whole = max(float(self.totals[0].sum()), records.sum() * least)
        share = weights / whole
        noise = own * (1 - share) ** 2 + (members.shape[1] - own) * share**2
        count = self.population * share
        expected = np.clip(share, sizes / records.sum() / 10.0, 1.0) * self.population
        of_noise = (self.population / whole) ** 2 * of_weight * noise
        count_variance = relative["count"] * expected**2 + of_noise
        known, weight_error = weights, own * of_weight
        if borrowing:
            # The denominators of means: shrunk for their noise alone, which is all their error.
            known, weight_error = _by_set(self.rows, weights / sizes, weight_error / sizes**2)
            known, weight_error = known * sizes, weight_error * sizes**2
        known = np.maximum(known, sizes * least)
        ratio = amounts / known
        mean = np.clip(self.ball.offset + ratio, *self.ball.limits[0])
        of_noise = (own * of_amount + ratio**2 * weight_error) / known**2
        mean_variance = relative["mean"] * mean**2 + of_noise
        if borrowing:
            count, count_variance = _by_set(self.rows, count / sizes, count_variance / sizes**2)
            count, count_variance = count * sizes, count_variance * sizes**2
            mean, mean_variance = _by_set(self.rows, mean, mean_variance)
        return {"count": (count, count_variance), "mean": (mean, mean_variance)}
