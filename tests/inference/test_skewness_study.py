"""How far means move where residuals are skewed, ``golden/skewness_study.json`` by
``long_runs/skewness_study.py``, against signs and orders that must be; sentences with its figures.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from surveysynth.release.check import SKEWED
from tests.long_runs import skewness_study

ROWS = json.loads(skewness_study.GOLDEN.read_text(encoding="utf-8"))["rows"]
STUDIES = Path(__file__).parents[2] / "vignettes" / "technical" / "studies.md"
SHOWN = STUDIES.read_text(encoding="utf-8")
SETTINGS = [(n, epsilon) for n in skewness_study.NS for epsilon in skewness_study.EPSILONS]


def row(shape, n, epsilon):
    (found,) = (r for r in ROWS if (r["shape"], r["n"], r["epsilon"]) == (shape, n, epsilon))
    return found


def moved(shape, n, epsilon):
    found = row(shape, n, epsilon)
    return found["overall_residual_sds"], found["overall_residual_sds_error"]


def test_every_shape_is_there():
    assert len(ROWS) == len(SETTINGS) * len(skewness_study.SHAPES)
    assert all(each["released"] >= 6 for each in ROWS)


@pytest.mark.parametrize("shape", ["normal", "heavy tails (t, 5 df)"])
@pytest.mark.parametrize(("n", "epsilon"), SETTINGS)
def test_symmetric_residuals_move_no_location(shape, n, epsilon):
    shift, error = moved(shape, n, epsilon)
    assert abs(shift) < 4.0 * error


@pytest.mark.parametrize(("n", "epsilon"), SETTINGS)
def test_skewed_ones_move_away_from_the_longer_tail_and_mirror_images_move_back(n, epsilon):
    for sign in ("", "-"):
        shifts = [moved(f"skewness {sign}{size}", n, epsilon)[0] for size in ("0.5", "1", "2")]
        outward = np.array(shifts) * (1.0 if sign else -1.0)
        assert outward[0] > 0.02
        assert np.all(np.diff(outward) > 0.0)
    for size in ("0.5", "1", "2"):
        (one, e), (other, f) = (moved(f"skewness {s}{size}", n, epsilon) for s in ("", "-"))
        assert abs(one + other) < 4.0 * np.hypot(e, f)


def test_debiasing_brings_scales_of_normal_residuals_back():
    for n, epsilon in SETTINGS:
        normal = row("normal", n, epsilon)
        assert abs(normal["log_scale_debiased"]) < 0.4 * abs(normal["log_scale"])
        assert abs(normal["mean_amount_ses_debiased"]) < 0.3 * abs(normal["mean_amount_ses"])


def test_check_and_the_page_of_studies_have_these_figures():
    for epsilon in skewness_study.EPSILONS:
        shift = moved("skewness 1", 1000, epsilon)[0]
        assert f"{abs(shift):.2f}" in SKEWED
        assert f"epsilon {epsilon:g}" in SKEWED
    head = " | ".join(f"{n:,}, epsilon {epsilon:g}" for n, epsilon in SETTINGS)
    assert f"| residuals | {head} |" in SHOWN
    for shape in skewness_study.SHAPES:
        cells = []
        for n, epsilon in SETTINGS:
            found = row(shape, n, epsilon)
            shift, error = found["overall_residual_sds"], found["mean_amount_ses_debiased"]
            cells.append(f"{shift:.2f}, {error:.2f}")
        line = f"| {shape} | {' | '.join(cells)} |"
        assert line.replace("-0.00", "0.00") in SHOWN, line
