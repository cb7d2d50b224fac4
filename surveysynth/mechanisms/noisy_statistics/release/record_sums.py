"""What each record of a synthetic dataset adds to the noisy statistics, and their noise.

Only what ``location_statistics`` published is used here, and records that are not confidential.
"""

from collections.abc import Sequence

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.module_statistics import ModuleStatistics
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    Statistics,
    require_general,
    table_of,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.base import Model
from surveysynth.survey.survey import Confidential, PublicDesign


def parts_of(statistics: Statistics) -> Sequence[LocationStatistics]:
    """Return the statistics of each module; of one without modules, themselves."""
    return statistics.modules if isinstance(statistics, ModuleStatistics) else (statistics,)


def record_sums(
    model: Model,
    design: PublicDesign,
    settings: NoisySettings,
    statistics: Statistics,
    dataset: Confidential,
) -> FloatArray:
    """Return the addends (n, P) of a dataset's records, module after module."""
    general, found = require_general(model), []
    for each, own in zip(settings.modules_of(design), parts_of(statistics), strict=True):
        part = general.of(each.design)
        records = require_general(part).records(each.design, each.of(dataset))
        shape = table_of(require_general(part), each.design)
        found.append(_of_module(shape, own, records.cell, records.category, records.z))
    return np.hstack(found)


def noisy_sums(
    model: Model, design: PublicDesign, settings: NoisySettings, statistics: Statistics
) -> tuple[FloatArray, FloatArray]:
    """Return the published sums (P,) and the variances (P,) of their noise.

    Sums of two stages are their mean by precision, about the centers of the second.
    """
    sums, sds = [], []
    for each, own in zip(settings.modules_of(design), parts_of(statistics), strict=True):
        shape = table_of(require_general(require_general(model).of(each.design)), each.design)
        x, group = shape.x_cells[each.design.matrix.cell], shape.group[each.design.matrix.cell]
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


def _of_module(
    shape: LocationShape, own: LocationStatistics, cell: IntArray, category: IntArray, z: FloatArray
) -> FloatArray:
    combination = shape.combination_of(category)
    rows = np.hstack([shape.x_cells[cell], shape.indicators[combination]])
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
        made[here] = np.hstack([cross.reshape(len(u), -1), u[:, upper[0]] * u[:, upper[1]]])
        parts.append(made)
    if _counted(own):
        counts = np.zeros((len(z), own.counts.size))
        counts[np.arange(len(z)), cell * len(shape.combinations) + combination] = 1.0
        parts.append(counts)
    return np.hstack(parts)


def _counted(own: LocationStatistics) -> bool:
    """Return whether counts say anything: records of a cell without categories are public."""
    return len(own.present) > 1 or own.counts.size > own.block_group.max() + 1
