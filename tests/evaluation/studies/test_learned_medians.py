"""What ``python -m tests.long_runs.learned_medians`` found, held to what the page says of it."""

import json

import numpy as np
import pytest

from tests.long_runs.learned_medians import GOLDEN, GRID, ROWS, X, medians
from tests.test_vignettes import ROOT

PAGE = ROOT / "vignettes" / "technical" / "studies.md"
FOUND = {line["variant"]: line for line in json.loads(GOLDEN.read_text(encoding="utf-8"))}


def test_losses_that_noise_hides_are_what_biases_medians() -> None:
    learned, exact = FOUND["learned"], FOUND["no noise"]
    split, share = FOUND["split at 0"], FOUND["share 0.15"]
    assert learned["rmse_ratio"] > 1.1
    assert learned["bias"] > exact["bias"]
    assert split["bias"] < 0.7 * learned["bias"]
    assert split["rmse_ratio"] < 1.05
    # More of the budget does not help; nor is it the grid or the smoothing.
    assert abs(share["bias"] - learned["bias"]) < 0.15
    assert FOUND["sample's law"]["bias"] < 0.3
    assert {line["samples"] for line in FOUND.values()} == {100}


@pytest.mark.parametrize("variant", FOUND)
def test_the_page_shows_bias_and_rmse(variant: str) -> None:
    page, line = PAGE.read_text(encoding="utf-8"), FOUND[variant]
    if variant != "sample":
        assert f"| {variant} | {line['bias']:.2f} | {line['rmse_ratio']:.2f} |" in page


def test_medians_of_a_normal_law_on_the_grid_come_back() -> None:
    rng = np.random.default_rng(3)
    cell = rng.integers(0, 8, 40_000)
    place, spread = 1.5 + 0.1 * cell, 0.6
    y = GRID.divisor * np.sinh(place + spread * rng.normal(size=cell.size))
    curve = np.tile((X - 1.85) / 0.65, (4, 1))
    found = medians(y, np.ones(cell.size), cell, curve)
    exact = [GRID.divisor * np.sinh(1.5 + 0.1 * each) for each in range(8)]
    assert found[:8] == pytest.approx(exact, rel=0.03)
    assert found[-1] == pytest.approx(np.median(y), rel=0.02)
    assert len(found) == len(ROWS)
    # A curve that makes z skewed gives other medians, but not with the sample's own law.
    skewed = np.tile(0.2 * np.exp(X), (4, 1))
    wrong, own = (
        medians(y, np.ones(cell.size), cell, skewed, normal=normal) for normal in (True, False)
    )
    assert np.abs(wrong[:8] / exact - 1.0).max() > 0.06
    assert own[:8] == pytest.approx(exact, rel=0.03)
