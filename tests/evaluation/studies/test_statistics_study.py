"""What samples of the published simulation showed of medians, quantiles, contrasts and shares of
rows: coverage of the truth of the simulated population (by the engine of commit 2812de3d)."""

from pathlib import Path

import pandas as pd
import pytest

GOLDEN = Path(__file__).parents[2] / "golden"

SUMMARY = pd.read_csv(GOLDEN / "statistics_study.csv")

QUANTILES = ["median", "quantile(0.9)", "difference(median, gender: margin)"]


def of(part: str, method: str) -> pd.DataFrame:
    return SUMMARY[(SUMMARY["part"] == part) & (SUMMARY["method"] == method)].set_index("statistic")


@pytest.mark.parametrize("part", ["strict", "strict_interactions"])
def test_intervals_by_noisy_statistics_cover_on_average(part: str) -> None:
    coverage = of(part, "fbs_noisy")["coverage"]
    assert 0.92 <= coverage.mean() <= 0.98


def test_with_interactions_every_statistic_is_covered() -> None:
    coverage = of("strict_interactions", "fbs_noisy")["coverage"].drop(QUANTILES)
    assert coverage.between(0.92, 0.98).all()


@pytest.mark.parametrize("part", ["strict", "strict_interactions"])
def test_quantiles_do_not_claim_that_residuals_are_normal(part: str) -> None:
    """Here they are: intervals cover more than they say, and are no longer than the sample's."""
    found = of(part, "fbs_noisy").loc[QUANTILES]
    assert (found["coverage"] >= 0.95).all()
    assert (found["length_ratio"] < 1.0).all()


def test_the_pseudo_posterior_covers_at_least() -> None:
    assert (of("pseudo", "fbs")["coverage"] >= 0.92).all()
