"""Regressions on synthetic and confidential data, and how well a regression separates them (pMSE).

Results are confidential and never part of a release.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.combining import combine
from surveysynth.evaluation.microdata.utility import interval_overlap

_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, eq=False, repr=False)
class CoefficientUtility:
    """Coefficients of a regression on confidential and on synthetic data.

    terms (K,); coefficients and standard errors (K,) of the confidential data and of the synthetic
    datasets combined; datasets (m, K): the coefficients of each.
    """

    terms: tuple[str, ...]
    confidential: FloatArray
    confidential_se: FloatArray
    synthetic: FloatArray
    synthetic_se: FloatArray
    datasets: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Return one row a term, with the overlap of the 95% intervals."""
        sides = [
            (centre - _NORMAL_95 * se, centre + _NORMAL_95 * se)
            for centre, se in (
                (self.confidential, self.confidential_se),
                (self.synthetic, self.synthetic_se),
            )
        ]
        return pd.DataFrame(
            {
                "term": list(self.terms),
                "confidential": self.confidential,
                "confidential_se": self.confidential_se,
                "synthetic": self.synthetic,
                "synthetic_se": self.synthetic_se,
                "difference_in_se": (self.synthetic - self.confidential) / self.confidential_se,
                "overlap": interval_overlap(*sides[0], *sides[1]),
            }
        )


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

    def to_frame(self) -> pd.DataFrame:
        """Return one row."""
        return pd.DataFrame(
            {"pmse": [self.pmse], "expected": [self.expected], "ratio": [self.ratio]}
        )


def coefficient_utility(
    formula: str,
    confidential: pd.DataFrame,
    synthetic: Sequence[pd.DataFrame],
    *,
    weight: str | None = None,
) -> CoefficientUtility:
    """Fit weighted least squares to the confidential frame and to each synthetic one.

    statsmodels fits them. Standard errors are robust (HC1), because sampling weights are not
    precisions. Datasets are combined by the rule of partial synthesis.

    Parameters
    ----------
    formula
        "outcome ~ predictors".
    confidential
        Frame of the survey.
    synthetic
        Frames with the same columns.
    weight
        A column of every frame, or None.

    Returns
    -------
    CoefficientUtility
        ``to_frame()``: coefficients of both with their intervals. Confidential.

    Raises
    ------
    InputError
        For a formula or columns that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> x = np.arange(20.0)
    >>> data, other = (pd.DataFrame({"x": x, "y": 2 * x + np.sin(x + k)}) for k in (0, 1))
    >>> len(ss.coefficient_utility("y ~ x", data, [other, data]).to_frame())
    2
    """
    if not synthetic:
        raise InputError("coefficients need at least one synthetic dataset, got none.")
    sides = [_least_squares(formula, frame, weight) for frame in (confidential, *synthetic)]
    terms, truth, variance, df = sides[0]
    for number, each in enumerate(sides[1:], start=1):
        if each[0] != terms:
            raise InputError(
                f"dataset {number}: its regression has other terms than the confidential one, "
                "since a level of a category occurs on one side only. Use coarser categories."
            )
    estimates = np.array([each[1] for each in sides[1:]])
    variances = np.array([each[2] for each in sides[1:]])
    combined = combine(estimates[:, None], variances[:, None], df)
    return CoefficientUtility(
        terms, truth, np.sqrt(variance), combined.estimate, combined.standard_error, estimates
    )


def _least_squares(
    formula: str, frame: pd.DataFrame, weight: str | None
) -> tuple[tuple[str, ...], FloatArray, FloatArray, float]:
    """Return terms, coefficients (K,), their variances (K,), and residual degrees of freedom."""
    from statsmodels.regression.linear_model import WLS

    sides = _matrices(formula, frame)
    if not hasattr(sides, "lhs"):
        raise InputError(f"formula: expected 'outcome ~ predictors', got {formula!r}.")
    if weight is not None and weight not in frame.columns:
        raise InputError(f"weight: there is no column {weight!r}.")
    weights = np.ones(len(frame)) if weight is None else frame[weight].to_numpy(dtype=np.float64)
    x = sides.rhs
    fit = WLS(np.asarray(sides.lhs, dtype=np.float64)[:, 0], np.asarray(x), weights=weights).fit(
        cov_type="HC1"
    )
    return tuple(map(str, x.columns)), fit.params, fit.bse**2, float(fit.df_resid)


def propensity_score(
    formula: str, confidential: pd.DataFrame, synthetic: pd.DataFrame
) -> PropensityScore:
    """Compute the pMSE of a logistic regression of "is synthetic" on a formula's terms.

    statsmodels fits it.

    Parameters
    ----------
    formula
        Predictors alone, "poly(income, 3) * sex"; its terms look at both frames together.
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
    from statsmodels.genmod.families import Binomial
    from statsmodels.genmod.generalized_linear_model import GLM
    from statsmodels.tools.sm_exceptions import PerfectSeparationWarning

    both = pd.concat([confidential, synthetic], ignore_index=True)
    x = _matrices(formula, both)
    if hasattr(x, "lhs"):
        raise InputError(f"formula: expected predictors alone, got {formula!r}.")
    matrix = _scaled(np.asarray(x, dtype=np.float64))
    is_synthetic = np.repeat([0.0, 1.0], [len(confidential), len(synthetic)])
    share = float(is_synthetic.mean())
    with warnings.catch_warnings():
        # Fully separated data: the fitted chances are right, near 0 and 1.
        warnings.simplefilter("ignore", PerfectSeparationWarning)
        chance = GLM(is_synthetic, matrix, family=Binomial()).fit().fittedvalues
    rank = int(np.linalg.matrix_rank(matrix))
    expected = (rank - 1) * (1.0 - share) ** 2 * share / len(both)
    return PropensityScore(float(np.mean((chance - share) ** 2)), expected)


def _scaled(matrix: FloatArray) -> FloatArray:
    """Scale columns to length one: powers of incomes in dollars would overflow the iterations."""
    lengths = np.sqrt((matrix**2).mean(axis=0))
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1.0))


def _matrices(formula: str, frame: pd.DataFrame) -> Any:
    from formulaic import model_matrix
    from formulaic.errors import FormulaicError

    try:
        return model_matrix(formula, frame, na_action="raise", context=None)
    except (FormulaicError, ValueError) as error:
        # Formula and columns are the caller's; values are not part of these messages' first line.
        reason = str(error).splitlines()[0] if isinstance(error, FormulaicError) else "bad values"
        raise InputError(f"formula {formula!r} cannot be used: {reason}") from None
