"""The kept studies of two-stage samples under noisy statistics, against what is claimed of them.

Truth: the simulated populations. Releases that ignore units must cover too little."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: A few large units, and many small ones whose weights are constant.
STUDIES = "unit_study.json", "unit_study_visits.json"


def summary_of(study: str) -> Any:
    """The figures by method."""
    kept = (ROOT / "tests" / "golden" / study).read_text(encoding="utf-8")
    return json.loads(kept)["summary"]


@pytest.mark.parametrize("study", STUDIES)
def test_intervals_cover_as_the_samples_own_and_ignored_units_do_not(study: str) -> None:
    summary = summary_of(study)
    own = summary["sample"]["all"]["coverage"]
    assert 0.9 < own < 0.96
    for method in ("units, 10.8", "units, 3.6"):
        given = summary[method]
        assert given["samples"] >= 20
        assert own - 0.03 <= given["all"]["coverage"] < 0.99
        assert 1.0 < given["all"]["length"] < 1.4
        # 24 samples of 15 rows that move together: a kind's coverage has an error of about .02.
        for kind in given.keys() - {"samples"}:
            assert given[kind]["coverage"] >= summary["sample"][kind]["coverage"] - 0.05, kind
    assert summary["ignored, 10.8"]["all"]["coverage"] < own - 0.08


@pytest.mark.parametrize("study", STUDIES)
def test_the_page_quotes_the_study(study: str) -> None:
    posterior = ROOT / "vignettes" / "technical" / "posterior.md"
    page = re.sub(r"\s+", " ", posterior.read_text(encoding="utf-8"))
    figures = {name: each["all"] for name, each in summary_of(study).items()}
    first, second = figures["units, 10.8"], figures["units, 3.6"]
    words = (
        f"was {first['coverage']:.2f} (epsilon 10.8) and {second['coverage']:.2f} (3.6), compared "
        f"with the sample's own {figures['sample']['coverage']:.2f}, and "
        f"{figures['ignored, 10.8']['coverage']:.2f} for a release that ignores units. Intervals "
        f"were {first['length']:.2f} and {second['length']:.2f} times as long as the sample's "
        f"([`{study}`]"
    )
    assert words in page
