"""Measures of methods over repeated samples: bias, RMSE, coverage, and Monte Carlo errors.

Replicates are a frame with one row a sample, method and row of a table: the columns of ``KEYS``,
then sample, estimate, se, df, ci_lower, ci_upper.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.evaluation.methods import SAMPLE

if TYPE_CHECKING:
    import pandas as pd

#: Keys of a cell: a method at a number of draws and an epsilon, a statistic, a row of its table.
METHOD_KEYS = ("method", "m", "epsilon")
KEYS = (*METHOD_KEYS, "statistic", "outcome", "row")
#: A public total is known to rounding, and its interval is a point.
ROUNDING = 1e-9


def measure_cells(replicates: "pd.DataFrame", truth: "pd.DataFrame") -> "pd.DataFrame":
    """Compute the measures of methods 7 for every cell, with Monte Carlo standard errors.

    One row a cell. truth: columns statistic, outcome, row, truth. bias, sd (empirical), se (mean),
    rmse against the truth, rmse_ratio to the confidential sample's over the same samples, coverage
    of the nominal intervals, ci_length (mean), cv (mean SE over truth); ``replicates`` counts
    samples with an estimate. A ratio is NaN if the sample has no error.
    """
    frame = replicates.merge(truth, on=["statistic", "outcome", "row"], how="left")
    frame["error"] = frame["estimate"] - frame["truth"]
    frame["covered"] = is_covered(frame)
    frame["length"] = frame["ci_upper"] - frame["ci_lower"]
    reference = frame.loc[frame["method"] == SAMPLE, ["statistic", "outcome", "row", "sample",
                                                      "error"]]  # fmt: skip
    frame = frame.merge(
        reference.rename(columns={"error": "sample_error"}),
        on=["statistic", "outcome", "row", "sample"],
        how="left",
    )
    grouped = frame.groupby(list(KEYS), sort=False)
    return grouped[list(frame.columns)].apply(_measures).reset_index()


def is_covered(frame: "pd.DataFrame") -> "pd.Series[float]":
    """Return 1 if the interval holds the truth, 0 if not, NaN without an interval."""
    slack = ROUNDING * frame["truth"].abs()
    inside = (frame["ci_lower"] <= frame["truth"] + slack) & (
        frame["truth"] - slack <= frame["ci_upper"]
    )
    return inside.astype(float).where(frame["ci_lower"].notna() & frame["ci_upper"].notna())


def _measures(cell: "pd.DataFrame") -> "pd.Series[Any]":
    cell = cell[cell["estimate"].notna()]
    error = cell["error"].to_numpy()
    truth = float(cell["truth"].iloc[0]) if len(cell) else np.nan
    coverage, covered = mean_with_error(cell["covered"].to_numpy())
    length, length_error = mean_with_error(cell["length"].to_numpy())
    bias, bias_error = mean_with_error(error)
    ratio, ratio_error = root_ratio(error, cell["sample_error"].to_numpy(), abs(truth))
    se = float(cell["se"].mean())
    # The binomial error would be zero at a coverage of 0 or 1: add one sample of each kind.
    counted = int(cell["covered"].notna().sum())
    shrunk = (coverage * counted + 1) / (counted + 2)
    return pd.Series(
        {
            "truth": truth,
            "bias": bias,
            "sd": float(np.std(error, ddof=1)) if error.size > 1 else np.nan,
            "se": se,
            "rmse": float(np.sqrt(np.mean(error**2))) if error.size else np.nan,
            "rmse_ratio": ratio,
            "coverage": coverage,
            "coverage_mcse": covered
            if 0 < coverage < 1
            else float(np.sqrt(shrunk * (1 - shrunk) / max(counted, 1))),
            "ci_length": length,
            "cv": se / abs(truth) if truth else np.nan,
            "replicates": int(error.size),
            "bias_mcse": bias_error,
            "rmse_ratio_mcse": ratio_error,
            "ci_length_mcse": length_error,
        }
    )


def mean_with_error(values: FloatArray) -> tuple[float, float]:
    """Return the mean of the finite values and its standard error; NaN for too few."""
    values = values[np.isfinite(values)]
    if values.size == 0:
        return np.nan, np.nan
    error = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan
    return float(values.mean()), error


def root_ratio(errors: FloatArray, reference: FloatArray, size: float) -> tuple[float, float]:
    """Return the root of the ratio of mean squares of ``errors`` and ``reference``, with its error.

    Both are pairs of the same samples; the standard error is by the delta method. NaN if the
    reference has no error but rounding.
    """
    both = np.isfinite(errors) & np.isfinite(reference)
    a, b = errors[both] ** 2, reference[both] ** 2
    if b.size == 0 or np.sqrt(b.mean()) <= ROUNDING * size:
        return np.nan, np.nan
    ratio = a.mean() / b.mean()
    if b.size < 2:
        return float(np.sqrt(ratio)), np.nan
    influence = (a - ratio * b) / b.mean()
    error = influence.std(ddof=1) / np.sqrt(b.size)
    # The root of a ratio r has the error of r over 2 sqrt(r).
    return float(np.sqrt(ratio)), float(error / (2 * np.sqrt(ratio))) if ratio else 0.0
