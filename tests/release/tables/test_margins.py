"""Margins of published tables against their parts, on the catalog's releases, and on 20 releases
with R's survey on all their datasets (``python -m tests.long_runs.margins``, kept in
``golden/margins.json``). Rejects a margin out of range, one that does not add up, and means of
ratios."""

import json

import pandas as pd

from surveysynth._support.resources import tables_directory
from surveysynth.config.spec import load_spec
from tests.long_runs.margins import RELEASES, RESULT, margins_of, wrong


def test_margins_of_the_catalog_lie_between_their_parts() -> None:
    compared = 0
    for spec in sorted(tables_directory().glob("*/spec.toml")):
        files = sorted((spec.parent / "expected").glob("*.csv"))
        tables = {path.stem: pd.read_csv(path, dtype={"level": str}) for path in files}
        count, found = wrong(tables, margins_of(load_spec(spec)))
        assert found == [], spec.parent.name
        compared += count
    assert compared >= 20


def table(*estimates: float) -> pd.DataFrame:
    return pd.DataFrame({"b": ["All", "x", "y"], "estimate": estimates, "n": 9})


def test_wrong_margins_are_found() -> None:
    margins = {"b": "All"}
    counts, means = table(30.0, 10.0, 20.0), table(5 / 3, 1.0, 2.0)
    assert wrong({"counts": counts, "means": means}, margins) == (2, [])
    off = counts.assign(estimate=[30.1, 10.0, 20.0])
    assert len(wrong({"counts": off}, margins)[1]) == 1
    outside = means.assign(estimate=[2.1, 1.0, 2.0])
    assert len(wrong({"means": outside}, margins)[1]) == 1
    inside = means.assign(estimate=[1.6, 1.0, 2.0])  # between its parts, but not their mean
    assert wrong({"means": inside}, margins)[1] == []
    assert len(wrong({"counts": counts, "means": inside}, margins)[1]) == 1


def test_twenty_releases_and_r() -> None:
    kept = json.loads(RESULT.read_text(encoding="utf-8"))
    assert len(kept) == 5
    for name, each in kept.items():
        assert each["releases"] == RELEASES == 4, name
        assert (each["wrong"], each["margins"] > 0) == ([], True), name
        assert each["r"]["largest_relative_difference"] < 1e-10, name
    assert kept["example"]["r"]["records"] == 200_000
    assert sum(each["r"]["rows"] for each in kept.values()) > 100
