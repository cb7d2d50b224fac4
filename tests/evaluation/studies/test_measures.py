"""Truth: coverage, errors and ratios of normal errors, known by theory."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surveysynth.evaluation.studies.report import measure_cells, root_ratio

TRUTH = 50.0


def normal_replicates(samples, *, spread=1.0, claimed=1.0, seed=1):
    """Estimates N(TRUTH, spread^2) of two cells, their intervals from ``claimed``."""
    rng = np.random.default_rng(seed)
    parts = []
    for method, scale, error in (("sample", 1.0, 1.0), ("other", spread, claimed)):
        estimate = TRUTH + scale * rng.normal(size=(samples, 2))
        half = stats.norm.ppf(0.975) * error
        parts.append(
            pd.DataFrame(
                {
                    "statistic": "mean",
                    "outcome": "y",
                    "row": np.tile([0, 1], samples),
                    "method": method,
                    "epsilon": 10.8,
                    "sample": np.repeat(np.arange(samples), 2),
                    "estimate": estimate.ravel(),
                    "se": error,
                    "ci_lower": estimate.ravel() - half,
                    "ci_upper": estimate.ravel() + half,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def truth():
    return pd.DataFrame({"statistic": "mean", "outcome": "y", "row": [0, 1], "truth": TRUTH})


def other(cells):
    return cells[cells["method"] == "other"].iloc[0]


def test_measures_of_errors_with_known_distribution():
    cell = other(measure_cells(normal_replicates(4000, spread=1.5, claimed=1.5), truth()))
    assert cell["truth"] == TRUTH
    assert abs(cell["bias"]) < 4 * cell["bias_mcse"]
    assert cell["bias_mcse"] == pytest.approx(1.5 / np.sqrt(4000), rel=0.05)
    assert cell["sd"] == pytest.approx(1.5, rel=0.05)
    assert cell["rmse_ratio"] == pytest.approx(1.5, abs=4 * cell["rmse_ratio_mcse"])
    assert cell["coverage"] == pytest.approx(0.95, abs=4 * cell["coverage_mcse"])
    assert cell["coverage_mcse"] == pytest.approx(np.sqrt(0.95 * 0.05 / 4000), rel=0.1)
    assert cell["ci_length"] == pytest.approx(2 * 1.96 * 1.5, rel=0.01)
    assert cell["cv"] == pytest.approx(1.5 / TRUTH)
    narrow = other(measure_cells(normal_replicates(4000, spread=1.5, claimed=1.5 / 1.3), truth()))
    assert narrow["coverage"] < 0.95 - 8 * narrow["coverage_mcse"]


def test_coverage_is_of_the_truth_and_not_of_the_mean_estimate():
    made = normal_replicates(400)
    shift = np.where(made["method"] == "other", 10.0, 0.0)  # ten standard errors
    for column in ("estimate", "ci_lower", "ci_upper"):
        made[column] += shift
    cell = other(measure_cells(made, truth()))
    assert cell["coverage"] == 0
    assert cell["bias"] == pytest.approx(10.0, abs=0.3)


def test_error_of_a_ratio_is_its_spread_over_studies():
    rng = np.random.default_rng(3)
    ratios, errors = np.transpose(
        [root_ratio(rng.normal(size=80) * 1.4, rng.normal(size=80), 1.0) for _ in range(600)]
    )
    assert np.mean(errors) == pytest.approx(np.std(ratios, ddof=1), rel=0.15)
    assert np.mean(ratios) == pytest.approx(1.4, rel=0.03)


def test_missing_estimates_and_known_totals():
    frame = normal_replicates(50)
    lost = (frame["method"] == "other") & (frame["sample"] < 10)
    kept = measure_cells(frame[~lost], truth())
    assert other(kept)["replicates"] == 40
    # The ratio is over the samples that both have.
    both = frame[(frame["sample"] >= 10) & (frame["row"] == 0)]
    roots = (both["estimate"] - TRUTH).pow(2).groupby(both["method"]).mean() ** 0.5
    assert other(kept)["rmse_ratio"] == pytest.approx(roots["other"] / roots["sample"])
    exact = frame["row"] == 1
    frame.loc[exact, ["estimate", "ci_lower", "ci_upper"]] = TRUTH * (1 + 1e-15)
    cells = measure_cells(frame, truth())
    known = cells[cells["row"] == 1]
    assert (known["coverage"] == 1).all()
    assert known["rmse_ratio"].isna().all()
