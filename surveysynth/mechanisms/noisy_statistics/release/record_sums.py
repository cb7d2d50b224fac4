"""What each record of a synthetic dataset adds to the noisy statistics, and their noise.

Only what ``location_statistics`` published is used here, and records that are not confidential.
"""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    require_general,
    table_of,
)
from surveysynth.models.base import Model
from surveysynth.survey.survey import Confidential, PublicDesign


def record_sums(
    model: Model, design: PublicDesign, statistics: LocationStatistics, dataset: Confidential
) -> FloatArray:
    """Return the addends (n, P) of a dataset's records."""
    general, own = require_general(model), statistics
    records, shape = general.records(design, dataset), table_of(general, design)
    cell, z, combination = records.cell, records.z, shape.combination_of(records.category)
    rows = shape.tilde[cell, combination]
    block_of = shape.pattern[combination] * shape.groups + shape.group[cell]
    parts = []
    for number, basis in enumerate(own.basis):
        here = block_of == own.block_pattern[number] * shape.groups + own.block_group[number]
        there = own.present[own.block_pattern[number]]
        ball = Clipping(own.centres[number], own.spread, own.radius)
        u = ball.on_grid(np.where(there, z[here], ball.centre))[:, there] * ball.step
        upper = np.triu_indices(u.shape[1])
        made = np.zeros((len(z), basis.shape[1] * u.shape[1] + upper[0].size))
        cross = (rows[here] @ basis)[:, :, None] * u[:, None, :]
        cross = cross.reshape(len(u), basis.shape[1] * u.shape[1])  # of none, too
        made[here] = np.hstack([cross, u[:, upper[0]] * u[:, upper[1]]])
        parts.append(made)
    if _counted(own):
        counts = np.zeros((len(z), own.counts.size))
        counts[np.arange(len(z)), cell * len(shape.combinations) + combination] = 1.0
        parts.append(counts)
    return np.hstack(parts)


def noisy_sums(
    model: Model, design: PublicDesign, statistics: LocationStatistics
) -> tuple[FloatArray, FloatArray]:
    """Return the published sums (P,) and the variances (P,) of their noise.

    Sums of two stages are their mean by precision, about the centers of the second.
    """
    sums, sds, own = [], [], statistics
    shape = table_of(require_general(model), design)
    x, group = shape.x_cells[design.matrix.cell], shape.group[design.matrix.cell]
    for number, squares in enumerate(own.squares):
        cross = own.cross[number]
        if own.first is not None:  # there are no categories
            rows = x[group == own.block_group[number]] @ own.basis[number]
            about = np.outer(rows.sum(axis=0), own.first.centres[number])
            share = (own.pooled_sigma / own.sigma) ** 2
            cross = share * cross + (1.0 - share) * (own.first.cross[number] - about)
        upper = np.triu_indices(len(squares))
        sums += [cross.ravel(), squares[upper]]
        sds.append(np.full(cross.size, own.pooled_sigma))
        sds.append(np.where(upper[0] == upper[1], *own.squares_sd))
    if _counted(own):
        sums.append(own.counts)
        sds.append(np.full(own.counts.size, own.count_sd))
    return np.concatenate(sums), np.asarray(np.concatenate(sds) ** 2)


def _counted(own: LocationStatistics) -> bool:
    """Return whether counts say anything: records of a cell without categories are public."""
    return len(own.present) > 1 or own.counts.size > own.block_group.max() + 1
