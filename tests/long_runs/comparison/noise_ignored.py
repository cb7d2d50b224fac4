"""The noisy statistics of surveysynth, taken as if they were exact.

Sums and squares of each group give least-squares coefficients and residual squares, which are made
positive definite. A normal-inverse-Wishart posterior that knows nothing of the noise follows from
them, and datasets from its draws: the same statistics, without the noise in the model.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import invwishart

from surveysynth._support.types import FloatArray
from surveysynth.inference.synthesis import SyntheticDataset, scaled
from surveysynth.mechanisms.noisy_statistics.posterior.noisy_table import NoisyTable
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    require_general,
    table_of,
)
from surveysynth.models.base import Model, Simulated
from surveysynth.survey.survey import PublicDesign

#: Least residual variance, in squared spreads.
LEAST = 1e-3


def posterior(
    rows: FloatArray,
    sizes: FloatArray,
    sums: FloatArray,
    squares: FloatArray,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draw means (cells, q) and a covariance (q, q) from sums taken as exact.

    rows (cells, r) of A with ``sizes`` records each; sums A'U (r, q); squares U'U (q, q).
    """
    gram = (rows * sizes[:, None]).T @ rows
    inverse = np.linalg.pinv(gram, hermitian=True)
    center, rank = inverse @ sums, np.linalg.matrix_rank(gram, hermitian=True)
    values, vectors = np.linalg.eigh(squares - sums.T @ center)
    left = max(sizes.sum() - rank, squares.shape[0] + 1.0)
    rest = (vectors * np.maximum(values, LEAST * left)) @ vectors.T
    covariance = np.atleast_2d(invwishart(left, rest).rvs(random_state=rng))
    values, turned = np.linalg.eigh(inverse)
    root = turned * np.sqrt(np.maximum(values, 0.0))
    errors = root @ rng.standard_normal(sums.shape) @ np.linalg.cholesky(covariance).T
    return rows @ (center + errors), covariance


def datasets(
    model: Model,
    design: PublicDesign,
    statistics: Any,
    draws: int,
    replicates: int,
    rng: np.random.Generator,
) -> Iterator[SyntheticDataset]:
    """Yield datasets of a design with one amount and a weight, from noisy statistics."""
    shape, cell = table_of(require_general(model), design), design.matrix.cell
    table = NoisyTable.of(shape, cell, statistics, np.eye(design.matrix.n_columns))
    (pattern,) = table.patterns
    given = design.modelled[-1].learned if design.learns_weight else None
    limits = None if given is None else (given.low, given.high)
    means = np.zeros((len(shape.x_cells), table.center.size))
    roots = np.zeros((shape.groups, table.center.size, table.center.size))
    for draw in range(draws):
        for group, padded in enumerate(table.cells):
            own = padded[padded >= 0]
            means[own], covariance = posterior(
                pattern.rows[group, : own.size, 0], table.sizes[own].astype(np.float64),
                pattern.sums[group], pattern.squares[group], rng,
            )  # fmt: skip
            means[own] += pattern.centers[group]
            roots[group] = np.linalg.cholesky(covariance)
        for replicate in range(replicates):
            noise = rng.standard_normal((len(cell), table.center.size, 1))
            u = means[cell] + (roots[shape.group[cell]] @ noise)[:, :, 0]
            simulated = Simulated(table.center + table.spread * u)
            weight = scaled(model.drawn_weight(design, simulated), design.population_size, limits)
            pair = simulated.outcomes(design), weight
            yield SyntheticDataset(draw + 1, replicate + 1, *pair, *pair)
