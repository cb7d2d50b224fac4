"""A small public table with a binary and a semicontinuous outcome, and samples of a known law."""

from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationDesign
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

OUTCOMES = (
    Outcome("works", "binary"),
    Outcome("benefit", "semicontinuous", Transform("identity"), spikes=(0.0,)),
    Outcome("age", transform=Transform("identity")),
)
X = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
GROUP = np.array([0, 0, 1])


#: Amounts on two sides of a split, and a spike beside them.
SIDES = (
    Outcome("works", "binary"),
    Outcome("tax", "semicontinuous", Transform("identity"), spikes=(0.0,), split=0.0),
)


def two_sided_design() -> LocationDesign:
    """Three cells in two groups, six combinations, three patterns; above, below and log weight, of
    which a record has two at most."""
    shape = LocationShape(X, GROUP, SIDES, weighted=True)
    return LocationDesign.optimal(shape, Clipping(np.zeros(3), np.ones(3), 4.0))


def small_shape() -> LocationShape:
    """Three cells in two groups, four combinations, two patterns, q = 3."""
    return LocationShape(X, GROUP, OUTCOMES, weighted=True)


def small_design() -> LocationDesign:
    """The same with a clipping that hardly any record meets."""
    return LocationDesign.optimal(small_shape(), Clipping(np.zeros(3), np.ones(3), 4.0))


@dataclass(frozen=True)
class Law:
    """log_p (C, D) of combinations by cell; coefficients (width, q) and covariances (G, q, q) of
    z given x~, of which a pattern has a part."""

    log_p: FloatArray
    coefficients: FloatArray
    covariance: FloatArray

    def of_pattern(self, shape: LocationShape, pattern: int) -> tuple[FloatArray, FloatArray]:
        """(1, G, width, q_p) and (1, G, q_p, q_p)."""
        there = np.flatnonzero(shape.patterns[pattern])
        beta = np.broadcast_to(self.coefficients[:, there], (shape.groups, shape.width, there.size))
        return beta[None], self.covariance[:, there[:, None], there][None]


def known_law(seed: int = 3) -> Law:
    """Some law whose records lie well inside the ball."""
    rng = np.random.default_rng(seed)
    shape = small_shape()
    logits = rng.normal(0.0, 0.7, (len(X), len(shape.combinations)))
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    factor = rng.normal(0.0, 0.15, (2, 3, 3)) + 0.5 * np.eye(3)
    return Law(
        log_p,
        rng.normal(0.0, 0.4, (shape.width, 3)),
        factor @ factor.swapaxes(-1, -2),
    )


def draw_records(
    law: Law, cell: IntArray, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Combinations (n,) and z (n, q), whatever where it is not there."""
    shape = small_shape()
    combination = np.empty(cell.size, dtype=np.int64)
    for c in range(len(X)):
        own = cell == c
        combination[own] = rng.choice(len(law.log_p[c]), own.sum(), p=np.exp(law.log_p[c]))
    x = np.hstack([X[cell], shape.indicators[combination]])
    root = np.linalg.cholesky(law.covariance)[GROUP[cell]]
    noise = (root @ rng.standard_normal((cell.size, 3, 1)))[..., 0]
    return combination, x @ law.coefficients + noise
