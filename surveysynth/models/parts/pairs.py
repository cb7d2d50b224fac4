"""Records by distinct pair of cell of X and outcome, with the survey weight.

All records of a pair share the log-likelihood of the outcome, which is computed once. The log
weight is a Gaussian component given a function h of the outcome (``survey_weight``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.parts import gaussian, log_lik
from surveysynth.models.parts.gaussian import GaussianRecords, GaussianStats
from surveysynth.models.parts.log_lik import QuadraticForm


@dataclass(frozen=True, repr=False)
class PairRecords(Unpickled):
    """Records by cell of X: x_cells (G, K), cell (n,) and y (n,) on the model's scale.

    h (n,): the regressor of the weight; log_weight (n,) or None. ``values`` (D,) are the distinct
    y, code (n,) indexes them; ``pair_cell`` and ``pair_y`` (P,) describe the pairs, sorted by cell.
    ``joint``: (h, log w) by cell of X, if there is a weight. ``pairs``: log w (or nothing, n x 0)
    by pair, whose rows are (y, h, x). ``shrunken``: number of columns of X, the last ones, that are
    shrunken; ``pseudo``: pseudo-records of the prior.
    """

    x_cells: FloatArray
    cell: IntArray
    y: FloatArray
    h: FloatArray
    log_weight: FloatArray | None
    shrunken: int = 0
    pseudo: float = 0.0
    values: FloatArray = field(init=False)
    code: IntArray = field(init=False)
    pair_cell: IntArray = field(init=False)
    pair_y: FloatArray = field(init=False)
    joint: GaussianRecords | None = field(init=False)
    pairs: GaussianRecords = field(init=False)

    def __post_init__(self) -> None:
        values, code = np.unique(self.y, return_inverse=True)
        keys, first, pair = np.unique(
            self.cell * values.size + code, return_index=True, return_inverse=True
        )
        cell, y = keys // values.size, values[keys % values.size]
        rows = np.column_stack([y, self.h[first], self.x_cells[cell]])
        joint, log_weight = None, np.empty((self.y.size, 0))
        if self.log_weight is not None:
            log_weight = self.log_weight[:, None]
            both = np.column_stack([self.h, self.log_weight])
            joint = GaussianRecords(self.x_cells, self.cell, both, shrunken=self.shrunken)
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "values", values)
        set_field(self, "code", code)
        set_field(self, "pair_cell", cell)
        set_field(self, "pair_y", y)
        set_field(self, "joint", joint)
        set_field(self, "pairs", GaussianRecords(rows, pair.astype(np.int64), log_weight))

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.cell.size)

    def weight_stats(
        self, risk_weights: FloatArray, scale: float | None = None
    ) -> GaussianStats | None:
        """Compute the statistics of the weight component, if there is a weight, with its ridge."""
        if self.joint is None:
            return None
        return gaussian.compress(self.joint, risk_weights).with_ridge(scale)


def sum_by(code: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Sum values (n,) by code in 0..size - 1."""
    return np.asarray(np.bincount(code, weights=values, minlength=size), dtype=np.float64)


def filled_up(parts: Sequence[FloatArray]) -> FloatArray:
    """Join arrays (B_i, T_i, ...) along the first axis, zeros behind the second."""
    longest = max(part.shape[1] for part in parts)
    return np.concatenate(
        [
            np.pad(part, [(0, 0), (0, longest - part.shape[1]), *[(0, 0)] * (part.ndim - 2)])
            for part in parts
        ]
    )


def log_lik_blocks(
    outcome: Callable[[Theta, FloatArray, FloatArray], FloatArray],
    theta: Theta,
    records: PairRecords,
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Stream (rows (b,), log_lik (S, b)) of outcome and weight together.

    outcome(theta, y (P,), x (P, K)): log-likelihoods (S, P) of distinct pairs.
    """

    def form(theta: Theta, rows: FloatArray, centre: FloatArray) -> QuadraticForm:
        of_outcome = outcome(theta, rows[:, 0], rows[:, 2:])
        if "weight_coefficients" not in theta:
            draws, pairs = of_outcome.shape
            return QuadraticForm(of_outcome, np.empty((draws, pairs, 0)), np.empty((draws, 0, 0)))
        coefficients = theta["weight_coefficients"][:, :, None]
        variance = theta["weight_variance"][:, :, None]
        of_weight = log_lik.normal_form(coefficients, variance, rows[:, 1:], centre)
        constant = of_weight.constant + of_outcome
        return QuadraticForm(constant, of_weight.linear, of_weight.precision)

    return log_lik.log_lik_blocks(form, theta, records.pairs)
