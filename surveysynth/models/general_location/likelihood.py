"""Log-likelihoods of records, streamed block by block (methods 4).

Within a block, a group with one pattern of present amounts, a record's log-likelihood is quadratic
in its z; its constant holds the logits, which are found once for each distinct row.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.general_location.layout import Layout, LogitPart
from surveysynth.models.general_location.records import Block, GeneralRecords
from surveysynth.models.parts import log_lik, logit
from surveysynth.models.parts.log_lik import QuadraticForm


@dataclass(frozen=True, repr=False)
class Chain:
    """The regressions of the present columns in one group, of S draws.

    coefficients (S, q, W) on x~, zero where a regression looks at no such column; lower (S, q, q)
    with the slopes on earlier columns, strictly lower; variance (S, q).
    """

    coefficients: FloatArray
    lower: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, theta: Theta, layout: Layout, group: int, present: IntArray) -> "Chain":
        """Of draws (S, ...), the columns ``present`` (q,) of z. A group that the draws do not have
        is an ``IndexError``."""
        draws = next(iter(theta.values())).shape[0]
        q = present.size
        coefficients, lower = np.zeros((draws, q, layout.width)), np.zeros((draws, q, q))
        variance = np.empty((draws, q))
        for i, position in enumerate(present):
            part = layout.regressions[int(position)]
            core = theta[f"coefficients_{part.name}"]
            slopes = core[:, part.columns.size :]
            if f"slopes_{part.name}" in theta:
                slopes = slopes + theta[f"slopes_{part.name}"][:, group]
            coefficients[:, i, part.columns] = core[:, : part.columns.size]
            # Slopes on what is not there (the other side of a split has none) are passed over.
            lower[:, i, :i] = slopes[:, np.searchsorted(part.earlier, present[:i])]
            variance[:, i] = theta[f"variance_{part.name}"][:, group]
        return cls(coefficients, lower, variance)

    def form(self, rows: FloatArray, centre: FloatArray) -> QuadraticForm:
        """log p(z | x~) about ``centre`` (r, q) for rows (r, W) of x~."""
        q = self.lower.shape[-1]
        # Residuals of a record: e = turned d + rest, d = z - centre.
        turned = np.eye(q) - self.lower
        fitted = rows @ self.coefficients.swapaxes(-1, -2)
        rest = centre @ turned.swapaxes(-1, -2) - fitted
        scaled = turned / self.variance[:, :, None]
        linear = -rest @ scaled
        norm = -0.5 * np.log(2.0 * np.pi * self.variance).sum(-1)
        squares = (rest * rest / self.variance[:, None, :]).sum(-1)
        precision = turned.swapaxes(-1, -2) @ scaled
        return QuadraticForm(norm[:, None] - 0.5 * squares, linear, precision)

    def normal(self) -> tuple[FloatArray, FloatArray]:
        """The implied normal law of z given x~: coefficients (S, W, q) and covariance (S, q, q)."""
        q = self.lower.shape[-1]
        inverse = np.linalg.inv(np.eye(q) - self.lower)
        covariance = (inverse * self.variance[:, None, :]) @ inverse.swapaxes(-1, -2)
        return (inverse @ self.coefficients).swapaxes(-1, -2), covariance


def logit_matrix(theta: Theta, part: LogitPart) -> FloatArray:
    """Coefficients (S, P, C - 1) of a logit."""
    return theta[f"logit_{part.name}"]


def discrete_log_mass(theta: Theta, layout: Layout, rows: FloatArray) -> FloatArray:
    """log p(d | x) (S, r) of rows (r, W) of x~, which say what x and d are."""
    draws = next(iter(theta.values())).shape[0]
    result = np.zeros((draws, rows.shape[0]))
    for part in layout.logits:
        eta = rows[:, part.columns] @ logit_matrix(theta, part)
        # The own category's predictor; the first category has none.
        result += np.einsum("src,rc->sr", eta, rows[:, part.own])
        result -= logit.log_total(eta)
    return result


def log_lik_blocks(
    theta: Theta, records: GeneralRecords
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Streams (rows (b,), log_lik (S, b)), unweighted; the array yielded is overwritten."""
    for block in records.blocks:
        for local, values in _of_block(theta, records.layout, block):
            yield block.index[local], values


def _of_block(
    theta: Theta, layout: Layout, block: Block
) -> Iterator[tuple[IntArray, FloatArray]]:
    chain = Chain.of(theta, layout, block.group, block.columns)

    def form(
        theta: Theta, rows: FloatArray, centre: FloatArray, psu: IntArray | None
    ) -> QuadraticForm:
        gaussian = chain.form(rows, centre)
        discrete = discrete_log_mass(theta, layout, rows)
        return QuadraticForm(gaussian.constant + discrete, gaussian.linear, gaussian.precision)

    yield from log_lik.log_lik_blocks(form, theta, block.values)
