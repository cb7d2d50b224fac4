"""The kept study of two-stage samples under noisy statistics, against what is claimed of it.

Truth: the simulated population. Releases that ignore units must cover too little."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "tests" / "golden" / "unit_study.json").read_text(encoding="utf-8"))
SUMMARY = KEPT["summary"]


def test_intervals_cover_as_the_samples_own_and_ignored_units_do_not() -> None:
    own = SUMMARY["sample"]["all"]["coverage"]
    assert 0.9 < own < 0.96
    for method in ("units, 10.8", "units, 3.6"):
        given = SUMMARY[method]
        assert given["samples"] >= 20
        assert own - 0.03 <= given["all"]["coverage"] < 0.99
        assert 1.0 < given["all"]["length"] < 1.4
        # 24 samples of 15 rows that move together: a kind's coverage has an error of about .02.
        for kind in given.keys() - {"samples"}:
            assert given[kind]["coverage"] >= SUMMARY["sample"][kind]["coverage"] - 0.05, kind
    assert SUMMARY["ignored, 10.8"]["all"]["coverage"] < own - 0.08


def test_the_page_quotes_the_study() -> None:
    posterior = ROOT / "vignettes" / "technical" / "posterior.md"
    page = re.sub(r"\s+", " ", posterior.read_text(encoding="utf-8"))
    figures = {name: each["all"] for name, each in SUMMARY.items()}
    first, second = figures["units, 10.8"], figures["units, 3.6"]
    words = (
        f"was {first['coverage']:.2f} (epsilon 10.8) and {second['coverage']:.2f} (3.6), compared "
        f"with the sample's own {figures['sample']['coverage']:.2f}, and "
        f"{figures['ignored, 10.8']['coverage']:.2f} for a release that ignores units. Intervals "
        f"were {first['length']:.2f} and {second['length']:.2f} times as long"
    )
    assert words in page
