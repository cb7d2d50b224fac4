"""What ``python -m tests.long_runs.kinds_study`` found, and what is claimed of it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.long_runs import kinds_study

PAGE = Path(__file__).parents[3] / "vignettes" / "technical" / "studies.md"
KEYS = ["by", "release", "method", "statistic", "outcome"]


@pytest.fixture(scope="module")
def found():
    text = kinds_study.GOLDEN.with_suffix(".json").read_text(encoding="utf-8")
    return json.loads(text)


@pytest.fixture(scope="module")
def summary(found):
    return pd.DataFrame(found["summary"]).set_index(KEYS).sort_index()


def of_outcomes(summary, method):
    """Means and proportions of each outcome in a release of its own."""
    rows = summary.xs(method, level="method").reset_index()
    return rows[(rows["outcome"] != "") & rows["release"].isin(kinds_study.OUTCOMES)]


def test_every_release_was_made(found):
    made = {(each["by"], each["release"], each["method"]): each for each in found["parts"]}
    for by in kinds_study.BY:
        for outcome in kinds_study.OUTCOMES:
            for method in kinds_study.METHODS:
                part = made[by, outcome, method]
                assert part["releases"] >= 10
    assert all(each["refused"] == [] for each in found["parts"])


def test_the_summary_is_that_of_the_cells(found):
    made = kinds_study.rounded(kinds_study.summary(kinds_study.read_cells()))
    for one, other in zip(made, found["summary"], strict=True):
        assert {key: one[key] for key in KEYS} == {key: other[key] for key in KEYS}
        for key in ("rmse", "worst_rmse", "worst_bias", "se_ratio"):
            assert one[key] == pytest.approx(other[key], rel=1e-3)


def test_noisy_statistics_stay_near_the_sample(summary):
    rows = of_outcomes(summary, "noisy_statistics")
    assert len(rows) == 12
    # The tail of tax is not that of a normal law, with which power soever.
    far = rows[rows["rmse"] > 1.5]
    assert far[["by", "outcome"]].to_numpy().tolist() == [["region and sex", "tax"]]
    assert far["rmse"].max() <= 1.7
    counts = summary.xs(("noisy_statistics", "count"), level=("method", "statistic"))
    assert (counts["rmse"] <= 1.5).all()


def test_the_pseudo_posterior_stays_near_the_sample(summary):
    """Twice its standard errors in the median cell, but for health spending by education."""
    rows = of_outcomes(summary, "pseudo_posterior").set_index(["by", "outcome"])
    assert len(rows) == 12
    assert rows["rmse"].drop(("education", "health_spending")).max() <= 2.0
    assert rows.loc[("education", "health_spending"), "rmse"] <= 2.25


def test_biases_above_three_are_those_that_the_page_names():
    cells = kinds_study.read_cells()
    ours = cells["method"].isin(["noisy_statistics", "pseudo_posterior"])
    alone = cells["release"] != kinds_study.TOGETHER
    far = cells[ours & alone & (cells["bias"].abs() > 3)]
    found = {(row.method, row.release, row.cell) for row in far.itertuples()}
    assert set(far.loc[far["cell"] != "Northeast, M", "by"]) == {"education"}
    assert found == {
        ("noisy_statistics", "income", "1"), ("noisy_statistics", "tax", "1"),
        ("noisy_statistics", "tax", "7"), ("noisy_statistics", "tax", "8"),
        ("noisy_statistics", "tax", "Northeast, M"),
        ("pseudo_posterior", "income", "1"), ("pseudo_posterior", "tax", "1"),
        ("pseudo_posterior", "health_spending", "7"),
    }  # fmt: skip


def test_the_page_shows_these_figures(found):
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join(kinds_study.table(found["summary"])) in text


@pytest.mark.skipif(not kinds_study.REAL.is_file(), reason="the real survey is not on this machine")
def test_the_sample_s_cells_are_those_of_the_file(found):
    """Means and standard errors by pandas and sums written out; forgotten weights are told."""
    frame = kinds_study.frame()
    assert len(frame) == found["n"] == 6206
    cells = kinds_study.read_cells()
    own = cells[(cells["release"] == "income") & (cells["outcome"] == "income")
                & (cells["by"] == "region and sex") & (cells["method"] == "laplace")]  # fmt: skip
    assert len(own) == 8
    for row in own.itertuples():
        region, sex = row.cell.split(", ")
        inside = ((frame["region"] == region) & (frame["sex"] == sex)).to_numpy()
        w, y = frame["weight"].to_numpy() * inside, frame["income"].to_numpy()
        mean = (w * y).sum() / w.sum()
        u = w * (y - mean) / w.sum()
        assert row.sample == pytest.approx(mean, rel=1e-4)
        assert row.sample_se == pytest.approx(np.sqrt(len(u) / (len(u) - 1) * (u @ u)), rel=1e-3)
        assert abs(row.sample / y[inside].mean() - 1) > 1e-3
