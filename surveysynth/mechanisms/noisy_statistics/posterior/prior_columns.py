"""Columns of X about which a prior has no favourite level.

A formula codes a variable by differences from a reference level. With one normal for each, noisy
sums of that level would be drawn to all others at once, L - 1 times as strongly as theirs to it.
Here the effects of all L levels are alike, about an intercept:

    c_1 = mu + sum_f a_f1,  c_fl = a_fl - a_f1,  mu and a_fl ~ N(0, tau^2)
"""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.survey.design_matrix import DesignMatrix

_INTERCEPT, _LEVEL = "Intercept", "[T."


def alike(matrix: DesignMatrix) -> FloatArray:
    """Return the root (K, K) of coefficients c = root e on X with e ~ N(0, tau^2) each.

    The identity where no variable is coded by differences from a level."""
    size = matrix.n_columns
    if _INTERCEPT not in matrix.columns:
        return np.eye(size)
    first, effects = matrix.columns.index(_INTERCEPT), [np.eye(size)]
    for own in _factors(matrix):
        reference = np.zeros((size, 1))
        reference[own] = -1.0
        reference[first] = 1.0
        effects.append(reference)
    of_effects = np.hstack(effects)
    return np.asarray(np.linalg.cholesky(of_effects @ of_effects.T), dtype=np.float64)


def _factors(matrix: DesignMatrix) -> list[list[int]]:
    """Return the columns of each variable that is coded by differences from a level."""
    terms: dict[str, list[int]] = {}
    for k, name in enumerate(matrix.columns):
        if _LEVEL in name and name.endswith("]") and not matrix.ridged[k]:
            terms.setdefault(name[: name.index(_LEVEL)], []).append(k)
    return [own for own in terms.values() if _indicate(matrix.x_cells[:, own])]


def _indicate(columns: FloatArray) -> bool:
    """Return True for indicators (G, L - 1) of all levels but one."""
    return bool(np.isin(columns, (0.0, 1.0)).all() and (columns.sum(1) <= 1.0).all())
