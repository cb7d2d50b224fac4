"""Extremes of the log-likelihood by record and by draw, streamed (methods 2 and 4).

log_lik[s, i] is always the unweighted log-likelihood; the risk weights alpha are applied here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray

#: Share of the records whose log-likelihood lies below the "peak". Not the largest of all, which
#: one record would set.
PEAK_QUANTILE = 0.98


@dataclass(frozen=True, repr=False)
class LikelihoodExtremes(Unpickled):
    """lowest, highest (n,): the extremes over draws of a record's unweighted log-likelihood."""

    lowest: FloatArray
    highest: FloatArray

    def peak(self) -> float:
        """Return the log-likelihood of records near the mode of their density.

        The quantile ``PEAK_QUANTILE`` over records of the middle of its range over draws
        (methods 2.2)."""
        with np.errstate(invalid="ignore"):
            middle = 0.5 * (self.lowest + self.highest)
        middle = middle[np.isfinite(middle)]
        return float(np.quantile(middle, PEAK_QUANTILE)) if middle.size else 0.0

    def measured_from(self, origin: float) -> "LikelihoodExtremes":
        """Return the extremes of log_lik + origin; the range stays the same."""
        return LikelihoodExtremes(self.lowest + origin, self.highest + origin)

    @property
    def lipschitz(self) -> FloatArray:
        """f_i = max_s |log_lik[s, i]|, (n,); infinite where a log-likelihood is not finite."""
        largest = np.maximum(np.abs(self.lowest), np.abs(self.highest))
        return np.where(np.isfinite(largest), largest, np.inf)

    @property
    def oscillation(self) -> FloatArray:
        """max_s log_lik - min_s log_lik, (n,); infinite where one is not finite."""
        with np.errstate(invalid="ignore"):
            spread = self.highest - self.lowest
        return np.where(np.isfinite(spread), spread, np.inf)

    @property
    def risk(self) -> FloatArray:
        """max(f_i, oscillation), (n,): what alpha_i multiplies in the bound of record i."""
        return np.maximum(self.lipschitz, self.oscillation)


@dataclass(frozen=True, repr=False)
class RecordBounds(Unpickled):
    """Weighted bounds of the records: lipschitz L_i and oscillation, each (n,) (methods 2)."""

    lipschitz: FloatArray
    oscillation: FloatArray

    @property
    def realised(self) -> float:
        """max(Delta, max osc): the bound that epsilon = 2 m times counts."""
        return float(max(self.lipschitz.max(), self.oscillation.max()))


def likelihood_extremes(
    blocks: Iterable[tuple[IntArray, FloatArray]], n: int
) -> LikelihoodExtremes:
    """Return running extremes over draws.

    Blocks of (rows (b,), log_lik (S, b)) cover each record once.

    A non-finite log-likelihood makes a record's extreme non-finite (methods 2: alpha = 0).
    """
    lowest, highest = np.empty(n), np.empty(n)
    for rows, log_lik in blocks:
        lowest[rows] = log_lik.min(axis=0)
        highest[rows] = log_lik.max(axis=0)
    return LikelihoodExtremes(lowest, highest)


def weighted_bounds(extremes: LikelihoodExtremes, risk_weights: FloatArray) -> RecordBounds:
    """Return L_i = alpha_i f_i and osc_i; a record with alpha_i = 0 has left the likelihood: 0."""
    active = risk_weights > 0
    with np.errstate(invalid="ignore"):
        lipschitz = np.where(active, risk_weights * extremes.lipschitz, 0.0)
        oscillation = np.where(active, risk_weights * extremes.oscillation, 0.0)
    return RecordBounds(lipschitz, oscillation)


def largest_by_draw(
    blocks: Iterable[tuple[IntArray, FloatArray]], risk_weights: FloatArray, draws: int
) -> FloatArray:
    """Return max_i alpha_i |log_lik[s, i]| for each draw, (S,): truncation orders draws by it."""
    largest = np.zeros(draws)
    for rows, log_lik in blocks:
        alpha = risk_weights[rows]
        active = alpha > 0
        if active.any():
            weighted = np.abs(log_lik[:, active]) * alpha[active]
            np.maximum(largest, weighted.max(axis=1), out=largest)
    return largest
