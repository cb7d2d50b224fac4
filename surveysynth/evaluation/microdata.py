"""Comparison of synthetic with confidential records: identification risk ([S] eq. 1) and pMSE.

All functions read confidential values: nothing here is part of a release.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.pseudo_posterior.risk import (
    ball_edges,
    check_radius,
    count_inside,
    count_risk,
    pattern_codes,
)


@dataclass(frozen=True, eq=False, repr=False)
class IdentificationRisk:
    """Risks of all records (n,), in file order. Confidential.

    before: share of the confidential values of i's pattern outside its ball B(y_i, r), the risk in
    the confidential data; after: IR_i of the synthetic data, mean over datasets.
    """

    before: FloatArray
    after: FloatArray

    def summary(self, shares: Sequence[float] = (0.5, 0.9, 0.99)) -> pd.DataFrame:
        """Return mean, quantiles and maximum over records of the risks before and after."""
        rows = {}
        for name in ("before", "after"):
            risk = getattr(self, name)
            rows[name] = {
                "mean": risk.mean(),
                **{f"q{share:g}": np.quantile(risk, share) for share in shares},
                "max": risk.max(),
                "sd": risk.std(),
            }
        return pd.DataFrame(rows).T.rename_axis("risk").reset_index()


def identification_risk(
    outcome: FloatArray,
    synthetic: Iterable[FloatArray],
    *,
    radius: float,
    absolute: bool = False,
    frame: pd.DataFrame | None = None,
    pattern: Sequence[str] = (),
) -> IdentificationRisk:
    """Compute IR_i = (share of synthetic y* of i's pattern outside B(y_i, r)) T_i.

    The result is the mean over datasets.

    Parameters
    ----------
    outcome
        Confidential values (n,), original units.
    synthetic
        Datasets (n,) each, whose row i is the synthetic version of record i.
    radius, absolute
        Radius of the closed ball about the confidential value: a share of it, or in its units.
    frame, pattern
        Public columns, and those that the intruder knows; none: marginal risk.

    Returns
    -------
    IdentificationRisk
        ``before`` and ``after`` (n,), ``summary()``. Confidential.

    Raises
    ------
    InputError
        For a radius out of range, missing columns, datasets of another size or none.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> found = ss.identification_risk(
    ...     np.array([10.0, 11.0, 90.0]), [np.array([10.5, 40.0, 91.0])], radius=0.1
    ... )
    >>> found.after.round(3)
    array([0.667, 0.   , 0.667])
    """
    check_radius(radius, absolute=absolute)
    known = pd.DataFrame(index=range(outcome.size)) if frame is None else frame
    if missing := [name for name in pattern if name not in known.columns]:
        raise InputError(f"pattern: there is no public column {missing[0]!r} in frame.")
    if pattern and len(known) != outcome.size:
        raise InputError(f"frame: expected {outcome.size} rows, one a record, got {len(known)}.")
    codes = pattern_codes(known, tuple(pattern), outcome.size)
    lower, upper = ball_edges(outcome, radius, absolute=absolute)
    size = np.bincount(codes)[codes]
    after: list[FloatArray] = []
    for values in synthetic:
        if values.shape != outcome.shape:
            raise InputError(
                f"dataset {len(after) + 1}: expected {outcome.size} synthetic values, record by "
                f"record, got an array of shape {values.shape}."
            )
        inside = count_inside(values, codes, lower, upper, codes)
        after.append((1.0 - inside / size) * ((values >= lower) & (values <= upper)))
    if not after:
        raise InputError("identification risk needs at least one synthetic dataset, got none.")
    before = count_risk(outcome, radius, codes, absolute=absolute)
    return IdentificationRisk(before, np.mean(after, axis=0))


@dataclass(frozen=True)
class PropensityScore:
    """The quality of a regression that separates synthetic from confidential records.

    pmse: mean of (p - c)^2 over all records, p the fitted chance of being synthetic, c their share;
    0 if the data cannot be separated, c (1 - c) if they always can. expected: its mean if the
    synthetic records came from a model that repeats the confidential data's moments (Snoke et al.
    2018); ratio: pmse over it. Parameters drawn from a posterior raise the ratio by as much again.
    """

    pmse: float
    expected: float

    @property
    def ratio(self) -> float:
        """pmse over its expectation, about 1 if the regression finds no difference."""
        return self.pmse / self.expected


def propensity_score(
    formula: str, confidential: pd.DataFrame, synthetic: pd.DataFrame
) -> PropensityScore:
    """Compute the pMSE of a logistic regression of "is synthetic" on a formula's terms.

    statsmodels fits it.

    Parameters
    ----------
    formula
        Predictors alone, "poly(income, 3) * sex"; its terms are evaluated on both frames together.
    confidential, synthetic
        Frames with the same columns.

    Returns
    -------
    PropensityScore
        ``ratio`` is one, on average, for data that cannot be separated. Confidential.

    Raises
    ------
    InputError
        For a formula or columns that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> rng = np.random.default_rng(1)
    >>> data, near, far = (pd.DataFrame({"x": rng.normal(at, 1, 200)}) for at in (0, 0, 1))
    >>> near_ratio, far_ratio = (ss.propensity_score("x", data, each).ratio for each in (near, far))
    >>> near_ratio < 5 < far_ratio
    True
    """
    from formulaic import model_matrix
    from formulaic.errors import FormulaicError
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM
    from statsmodels.tools.sm_exceptions import PerfectSeparationWarning

    both = pd.concat([confidential, synthetic], ignore_index=True)
    try:
        x: Any = model_matrix(formula, both, na_action="raise", context=None)
    except (FormulaicError, ValueError) as error:
        # Formula and columns are the caller's; values are not part of these messages' first line.
        reason = str(error).splitlines()[0] if isinstance(error, FormulaicError) else "bad values"
        raise InputError(f"formula {formula!r} cannot be used: {reason}") from None
    if hasattr(x, "lhs"):
        raise InputError(f"formula: expected predictors alone, got {formula!r}.")
    matrix = np.asarray(x, dtype=np.float64)
    # Columns of length one: powers of incomes in dollars would overflow the iterations.
    lengths = np.sqrt((matrix**2).mean(axis=0))
    matrix = matrix / np.where(lengths > 0, lengths, 1.0)
    is_synthetic = np.repeat([0.0, 1.0], [len(confidential), len(synthetic)])
    share = float(is_synthetic.mean())
    with warnings.catch_warnings():
        # Fully separated data: the fitted chances are right, near 0 and 1.
        warnings.simplefilter("ignore", PerfectSeparationWarning)
        chance = GLM(is_synthetic, matrix, family=Binomial()).fit().fittedvalues
    rank = int(np.linalg.matrix_rank(matrix))
    expected = (rank - 1) * (1.0 - share) ** 2 * share / len(both)
    return PropensityScore(float(np.mean((chance - share) ** 2)), expected)
