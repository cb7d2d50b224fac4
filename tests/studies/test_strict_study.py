"""What the documents say of both mechanisms side by side, held against the committed results of
``long_runs/strict_study``."""

import pandas as pd
import pytest

from tests.long_runs.strict_page import BEGIN, END, GOLDEN, PAGE, ROOT, table
from tests.long_runs.strict_study import PARTS

EVERYTHING = pd.read_csv(GOLDEN / "strict_study_summary.csv")
SUMMARY = EVERYTHING[EVERYTHING["setting"] == "main effects"]


def test_the_page_has_the_table_of_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown.splitlines() == table()


@pytest.mark.parametrize(
    ("row", "epsilon", "method"),
    [("`fbs`, noisy statistics", 10.8, "fbs_noisy"), ("`fbs`, noisy statistics", 3.6, "fbs_noisy"),
     ("`fbs`, pseudo-posterior", 3.6, "fbs"), ("Gaussian noise on totals", 3.6, "gaussian")],
)  # fmt: skip
def test_the_numbers_of_the_readme_are_the_results(row: str, epsilon: float, method: str) -> None:
    here = SUMMARY[(SUMMARY["n"] == 1000) & (SUMMARY["epsilon"] == epsilon)]
    found = here[here["method"] == method].set_index("statistic")
    numbers = [found.loc[each, name] for each in ("count", "mean")
               for name in ("rmse_ratio", "coverage")]  # fmt: skip
    line = f"| epsilon {epsilon:g}: {row} | " + " | ".join(f"{each:.2f}" for each in numbers)
    assert line in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("epsilon", [10.8, 3.6])
@pytest.mark.parametrize("method", ["fbs_noisy", "fbp_noisy"])
def test_intervals_cover_and_errors_are_small(epsilon: float, method: str) -> None:
    """Over 100 samples: mean coverage in [.93, .97], no cell below .87; errors at most 1.0 and 1.1
    of the sample's, FBP's within .05 of that; lengths at most 1.05 and 1.3."""
    here = SUMMARY[(SUMMARY["n"] == 1000) & (SUMMARY["epsilon"] == epsilon)]
    found = here[here["method"] == method]
    assert len(found) == 2
    assert found["coverage"].between(0.93, 0.97).all()
    most = {10.8: (1.0, 1.05), 3.6: (1.1, 1.3)}[epsilon]
    assert (found["replicates"] == 100).all()
    assert (found["coverage_min"] >= 0.87).all()
    assert (found["rmse_ratio"] <= most[0] + (0.05 if method == "fbp_noisy" else 0.0)).all()
    assert (found["length_ratio"] <= most[1]).all()
    assert (found["refused"] == 0).all()


def test_noise_without_a_model_is_farther_off() -> None:
    errors = SUMMARY[SUMMARY["n"] == 1000].set_index(["method", "epsilon", "statistic"])
    for statistic in ("count", "mean"):
        for epsilon in (10.8, 3.6):
            model, noise = (errors.loc[(method, epsilon, statistic), "rmse_ratio"]
                            for method in ("fbs_noisy", "gaussian"))  # fmt: skip
            assert noise > 1.1 * model


def test_results_are_of_the_parts_of_the_run() -> None:
    known = {part.name: part.replicates for part in PARTS}
    for name, rows in EVERYTHING.groupby("part"):
        assert rows["replicates"].max() == known[str(name)]


def test_standard_errors_by_unit_are_those_of_the_estimates() -> None:
    """Two-stage samples, effects of clusters: within 10% in the median row."""
    cells = pd.read_csv(GOLDEN / "strict_study_cells.csv", low_memory=False)
    cells = cells[cells["part"].str.contains("two_stages") & (cells["method"] == "fbs_noisy")]
    ratio = (cells["se"] / cells["sd"]).groupby(cells["statistic"]).median()
    assert set(ratio.index) == {"count", "mean"}
    assert ratio.between(0.9, 1.1).all()
