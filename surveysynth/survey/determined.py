"""Find outcomes and weights that the public columns determine, by residual spreads given X.

Where a residual spread is near zero the density has no limit, so no bound holds (methods 1).
Discrete parts are safe: the log-likelihood of a level is at most zero. Messages contain names,
never a value.
"""

from collections.abc import Sequence

import numpy as np

from surveysynth._support.messages import listing, records
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.survey.design_matrix import TOLERANCE, DesignMatrix
from surveysynth.survey.public_design import PublicDesign

_IF_OF_THE_DESIGN = (
    "If the weight is a constant of the sample design, set weights = 'public', which publishes it "
    "unchanged and without protection. Otherwise"
)
#: Residual standard deviation of log weight given X at or below which X determines the weight.
MIN_WEIGHT_SD = 0.01
#: The same for an outcome, as a share of its standard deviation (and absolute on a log scale).
MIN_OUTCOME_SHARE = 0.01


def determined_problems(
    design: PublicDesign, outcome: FloatArray, weight: FloatArray | None
) -> list[str]:
    """List confidential columns that are (nearly) functions of X, the PSUs, or other outcomes.

    ``outcome``: (n, p) in original units; ``weight``: (n,), or None if it is not confidential.
    """
    log_weight = None if weight is None else np.log(weight)
    if any(each.is_discrete for each in design.outcomes):
        return list(dict.fromkeys(_chain_problems(design, outcome, log_weight)))
    pairs = zip(design.outcomes, outcome.T, strict=True)
    parts = [each.transform.forward(values) for each, values in pairs]
    values = np.stack([*parts, *([] if log_weight is None else [log_weight])], axis=1)
    problems = _problems_given_x(design, values)
    # With a design effect the model has no effects of PSUs.
    if problems or design.psu is None or design.design_effect is not None:
        return problems
    return _problems_within_units(design, design.psu, values)


def _problems_given_x(design: PublicDesign, values: FloatArray) -> list[str]:
    """``values``: (n, q) outcomes on the model's scale, then the log weight if it has a name."""
    matrix = design.matrix
    freedom = matrix.n - matrix.n_columns
    if freedom <= 0:
        return [
            f"the predictors {matrix.formula!r} have as many columns as there are records "
            f"({matrix.n:,}), so nothing is left to model; use fewer predictors."
        ]
    residuals = least_squares_residuals(matrix, values)
    # On a log scale the share of the spread is a share of one, too.
    floors = [1.0 if outcome.transform.kind == "log" else 0.0 for outcome in design.outcomes]
    remedy = "Remove the predictors that determine it."
    return _spread_problems(design, values, residuals, freedom, "", remedy, floors)


def _problems_within_units(
    design: PublicDesign, psu: IntArray, values: FloatArray
) -> list[str]:
    """Return the problems given X and the PSU, whose codes (n,) are 0 to C - 1.

    The likelihood of a record is conditional on the effect of its PSU, so it has no bound where
    both together determine the record.
    """
    matrix, units = design.matrix, int(psu.max()) + 1
    remedy = (
        "Declare design_effect, with which the model has no effects of PSUs, or remove psu if the "
        "sample is one-stage."
    )
    inside, centred = within_groups(matrix, values, psu)
    freedom = matrix.n - units - inside.n_columns
    if freedom <= 0:
        return [
            f"psu {design.psu_name!r} has {units:,} units for {matrix.n:,} records, so nothing is "
            f"left to model within units. {remedy}"
        ]
    residuals = least_squares_residuals(inside, centred)
    others = f" and the units of psu {design.psu_name!r}"
    floors = [0.0] * len(design.outcomes)
    return _spread_problems(design, values, residuals, freedom, others, remedy, floors)


def _spread_problems(
    design: PublicDesign,
    values: FloatArray,
    residuals: FloatArray,
    freedom: int,
    others: str,
    remedy: str,
    floors: Sequence[float],
) -> list[str]:
    """List columns of ``values`` (n, q) whose residuals (n, q) have a spread near zero.

    ``others``: the predictors besides X, in words; ``floors``: least spread of each outcome whose
    share is compared. Without such columns, return one that the others determine.
    """
    scale = np.sqrt((residuals**2).sum(axis=0) / freedom)
    what = _function_of(design.matrix, others)
    problems = [
        f"outcome {name!r} {what}. {remedy}"
        for name, own, total, floor in zip(
            design.outcome_names, scale, values.std(axis=0), floors, strict=False
        )
        if own < MIN_OUTCOME_SHARE * max(total, floor)
    ]
    if design.weight_name is not None and scale[-1] < MIN_WEIGHT_SD:
        otherwise = remedy[0].lower() + remedy[1:]
        problems.append(f"weight {design.weight_name!r} {what}. {_IF_OF_THE_DESIGN} {otherwise}")
    names = (*design.outcome_names, *([design.weight_name] if design.weight_name else []))
    return problems or _problems_among(residuals, names)


def _chain_problems(
    design: PublicDesign, values: FloatArray, log_weight: FloatArray | None
) -> list[str]:
    """List problems where outcomes have discrete parts.

    Each amount is regressed among its records at no spike, each side of a split separately, on X,
    the discrete parts, and the earlier amounts; so is the log weight (n,). ``values``: (n, p)
    outcomes in original units, levels by their position.
    """
    matrix, outcomes, problems = design.matrix, design.outcomes, list[str]()
    parts = {o.name: o.category(values[:, j]) for j, o in enumerate(outcomes) if o.is_discrete}
    earlier: list[FloatArray] = []
    for j, outcome in enumerate(outcomes):
        category = outcome.category(values[:, j])
        given = [*_indicators(parts, but=outcome.name), *earlier]
        for side in outcome.sides:
            present = category == side
            z = np.zeros(matrix.n)
            z[present] = outcome.forward(values[present, j], side)
            scale, total, nothing_left = _residual_scale(matrix, given, z, present, outcome.name)
            on_log = outcome.transform.kind == "log"
            if nothing_left:
                problems.append(nothing_left)
            elif scale < MIN_OUTCOME_SHARE * (max(total, 1.0) if on_log else total):
                problems.append(
                    f"outcome {outcome.name!r} {_function_of(matrix, ' and the other outcomes')}. "
                    "Remove what determines it."
                )
            earlier.append(z)
    if log_weight is None or problems:
        return problems
    everyone = np.ones(matrix.n, dtype=bool)
    given = [*_indicators(parts), *earlier]
    name = str(design.weight_name)
    scale, _, nothing_left = _residual_scale(matrix, given, log_weight, everyone, name)
    if nothing_left:
        return [nothing_left]
    return [
        f"weight {name!r} {_function_of(matrix, ' and the outcomes')}. {_IF_OF_THE_DESIGN} remove "
        "the predictors or the outcome that determine it."
    ] * (scale < MIN_WEIGHT_SD)


def _function_of(matrix: DesignMatrix, others: str = "") -> str:
    return (
        f"is (nearly) a function of the predictors {matrix.formula!r}{others}, so no finite bound "
        "protects it"
    )


def _indicators(parts: "dict[str, IntArray]", but: str = "") -> list[FloatArray]:
    """Return indicators (n,) of categories above 0, of all discrete parts but one."""
    return [
        (category == each).astype(np.float64)
        for name, category in parts.items()
        if name != but
        for each in np.unique(category[category > 0])
    ]


def _residual_scale(
    matrix: DesignMatrix,
    given: Sequence[FloatArray],
    z: FloatArray,
    present: BoolArray,
    name: str,
) -> tuple[float, float, str]:
    """Return the residual SD of z (n,) given X and other columns (n,), its SD, and a problem.

    Both are computed among the records present. The problem is too few records for the columns.
    """
    rows = matrix.x_cells[matrix.cell[present]]
    if len(rows) < 2 * (matrix.n_columns + len(given)):
        rows = rows[:, ~matrix.ridged]  # shrunken columns determine nothing
    rows = np.hstack([rows, *(g[present, None] for g in given)])
    length = np.sqrt((rows**2).sum(axis=0))
    rows = rows[:, length > 0] / length[length > 0]
    inside = z[present]
    fitted = rows @ (np.linalg.pinv(rows.T @ rows, hermitian=True) @ (rows.T @ inside))
    freedom = inside.size - rows.shape[1]
    if freedom <= 0:
        return 0.0, 0.0, (
            f"{name!r} has {records(inside.size)} at no spike for {rows.shape[1]:,} columns of "
            "predictors and other outcomes, so nothing is left to model; use fewer of them."
        )
    return float(np.sqrt(((inside - fitted) ** 2).sum() / freedom)), float(inside.std()), ""


def _problems_among(residuals: FloatArray, names: Sequence[str]) -> list[str]:
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


def within_groups(
    matrix: DesignMatrix, values: FloatArray, group: IntArray
) -> tuple[DesignMatrix, FloatArray]:
    """Return X and ``values`` (n, q) minus their means in each group (n,), codes 0..C-1.

    Regressions of these values on this X equal those on X and an indicator of every group. Columns
    of X that are constant within the groups are left out.
    """
    n_cells = matrix.x_cells.shape[0]
    size = np.bincount(group).astype(np.float64)
    keys, pair = np.unique(group * n_cells + matrix.cell, return_inverse=True)
    group_of, cell_of = np.divmod(keys, n_cells)
    rows = matrix.x_cells[cell_of]
    count = np.bincount(pair)[:, None]
    mean = np.stack(
        [np.bincount(group_of, weights=column) for column in (count * rows).T], axis=1
    ) / size[:, None]
    centred = rows - mean[group_of]
    before, after = (np.sqrt((count * part**2).sum(axis=0)) for part in (rows, centred))
    varies = after > TOLERANCE * before
    columns = tuple(name for name, kept in zip(matrix.columns, varies, strict=True) if kept)
    means = np.stack([np.bincount(group, weights=v) for v in values.T], axis=1) / size[:, None]
    rows, ridged = centred[:, varies], matrix.ridged[varies]
    inside = DesignMatrix(matrix.formula, columns, rows, pair.astype(np.int64), ridged=ridged)
    return inside, values - means[group]
