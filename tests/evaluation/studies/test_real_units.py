"""Releases of a real clustered survey, as ``python -m tests.long_runs.real_units`` kept them: near
the sample, with its standard errors, and as the documents say."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.long_runs import real_units

RESULTS: dict[str, Any] = json.loads(real_units.GOLDEN.read_text(encoding="utf-8"))["releases"]
PAGE = Path(__file__).parents[3] / "vignettes" / "technical" / "studies.md"
#: Shares of the lowest level of education, of which 19 records are in eight cells.
RARE = "share education"


def tables(method: str) -> list[tuple[str, dict[str, float]]]:
    """Statistics of all releases with their results."""
    return [
        (statistic, found)
        for by_method in RESULTS.values()
        if method in by_method
        for statistic, found in by_method[method]["tables"].items()
    ]


def test_every_outcome_was_released_by_each_mechanism() -> None:
    assert set(RESULTS) == set(real_units.OUTCOMES)
    for release, by_method in RESULTS.items():
        noisy = {method for method in by_method if method.startswith("noisy")}
        assert noisy == {"noisy 10.8", "noisy 3.6"}, release
        assert all(each["processor_seconds"] > 1 for each in by_method.values())


def test_noisy_statistics_at_10_8_are_near_the_sample() -> None:
    """Points within 3 of its standard errors by unit, standard errors .75 to 1.5 times its own."""
    found = tables("noisy 10.8")
    assert len(found) >= 8
    for statistic, table in found:
        assert table["worst"] < 3.0, statistic
        assert table["median"] < 1.0, statistic
        assert 0.75 < table["se"] < 1.5, statistic


def test_at_3_6_rare_levels_show() -> None:
    for statistic, table in tables("noisy 3.6"):
        assert table["worst"] < (5.0 if statistic == RARE else 3.0), statistic
        assert table["se"] < 1.7, statistic


def test_the_page_has_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for line in real_units.page(RESULTS):
        assert line in text


@pytest.mark.skipif(not real_units.REAL.exists(), reason="the real survey is not here")
def test_a_unit_lies_in_two_regions() -> None:
    frame = real_units.households()
    regions = frame.groupby("psu")["region"].nunique()
    assert isinstance(regions, pd.Series)
    assert (len(frame), len(regions), int((regions > 1).sum())) == (6206, 72, 1)
    assert (frame[["income", "health_spending"]] >= 0).all(axis=None)
