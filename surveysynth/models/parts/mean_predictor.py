"""The mean linear predictor of a model matrix, and the direction of coefficients that moves it."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.survey.design_matrix import DesignMatrix


def constant_direction(matrix: DesignMatrix) -> FloatArray:
    """Return e (K,) with X e nearest to 1, and on average 1 over the records."""
    ones = np.ones(len(matrix.x_cells))
    direction: FloatArray = np.linalg.lstsq(matrix.x_cells, ones, rcond=None)[0].astype(np.float64)
    return direction / float(mean_row(matrix) @ direction)


def mean_row(matrix: DesignMatrix) -> FloatArray:
    """Return the mean row (K,) of X over records.

    Its product with coefficients is their mean linear predictor, which moves by 1 along
    ``constant_direction``.
    """
    shares = np.bincount(matrix.cell, minlength=len(matrix.x_cells)) / matrix.n
    return np.asarray(shares @ matrix.x_cells)
