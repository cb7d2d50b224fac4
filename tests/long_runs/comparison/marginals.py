"""Marginals with the weight as one more attribute: OpenDP's MST and AIM, and all three pairs.

Outcome and weight are cut into bins of equal width in logs, on the limits of the public ball. The
model is McKenna's private-pgm (``mbi``). Each dataset keeps the public columns of the sample and
draws outcome and weight of each record given its cell; within a bin they are uniform in logs.

OpenDP counts neighbors that add or remove one record; here one record is replaced within its cell,
which is twice as far for rho. Marginals therefore get half of rho, which gives them the noise of
sensitivity sqrt 2 at rho. Selection would need more: what it lacks is to the benefit of marginals.
"""

import logging
from dataclasses import dataclass

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray
from tests.long_runs.comparison.noisy_totals import Ball

OUTCOME, WEIGHT = "outcome", "weight"
#: Added to each bin of the fitted model, in records, so that no cell is without any.
LEAST = 1e-6


#: Steps of mirror descent.
STEPS = 300


def maximum_entropy(
    pairs: tuple[FloatArray, FloatArray, FloatArray], sizes: FloatArray
) -> FloatArray:
    """Return the shares (C, B, B) in each cell that fit noisy counts of three pairs best.

    pairs: cell by outcome (C, B), cell by weight (C, B) and outcome by weight (B, B), with equal
    noise; sizes (C,): the known records of the cells.
    """
    logits = np.zeros((sizes.size, *pairs[2].shape))

    def fitted_at(at: FloatArray) -> tuple[FloatArray, float, FloatArray]:
        shares = np.exp(at - at.max(axis=(1, 2), keepdims=True))
        shares /= shares.sum(axis=(1, 2), keepdims=True)
        counts = shares * sizes[:, None, None]
        of_outcome, of_weight, of_both = (
            counts.sum(axis=axis) - own for axis, own in zip((2, 1, 0), pairs, strict=True)
        )
        loss = sum(float((each**2).sum()) for each in (of_outcome, of_weight, of_both)) / 2.0
        return shares, loss, of_outcome[:, :, None] + of_weight[:, None] + of_both

    shares, loss, gradient = fitted_at(logits)
    step = 1.0 / sizes.max()
    for _ in range(STEPS):
        while step > 1e-12:
            tried = fitted_at(logits - step * gradient)
            if tried[1] <= loss:
                break
            step /= 2.0
        logits = logits - step * gradient
        shares, loss, gradient = tried
        step *= 1.3
    return shares


def three_pairs(
    cell: IntArray, cells: int, ball: Ball, y: FloatArray, w: FloatArray, *, rho: float,
    bins: int, rng: np.random.Generator,
) -> "FittedMarginals":  # fmt: skip
    """Measure all pairs of cell (n,), outcome and weight (n,), and fit them."""
    edges = [np.linspace(*np.log(each), bins + 1) for each in ball.limits]
    logs = np.log(ball.clipped(y, w))
    place = [np.clip(np.digitize(each, own) - 1, 0, bins - 1)
             for each, own in zip(logs, edges, strict=True)]  # fmt: skip
    table = np.zeros((cells, bins, bins))
    np.add.at(table, (cell, *place), 1.0)
    # One record moves by sqrt 2 in each of three pairs.
    sd = np.sqrt(3.0 / rho)
    pairs = tuple(
        each + sd * rng.standard_normal(each.shape)
        for each in (table.sum(axis=2), table.sum(axis=1), table.sum(axis=0))
    )
    shares = maximum_entropy((pairs[0], pairs[1], pairs[2]), table.sum(axis=(1, 2)))
    return FittedMarginals(shares, (edges[0], edges[1]))


@dataclass(frozen=True)
class FittedMarginals:
    """The fitted shares (C, bins, bins) of outcome and weight in each public cell."""

    shares: FloatArray
    edges: tuple[FloatArray, FloatArray]

    def draw(self, cell: IntArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return outcomes and weights (n,) of records in these cells (n,)."""
        bins = self.shares.shape[1]
        cumulated = self.shares.reshape(len(self.shares), -1).cumsum(axis=1)
        at = (rng.random(len(cell))[:, None] > cumulated[cell]).sum(axis=1)
        logs = []
        pairs = zip(self.edges, np.divmod(np.minimum(at, bins**2 - 1), bins), strict=True)
        for edges, place in pairs:
            logs.append(rng.uniform(edges[place], edges[place + 1]))
        return np.exp(logs[0]), np.exp(logs[1])


def fitted(
    name: str,
    by: pd.DataFrame,
    cells: pd.DataFrame,
    ball: Ball,
    y: FloatArray,
    w: FloatArray,
    *,
    rho: float,
    bins: int,
) -> FittedMarginals:
    """Fit the marginals of a sample that "mst" or "aim" selects.

    by: public columns of the records; cells: those of the C cells; y, w (n,); bins: of outcome and
    of weight. Noise comes from the operating system.
    """
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    logging.getLogger("opendp").setLevel(logging.ERROR)
    y, w = ball.clipped(y, w)
    edges = [np.linspace(*np.log(each), bins + 1) for each in ball.limits]
    data = pl.DataFrame({
        **{column: by[column].astype(str).tolist() for column in by}, OUTCOME: np.log(y),
        WEIGHT: np.log(w),
    })  # fmt: skip
    context = dp.Context.compositor(
        data=data.lazy(), privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho / 2),
    )  # fmt: skip
    table = context.query(rho=rho / 2).select(*data.columns).contingency_table(
        keys={column: sorted(cells[column].unique()) for column in by},
        cuts={OUTCOME: edges[0][1:-1].tolist(), WEIGHT: edges[1][1:-1].tolist()},
        algorithm=dp.mbi.MST() if name == "mst" else dp.mbi.AIM(),
    ).release()  # fmt: skip
    names = [*by, OUTCOME, WEIGHT]
    whole = np.asarray(table.model.project(tuple(names)).values, dtype=np.float64)
    axis = table.model.project(tuple(names)).domain.attributes
    whole = np.moveaxis(whole, [axis.index(each) for each in names], range(len(names)))
    place = [
        [table.keys[column].to_list().index(label) for label in cells[column]] for column in by
    ]
    own = np.maximum(whole[tuple(np.array(each) for each in place)], 0.0) + LEAST / bins**2
    return FittedMarginals(own / own.sum(axis=(1, 2), keepdims=True), (edges[0], edges[1]))
