"""``vignettes/technical/validation.md`` against the committed results, read here by other means."""

import csv
import json

import numpy as np
import pytest

from tests.long_runs.validation_page import GOLDEN, PAGE, SBC, lucky, render

TEXT = PAGE.read_text(encoding="utf-8")
FLAT = " ".join(TEXT.split())


def rows_of(name: str) -> list[dict[str, str]]:
    with (GOLDEN / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_is_what_the_results_say() -> None:
    assert render() == TEXT, "run python -m tests.long_runs.validation_page"


def test_coverage_is_that_of_the_studies() -> None:
    """A line of the table, put together by hand from the csv file."""
    own = [
        row for row in rows_of("strict_study_summary.csv")
        if row["method"] == "fbs_noisy" and row["n"] == "1000" and row["epsilon"] == "3.6"
    ]  # fmt: skip
    cells = []
    for row in sorted(own, key=lambda row: row["statistic"]):
        names = ("coverage", "coverage_min", "rmse_ratio", "cell_rmse_ratio_mcse", "length_ratio")
        mean, worst, rmse, error, length = (f"{float(row[name]):.2f}" for name in names)
        cells += [f"{mean} ({worst})", f"{rmse} ({error})", length]
    line = f"| FBS, noisy statistics | 1,000 | 3.6 | {' | '.join(cells)} | 300 |"
    assert line in TEXT


def test_coverage_of_few_samples_is_not_shown() -> None:
    table = TEXT.partition("## Do intervals cover?")[2].partition("\n\nMean coverage")[0]
    samples = [int(line.split("|")[-2]) for line in table.splitlines() if line.startswith("| FB")]
    assert len(samples) == 12
    assert min(samples) == 40
    few = [row for row in rows_of("strict_study_summary.csv") if int(row["replicates"]) < 40]
    assert len(few) > 10


def test_the_worst_cell_of_all_is_told() -> None:
    worst = min(
        float(row["coverage_min"])
        for name in ("strict_study_summary.csv", "coverage_default_summary.csv")
        for row in rows_of(name)
        if row["method"] in ("fbs", "fbp", "fbs_noisy", "fbp_noisy")
        and row.get("setting") != "two stages"
    )
    assert f"it covers {worst:.2f}" in FLAT


def test_settings_beyond_the_bound_are_named_with_how_far() -> None:
    largest: dict[str, float] = {}
    for row in rows_of("audit_replacements.csv"):
        if row["ratio"] and not row["case"].endswith("no pseudo-records"):
            largest[row["case"]] = max(largest.get(row["case"], 0.0), float(row["ratio"]))
    for case, ratio in largest.items():
        assert (f"{case} ({ratio:.3g} times)" in FLAT) == (ratio > 1.0)


def test_what_no_ratio_shows_is_told() -> None:
    """Releases that the replaced record decided on are no measured replacements."""
    rows = [row for row in rows_of("audit_replacements.csv") if row["change"]]
    rows = [row for row in rows if row["change"] != "none, fitted twice"]
    rows = [row for row in rows if not row["case"].endswith("no pseudo-records")]
    for mechanism in ("noisy_statistics", "pseudo_posterior"):
        own = [row for row in rows if row["mechanism"] == mechanism]
        refused = sum(row["verdict"] == "refused" for row in own)
        measured = sum(bool(row["ratio"]) for row in own)
        assert refused + measured == len(own)
        cells = f"| {measured} | {refused} |"
        assert any(
            line.startswith(f"| {mechanism.replace('_', ' ')} | ") and cells in line
            for line in TEXT.splitlines()
        )
    told = any(row["verdict"] == "refused" for row in rows)
    assert ("one record decided whether a release exists" in FLAT) == told


def test_all_tests_of_calibration_are_counted() -> None:
    """Two tests a parameter, over all files; the smallest p of all."""
    parameters = [
        entry
        for name in SBC
        for case in json.loads((GOLDEN / f"{name}.json").read_text())["cases"].values()
        for entry in case["parameters"].values()
    ]
    smallest = min(min(each["chi_square_p"], each["ks_p"]) for each in parameters)
    assert f"Of {2 * len(parameters):,} tests the smallest p is {smallest:.1e}" in FLAT


def test_the_worst_of_cells_that_are_right() -> None:
    rng = np.random.default_rng(4)
    for samples in (100, 20):
        worst = rng.binomial(samples, 0.95, (4000, 27)).min(axis=1) / samples
        assert lucky(samples) == pytest.approx(np.median(worst), abs=1e-9)


def test_the_short_page_quotes_the_long_one() -> None:
    """Figures of the guide's summary that runs of the studies change."""
    short = " ".join((PAGE.parents[1] / "validated.md").read_text(encoding="utf-8").split())
    quoted = {"1,306 tests the smallest p": True, "128 to 512": True, "0.999999": True,
              "83% of such collections": True, "1,307 tests": False}  # fmt: skip
    for words, stands in quoted.items():
        assert (words in short) == (words in FLAT) == stands
