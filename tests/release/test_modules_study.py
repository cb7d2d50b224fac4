"""The kept study of twelve outcomes in three modules, against what is claimed of it.

Truth: the simulated population, and the sample's own intervals in the same samples."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "tests" / "golden" / "modules_study.json").read_text(encoding="utf-8"))


def rows(statistic: str, *, own: bool) -> list[dict[str, Any]]:
    return [
        each for each in KEPT["coverage"]["tables"]
        if each["statistic"] == statistic and (each["method"] == "sample") == own
    ]  # fmt: skip


def coverage(statistic: str, *, own: bool) -> float:
    found = rows(statistic, own=own)
    return float(
        np.average([each["coverage"] for each in found], weights=[each["rows"] for each in found])
    )


@pytest.mark.parametrize("statistic", ["count", "mean", "median", "share"])
def test_intervals_cover_as_the_samples_own_in_every_module(statistic: str) -> None:
    assert KEPT["coverage"]["samples"] == 40
    assert KEPT["coverage"]["refused"] == KEPT["coverage"]["failed"] == 0
    assert abs(coverage(statistic, own=False) - coverage(statistic, own=True)) < 0.02
    for mine, other in zip(rows(statistic, own=False), rows(statistic, own=True), strict=True):
        assert mine["outcome"] == other["outcome"]
        # 40 samples of rows that move together: an outcome's coverage has an error of about .02.
        assert mine["coverage"] > other["coverage"] - 0.05, mine["outcome"]
        assert mine["worst"] > 0.8
        assert mine["rmse_ratio"] < 1.5


def test_twelve_outcomes_take_less_than_five_minutes() -> None:
    assert KEPT["cost"]["n"] == 6_000
    assert KEPT["cost"]["seconds"] < 300


def test_the_page_quotes_the_study() -> None:
    studies = ROOT / "vignettes" / "technical" / "studies.md"
    page = re.sub(r"\s+", " ", studies.read_text(encoding="utf-8"))
    cost = KEPT["cost"]
    assert (
        f"take {cost['seconds']:.0f} seconds of processor time and {cost['peak_memory_mb']} MB"
        in page
    )
    pairs = {
        name: (coverage(name, own=False), coverage(name, own=True))
        for name in ("count", "mean", "median", "share")
    }
    (a, b), *others = pairs.values()
    words = f"covered {a:.2f} (counts; the sample's own {b:.2f}), " + ", ".join(
        f"{mine:.2f} ({name}s; {own:.2f})"
        for name, (mine, own) in zip(list(pairs)[1:3], others[:2], strict=True)
    )
    assert f"{words} and {others[2][0]:.2f} (shares; {others[2][1]:.2f})" in page
    ratios = [np.median([each["rmse_ratio"] for each in rows(name, own=False)]) for name in pairs]
    shown = [f"{each:.2f}" for each in ratios]
    assert f"RMSE was {', '.join(shown[:3])} and {shown[3]} times the sample's own" in page
