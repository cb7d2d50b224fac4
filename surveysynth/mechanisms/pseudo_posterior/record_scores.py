"""What each record of a synthetic dataset adds to the sums that scores of a model are made of."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.models.general_location.layout import Layout
from surveysynth.models.general_location.simulate import columns_of
from surveysynth.survey.survey import Confidential, PublicDesign


def record_scores(design: PublicDesign, dataset: Confidential) -> FloatArray:
    """Return x times categories, x and categories times amounts, and products of amounts."""
    layout, n = Layout.of(design, grouped=False), len(dataset.outcome)
    category = np.zeros((n, len(design.outcomes)), dtype=np.int64)
    values = np.zeros((n, len(design.outcomes)))
    for j, outcome in enumerate(design.outcomes):
        given = dataset.outcome[:, j]
        category[:, j] = outcome.category(given) if outcome.is_discrete else 0
        for side in outcome.sides:
            there = category[:, j] == side
            values[there, j] = outcome.at(there).forward(given[there], side)
    if layout.weighted and dataset.sampling_weight is not None:
        weight = design.weight_transform.forward(dataset.sampling_weight)
        values = np.column_stack([values, weight])
    z, x = columns_of(layout, category, values), design.matrix.x_cells[design.matrix.cell]
    rows, upper = layout.tilde(x, category), np.triu_indices(z.shape[1])
    pairs = ((rows, z), (x, rows[:, x.shape[1] :]))
    products = [(one[:, :, None] * two[:, None, :]).reshape(n, -1) for one, two in pairs]
    return np.hstack([*products, z[:, upper[0]] * z[:, upper[1]]])
