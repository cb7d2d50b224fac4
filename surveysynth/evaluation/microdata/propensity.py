"""How well a logistic regression separates synthetic from confidential data (pMSE).

Results are confidential and never part of a release.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError


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
