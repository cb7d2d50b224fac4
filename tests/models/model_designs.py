"""Designs for tests of models, without files: X given directly, everything else at its plainest."""

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.models.gaussian.model import GaussianRecords
from surveysynth.survey.design_matrix import DesignMatrix
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.transforms import Transform


def make_design(
    x_cells: FloatArray, cell: IntArray, outcomes: int = 1, population_size: float | None = 1e5
) -> PublicDesign:
    """A public design with model matrix ``x_cells[cell]`` and outcomes on the model's scale."""
    columns = tuple(f"x{k}" for k in range(x_cells.shape[1]))
    return PublicDesign(
        frame=pd.DataFrame(index=pd.RangeIndex(cell.size)),
        by=(),
        levels={},
        matrix=DesignMatrix("x", columns, x_cells, cell.astype(np.int64)),
        strata=None,
        psu=None,
        fpc=None,
        lonely_psu="fail",
        population_size=population_size,
        outcomes=tuple(
            Outcome(f"y{j}", transform=Transform("identity")) for j in range(outcomes)
        ),
        weight_name="w",
        public_columns=(),
        predictors=columns,
        dropped=0,
    )


def group_design(
    n: int, groups: int = 3, outcomes: int = 1, population_size: float | None = 1e5
) -> PublicDesign:
    """Intercept and dummies of ``groups`` groups of unequal size: K = groups columns."""
    x_cells = np.eye(groups)
    x_cells[:, 0] = 1.0
    rng = np.random.default_rng(groups)
    cell = rng.choice(groups, n, p=np.arange(1, groups + 1) / (groups * (groups + 1) / 2))
    return make_design(x_cells, cell, outcomes, population_size)


def continuous_design(
    n: int, columns: int = 3, outcomes: int = 1, population_size: float | None = 1e5
) -> PublicDesign:
    """Intercept and normal predictors: n distinct rows, listed in another order."""
    rng = np.random.default_rng(columns)
    x = np.column_stack([np.ones(n), rng.normal(size=(n, columns - 1))])
    return make_design(x, rng.permutation(n), outcomes, population_size)


def rows_of(design: PublicDesign) -> FloatArray:
    """X (n, K)."""
    return design.matrix.x_cells[design.matrix.cell]


def records_of(design: PublicDesign, z: FloatArray) -> GaussianRecords:
    """Records of values z (n, q) that are on the model's scale."""
    return GaussianRecords(design.matrix.x_cells, design.matrix.cell, z)
