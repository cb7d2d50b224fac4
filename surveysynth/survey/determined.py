"""Whether the public columns tell an outcome or the weight: residual spreads of regressions on X.

Where one is near zero the density has no limit, and with it no bound holds (methods 1). Discrete
parts are no danger: the log-likelihood of a level is at most zero. Messages carry names, never a
value.
"""

from collections.abc import Sequence

import numpy as np

from surveysynth._support.messages import listing, records
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.survey.declaration import Roles
from surveysynth.survey.design_matrix import DesignMatrix, least_squares_residuals, within_groups
from surveysynth.survey.outcome import Outcome

_IF_OF_THE_DESIGN = (
    "If it is a constant of the sample design, declare it so: weights = 'public' publishes it as "
    "it is, and it needs no protection."
)
#: Residual standard deviation of log weight given X at or below which the weight is known from X.
MIN_WEIGHT_SD = 0.01
#: The same for an outcome, as a share of its standard deviation (and absolute on a log scale).
MIN_OUTCOME_SHARE = 0.01


def check_not_determined(
    matrix: DesignMatrix,
    transformed: FloatArray,
    log_weight: FloatArray | None,
    roles: Roles,
    kinds: Sequence[str],
    source: str,
) -> None:
    """Raise ``InputError`` when an outcome or the weight is (nearly) a function of the rest.

    ``transformed``: (n, p) outcomes on the model scale; ``log_weight``: (n,). Such a column has a
    residual scale near 0, where the density and with it the bound have no limit (methods 1).
    """
    parts = [transformed] if log_weight is None else [transformed, log_weight[:, None]]
    values = np.hstack(parts)
    residuals = least_squares_residuals(matrix, values)
    freedom = max(matrix.n - matrix.n_columns, 0)
    if freedom == 0:
        raise InputError(
            f"{source}: the predictors {matrix.formula!r} have as many columns as there are "
            f"records ({matrix.n:,}), so nothing is left to model; use fewer predictors."
        )
    scale = np.sqrt((residuals**2).sum(axis=0) / freedom)
    total = values.std(axis=0)
    for k, name in enumerate(roles.outcomes):
        on_log = kinds[k] == "log"
        if scale[k] < MIN_OUTCOME_SHARE * total[k] or (on_log and scale[k] < MIN_OUTCOME_SHARE):
            raise InputError(
                f"{source}: outcome {name!r} is (nearly) a function of the predictors "
                f"{matrix.formula!r}; a residual spread near zero has no bound. Leave out the "
                "predictors that determine it."
            )
    if log_weight is not None and scale[-1] < MIN_WEIGHT_SD:
        raise InputError(
            f"{source}: weight {roles.weight!r} is (nearly) a function of the predictors "
            f"{matrix.formula!r}, so the public columns tell it and no finite bound protects it. "
            f"{_IF_OF_THE_DESIGN} Otherwise leave out the predictors that determine it."
        )
    _check_apart(residuals, roles, source)


def check_not_determined_within(
    matrix: DesignMatrix,
    psu: IntArray,
    transformed: FloatArray,
    log_weight: FloatArray | None,
    roles: Roles,
    source: str,
) -> None:
    """Raise ``InputError`` when an outcome or the weight is (nearly) a function of X and the PSU.

    Arrays as in ``check_not_determined``; psu (n,) codes 0..C-1. The likelihood of a record is
    that given the effect of its PSU, so that it has no bound where both determine the record.
    """
    units = int(psu.max()) + 1
    remedy = (
        "Declare design_effect, with which the model has no effects of units, or leave out psu if "
        "the sample is one-stage."
    )
    parts = [transformed] if log_weight is None else [transformed, log_weight[:, None]]
    values = np.hstack(parts)
    inside, centred = within_groups(matrix, values, psu)
    freedom = matrix.n - units - inside.n_columns
    if freedom <= 0:
        raise InputError(
            f"{source}: psu {roles.psu!r} has {units:,} units for {matrix.n:,} records, so that "
            f"their effects leave nothing to model within units. {remedy}"
        )
    residuals = least_squares_residuals(inside, centred)
    scale, total = np.sqrt((residuals**2).sum(axis=0) / freedom), values.std(axis=0)
    for k, name in enumerate(roles.confidential):
        weight = name == roles.weight
        if scale[k] < (MIN_WEIGHT_SD if weight else MIN_OUTCOME_SHARE * total[k]):
            what = f"weight {name!r}" if weight else f"outcome {name!r}"
            advice = f"{_IF_OF_THE_DESIGN} Otherwise: {remedy}" if weight else remedy
            raise InputError(
                f"{source}: {what} is (nearly) a function of the predictors {matrix.formula!r} and "
                f"the units of psu {roles.psu!r}; a residual spread near zero has no bound. "
                f"{advice}"
            )
    _check_apart(residuals, roles, source)


def check_chain_not_determined(
    matrix: DesignMatrix,
    outcomes: Sequence[Outcome],
    values: FloatArray,
    log_weight: FloatArray | None,
    roles: Roles,
    source: str,
) -> None:
    """``check_not_determined`` where outcomes have discrete parts: each amount among its records at
    no spike, each side of a split by itself, and the log weight (n,), given X, the discrete parts
    and the earlier amounts.

    ``values``: (n, p) outcomes in original units, levels by their position.
    """
    parts = {o.name: o.category(values[:, j]) for j, o in enumerate(outcomes) if o.is_discrete}
    earlier: list[FloatArray] = []
    for j, outcome in enumerate(outcomes):
        category = outcome.category(values[:, j])
        given = [*_indicators(parts, but=outcome.name), *earlier]
        for side in outcome.sides:
            present = category == side
            z = np.zeros(matrix.n)
            z[present] = outcome.forward(values[present, j], side)
            scale, total = _residual_scale(matrix, given, z, present, outcome.name, source)
            on_log = outcome.transform.kind == "log"
            if scale < MIN_OUTCOME_SHARE * (max(total, 1.0) if on_log else total):
                raise InputError(
                    f"{source}: outcome {outcome.name!r} is (nearly) a function of the predictors "
                    f"{matrix.formula!r} and the other outcomes; a residual spread near zero has "
                    "no bound. Leave out what determines it."
                )
            earlier.append(z)
    if log_weight is None:
        return
    everyone = np.ones(matrix.n, dtype=bool)
    given = [*_indicators(parts), *earlier]
    scale, _ = _residual_scale(matrix, given, log_weight, everyone, str(roles.weight), source)
    if scale < MIN_WEIGHT_SD:
        raise InputError(
            f"{source}: weight {roles.weight!r} is (nearly) a function of the predictors "
            f"{matrix.formula!r} and the outcomes, so that no finite bound protects it. "
            f"{_IF_OF_THE_DESIGN} Otherwise leave out the predictors or the outcome that "
            "determine it."
        )


def _indicators(parts: "dict[str, IntArray]", but: str = "") -> list[FloatArray]:
    """Indicators (n,) of the categories from 1 on that occur, of every discrete part but one."""
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
    source: str,
) -> tuple[float, float]:
    """Residual SD of z (n,) given X and further columns (n,), among the records present, and its
    SD there. Raises ``InputError`` where as many columns as records leave nothing."""
    rows = np.hstack([matrix.x_cells[matrix.cell[present]], *(g[present, None] for g in given)])
    length = np.sqrt((rows**2).sum(axis=0))
    rows = rows[:, length > 0] / length[length > 0]
    inside = z[present]
    fitted = rows @ (np.linalg.pinv(rows.T @ rows, hermitian=True) @ (rows.T @ inside))
    freedom = inside.size - rows.shape[1]
    if freedom <= 0:
        raise InputError(
            f"{source}: {name!r} is left with {records(inside.size)} at no spike for "
            f"{rows.shape[1]:,} columns of predictors and other outcomes, so that nothing is left "
            "to model; use fewer of them."
        )
    return float(np.sqrt(((inside - fitted) ** 2).sum() / freedom)), float(inside.std())


def _check_apart(residuals: FloatArray, roles: Roles, source: str) -> None:
    """Raise ``InputError`` when one column of residuals is (nearly) a combination of the others."""
    length = np.sqrt((residuals**2).sum(axis=0))
    unit = residuals / length
    correlation = unit.T @ unit
    singular = bool(np.linalg.eigvalsh(correlation).min() < 1e-10)
    # 1 / diag(inverse) is the share of a column's variance that the others leave unexplained.
    if singular or 1.0 / np.diag(np.linalg.inv(correlation)).max() < MIN_OUTCOME_SHARE**2:
        names = listing(roles.confidential)
        raise InputError(
            f"{source}: among {names} one column is (nearly) a function of the others and the "
            "predictors; leave out an outcome, since it carries nothing of its own."
        )
