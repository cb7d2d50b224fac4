"""What debiasing shifts of a model's parameters (methods 8.3): the logs of its residual scales and,
of outcomes with levels, the log odds of each level."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.survey.design_matrix import DesignMatrix

ShiftKind: TypeAlias = Literal["scale", "odds"]
"""A residual scale, or the odds of a level against the reference level."""


@dataclass(frozen=True, repr=False)
class Coordinates:
    """logs (S, d) of scales and odds, of which draws; kinds: d of them, which is which."""

    logs: FloatArray
    kinds: tuple[ShiftKind, ...]

    def __post_init__(self) -> None:
        if self.logs.shape[-1:] != (len(self.kinds),):
            raise InputError(
                f"expected a column of logs for each of {len(self.kinds)} kinds, got an array of "
                f"shape {self.logs.shape}."
            )

    @classmethod
    def of_scales(cls, log_scales: FloatArray) -> "Coordinates":
        """Scales alone."""
        return cls(log_scales, ("scale",) * log_scales.shape[-1])

    def joined(self, other: "Coordinates") -> "Coordinates":
        """Both, in this order."""
        logs = np.concatenate([self.logs, other.logs], axis=-1)
        return Coordinates(logs, self.kinds + other.kinds)


def intercept_direction(matrix: DesignMatrix) -> FloatArray:
    """e (K,) with X e = 1: along it a linear predictor moves by the same amount for every record.

    Raises ``InputError`` for a model matrix whose columns give no constant.
    """
    ones = np.ones(len(matrix.x_cells))
    direction: FloatArray = np.linalg.lstsq(matrix.x_cells, ones, rcond=None)[0].astype(np.float64)
    if not np.allclose(matrix.x_cells @ direction, ones, atol=1e-8):
        raise InputError(
            f"the formula {matrix.formula!r} has no intercept, nor do its columns add up to one; "
            "without it the levels of an outcome cannot be debiased. Leave out '0 +' or '- 1'."
        )
    return direction


def mean_row(matrix: DesignMatrix) -> FloatArray:
    """Mean row (K,) of X over records: of coefficients b the mean linear predictor is its product
    with b, which moves by 1 along ``intercept_direction``."""
    shares = np.bincount(matrix.cell, minlength=len(matrix.x_cells)) / matrix.n
    return np.asarray(shares @ matrix.x_cells)
