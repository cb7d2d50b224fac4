"""Find outcomes and weights without a spread of their own: constant, or functions of X.

Where a residual spread is near zero the density has no limit, so no bound of the pseudo-posterior
holds (methods 1). It takes plain amounts; its models refuse others. Messages contain names, never a
value.
"""

import numpy as np

from surveysynth._support.messages import listing
from surveysynth._support.types import FloatArray
from surveysynth.survey.design_matrix import DesignMatrix
from surveysynth.survey.public_design import PublicDesign

#: Residual standard deviation of log weight given X at or below which X determines the weight.
MIN_WEIGHT_SD = 0.01
#: The same for an outcome, as a share of its standard deviation (and absolute on a log scale).
MIN_OUTCOME_SHARE = 0.01
#: The same for its range on the model's scale, where it is constant.
_CONSTANT = 1e-9


def determined_problems(
    design: PublicDesign, outcome: FloatArray, weight: FloatArray | None
) -> list[str]:
    """List confidential columns that are constant, or (nearly) functions of X or of each other.

    ``outcome``: (n, p) plain amounts in original units; ``weight``: (n,), or None if it is not
    confidential. Residual spreads are those of least squares on X.
    """
    matrix, names = design.matrix, list(design.outcome_names)
    values = np.stack(
        [each.transform.forward(own) for each, own in zip(design.outcomes, outcome.T, strict=True)],
        axis=1,
    )
    size = np.maximum(1.0, np.abs(values).max(axis=0))
    constant = np.ptp(values, axis=0) <= _CONSTANT * size
    if constant.any():
        return [
            f"outcome {name!r} is constant after its transform, so it cannot be modelled. Choose "
            "another outcome (or another scale)."
            for name, same in zip(names, constant, strict=True)
            if same
        ]
    freedom = matrix.n - matrix.n_columns
    if freedom <= 0:
        return [
            f"the predictors {matrix.formula!r} have as many columns as there are records "
            f"({matrix.n:,}), so nothing is left to model; use fewer predictors."
        ]
    # On a log scale the share of the spread is a share of one, too.
    floor = [1.0 if each.transform.kind == "log" else 0.0 for each in design.outcomes]
    least = MIN_OUTCOME_SHARE * np.maximum(values.std(axis=0), floor)
    if weight is not None:
        names.append(str(design.weight_name))
        values = np.column_stack([values, np.log(weight)])
        least = np.append(least, MIN_WEIGHT_SD)
    residuals = least_squares_residuals(matrix, values)
    known = np.sqrt((residuals**2).sum(axis=0) / freedom) < least
    why = (
        f"is (nearly) a function of the predictors {matrix.formula!r}, so no finite bound protects "
        "it."
    )
    problems = [
        f"outcome {name!r} {why} Remove the predictors that determine it."
        for name, determined in zip(design.outcome_names, known, strict=False)
        if determined
    ]
    if weight is not None and known[-1]:
        problems.append(
            f"weight {names[-1]!r} {why} If the weight is a constant of the sample design, set "
            "weights = 'public', which publishes it unchanged and without protection. Otherwise "
            "remove the predictors that determine it."
        )
    return problems or _problems_among(residuals, names)


def _problems_among(residuals: FloatArray, names: list[str]) -> list[str]:
    """Return a problem if one column of residuals is (nearly) a combination of the others."""
    length = np.sqrt((residuals**2).sum(axis=0))
    unit = residuals / length
    correlation = unit.T @ unit
    singular = bool(np.linalg.eigvalsh(correlation).min() < 1e-10)
    # 1 / diag(inverse) is the share of a column's variance that the others leave unexplained.
    if not singular and (
        1.0 / np.diag(np.linalg.inv(correlation)).max() >= MIN_OUTCOME_SHARE**2
    ):
        return []
    return [
        f"one column of {listing(names)} is (nearly) a function of the others and the predictors; "
        "remove an outcome, since it adds nothing."
    ]


def least_squares_residuals(matrix: DesignMatrix, values: FloatArray) -> FloatArray:
    """Return residuals (n, q) of the least-squares regressions of ``values`` (n, q) on X.

    Only the mean of each distinct row matters for the coefficients, so this takes O(G K^2).
    """
    count = np.bincount(matrix.cell, minlength=matrix.x_cells.shape[0]).astype(np.float64)
    sums = np.stack(
        [np.bincount(matrix.cell, weights=v, minlength=count.size) for v in values.T], axis=1
    )
    root = np.sqrt(count)[:, None]
    length = np.sqrt(np.einsum("ij,ij->j", root * matrix.x_cells, root * matrix.x_cells))
    scaled = root * matrix.x_cells / length
    coefficients = np.linalg.lstsq(scaled, sums / root, rcond=None)[0]
    fitted = (matrix.x_cells / length) @ coefficients
    return np.asarray(values - fitted[matrix.cell], dtype=np.float64)
